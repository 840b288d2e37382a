"""The report for people: each finding with its source lines, why it hurts and what can be done about it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby

from amplint.lines import split_lines
from amplint.model import Diagnostic
from amplint.report import ReportContext
from amplint.report.fix_preview import Change, changes
from amplint.report.frame import clip, frame, rows_of
from amplint.report.printable import printable
from amplint.report.style import LEVEL_COLORS, Style
from amplint.report.wording import advice, summary

_MOST_CHANGED_LINES = 16


def render(diagnostics: Sequence[Diagnostic], context: ReportContext) -> str:
    """The findings with an empty line behind each, and the summary."""
    style = Style(context.color, context.hyperlinks)
    blocks: list[str] = []
    for filename, found in groupby(diagnostics, key=lambda each: each.filename):
        source = context.sources(filename)
        lines = None if source is None else split_lines(source)
        blocks += ["\n".join(_block(each, lines, context.width, style)) + "\n\n" for each in found]
    last = summary(diagnostics)
    return "".join(blocks) + style.paint(last, *(("bold",) if diagnostics else ("green",))) + "\n"


def _block(found: Diagnostic, lines: list[str] | None, width: int, style: Style) -> Iterator[str]:
    yield _header(found, style)
    change_list = changes(lines, found.fix.edits) if lines is not None and found.fix is not None else []
    rows = [
        first + len(side) - 1
        for each in change_list
        for first, side in ((each.row, each.old), (each.new_row, each.new))
    ]
    if lines is not None:
        rows += rows_of(found, lines)
    gutter = len(str(max(rows, default=0)))
    if lines is not None:
        yield from frame(found, lines, gutter, width, style)
    else:
        for place in found.related:
            row, column = place.location
            yield f"  = note: {printable(found.filename)}:{row}:{column}: {printable(place.message)}"
    for line in advice(found):
        topic, _, words = printable(line).partition(": ")
        yield f"{' ' * gutter} = {style.paint(topic, 'bold')}: {words}"
    yield from _changed_lines(change_list, gutter, width, style)


def _header(found: Diagnostic, style: Style) -> str:
    row, column = found.location
    color = LEVEL_COLORS[found.level]
    place = f"{style.paint(printable(found.filename), 'bold')}:{row}:{column}:"
    code = style.link(style.paint(found.code, "bold", color), found.url)
    level = style.paint(f"[{found.level.label}]", color)
    return f"{place} {code} {style.paint(found.name, 'bold')} {level} {printable(found.message)}"


def _changed_lines(change_list: Sequence[Change], gutter: int, width: int, style: Style) -> Iterator[str]:
    drawn: list[str] = []
    for change in change_list:
        focus = _first_difference(change)
        for sign, color, first, side in (
            ("-", "red", change.row, change.old),
            ("+", "green", change.new_row, change.new),
        ):
            for row, line in enumerate(side, first):
                shown = clip(line, focus, width - gutter - 3).text
                drawn.append(style.paint(f"{row:>{gutter}} {sign} {shown}".rstrip(), color))
    if len(drawn) > _MOST_CHANGED_LINES:
        hidden = len(drawn) - _MOST_CHANGED_LINES + 1
        drawn[_MOST_CHANGED_LINES - 1 :] = [style.paint(f"{' ' * gutter} ... {hidden} more changed lines", "dim")]
    yield from drawn


def _first_difference(change: Change) -> int:
    if not change.old or not change.new:
        return 0
    old, new = change.old[0], change.new[0]
    return next((index for index, (a, b) in enumerate(zip(old, new, strict=False)) if a != b), min(len(old), len(new)))
