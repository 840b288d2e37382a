"""Puts statements that share a line on lines of their own, where a region must be put round one of them."""

from __future__ import annotations

import ast
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

from amplint.edits import apply_fixes
from amplint.migrate.editor import Editor
from amplint.model import Applicability, Edit, Fix, Span
from amplint.rewrite import statements

if TYPE_CHECKING:
    from amplint.source import SourceFile


class Apart(NamedTuple):
    """A text with some lines taken apart; `rows[n]` is the row that line n + 1 had before."""

    text: str
    rows: list[int]


def take_apart(file: SourceFile, statement: ast.stmt) -> Apart | None:
    """The text with a statement and its neighbours on lines of their own; None where they can't be.

    `a; b` becomes two lines, `if x: a; b` three. An `elif` and what follows a string over several lines stay.
    """
    block = statements.siblings(file, statement)
    parent = file.parent(statement)
    indent = file.indentation(block[0])
    edits = []
    if isinstance(parent, ast.stmt) and not statements.owns_its_lines(file, block[0]):
        before = file.encoded[
            statements.line_start(file.encoded, file.span(block[0]).start) : file.span(block[0]).start
        ]
        head = before.rstrip()
        if head.endswith(b":") and not isinstance(block[0], (ast.FunctionDef, ast.ClassDef)):
            indent += Editor(file).unit(indent)
            start = file.span(block[0]).start
            edits.append(Edit(Span(start - (len(before) - len(head)), start), f"\n{indent}"))
    chain: list[Edit] = []
    for one, other in pairwise(block):
        gap = Span(file.span(one).end, file.span(other).start)
        between = file.encoded[gap.start : gap.end]
        if between.strip() != b";" or b"\n" in between or b"\r" in between:
            if file.span(one).end > file.span(statement).start:
                break
            chain = []
            continue
        chain.append(Edit(gap, f"\n{indent}"))
    edits += chain
    if not edits:
        return None
    return spread(file, edits)


def spread(file: SourceFile, edits: list[Edit]) -> Apart | None:
    """The text after edits inside of lines that add lines (written with line feeds); None where they collide."""
    newline = statements.line_break(file.encoded, edits[0].span.start)
    texts = [edit._replace(text=edit.text.replace("\n", newline)) for edit in edits]
    result = apply_fixes(file.text, [Fix("take apart", tuple(texts), Applicability.UNSAFE)])
    added: dict[int, int] = {}
    for edit in edits:
        row = file.row(edit.span.start)
        added[row] = added.get(row, 0) + edit.text.count("\n")
    rows = [row for row in range(1, len(file.text.splitlines()) + 2) for _ in range(1 + added.get(row, 0))]
    return Apart(result.text, rows) if result.applied else None
