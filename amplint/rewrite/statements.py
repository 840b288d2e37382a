"""Edits on whole statements, as rules need them: insert before or after, delete, re-indent.

All of them keep the line ends and the indentation that the file has at that place. New code is given without
indentation, its lines separated by line feeds and without one at the end.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from amplint.model import Edit, Span

if TYPE_CHECKING:
    from amplint.source import SourceFile

_BLANK = b" \t\f"
_LINE_ENDS = b"\r\n"


def line_start(encoded: bytes, offset: int) -> int:
    """The offset at which the line that holds `offset` starts (lines end with LF, CRLF or CR)."""
    return max(encoded.rfind(b"\n", 0, offset), encoded.rfind(b"\r", 0, offset)) + 1


def line_end(encoded: bytes, offset: int) -> int:
    """The offset at which the line that holds `offset` ends, its line end not counted."""
    ends = [end for end in (encoded.find(b"\n", offset), encoded.find(b"\r", offset)) if end >= 0]
    return min(ends, default=len(encoded))


def next_line(encoded: bytes, offset: int) -> int:
    """The offset at which the line after the one that holds `offset` starts."""
    end = line_end(encoded, offset)
    return end + 2 if encoded[end : end + 2] == b"\r\n" else min(end + 1, len(encoded))


def line_break(encoded: bytes, offset: int) -> str:
    """The line end in use at `offset`: of its line, or else of the line before it, or else LF."""
    found = encoded[line_end(encoded, offset) : next_line(encoded, offset)]
    if not found:
        before = encoded[: line_start(encoded, offset)][-2:]
        found = before if before == b"\r\n" else before[-1:]
    return found.decode() or "\n"


def whole_span(file: SourceFile, statement: ast.stmt) -> Span:
    """The bytes of a statement with its decorators."""
    span = file.span(statement)
    decorators: Sequence[ast.expr] = getattr(statement, "decorator_list", ())
    if not decorators:
        return span
    return Span(file.encoded.rindex(b"@", 0, file.span(decorators[0]).start), span.end)


def siblings(file: SourceFile, statement: ast.stmt) -> list[ast.stmt]:
    """The statements of the block in which `statement` stands, itself included."""
    parent = file.parent(statement) or file.tree
    for _, block in ast.iter_fields(parent):
        if isinstance(block, list) and any(member is statement for member in block):
            return block
    raise ValueError("the statement is not part of this file")


def owns_its_lines(file: SourceFile, statement: ast.stmt) -> bool:
    """Whether no other code stands on the lines of a statement (a comment or a semicolon after it may)."""
    span = whole_span(file, statement)
    if file.encoded[line_start(file.encoded, span.start) : span.start].strip(_BLANK):
        return False
    return _code_after(file, span.end) == -1


def delete_statement(file: SourceFile, statement: ast.stmt) -> Edit:
    """Delete a statement; where it is alone in its block, put `pass` in its place.

    A statement that has its lines for itself goes with them and with the comment after it, which speaks of what is
    gone; comments above it stay. In `a; b` only the statement and one semicolon go. Raises `ValueError` for an `elif`.
    """
    encoded, span = file.encoded, whole_span(file, statement)
    block = siblings(file, statement)
    if _is_elif(file, statement):
        raise ValueError("an elif is not a statement of its own")
    if len(block) == 1 and file.parent(statement) not in (None, file.tree):
        return Edit(span, "pass")
    if owns_its_lines(file, statement):
        return Edit(Span(line_start(encoded, span.start), next_line(encoded, span.end)), "")
    index = next(i for i, member in enumerate(block) if member is statement)
    following = _code_after(file, span.end)
    if following != -1:
        return Edit(Span(span.start, following), "")
    if index:
        return Edit(Span(file.span(block[index - 1]).end, span.end), "")
    return Edit(span, "pass")


def insert_before(file: SourceFile, statement: ast.stmt, code: str) -> Edit | None:
    """Insert code before a statement (and its decorators), on lines of its own where the statement starts one.

    In `if x: statement` and `a; statement` the code goes on the same line. None where that can't be done: the code is
    more than one simple statement, or the statement is an `elif`.
    """
    encoded, start = file.encoded, whole_span(file, statement).start
    line = line_start(encoded, start)
    indent = encoded[line:start]
    if indent.strip(_BLANK):
        return Edit(Span(start, start), f"{code}; ") if _is_one_simple_statement(code) else None
    if _is_elif(file, statement):
        return None
    newline = line_break(encoded, start)
    return Edit(Span(line, line), _laid_out(code, indent.decode(), newline) + newline)


def insert_after(file: SourceFile, statement: ast.stmt, code: str) -> Edit | None:
    """Insert code after a statement, on lines of its own where no other code stands on the statement's lines.

    In `if x: statement` and `statement; b` the code goes on the same line. None where that can't be done: the code is
    more than one simple statement, or the statement is an `elif`.
    """
    encoded, span = file.encoded, whole_span(file, statement)
    line = line_start(encoded, span.start)
    indent = encoded[line : span.start]
    if indent.strip(_BLANK) or _code_after(file, span.end) != -1:
        return Edit(Span(span.end, span.end), f"; {code}") if _is_one_simple_statement(code) else None
    if _is_elif(file, statement):
        return None
    newline = line_break(encoded, span.end)
    place = next_line(encoded, span.end)
    text = _laid_out(code, indent.decode(), newline)
    at_end_without_newline = place == len(encoded) and encoded[place - 1] not in _LINE_ENDS
    return Edit(Span(place, place), newline + text if at_end_without_newline else text + newline)


def reindent(block: str, old: str, new: str) -> str:
    """Move whole lines of code from the indentation `old` to `new`; strings that span lines keep every character.

    `block` holds complete statements. Lines indented less than `old` (comments, lines inside brackets) move by the
    same width, as far as they have it; blank lines stay as they are. Raises `ValueError` where `block` ends inside a
    bracket or a string.
    """
    protected = _rows_inside_strings(block)
    lines = re.findall(r"[^\r\n]*(?:\r\n|\r|\n)|[^\r\n]+", block)
    return "".join(
        line if row in protected or not line.strip() else _shifted(line, old, new) for row, line in enumerate(lines, 1)
    )


def _shifted(line: str, old: str, new: str) -> str:
    if line.startswith(old):
        return new + line[len(old) :]
    if len(new) >= len(old):
        return new[: len(new) - len(old)] + line
    width = len(line) - len(line.lstrip(" \t"))
    return line[min(width, len(old) - len(new)) :]


def _rows_inside_strings(block: str) -> set[int]:
    """The rows, from 1, that start inside a string."""
    import io
    import tokenize

    rows: set[int] = set()
    opened: list[int] = []
    text = block.replace("\r\n", "\n").replace("\r", "\n")
    try:
        for token in tokenize.generate_tokens(io.StringIO(text).readline):
            name = tokenize.tok_name[token.type]
            if name == "STRING":
                rows.update(range(token.start[0] + 1, token.end[0] + 1))
            elif name in ("FSTRING_START", "TSTRING_START"):
                opened.append(token.start[0])
            elif name in ("FSTRING_END", "TSTRING_END"):
                rows.update(range(opened.pop() + 1, token.end[0] + 1))
    except (tokenize.TokenError, SyntaxError) as error:
        raise ValueError(f"not complete statements: {error}") from error
    return rows


def _code_after(file: SourceFile, end: int) -> int:
    """The offset of the next statement on the line after a statement's end, -1 where there is none."""
    encoded = file.encoded
    stop = line_end(encoded, end)
    rest = encoded[end:stop]
    content = rest.lstrip(_BLANK + b";")
    if not content or content.startswith((b"#", b"\\")):
        return -1
    return stop - len(content)


def _is_elif(file: SourceFile, statement: ast.stmt) -> bool:
    return isinstance(statement, ast.If) and file.encoded.startswith(b"elif", file.span(statement).start)


def _is_one_simple_statement(code: str) -> bool:
    """Whether code can stand beside another statement on its line."""
    if "\n" in code or "#" in code:
        return False
    try:
        body = ast.parse(code).body
    except SyntaxError:
        return False
    return len(body) == 1 and not hasattr(body[0], "body") and not isinstance(body[0], ast.Match)


def _laid_out(code: str, indent: str, newline: str) -> str:
    return reindent(code, "", indent).replace("\n", newline)
