"""Deep recursion works, and what is deeper still is an exception."""

from __future__ import annotations

import ast
import sys

import pytest

from amplint.stack import call_with_deep_stack


def depth(level: int) -> int:
    return level if level == 0 else 1 + depth(level - 1)


def test_the_result_comes_back() -> None:
    assert call_with_deep_stack(lambda: 42) == 42


@pytest.mark.parametrize("error", [ValueError, SystemExit, KeyboardInterrupt])
def test_an_exception_comes_back(error: type[BaseException]) -> None:
    def fail() -> None:
        raise error("here")

    with pytest.raises(error, match="here"):
        call_with_deep_stack(fail)


def test_recursion_goes_deeper_than_usual() -> None:
    assert call_with_deep_stack(lambda: depth(15_000)) == 15_000


def test_too_deep_is_an_exception_and_no_crash() -> None:
    with pytest.raises(RecursionError):
        call_with_deep_stack(lambda: depth(10**9))


@pytest.mark.parametrize("text", ["+".join(["a"] * 10**5), "-" * 10**5 + "a", "a" + ".b" * 10**5, "(" * 10**5])
def test_no_text_crashes_the_parser(text: str) -> None:
    try:
        outcome = type(call_with_deep_stack(lambda: ast.parse(text))).__name__
    except (SyntaxError, RecursionError, MemoryError):
        outcome = "refused"
    assert outcome in ("Module", "refused")


def test_the_limit_is_as_before_afterwards() -> None:
    before = sys.getrecursionlimit()
    call_with_deep_stack(lambda: None)
    assert sys.getrecursionlimit() == before
