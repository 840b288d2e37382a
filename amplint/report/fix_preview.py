"""The lines that a fix would change, before and after."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

from amplint.lines import split_lines
from amplint.model import TextEdit


class Change(NamedTuple):
    """Lines that are replaced: from `row` in the old text, from `new_row` in the new one; either list may be empty."""

    row: int
    old: list[str]
    new_row: int
    new: list[str]


def changes(lines: Sequence[str], edits: Sequence[TextEdit]) -> list[Change]:
    """What edits do to the lines of a text; empty where they overlap or do not fit the text."""
    ordered = sorted(edits, key=lambda edit: (edit.location, edit.end_location))
    if not all(_fits(edit, lines) for edit in ordered) or any(
        earlier.end_location > later.location for earlier, later in pairwise(ordered)
    ):
        return []
    found: list[Change] = []
    shift = 0
    for group in _groups(ordered):
        change = _change(lines, group, shift)
        shift += len(change.new) - len(change.old)
        if change.old or change.new:
            found.append(change)
    return found


def _fits(edit: TextEdit, lines: Sequence[str]) -> bool:
    return edit.location <= edit.end_location and all(
        1 <= row <= len(lines) and 1 <= column <= len(lines[row - 1]) + 1
        for row, column in (edit.location, edit.end_location)
    )


def _groups(ordered: Sequence[TextEdit]) -> list[list[TextEdit]]:
    """Edits that touch a common line belong together."""
    groups: list[list[TextEdit]] = []
    for edit in ordered:
        if groups and edit.location.row <= groups[-1][-1].end_location.row:
            groups[-1].append(edit)
        else:
            groups.append([edit])
    return groups


def _change(lines: Sequence[str], group: Sequence[TextEdit], shift: int) -> Change:
    row, end_row = group[0].location.row, group[-1].end_location.row
    old = list(lines[row - 1 : end_row])
    pieces: list[str] = []
    here = (row, 1)
    for edit in group:
        pieces += [_between(lines, here, edit.location), edit.content]
        here = edit.end_location
    pieces.append(_between(lines, here, (end_row, len(lines[end_row - 1]) + 1)))
    new = split_lines("".join(pieces))
    while old and new and old[0] == new[0]:
        del old[0], new[0]
        row += 1
    while old and new and old[-1] == new[-1]:
        del old[-1], new[-1]
    return Change(row, old, row + shift, new)


def _between(lines: Sequence[str], start: tuple[int, int], end: tuple[int, int]) -> str:
    if start[0] == end[0]:
        return lines[start[0] - 1][start[1] - 1 : end[1] - 1]
    whole = lines[start[0] : end[0] - 1]
    return "\n".join([lines[start[0] - 1][start[1] - 1 :], *whole, lines[end[0] - 1][: end[1] - 1]])
