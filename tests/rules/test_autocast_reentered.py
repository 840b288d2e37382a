"""AMP107: one autocast object is entered again while it is active."""

from __future__ import annotations

import pytest

from .helpers import fixed, lines, rows

NESTED = """
ctx = torch.autocast("cuda", dtype=torch.bfloat16)
def f(m, x):
    with ctx:
        a = m(x)
        with ctx:
            return m(a)
"""

FOUND = [
    pytest.param(NESTED, [5], id="nested"),
    pytest.param(
        """
        class T:
            def __init__(self):
                self.ctx = torch.autocast("cuda")
            def outer(self, x):
                with self.ctx:
                    return self.inner(x)
            def inner(self, x):
                with self.ctx:
                    return self.net(x)
        """,
        [8],
        id="through a method",
    ),
    pytest.param(
        """
        ctx = torch.autocast("cuda")
        def inner(m, x):
            with ctx:
                return m(x)
        def middle(m, x):
            return inner(m, x)
        def outer(m, x):
            with ctx:
                return middle(m, x)
        """,
        [3],
        id="through two functions",
    ),
    pytest.param(
        """
        @torch.autocast("cuda")
        def walk(node, x):
            for child in node.children:
                x = walk(child, x)
            return x
        """,
        [1],
        id="a decorated function that calls itself",
    ),
    pytest.param(
        """
        class Block(nn.Module):
            def __init__(self, inner=None):
                self.inner = inner
            @torch.autocast("cuda")
            def forward(self, x):
                return self.inner(x) if self.inner else x
        net = Block(Block())
        """,
        [4],
        id="a decorated module in a module of its class",
    ),
]


@pytest.mark.parametrize(("snippet", "want"), FOUND)
def test_found(snippet: str, want: list[int]) -> None:
    assert rows("AMP107", snippet) == want


SILENT = {
    "one after the other": """
        ctx = torch.autocast("cuda")
        def f(m, x):
            with ctx:
                a = m(x)
            with ctx:
                return m(a)
        """,
    "two objects": NESTED.replace("        with ctx", '        with torch.autocast("cuda")'),
    "made anew by a partial": """
        from functools import partial
        ctx = partial(torch.autocast, "cuda")
        def f(m, x):
            with ctx():
                with ctx():
                    return m(x)
        """,
    "made anew by a function": """
        def ctx():
            return torch.autocast("cuda")
        def f(m, x):
            with ctx():
                with ctx():
                    return m(x)
        """,
    "perhaps no autocast": """
        from contextlib import nullcontext
        ctx = torch.autocast("cuda") if gpu else nullcontext()
        def f(m, x):
            with ctx:
                with ctx:
                    return m(x)
        """,
    "the other object's attribute": """
        class T:
            def __init__(self, other):
                self.ctx = torch.autocast("cuda")
                self.other = T(None)
            def f(self, x):
                with self.ctx:
                    return self.other.g(x)
            def g(self, x):
                with self.ctx:
                    return x
        """,
    "two decorated methods": """
        class T:
            @torch.autocast("cuda")
            def f(self, x):
                return self.g(x)
            @torch.autocast("cuda")
            def g(self, x):
                return x
        """,
}


@pytest.mark.parametrize("snippet", SILENT.values(), ids=SILENT)
def test_silent(snippet: str) -> None:
    assert rows("AMP107", snippet) == []


def test_fix_makes_a_new_object() -> None:
    after = NESTED.replace("        with ctx", '        with torch.autocast("cuda", dtype=torch.bfloat16)')
    assert fixed("AMP107", NESTED) == lines(after)


def test_arguments_that_mean_something_else_elsewhere_stay() -> None:
    snippet = NESTED.replace("torch.bfloat16", "dtype")
    assert rows("AMP107", snippet) == [5]
    assert fixed("AMP107", snippet) == lines(snippet)
