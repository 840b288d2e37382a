"""AMP107: one autocast object is entered again while it is active."""

from __future__ import annotations

from amplint import check_source, fix_source
from amplint.settings import Settings

from .helpers import cpu, region, run, torch

ONLY = Settings(select=("AMP107",))
SNIPPET = """
import torch

ctx = torch.autocast("cuda", dtype=torch.bfloat16)


def nest():
    with ctx:
        with ctx:
            pass
"""


def _stays_on(text: str) -> bool:
    run(cpu(text))["nest"]()
    enabled = bool(torch.is_autocast_enabled("cpu"))
    torch.set_autocast_enabled("cpu", False)
    return enabled


def test_autocast_stays_on_and_the_fix_removes_that() -> None:
    assert [d.location.row for d in check_source(SNIPPET, "t.py", ONLY)] == [9]
    assert _stays_on(SNIPPET)
    assert not _stays_on(fix_source(SNIPPET, "t.py", ONLY).text)


def test_a_decorated_function_that_calls_itself() -> None:
    def factorial(n: int) -> int:
        return 1 if n < 2 else n * decorated(n - 1)

    decorated = torch.autocast("cpu", dtype=torch.float16)(factorial)
    decorated(3)
    assert (torch.ones(2, 2) @ torch.ones(2, 2)).dtype == torch.float16


def test_one_after_the_other_is_fine() -> None:
    context = region()
    for _ in range(3):
        with context:
            pass
    assert not torch.is_autocast_enabled("cpu")
