"""Edits on the arguments of a call: comments, line breaks, parentheses and trailing commas stay where they are."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, NamedTuple

from amplint.model import Edit, Span
from amplint.rewrite.statements import line_break, line_start, next_line

if TYPE_CHECKING:
    from amplint.source import SourceFile

_BLANK = b" \t\f\r\n"


class Item(NamedTuple):
    """One argument in the text: `start` and `end` include its own parentheses, its stars and its keyword."""

    node: ast.expr | ast.keyword
    start: int
    end: int


class Arguments:
    """The argument list of a call: `start` is behind the opening parenthesis, `end` at the closing one."""

    def __init__(self, file: SourceFile, call: ast.Call) -> None:
        self._file = file
        encoded = file.encoded
        self.start = _opening_parenthesis(encoded, file.span(call.func).end) + 1
        self.end = file.span(call).end - 1
        self.items: list[Item] = []
        self.trailing_comma = False
        position = self.start
        nodes: list[ast.expr | ast.keyword] = [*call.args, *call.keywords]
        for node in sorted(nodes, key=lambda argument: (argument.lineno, argument.col_offset)):
            span = file.span(node)
            if span.start < self.start:  # a lone generator expression has the parentheses of the call for its own
                self.items.append(Item(node, skip_trivia(encoded, self.start), self.end))
                break
            begin = skip_trivia(encoded, position)
            end, position, self.trailing_comma = self._end_of(span.end)
            self.items.append(Item(node, begin, end))

    def _end_of(self, end: int) -> tuple[int, int, bool]:
        """Where an argument ends with its parentheses, where the search for the next starts, whether a comma stood."""
        encoded = self._file.encoded
        while True:
            at = skip_trivia(encoded, end)
            if encoded[at : at + 1] == b")" and at < self.end:
                end = at + 1
            else:
                comma = encoded[at : at + 1] == b","
                return end, at + comma, comma

    def prepend(self, text: str) -> list[Edit]:
        """Put a positional argument in front of all others."""
        if not self.items:
            return [self._only(text)]
        first = self.items[0]
        if self._one_a_line():
            # On the line below the parenthesis, so that comments above the first argument stay with it.
            place = next_line(self._file.encoded, self.start)
            newline = line_break(self._file.encoded, self.start)
            return [Edit(Span(place, place), f"{self._indentation(first.start)}{text},{newline}")]
        return [Edit(Span(first.start, first.start), f"{text}, ")]

    def insert_after(self, index: int, text: str) -> list[Edit]:
        """Put an argument behind the one at `index`, on the same line."""
        end = self.items[index].end
        return [Edit(Span(end, end), f", {text}")]

    def append(self, text: str) -> list[Edit]:
        """Put an argument behind all others; a trailing comma stays the last."""
        if not self.items:
            return [self._only(text)]
        encoded, end = self._file.encoded, self.items[-1].end
        closing = line_start(encoded, self.end)
        if self._one_a_line() and closing > end and not encoded[closing : self.end].strip(_BLANK):
            newline = line_break(encoded, self.start)
            line = f"{self._indentation(self.items[-1].start)}{text}"
            if self.trailing_comma:
                return [Edit(Span(closing, closing), f"{line},{newline}")]
            return [Edit(Span(end, end), ","), Edit(Span(closing, closing), line + newline)]
        return [Edit(Span(end, end), f", {text}")]

    def name(self, index: int, keyword: str) -> list[Edit]:
        """Turn the positional argument at `index` into a keyword argument."""
        item = self.items[index]
        assert not isinstance(item.node, (ast.keyword, ast.Starred)), "only a plain positional argument can be named"
        bare = isinstance(item.node, (ast.NamedExpr, ast.GeneratorExp))
        if bare and self._file.encoded[item.start : item.start + 1] != b"(":
            return [
                Edit(Span(item.start, item.start), f"{keyword}=("),
                Edit(Span(item.end, item.end), ")"),
            ]
        return [Edit(Span(item.start, item.start), f"{keyword}=")]

    def _only(self, text: str) -> Edit:
        """The sole argument of a call that had none: blanks between the parentheses go, a comment stays."""
        inside = self._file.encoded[self.start : self.end]
        return Edit(Span(self.start, self.start if inside.strip(_BLANK) else self.end), text)

    def _one_a_line(self) -> bool:
        """Whether the list is written with each argument on a line of its own."""
        rows = [self._file.row(item.start) for item in self.items]
        spread = rows[0] > self._file.row(self.start) and len(set(rows)) == len(rows)
        return spread and (len(rows) > 1 or self.trailing_comma)

    def _indentation(self, offset: int) -> str:
        head = self._file.encoded[line_start(self._file.encoded, offset) : offset].decode("utf-8", "surrogatepass")
        return head[: len(head) - len(head.lstrip())]


def skip_trivia(encoded: bytes, offset: int) -> int:
    """The offset of the next byte that is no white space, comment or line continuation."""
    while offset < len(encoded):
        byte = encoded[offset : offset + 1]
        if byte == b"#":
            ends = [end for end in (encoded.find(b"\n", offset), encoded.find(b"\r", offset)) if end >= 0]
            offset = min(ends, default=len(encoded))
        elif byte in (b" ", b"\t", b"\f", b"\r", b"\n", b"\\"):
            offset += 1
        else:
            break
    return offset


def _opening_parenthesis(encoded: bytes, offset: int) -> int:
    """The offset of the parenthesis that opens an argument list, behind those that close around the callee."""
    offset = skip_trivia(encoded, offset)
    while encoded[offset : offset + 1] == b")":
        offset = skip_trivia(encoded, offset + 1)
    return offset
