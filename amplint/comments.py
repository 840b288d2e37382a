"""The comments of a text and where each stands among its logical lines, found with `tokenize`."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from functools import lru_cache
from typing import NamedTuple

from amplint.lines import line_starts, split_lines


class Comment(NamedTuple):
    """A comment: its row (from 1), its place in characters, and the rows of the code that it speaks of.

    `start` is the offset of its `#`, `end` the end of its line without the line end. `own_line` says that nothing but
    white space precedes it. A comment behind code speaks of its own row, and at the end of a logical line (a simple
    statement or the header of a compound one) of all rows of that line. A comment on a line of its own speaks of the
    next logical line; inside brackets, of the next row with code.
    """

    row: int
    start: int
    end: int
    own_line: bool
    first_row: int
    last_row: int


class Layout(NamedTuple):
    """What `tokenize` says about the lines of a text.

    `logical_lines` maps each row of a logical line to its first and last row. `closed_rows` are those that can't carry
    a comment: they end inside a string or in a continuation. `complete` is False where the text could not be read to
    its end.
    """

    lines: list[str]
    starts: list[int]
    comments: list[Comment]
    logical_lines: dict[int, tuple[int, int]]
    closed_rows: frozenset[int]
    complete: bool

    def end_of(self, row: int) -> int:
        """The offset, in characters, at which the content of a row ends, trailing white space left out."""
        return self.starts[row - 1] + len(self.lines[row - 1].rstrip())


@lru_cache(maxsize=1)
def read_layout(text: str) -> Layout:
    """Read a text as far as `tokenize` can; raises nothing on broken Python, see `Layout.complete`."""
    import tokenize

    lines = split_lines(text)
    string_starts = {getattr(tokenize, name, None) for name in ("FSTRING_START", "TSTRING_START")}
    string_ends = {getattr(tokenize, name, None) for name in ("FSTRING_END", "TSTRING_END")}
    blank = {tokenize.NL, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER, tokenize.ENCODING}
    hashes: list[tuple[int, int]] = []
    code_rows: list[int] = []
    logical_lines: dict[int, tuple[int, int]] = {}
    closed: set[int] = {row for row, line in enumerate(lines, 1) if line.endswith("\\")}
    open_strings: list[int] = []
    first_row = 0
    complete = True
    # Fed with line feeds only: what `tokenize` makes of a carriage return differs between the versions of Python.
    rows: Iterator[str] = iter(lines)
    try:
        for token in tokenize.generate_tokens(lambda: _next_line(rows)):
            row = token.start[0]
            if token.type == tokenize.COMMENT:
                hashes.append(token.start)
                closed.discard(row)
            elif token.type == tokenize.NEWLINE:
                for each in range(first_row, row + 1):
                    logical_lines[each] = (first_row, row)
                first_row = 0
            elif token.type not in blank:
                first_row = first_row or row
                if not code_rows or code_rows[-1] != row:
                    code_rows.append(row)
                closed.update(range(row, token.end[0]))
                if token.type in string_starts:
                    open_strings.append(row)
                elif token.type in string_ends:
                    closed.update(range(open_strings.pop(), row))
                complete = complete and (token.type != tokenize.ERRORTOKEN or token.string.isspace())
    except (tokenize.TokenError, SyntaxError, ValueError, IndexError):
        complete = False
    starts = line_starts(text)
    comments = [
        _comment(row, column, lines[row - 1], starts[row - 1], code_rows, logical_lines) for row, column in hashes
    ]
    return Layout(lines, starts, comments, logical_lines, frozenset(closed), complete)


def _next_line(rows: Iterator[str]) -> str:
    line = next(rows, None)
    return "" if line is None else line + "\n"


def _comment(
    row: int,
    column: int,
    line: str,
    line_start: int,
    code_rows: list[int],
    logical_lines: dict[int, tuple[int, int]],
) -> Comment:
    own_line = not line[:column].strip()
    first, last = logical_lines.get(row, (row, row))
    if own_line:
        index = bisect_right(code_rows, row)
        target = code_rows[index] if index < len(code_rows) else row
        span = (target, target) if row in logical_lines else logical_lines.get(target, (target, target))
    else:
        span = (first, last) if row == last else (row, row)
    return Comment(row, line_start + column, line_start + len(line), own_line, *span)
