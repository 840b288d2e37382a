"""AMP405: constants that float16 can't hold."""

from __future__ import annotations

import pytest

from .helpers import fixed, lines, rows

MASK = """
def f(q, k, mask):
    with torch.autocast("cuda"):
        scores = torch.matmul(q, k.transpose(-2, -1)) / 8.0
        scores = scores.masked_fill(mask, -1e9)
        return scores
"""

EPS = """
def f(w, x):
    with torch.autocast("cuda", dtype=torch.float16):
        p = torch.sigmoid(x @ w)
        return torch.log(p + 1e-8)
"""

FOUND = [
    pytest.param(MASK, [4], id="masked_fill"),
    pytest.param(MASK.replace("masked_fill(mask, -1e9)", "masked_fill_(mask, value=-100000)"), [4], id="in place"),
    pytest.param(MASK.replace("scores.masked_fill(mask, -1e9)", "torch.where(mask, scores, -1e9)"), [4], id="where"),
    pytest.param(MASK.replace("masked_fill(mask, -1e9)", "clamp(min=-1e9)"), [4], id="clamp"),
    pytest.param(MASK.replace("torch.matmul(q, k.transpose(-2, -1))", "(q @ k)"), [4], id="operator"),
    pytest.param(MASK.replace("torch.matmul(q, k.transpose(-2, -1))", 'torch.einsum("bd,cd", q, k)'), [4], id="einsum"),
    pytest.param(MASK.replace("mask, -1e9", "mask, NEG") + "NEG = -1e9\n", [4], id="a constant by name"),
    pytest.param(MASK.replace("scores = scores.masked_fill(mask, -1e9)", "scores[mask] = -1e9"), [4], id="stored"),
    pytest.param(
        MASK.replace("scores = scores.masked_fill(mask, -1e9)", "scores[:, 0] = NEG") + "NEG = -1e9\n",
        [4],
        id="stored by name",
    ),
    pytest.param(EPS, [4], id="log"),
    pytest.param(EPS.replace("torch.log(p + 1e-8)", "x / (p + 1e-12)"), [4], id="divisor"),
    pytest.param(EPS.replace("torch.log(p + 1e-8)", "(1e-10 + p).log()"), [4], id="method"),
    pytest.param(EPS.replace("(w, x)", "(w, x, eps=1e-8)").replace("p + 1e-8", "p + eps"), [4], id="a default"),
    pytest.param(
        """
        class Attention(nn.Module):
            def __init__(self):
                self.q = nn.Linear(4, 4)
            def forward(self, x, mask):
                scores = self.q(x).transpose(0, 1)
                return scores.masked_fill(mask == 0, -1e10)
        def f(x, mask):
            net = Attention()
            with torch.autocast("cuda"):
                return net(x, mask)
        """,
        [6],
        id="in a module that is called in a region",
    ),
]


@pytest.mark.parametrize(("snippet", "want"), FOUND)
def test_found(snippet: str, want: list[int]) -> None:
    assert rows("AMP405", snippet) == want


SILENT = {
    "bfloat16": MASK.replace('"cuda"', '"cuda", dtype=torch.bfloat16'),
    "the dtype is not in view": MASK.replace('"cuda"', '"cuda", dtype=dtype'),
    "off unless asked for": MASK.replace("mask):", "mask, amp=False):").replace('"cuda"', '"cuda", enabled=amp'),
    "stored, and it fits": MASK.replace("scores = scores.masked_fill(mask, -1e9)", "scores[mask] = -1e4"),
    "stored in a mask of its own": MASK.replace("scores = scores.masked_fill(mask, -1e9)", "mask[0] = -1e9"),
    "stored in float32 scores": MASK.replace(") / 8.0", ").float()").replace(
        "scores = scores.masked_fill(mask, -1e9)", "scores[mask] = -1e9"
    ),
    "it fits": MASK.replace("-1e9", "-1e4"),
    "the smallest float16": MASK.replace("-1e9", "-65504.0"),
    "minus infinity": MASK.replace("-1e9", 'float("-inf")'),
    "float32 scores": MASK.replace(") / 8.0", ").float()"),
    "a parameter, which may be float32": """
        def f(scores, mask):
            with torch.autocast("cuda"):
                return scores.masked_fill(mask, -1e9)
        """,
    "outside": """
        def f(q, k, mask):
            scores = q @ k
            return scores.masked_fill(mask, -1e9)
        """,
    "softmax is float32 on CUDA": """
        def f(q, k, mask):
            with torch.autocast("cuda"):
                p = (q @ k).softmax(-1)
                return torch.log(p + 1e-8)
        """,
    "promoted by a mask of its own": """
        def f(q, k, mask):
            with torch.autocast("cuda"):
                scores = q @ k + mask
                return scores.masked_fill(mask, -1e9)
        """,
    "eps is large enough": EPS.replace("1e-8", "1e-6"),
    "eps does not guard anything": EPS.replace("torch.log(p + 1e-8)", "p + 1e-8"),
    "a size, not a dtype": MASK.replace("masked_fill(mask, -1e9)", "reshape(100000, 1)"),
}


@pytest.mark.parametrize("snippet", SILENT.values(), ids=SILENT)
def test_silent(snippet: str) -> None:
    assert rows("AMP405", snippet) == []


@pytest.mark.parametrize(
    ("snippet", "before", "after"),
    [
        (MASK, "-1e9", "torch.finfo(scores.dtype).min"),
        (
            MASK.replace("scores = scores.masked_fill(mask, -1e9)", "scores[mask] = -1e9"),
            "-1e9",
            "torch.finfo(scores.dtype).min",
        ),
        (MASK.replace("-1e9", "1e9"), "1e9", "torch.finfo(scores.dtype).max"),
        (EPS, "1e-8", "1e-6"),
    ],
)
def test_fix(snippet: str, before: str, after: str) -> None:
    assert fixed("AMP405", snippet) == lines(snippet.replace(before, after))
