"""Writes `.float()` behind values, each once."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from amplint.migrate.editor import Editor
from amplint.migrate.model import RefusalError
from amplint.migrate.tree import owner_of
from amplint.model import Span

if TYPE_CHECKING:
    from amplint.migrate.regions.sinks import Sinks
    from amplint.source import SourceFile


class Casts:
    """Casts of one migration, and the expressions that are float32 by them."""

    def __init__(self, file: SourceFile, editor: Editor) -> None:
        self.file = file
        self.editor = editor
        self.widened: set[ast.expr] = set()
        """Expressions that are float32 now wherever they stand, on the CPU too."""
        self.exact: set[ast.Call] = set()
        """Calls that give what they give in float32, all that they are computed of included."""
        self._done: set[ast.expr] = set()

    def float(self, value: ast.expr) -> None:
        """Write `value.float()`; raises `RefusalError` where the text does not allow it."""
        if value in self._done:
            return
        self._done.add(value)
        span = self.file.span(value)
        if isinstance(value, (ast.Call, ast.Name, ast.Attribute, ast.Subscript)):
            self.editor.insert(span.end, ".float()")
        elif isinstance(value, (ast.BinOp, ast.UnaryOp)) and "\n" not in self.file.segment(value):
            parent = self.file.parent(value)
            if isinstance(parent, ast.Attribute) and self.file.encoded[span.end : span.end + 1] == b")":
                self.editor.insert(span.end + 1, ".float()")  # it stands in parentheses
                return
            self.editor.replace(Span(span.start, span.start), "(")
            self.editor.insert(span.end, ").float()")
        else:
            raise RefusalError(value, "this value must be float32, and can't be given `.float()`; give it a name first")


def is_unpacked(file: SourceFile, sinks: Sinks, name: ast.Name, at: ast.stmt) -> bool:
    """Whether a name is unpacked from what calls return, and no other name of its function gets the tensor."""
    owner = owner_of(file, name)
    made = {statement for statement, _ in sinks.graph(owner).reaching(name.id, at)}
    uses = [file.parent(use) for use in file.names.loads.get(name.id, ()) if owner_of(file, use) is owner]
    if not made or any(isinstance(use, (ast.Assign, ast.Tuple, ast.List)) for use in uses):
        return False
    return all(
        isinstance(statement, ast.Assign)
        and isinstance(statement.value, ast.Call)
        and isinstance(statement.targets[0], ast.Tuple)
        for statement in made
    )
