"""AMP106: the weight cache of a forward without gradients serves a forward with them."""

from __future__ import annotations

import pytest

from amplint import check_source
from amplint.model import Level
from amplint.settings import Settings

from .helpers import HEADER, fixed, lines, rows

PAIR = """
def f(model, x):
    with torch.autocast("cuda"):
        with torch.no_grad():
            a = model(x)
        b = model(x)
    return a + b
"""

FOUND = [
    pytest.param(PAIR, [5], id="no_grad"),
    pytest.param(PAIR.replace("no_grad", "inference_mode"), [5], id="inference mode"),
    pytest.param(PAIR.replace("model", "self").replace("self(", "self.net("), [5], id="attribute"),
    pytest.param(PAIR.replace("torch.no_grad()", "torch.set_grad_enabled(False)"), [5], id="set_grad_enabled"),
    pytest.param(
        """
        @torch.cuda.amp.autocast()
        def loss(net, x):
            with torch.no_grad():
                target = net(x).detach()
            return (net(x) - target).pow(2).mean()
        """,
        [5],
        id="decorated function",
    ),
]


@pytest.mark.parametrize(("snippet", "want"), FOUND)
def test_found(snippet: str, want: list[int]) -> None:
    assert rows("AMP106", snippet) == want


SILENT = {
    "two models": PAIR.replace("a = model", "a = teacher"),
    "the cache is off": PAIR.replace('"cuda"', '"cuda", cache_enabled=False'),
    "the cache is cleared": PAIR.replace("        b =", "        torch.clear_autocast_cache()\n        b ="),
    "autocast is off": PAIR.replace('"cuda"', '"cuda", enabled=False'),
    "gradients first": """
        def f(model, x):
            with torch.autocast("cuda"):
                b = model(x)
                with torch.no_grad():
                    a = model(x)
            return a + b
        """,
    "two regions": """
        def f(model, x):
            with torch.no_grad(), torch.autocast("cuda"):
                a = model(x)
            with torch.autocast("cuda"):
                return a + model(x)
        """,
    "no gradients at all": "@torch.no_grad()\n" + PAIR.lstrip("\n"),
    "either or": """
        def f(model, x, frozen):
            with torch.autocast("cuda"):
                if frozen:
                    with torch.no_grad():
                        out = model(x)
                else:
                    out = model(x)
            return out
        """,
}


@pytest.mark.parametrize("snippet", SILENT.values(), ids=SILENT)
def test_silent(snippet: str) -> None:
    assert rows("AMP106", snippet) == []


@pytest.mark.parametrize(
    ("target", "want"),
    [((2, 10), [Level.ERROR]), ((1, 13), [Level.ERROR]), (None, [Level.WARNING]), ((2, 11), []), ((2, 15), [])],
)
def test_the_oldest_torch_decides(target: tuple[int, int] | None, want: list[Level]) -> None:
    settings = Settings(select=("AMP106",), target_torch=target)
    assert [d.level for d in check_source(HEADER + PAIR, "t.py", settings)] == want


def test_fix_switches_the_cache_off() -> None:
    assert fixed("AMP106", PAIR) == lines(PAIR.replace('"cuda"', '"cuda", cache_enabled=False'))
