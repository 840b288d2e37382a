from __future__ import annotations

import pytest

from amplint.model import Location, TextEdit
from amplint.report.fix_preview import Change, changes

LINES = ["one", "two", "three", "four", ""]


def edits(*parts: tuple[tuple[int, int], tuple[int, int], str]) -> list[TextEdit]:
    return [TextEdit(Location(*start), Location(*end), text) for start, end, text in parts]


@pytest.mark.parametrize(
    ("parts", "expected"),
    [
        ([((2, 1), (2, 4), "TWO")], [Change(2, ["two"], 2, ["TWO"])]),
        ([((2, 1), (2, 1), "new\n")], [Change(2, [], 2, ["new"])]),
        ([((2, 1), (2, 1), "a\r\nb\r\n")], [Change(2, [], 2, ["a", "b"])]),
        ([((2, 1), (3, 1), "")], [Change(2, ["two"], 2, [])]),
        ([((1, 4), (3, 6), "")], [Change(2, ["two", "three"], 2, [])]),
        ([((1, 2), (3, 2), "X")], [Change(1, ["one", "two", "three"], 1, ["oXhree"])]),
        (
            [((1, 1), (1, 1), "zero\n"), ((4, 1), (4, 5), "FOUR")],
            [Change(1, [], 1, ["zero"]), Change(4, ["four"], 5, ["FOUR"])],
        ),
        (
            [((3, 3), (3, 4), "R"), ((3, 1), (3, 2), "T")],
            [Change(3, ["three"], 3, ["ThRee"])],
        ),
        ([((5, 1), (5, 1), "five")], [Change(5, [""], 5, ["five"])]),
        ([((2, 1), (2, 4), "two")], []),
        ([], []),
    ],
)
def test_changes(parts: list[tuple[tuple[int, int], tuple[int, int], str]], expected: list[Change]) -> None:
    assert changes(LINES, edits(*parts)) == expected


@pytest.mark.parametrize(
    "parts",
    [
        [((1, 1), (1, 3), "a"), ((1, 2), (1, 4), "b")],
        [((6, 1), (6, 1), "a")],
        [((1, 9), (1, 9), "a")],
        [((2, 1), (1, 1), "a")],
        [((0, 1), (1, 1), "a")],
    ],
    ids=["overlap", "row", "column", "backwards", "zero"],
)
def test_edits_that_do_not_fit(parts: list[tuple[tuple[int, int], tuple[int, int], str]]) -> None:
    assert changes(LINES, edits(*parts)) == []
