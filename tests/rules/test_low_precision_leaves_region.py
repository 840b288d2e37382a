"""AMP406: a half-precision output meets something that rejects it."""

from __future__ import annotations

import pytest

from .helpers import fixed, lines, rows

NUMPY = """
def f(model, x):
    with torch.no_grad(), torch.autocast("cuda", dtype=torch.bfloat16):
        out = model(x)
    return out.detach().cpu().numpy()
"""

FOUND = [
    pytest.param(NUMPY, [4], id="numpy"),
    pytest.param(NUMPY.replace('"cuda", dtype=torch.bfloat16', '"cpu"'), [4], id="the default on the CPU"),
    pytest.param(NUMPY.replace("out.detach()", "torch.sigmoid(out)"), [4], id="an activation outside"),
    pytest.param(NUMPY.replace("out.detach()", "out[:, 0]"), [4], id="an element"),
    pytest.param(NUMPY.replace("out = ", "out, _ = "), [4], id="one of several outputs"),
    pytest.param(
        """
        class T:
            def __init__(self):
                self.head = nn.Linear(4, 4)
            def f(self, x):
                with torch.autocast("cuda"):
                    h = self.encoder(x)
                return self.head(h)
        """,
        [7],
        id="a layer with float32 weights",
    ),
    pytest.param(
        """
        def f(model, x, index):
            total = torch.zeros(4, 4)
            with torch.autocast("cuda"):
                out = model(x)
            total.index_add_(0, index, out)
            return total
        """,
        [5],
        id="added into a float32 buffer",
    ),
]


@pytest.mark.parametrize(("snippet", "want"), FOUND)
def test_found(snippet: str, want: list[int]) -> None:
    assert rows("AMP406", snippet) == want


SILENT = {
    "numpy has float16": NUMPY.replace("bfloat16", "float16"),
    "cast": NUMPY.replace("out.detach()", "out.float()"),
    "cast at the end": NUMPY.replace(".cpu()", ".cpu().float()"),
    "cast in the region": NUMPY.replace("model(x)", "model(x).float()"),
    "the dtype is not in view": NUMPY.replace("torch.bfloat16", "dtype"),
    "indices": NUMPY.replace("out.detach()", "out.argmax(1)"),
    "an element as a number": NUMPY.replace(".cpu().numpy()", ".mean().item()"),
    "not a model's output": NUMPY.replace("model(x)", "load(x)"),
    "off": NUMPY.replace("bfloat16)", "bfloat16, enabled=False)"),
    "a buffer of the same dtype": """
        def f(model, x, index):
            with torch.autocast("cuda"):
                out = model(x)
            total = torch.zeros(4, 4, dtype=out.dtype)
            total.index_add_(0, index, out)
            return total
        """,
    "the layer runs in the region": """
        class T:
            def __init__(self):
                self.head = nn.Linear(4, 4)
            def f(self, x):
                with torch.autocast("cuda"):
                    h = self.encoder(x)
                    return self.head(h)
        """,
    "rebound": NUMPY.replace("    return", "    out = other(x)\n    return"),
}


DIRECT = """
@torch.inference_mode()
def f(model, loader):
    with torch.autocast("cuda", dtype=torch.bfloat16):
        return [model(x).cpu().numpy() for x in loader]
"""


def test_an_output_without_a_name() -> None:
    assert rows("AMP406", DIRECT) == [4]
    assert fixed("AMP406", DIRECT) == lines(DIRECT.replace("model(x)", "model(x).float()"))


@pytest.mark.parametrize("snippet", SILENT.values(), ids=SILENT)
def test_silent(snippet: str) -> None:
    assert rows("AMP406", snippet) == []


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("out.detach().cpu().numpy()", "out.float().detach().cpu().numpy()"),
        ("torch.sigmoid(out).cpu().numpy()", "torch.sigmoid(out.float()).cpu().numpy()"),
        ("out[:, 0].cpu().numpy()", "out.float()[:, 0].cpu().numpy()"),
    ],
)
def test_fix_casts_the_output(before: str, after: str) -> None:
    whole = "out.detach().cpu().numpy()"
    assert fixed("AMP406", NUMPY.replace(whole, before)) == lines(NUMPY.replace(whole, after))
