"""AMP103: the model runs in the region, its loss after it."""

from __future__ import annotations

import pytest

from .helpers import fixed, lines, rows

FOUND = [
    pytest.param(
        """
        def f(model, x, y, loss_fn=nn.CrossEntropyLoss()):
            with torch.autocast("cuda", dtype=torch.float16):
                out = model(x)
            return loss_fn(out, y)
        """,
        [4],
        id="parameter's default",
    ),
    pytest.param(
        """
        def f(net, x, y):
            with torch.cuda.amp.autocast():
                logits, hidden = net(x)
            return F.nll_loss(logits.view(-1, 10), y.view(-1))
        """,
        [4],
        id="one of several outputs, seen through a view",
    ),
    pytest.param(
        """
        class Trainer:
            def step(self, x, y):
                with torch.autocast("cuda", enabled=self.amp):
                    out = self.model(x)
                loss = self.criterion(out, y)
                loss.backward()
        """,
        [5],
        id="known by its name only",
    ),
    pytest.param(
        """
        def f(model, x, y):
            with torch.autocast("cuda"):
                out = model(x)
            return F.mse_loss(out, y.half())
        """,
        [4],
        id="half target, so nothing is promoted",
    ),
    pytest.param(
        """
        def f(student, teacher, x):
            with torch.autocast("cuda"):
                a = student(x)
                b = teacher(x)
            return F.mse_loss(a, b)
        """,
        [5],
        id="two outputs",
    ),
]


@pytest.mark.parametrize(("snippet", "want"), FOUND)
def test_found(snippet: str, want: list[int]) -> None:
    assert rows("AMP103", snippet) == want


SILENT = {
    "inside": """
        def f(model, x, y):
            with torch.autocast("cuda"):
                return F.cross_entropy(model(x), y)
        """,
    "cast at the call": """
        def f(model, x, y):
            with torch.autocast("cuda"):
                out = model(x)
            return F.cross_entropy(out.float(), y)
        """,
    "cast before": """
        def f(model, x, y):
            with torch.autocast("cuda"):
                out = model(x)
            out = out.to(torch.float32)
            return F.cross_entropy(out, y)
        """,
    "cast in the region": """
        def f(model, x, y):
            with torch.autocast("cuda"):
                out = model(x).float()
            return F.cross_entropy(out, y)
        """,
    "the model casts": """
        class Net(nn.Module):
            def forward(self, x):
                return x.float()
        def f(x, y):
            net = Net()
            with torch.autocast("cuda"):
                out = net(x)
            return F.cross_entropy(out, y)
        """,
    "float32 target: promoted": """
        def f(model, x, y):
            with torch.autocast("cuda"):
                out = model(x)
            return F.mse_loss(out, y)
        """,
    "a loss of its own, which may cast": """
        from losses import focal_loss
        def f(model, x, y):
            with torch.autocast("cuda"):
                out = model(x)
            return focal_loss(out, y)
        """,
    "autocast off": """
        def f(model, x, y):
            with torch.autocast("cuda", enabled=False):
                out = model(x)
            return F.cross_entropy(out, y)
        """,
    "the other arm has no autocast": """
        def f(model, x, y, amp):
            if amp:
                with torch.autocast("cuda"):
                    out = model(x)
            else:
                out = model(x)
            return F.cross_entropy(out, y)
        """,
    "in a second region": """
        def f(model, x, y):
            with torch.autocast("cuda"):
                out = model(x)
            with torch.autocast("cuda"):
                return F.cross_entropy(out, y)
        """,
    "a helper that is called in a region": """
        def loss(out, y):
            return F.cross_entropy(out, y)
        def f(model, x, y):
            with torch.autocast("cuda"):
                out = model(x)
                return loss(out, y)
        """,
    "bfloat16 evaluation": """
        @torch.no_grad()
        def f(model, x, y):
            with torch.autocast("cuda", dtype=torch.bfloat16):
                out = model(x)
            return F.cross_entropy(out, y)
        """,
    "dtype not in view": """
        def f(model, x, y, dtype):
            with torch.autocast("cuda", dtype=dtype):
                out = model(x)
            return F.cross_entropy(out, y)
        """,
    "not a model's output": """
        def f(model, x, y):
            with torch.autocast("cuda"):
                out = gather(x)
            return F.cross_entropy(out, y)
        """,
}


@pytest.mark.parametrize("snippet", SILENT.values(), ids=SILENT)
def test_silent(snippet: str) -> None:
    assert rows("AMP103", snippet) == []


def test_fix_casts_the_output() -> None:
    before = """
        def f(model, x, y):
            with torch.autocast("cuda"):
                out = model(x)
            return F.cross_entropy(out.view(-1, 10), y)
        """
    after = """
        def f(model, x, y):
            with torch.autocast("cuda"):
                out = model(x)
            return F.cross_entropy(out.view(-1, 10).float(), y)
        """
    assert fixed("AMP103", before) == lines(after)
    assert rows("AMP103", after) == []


def test_output_that_a_helper_returns_from_its_region() -> None:
    snippet = """
        class Task:
            def predict(self, x):
                with torch.autocast("cuda"):
                    return self.model(x)
            def loss(self, x, y):
                out = self.predict(x)
                return F.cross_entropy(out, y)
        """
    assert rows("AMP103", snippet) == [7]
    assert rows("AMP103", snippet.replace("self.model(x)", "self.model(x).float()")) == []
    assert rows("AMP103", snippet.replace("self.predict(x)", "self.predict(x).float()")) == []
