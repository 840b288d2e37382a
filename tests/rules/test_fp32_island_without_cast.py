"""AMP105: a region that switches autocast off works on half-precision inputs."""

from __future__ import annotations

import pytest

from .helpers import fixed, lines, rows

FOUND = [
    pytest.param(
        """
        def f(model, x, y, criterion=F.mse_loss):
            with torch.autocast("cuda"):
                out = model(x)
            with torch.autocast("cuda", enabled=False):
                return criterion(out, y.to(out.dtype))
        """,
        [5],
        id="a region after the first",
    ),
    pytest.param(
        """
        def f(model, x):
            with torch.autocast("cuda"):
                h = model(x)
                with torch.autocast("cuda", enabled=False):
                    energy = (h ** 2).sum()
            return energy
        """,
        [5],
        id="nested, arithmetic",
    ),
    pytest.param(
        """
        class T:
            def __init__(self):
                self.head = nn.Linear(2, 2)
            def f(self, x):
                with torch.autocast("cuda", dtype=torch.bfloat16):
                    h = self.encoder(x)
                    with torch.autocast("cuda", enabled=False):
                        a = self.head(h)
                        b = self.head(h)
                return a + b
        """,
        [8],
        id="a layer with float32 weights, reported once",
    ),
    pytest.param(
        """
        class T:
            def f(self, x, y):
                with torch.autocast("cuda"):
                    out = self.model(x)
                with torch.autocast("cuda", enabled=False):
                    return self.criterion(out, y)
        """,
        [6],
        id="a loss that only its name shows",
    ),
    pytest.param(
        """
        def f(model, x):
            with torch.cuda.amp.autocast():
                h = model(x)
                with torch.cuda.amp.autocast(False):
                    return torch.exp(h[:, 0])
        """,
        [5],
        id="a function of torch, off by position",
    ),
]


@pytest.mark.parametrize(("snippet", "want"), FOUND)
def test_found(snippet: str, want: list[int]) -> None:
    assert rows("AMP105", snippet) == want


SILENT = {
    "cast": """
        def f(model, x, y):
            with torch.autocast("cuda"):
                out = model(x)
            with torch.autocast("cuda", enabled=False):
                return F.mse_loss(out.float(), y)
        """,
    "cast to a name": """
        def f(model, x, y):
            with torch.autocast("cuda"):
                out = model(x)
                with torch.autocast("cuda", enabled=False):
                    out = out.float()
                    return F.mse_loss(out, y)
        """,
    "parameters aren't judged": """
        @torch.autocast("cuda", enabled=False)
        def f(x, y):
            return F.mse_loss(x, y) + (x ** 2).sum()
        """,
    "a loss elsewhere, which may cast": """
        from losses import discriminator_loss
        def f(net_d, x):
            with torch.autocast("cuda"):
                real, fake = net_d(x)
                with torch.autocast("cuda", enabled=False):
                    return discriminator_loss(real, fake)
        """,
    "only its shape": """
        def f(model, x):
            with torch.autocast("cuda"):
                h = model(x)
                with torch.autocast("cuda", enabled=False):
                    return torch.zeros(h.shape)
        """,
    "nothing ran in half precision": """
        def f(model, x, y):
            out = model(x)
            with torch.autocast("cuda", enabled=False):
                return F.mse_loss(out, y)
        """,
    "a flag that may be on": """
        def f(model, x, y, amp):
            with torch.autocast("cuda"):
                out = model(x)
            with torch.autocast("cuda", enabled=amp):
                return F.mse_loss(out, y)
        """,
    "the module casts its inputs": """
        def f(model, x, y):
            with torch.autocast("cuda"):
                out = model(x)
                with torch.autocast("cuda", enabled=False):
                    return postprocess(out, y)
        """,
}


@pytest.mark.parametrize("snippet", SILENT.values(), ids=SILENT)
def test_silent(snippet: str) -> None:
    assert rows("AMP105", snippet) == []


def test_fix_casts_the_input() -> None:
    before = """
        def f(model, x, y):
            with torch.autocast("cuda"):
                out = model(x)
                with torch.autocast("cuda", enabled=False):
                    return F.cross_entropy(out[:, 0], y)
        """
    after = """
        def f(model, x, y):
            with torch.autocast("cuda"):
                out = model(x)
                with torch.autocast("cuda", enabled=False):
                    return F.cross_entropy(out[:, 0].float(), y)
        """
    assert fixed("AMP105", before) == lines(after)
