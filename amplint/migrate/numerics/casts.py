"""Writes `.float()` behind values, each once."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from amplint.migrate.editor import Editor
from amplint.migrate.model import RefusalError
from amplint.model import Span

if TYPE_CHECKING:
    from amplint.source import SourceFile


class Casts:
    """Casts of one migration, and the expressions that are float32 by them."""

    def __init__(self, file: SourceFile, editor: Editor) -> None:
        self.file = file
        self.editor = editor
        self.widened: set[ast.expr] = set()
        """Expressions that are float32 now wherever they stand, on the CPU too."""
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
