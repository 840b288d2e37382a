"""The lines of a file that a finding speaks of, with the blamed place underlined and the related ones labelled."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import NamedTuple

from amplint.model import Diagnostic, Location
from amplint.report.printable import cells, printable
from amplint.report.style import LEVEL_COLORS, Style

_ELLIPSIS = "..."
_SHORTEST = 20
"""Columns that a source line gets even on a terminal that is too narrow."""


class _Mark(NamedTuple):
    """Characters of one row (columns from 1, `end` is behind the last one) to underline, and what to say there."""

    row: int
    start: int
    end: int
    primary: bool
    message: str


def frame(found: Diagnostic, lines: Sequence[str], gutter: int, width: int, style: Style) -> list[str]:
    """Draw the lines of a finding; `gutter` is the width of the row numbers, `width` that of the terminal."""
    marks = sorted(set(_marks(found, lines)), key=lambda mark: (mark.row, mark.start, not mark.primary, mark.end))
    bar = style.paint(f"{' ' * gutter} |", "blue")
    drawn = [bar]
    previous = 0
    for row in sorted({mark.row for mark in marks}):
        if previous and row == previous + 2:
            drawn.append(_numbered(previous + 1, gutter, clip(lines[previous], 0, width - gutter - 3), style))
        elif previous and row > previous + 2:
            drawn.append(style.paint(_ELLIPSIS, "blue"))
        drawn.extend(_marked_line(row, [mark for mark in marks if mark.row == row], found, lines, gutter, width, style))
        previous = row
    return [*drawn, bar]


def rows_of(found: Diagnostic, lines: Sequence[str]) -> list[int]:
    """The rows that `frame` shows, to know how wide their numbers are."""
    return [mark.row for mark in _marks(found, lines)]


class Clipped(NamedTuple):
    """A line as it is shown: `first` is the index of its first character in sight, `columns` where that and the further
    ones (and the place behind the last) are shown, from 0."""

    text: str
    first: int
    columns: list[int]

    def column(self, index: int) -> int:
        """The column of the character at an index of the line; that of the cut for what was cut off."""
        return self.columns[min(max(index - self.first, 0), len(self.columns) - 1)]


def clip(line: str, focus: int, width: int) -> Clipped:
    """Cut a line to `width` columns so that the character at index `focus` stays in sight."""
    width = max(width, _SHORTEST)
    focus = min(focus, len(line))
    # Nearly every character takes a column or more: what is farther away need not be looked at.
    first, last = max(focus - width, 0), min(focus + width, len(line))
    near = cells(line[first:last])
    before = sum(columns for _, columns in near[: focus - first])
    total = sum(columns for _, columns in near)
    if (first or total > width) and before > width * 2 // 3:
        head = 0
        while before > width // 3:
            before -= near[head][1]
            head += 1
        near, first = near[head:], first + head
        total = sum(columns for _, columns in near)
    prefix = _ELLIPSIS if first else ""
    suffix = "" if last == len(line) and len(prefix) + total <= width else _ELLIPSIS
    while suffix and len(prefix) + total + len(suffix) > width:
        total -= near.pop()[1]
    columns = [*accumulate((taken for _, taken in near), initial=len(prefix))]
    return Clipped(prefix + "".join(text for text, _ in near) + suffix, first, columns)


def _marks(found: Diagnostic, lines: Sequence[str]) -> list[_Mark]:
    primary = (found.location, found.end_location)
    messages = [place.message for place in found.related]
    places = [(place.location, place.end_location) for place in found.related]
    if places != sorted(places):
        # The path leads up again, as round a loop: only numbers show the order.
        messages = [f"({number}) {message}" for number, message in enumerate(messages, 1)]
    own = ", ".join(message for place, message in zip(places, messages, strict=True) if place == primary)
    marks = _place_marks(*primary, lines, True, own)
    for place, message in zip(places, messages, strict=True):
        if place != primary:
            marks.extend(_place_marks(*place, lines, False, message))
    return marks


def _place_marks(start: Location, end: Location, lines: Sequence[str], primary: bool, message: str) -> list[_Mark]:
    """The marks of a place: one, or for several lines one at the first and one at the last. Places are made to fit."""
    row, column = _inside(start, lines)
    end_row, end_column = _inside(max(start, end), lines)
    if end_row > row and not lines[end_row - 1][: end_column - 1].strip():
        end_row = max(row, end_row - 1)
        end_column = len(lines[end_row - 1]) + 1
    if row == end_row:
        return [_Mark(row, column, max(end_column, column + 1), primary, message)]
    first, last = lines[row - 1], lines[end_row - 1]
    indentation = len(last) - len(last.lstrip())
    return [
        _Mark(row, column, max(len(first.rstrip()), column) + 1, primary, ""),
        _Mark(end_row, indentation + 1, end_column, primary, message),
    ]


def _inside(place: Location, lines: Sequence[str]) -> tuple[int, int]:
    row = min(max(place.row, 1), len(lines))
    return row, min(max(place.column, 1), len(lines[row - 1]) + 1) if row == place.row else len(lines[row - 1]) + 1


def _marked_line(
    row: int, marks: list[_Mark], found: Diagnostic, lines: Sequence[str], gutter: int, width: int, style: Style
) -> list[str]:
    focus = next((mark for mark in marks if mark.primary), marks[0]).start - 1
    shown = clip(lines[row - 1], focus, width - gutter - 3)
    drawn = [_numbered(row, gutter, shown, style)]
    bar = style.paint(f"{' ' * gutter} |", "blue")
    for mark in marks:
        start, end = shown.column(mark.start - 1), shown.column(mark.end - 1)
        line = ("^" if mark.primary else "-") * max(end - start, 1)
        text = f"{line} {printable(mark.message)}" if mark.message else line
        color = LEVEL_COLORS[found.level] if mark.primary else "blue"
        drawn.append(f"{bar} {' ' * start}{style.paint(text, 'bold', color)}")
    return drawn


def _numbered(row: int, gutter: int, shown: Clipped, style: Style) -> str:
    return f"{style.paint(f'{row:>{gutter}} |', 'blue')} {shown.text}".rstrip()
