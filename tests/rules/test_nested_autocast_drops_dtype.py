"""AMP110: an inner region goes back to the default dtype."""

from __future__ import annotations

import pytest

from .helpers import fixed, lines, rows

NESTED = """
def f(model, head, x):
    with torch.autocast("cuda", dtype=torch.bfloat16):
        h = model(x)
        with torch.cuda.amp.autocast():
            return head(h)
"""

FOUND = [
    pytest.param(NESTED, [4], id="the old class"),
    pytest.param(NESTED.replace("autocast():", "autocast(enabled=True):"), [4], id="with a flag"),
    pytest.param(
        """
        class Head(nn.Module):
            @torch.autocast("cuda")
            def forward(self, x):
                return x
        def f(model, x):
            head = Head()
            with torch.autocast("cuda", dtype=torch.bfloat16):
                return head(model(x))
        """,
        [2],
        id="decorators are constructed outside",
    ),
    pytest.param(
        """
        inner = torch.autocast("cuda")
        def f(model, x):
            with torch.autocast("cuda", dtype=torch.bfloat16):
                with inner:
                    return model(x)
        """,
        [1],
        id="held by the module",
    ),
    pytest.param(
        NESTED.replace(
            'torch.autocast("cuda", dtype=torch.bfloat16)', 'torch.autocast("cpu", dtype=torch.float16)'
        ).replace("torch.cuda.amp", "torch.cpu.amp"),
        [4],
        id="on the CPU the default is bfloat16",
    ),
]


@pytest.mark.parametrize(("snippet", "want"), FOUND)
def test_found(snippet: str, want: list[int]) -> None:
    assert rows("AMP110", snippet) == want


SILENT = {
    "the new class inherits": NESTED.replace("torch.cuda.amp.autocast()", 'torch.autocast("cuda")'),
    "constructed inside inherits": """
        def f(model, x):
            with torch.autocast("cuda", dtype=torch.bfloat16):
                inner = torch.autocast("cuda")
                with inner:
                    return model(x)
        """,
    "the same dtype": NESTED.replace("bfloat16", "float16"),
    "it says its dtype": NESTED.replace("amp.autocast()", "amp.autocast(dtype=torch.float16)"),
    "off": NESTED.replace("amp.autocast()", "amp.autocast(enabled=False)"),
    "the outer one is off": NESTED.replace("bfloat16)", "bfloat16, enabled=False)"),
    "another device": NESTED.replace('"cuda"', '"cpu"').replace("bfloat16", "float16"),
    "the outer dtype is not in view": NESTED.replace("torch.bfloat16", "dtype"),
    "not nested": """
        def f(model, x):
            with torch.autocast("cuda", dtype=torch.bfloat16):
                h = model(x)
            with torch.cuda.amp.autocast():
                return model(h)
        """,
}


@pytest.mark.parametrize("snippet", SILENT.values(), ids=SILENT)
def test_silent(snippet: str) -> None:
    assert rows("AMP110", snippet) == []


def test_fix_asks_for_the_same() -> None:
    assert fixed("AMP110", NESTED) == lines(NESTED.replace("autocast():", "autocast(dtype=torch.bfloat16):"))
