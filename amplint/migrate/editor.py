"""Collects the edits of a migration: insertions between statements, replacements, and statements put under a `with`."""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING

from amplint.migrate.model import SharedLineError
from amplint.model import Edit, Span
from amplint.rewrite import statements

if TYPE_CHECKING:
    from amplint.source import SourceFile

_WIDTH = 112


class Editor:
    """Edits on one file that do not get in each other's way, whatever order they are asked for in."""

    def __init__(self, file: SourceFile) -> None:
        self.file = file
        self._after: list[Edit] = []
        self._before: list[Edit] = []
        self._replaced: list[Edit] = []
        self._headers: dict[int, list[str]] = {}
        self._deeper: dict[int, str] = {}

    def mark(self) -> tuple[list[Edit], list[Edit], list[Edit]]:
        """What was inserted and replaced so far, for `restore`."""
        return list(self._after), list(self._before), list(self._replaced)

    def restore(self, mark: tuple[list[Edit], list[Edit], list[Edit]]) -> None:
        """Forget what was inserted and replaced since a mark."""
        self._after, self._before, self._replaced = (list(edits) for edits in mark)

    def insert_after(self, statement: ast.stmt, code: str) -> None:
        """Put lines of code after a statement; raises `RefusalError` where it shares its line."""
        edit = statements.insert_after(self.file, statement, code)
        if edit is None:
            raise SharedLineError(self.file, statement)
        if edit not in self._after:
            self._after.append(edit)

    def insert_before(self, statement: ast.stmt, code: str) -> None:
        """Put lines of code before a statement; raises `RefusalError` where it shares its line."""
        edit = statements.insert_before(self.file, statement, code)
        if edit is None:
            raise SharedLineError(self.file, statement)
        if edit not in self._before:
            self._before.append(edit)

    def insert_inside(self, statement: ast.stmt, code: str) -> None:
        """Put lines of code before a statement, inside the headers that were put before it so far."""
        file = self.file
        if not statements.owns_its_lines(file, statement) or self._is_elif(statement):
            raise SharedLineError(self.file, statement)
        start = statements.line_start(file.encoded, statements.whole_span(file, statement).start)
        newline = statements.line_break(file.encoded, start)
        indent = file.indentation(statement) + self._deeper.get(start, "")
        lines = "".join(f"{indent}{line}{newline}" for line in code.split("\n"))
        self._headers.setdefault(start, []).append(lines)

    def replace(self, node: ast.AST | Span, text: str) -> None:
        """Put a text in the place of a node."""
        span = node if isinstance(node, Span) else self.file.span(node)
        edit = Edit(span, text)
        if edit not in self._replaced:
            self._replaced.append(edit)

    def insert(self, offset: int, text: str) -> None:
        """Insert a text at a byte offset inside a statement."""
        self.replace(Span(offset, offset), text)

    def wrap(
        self, first: ast.stmt, last: ast.stmt, header: str, *, tail: str = "", tail_at: ast.stmt | None = None
    ) -> None:
        """Put the statements from `first` to `last` of one block under a header such as `with ...:`.

        `tail` is a line more for the new block, put before the statement `tail_at`. With `tail_at` and `first` the
        same statement, the new block holds the tail alone.
        """
        file = self.file
        members = [first, last] if tail_at is None else [tail_at]
        for statement in [*members, first]:
            if not statements.owns_its_lines(file, statement) or self._is_elif(statement):
                raise SharedLineError(file, statement)
        start = statements.line_start(file.encoded, statements.whole_span(file, first).start)
        indent = file.indentation(first)
        unit = self.unit(indent)
        newline = statements.line_break(file.encoded, start)
        headers = self._headers.setdefault(start, [])
        deeper = self._deeper.get(start, "")
        head = _laid_out(header, indent + deeper, unit, newline)
        if first is tail_at:
            headers.append(f"{head}{indent}{deeper}{unit}{tail}{newline}")
            return
        headers.append(head)
        protected = _string_rows(file, first, last)
        row, end_row = file.row(start), last.end_lineno or last.lineno
        while row <= end_row:
            line = file.line_span(row)
            if row not in protected and file.segment(line).strip():
                self._deeper[line.start] = self._deeper.get(line.start, "") + unit
            row += 1
        if tail and tail_at is not None:
            place = statements.line_start(file.encoded, file.span(tail_at).start)
            self._before.append(Edit(Span(place, place), f"{indent}{unit}{tail}{newline}"))

    def unit(self, indent: str = "") -> str:
        """One step of indentation, as the file has it; a tab inside what is indented by tabs."""
        if indent.startswith("\t"):
            return "\t"
        for node in ast.walk(self.file.tree):
            body = getattr(node, "body", None)
            if isinstance(node, ast.stmt) and isinstance(body, list) and body and isinstance(body[0], ast.stmt):
                outer, inner = self.file.indentation(node), self.file.indentation(body[0])
                if body[0].lineno > node.lineno and inner.startswith(outer) and len(inner) > len(outer):
                    if indent and inner[len(outer) :] == "\t":
                        continue  # what is to be indented is not by tabs
                    return inner[len(outer) :]
        return "    "

    def _is_elif(self, statement: ast.stmt) -> bool:
        return isinstance(statement, ast.If) and self.file.encoded.startswith(b"elif", self.file.span(statement).start)

    def edits(self) -> tuple[Edit, ...]:
        """All edits; those at one place in the order: what follows the line before, headers, indentation."""
        lines: list[Edit] = []
        for offset in sorted({*self._headers, *self._deeper}):
            text = "".join(self._headers.get(offset, ())) + self._deeper.get(offset, "")
            lines.append(Edit(Span(offset, offset), text))
        return (*self._after, *self._before, *lines, *self._replaced)


def _laid_out(header: str, indent: str, unit: str, newline: str) -> str:
    """A header on one line, or on several where it would be too long."""
    if len(indent) + len(header) <= _WIDTH:
        return f"{indent}{header}{newline}"
    opening, inner = header.split("(", 1)
    inner = inner.removesuffix("):")
    if len(indent) + len(unit) + len(inner) <= _WIDTH:
        return f"{indent}{opening}({newline}{indent}{unit}{inner}{newline}{indent}):{newline}"
    lines = "".join(
        f"{indent}{unit}{argument},{newline}" for argument in re.split(r", (?=dtype=|enabled=|cache_enabled=)", inner)
    )
    return f"{indent}{opening}({newline}{lines}{indent}):{newline}"


def _string_rows(file: SourceFile, first: ast.stmt, last: ast.stmt) -> set[int]:
    """The rows that start inside a string, between two statements."""
    rows: set[int] = set()
    for node in ast.walk(file.tree):
        if (
            isinstance(node, (ast.Constant, ast.JoinedStr))
            and first.lineno <= node.lineno <= (last.end_lineno or 0)
            and node.end_lineno
            and node.end_lineno > node.lineno
        ):
            text = file.segment(node)
            if '"""' in text or "'''" in text or "\\\n" in text or "\\\r" in text:
                rows.update(range(node.lineno + 1, node.end_lineno + 1))
    return rows
