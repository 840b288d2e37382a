"""Read a file whose syntax is newer than the Python that runs amplint.

The standard library parses only the syntax of its own version, and a linter in a pre-commit environment often runs
on an older Python than the code it checks. LibCST knows the newer syntax: with it, the statements that `ast` can't
parse are blanked (type parameters alone where that is enough), and everything else is checked as always. LibCST
takes 0.4 s to import, so this module is imported only when a file does not parse.
"""

from __future__ import annotations

import ast
import re
from typing import NamedTuple

_MOST_ROUNDS = 200
_LINE = re.compile(r"[^\n\r]*(?:\r\n|\n|\r|\Z)")


class Readable(NamedTuple):
    """A text that parses, byte for byte as long as the original, and the rows (from 1) of what was blanked in it."""

    text: str
    rows: tuple[int, ...]


class _Region(NamedTuple):
    """A statement: its first and last row, the column (in characters) where it starts, and its type parameters."""

    first: int
    last: int
    column: int
    type_parameters: tuple[tuple[int, int], tuple[int, int]] | None


def readable(text: str) -> Readable | None:
    """Blank what the running Python can't parse in a text that LibCST can; None where LibCST can't parse it either."""
    regions = _regions(text)
    if regions is None:
        return None
    lines = [match.group() for match in _LINE.finditer(text) if match.group()]
    rows: set[int] = set()
    for _ in range(_MOST_ROUNDS):
        try:
            ast.parse("".join(lines))
        except SyntaxError as error:
            region = _smallest(regions, error.lineno or 1)
            if region is None:
                return None
            regions.remove(region)
            rows.add(region.first)
            if region.type_parameters is not None:
                _blank(lines, *region.type_parameters)
                regions.append(region._replace(type_parameters=None))
            else:
                _blank_statement(lines, region)
        except (ValueError, RecursionError, MemoryError):
            return None
        else:
            return Readable("".join(lines), tuple(sorted(rows)))
    return None


def _smallest(regions: list[_Region], row: int) -> _Region | None:
    """The shortest statement around a row; `ast` sometimes blames the row after."""
    for blamed in (row, row - 1):
        around = [region for region in regions if region.first <= blamed <= region.last]
        if around:
            return min(around, key=lambda region: (region.last - region.first, -region.column))
    return None


def _blank(lines: list[str], start: tuple[int, int], end: tuple[int, int]) -> None:
    """Overwrite a range of (row, column in characters) positions by blanks of the same length in UTF-8."""
    for row in range(start[0], end[0] + 1):
        line = lines[row - 1]
        content = line.rstrip("\r\n")
        first = start[1] if row == start[0] else 0
        last = end[1] if row == end[0] else len(content)
        blanks = " " * len(content[first:last].encode("utf-8", "surrogatepass"))
        lines[row - 1] = content[:first] + blanks + content[last:] + line[len(content) :]


def _blank_statement(lines: list[str], region: _Region) -> None:
    """Put `pass` in the place of a statement; all syntax newer than Python 3.10 is longer than that."""
    last = lines[region.last - 1].rstrip("\r\n")
    _blank(lines, (region.first, region.column), (region.last, len(last)))
    first = lines[region.first - 1]
    content = first.rstrip("\r\n")
    padded = content[: region.column] + "pass" + content[region.column + 4 :]
    lines[region.first - 1] = padded + first[len(content) :]


def _regions(text: str) -> list[_Region] | None:
    """Every statement of a text as LibCST sees it, None where LibCST can't parse it."""
    import libcst as cst
    from libcst.metadata import MetadataWrapper, PositionProvider

    try:
        wrapper = MetadataWrapper(cst.parse_module(text), unsafe_skip_copy=True)
        positions = wrapper.resolve(PositionProvider)
    except Exception:  # LibCST raises more than its own errors on text that isn't Python
        return None
    found: list[_Region] = []
    for node, place in positions.items():
        if not isinstance(node, (cst.SimpleStatementLine, cst.BaseCompoundStatement)):
            continue
        parameters = getattr(node, "type_parameters", None)
        brackets = None
        if parameters is not None:
            span = positions[parameters]
            brackets = ((span.start.line, span.start.column), (span.end.line, span.end.column))
        found.append(
            _Region(
                place.start.line,
                max(place.end.line - (place.end.column == 0), place.start.line),
                place.start.column,
                brackets,
            )
        )
    return found
