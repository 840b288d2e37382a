"""AMP113: the compiled backward of a float32 island runs under the outer autocast."""

from __future__ import annotations

import pytest

from amplint import check_source
from amplint.settings import Settings

from .helpers import HEADER, rows

BLOCK = """
@torch.compile
def block(x, w):
    with torch.autocast("cuda", enabled=False):
        return x.float() @ w
def f(x, w):
    with torch.autocast("cuda"):
        return block(x, w)
"""

FOUND = [
    pytest.param(BLOCK, [7], id="decorator"),
    pytest.param(
        BLOCK.replace("@torch.compile\n", "").replace("block(x, w)\n", "fast(x, w)\n")
        + "fast = torch.compile(block)\n",
        [6],
        id="call",
    ),
    pytest.param(
        """
        class Net(nn.Module):
            def forward(self, x):
                return self.norm(x)
            @torch.autocast("cuda", enabled=False)
            def norm(self, x):
                return x.float().norm()
        def f(x):
            net = torch.compile(Net())
            with torch.autocast("cuda"):
                return net(x)
        """,
        [10],
        id="module",
    ),
]


@pytest.mark.parametrize(("snippet", "want"), FOUND)
def test_found(snippet: str, want: list[int]) -> None:
    assert rows("AMP113", snippet) == want


SILENT = {
    "eager": BLOCK.replace("@torch.compile\n", ""),
    "no island": BLOCK.replace(", enabled=False", ""),
    "no region around": BLOCK.replace('torch.autocast("cuda"):', "torch.no_grad():"),
}


@pytest.mark.parametrize("snippet", SILENT.values(), ids=SILENT)
def test_silent(snippet: str) -> None:
    assert rows("AMP113", snippet) == []


def test_off_by_default() -> None:
    assert "AMP113" not in {d.code for d in check_source(HEADER + BLOCK, "t.py", Settings())}
