"""AMP109: a generator is suspended inside an autocast region."""

from __future__ import annotations

import pytest

from .helpers import rows

FOUND = [
    pytest.param(
        """
        def f(model, loader):
            with torch.autocast("cuda"):
                for x in loader:
                    yield model(x)
        """,
        [4],
        id="with",
    ),
    pytest.param(
        """
        @torch.autocast("cuda", dtype=torch.bfloat16)
        def f(model, loader):
            yield from map(model, loader)
        """,
        [1],
        id="decorator",
    ),
    pytest.param(
        """
        async def f(model, loader):
            async for x in loader:
                with torch.no_grad(), torch.cuda.amp.autocast():
                    yield model(x)
        """,
        [4],
        id="asynchronous generator",
    ),
]


@pytest.mark.parametrize(("snippet", "want"), FOUND)
def test_found(snippet: str, want: list[int]) -> None:
    assert rows("AMP109", snippet) == want


SILENT = {
    "after the region": """
        def f(model, loader):
            for x in loader:
                with torch.autocast("cuda"):
                    out = model(x)
                yield out
        """,
    "a context manager": """
        from contextlib import contextmanager
        @contextmanager
        def amp():
            with torch.autocast("cuda"):
                yield
        """,
    "an asynchronous context manager": """
        import contextlib
        @contextlib.asynccontextmanager
        async def amp():
            with torch.autocast("cuda"):
                yield
        """,
    "a fixture": """
        import pytest
        @pytest.fixture(scope="module")
        def amp():
            with torch.autocast("cuda"):
                yield
        """,
    "a flag": """
        def f(model, loader, amp=True):
            for x in loader:
                with torch.autocast("cuda", enabled=amp):
                    yield model(x)
        """,
    "off": """
        def f(model, loader):
            with torch.autocast("cuda", enabled=False):
                yield 1
        """,
    "a generator inside is suspended elsewhere": """
        def f(model, loader):
            with torch.autocast("cuda"):
                def late():
                    yield 1
                out = (model(x) for x in loader)
                return list(out)
        """,
    "a region that turns it off inside": """
        def f(model):
            with torch.autocast("cuda"):
                with torch.autocast("cuda", enabled=False):
                    yield 1
        """,
}


@pytest.mark.parametrize("snippet", SILENT.values(), ids=SILENT)
def test_silent(snippet: str) -> None:
    assert rows("AMP109", snippet) == []
