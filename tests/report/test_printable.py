from __future__ import annotations

import pytest

from amplint.report.printable import cells, printable


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain `code` [1]", "plain `code` [1]"),
        ("\u00e9\u65e5\U0001f600", "\u00e9\u65e5\U0001f600"),
        ("a\nb\r\tc", "a\\nb\\r\\tc"),
        ("\x1b[31m\x00\x7f\x85", "\\x1b[31m\\x00\\x7f\\x85"),
        ("\u202eabc\u2066\u200b", "\\u202eabc\\u2066\\u200b"),
        ("\ud800\udcff\u2028", "\\ud800\\udcff\\u2028"),
    ],
)
def test_printable(text: str, shown: str) -> None:
    assert printable(text) == shown


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("a\tb", [("a", 1), ("   ", 3), ("b", 1)]),
        ("\t\t", [("    ", 4), ("    ", 4)]),
        ("\u65e5\tx", [("\u65e5", 2), ("  ", 2), ("x", 1)]),
        ("e\u0301", [("e", 1), ("\u0301", 0)]),
        ("\x0c\U0001f600", [("\\x0c", 4), ("\U0001f600", 2)]),
        ("\u202e", [("\\u202e", 6)]),
    ],
)
def test_cells(line: str, expected: list[tuple[str, int]]) -> None:
    assert cells(line) == expected
