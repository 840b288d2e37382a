"""AMP111: TorchScript drops the autocast decorator."""

from __future__ import annotations

import pytest

from .helpers import rows

FOUND = [
    pytest.param('@torch.autocast("cuda")\ndef f(x):\n    return x @ x\ng = torch.jit.script(f)\n', [4], id="call"),
    pytest.param('@torch.jit.script\n@torch.autocast("cuda")\ndef f(x):\n    return x @ x\n', [1], id="decorator"),
    pytest.param(
        """
        class Net(nn.Module):
            @torch.cuda.amp.autocast()
            def forward(self, x):
                return x @ x
        def export(path):
            torch.jit.script(Net().eval()).save(path)
        """,
        [6],
        id="module",
    ),
]


@pytest.mark.parametrize(("snippet", "want"), FOUND)
def test_found(snippet: str, want: list[int]) -> None:
    assert rows("AMP111", snippet) == want


SILENT = {
    "a with block is kept": """
        class Net(nn.Module):
            def forward(self, x):
                with torch.cuda.amp.autocast(enabled=False):
                    return x @ x
        torch.jit.script(Net()).save("net")
        """,
    "traced": '@torch.autocast("cuda")\ndef f(x):\n    return x @ x\ng = torch.jit.trace(f, torch.ones(2, 2))\n',
    "another function": """
        @torch.autocast("cuda")
        def f(x):
            return x
        def g(x):
            return x
        torch.jit.script(g)
        """,
    "another method": """
        class Net(nn.Module):
            @torch.autocast("cuda")
            def predict(self, x):
                return x
            def forward(self, x):
                return x
        torch.jit.script(Net())
        """,
}


@pytest.mark.parametrize("snippet", SILENT.values(), ids=SILENT)
def test_silent(snippet: str) -> None:
    assert rows("AMP111", snippet) == []
