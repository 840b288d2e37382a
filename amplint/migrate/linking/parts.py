"""A text that several files were linked to: each part sees its own global names and those that it imports."""

from __future__ import annotations

import ast
from bisect import bisect_right
from collections.abc import Sequence
from functools import cached_property

from amplint.names import Binding, Names, Scope
from amplint.settings import Settings
from amplint.source import SourceFile

_MARK = "amplint part {}"


def mark(number: int) -> str:
    """The statement that begins a part; a line of its own."""
    return f'"{_MARK.format(number)}"'


class LinkedFile(SourceFile):
    """A linked text; `sees` are, for each part, the global names of other parts that it imports."""

    def __init__(self, text: str, filename: str, settings: Settings, sees: Sequence[frozenset[str]]) -> None:
        super().__init__(text, filename, settings)
        self.sees = sees

    def with_text(self, text: str) -> SourceFile:
        """The linked text after a change inside of its parts."""
        return LinkedFile(text, self.filename, self.settings, self.sees)

    @cached_property
    def names(self) -> Names:
        """The names of the text; of a global one only what the part that asks can see."""
        return _PartNames(self.tree, self.sees)


class _PartNames(Names):
    def __init__(self, tree: ast.Module, sees: Sequence[frozenset[str]]) -> None:
        marks = {_MARK.format(number) for number in range(len(sees))}
        self._sees = sees
        self._starts = [
            statement.lineno
            for statement in tree.body
            if isinstance(statement, ast.Expr)
            and isinstance(statement.value, ast.Constant)
            and statement.value.value in marks
        ]
        super().__init__(tree)

    def _part(self, node: ast.AST) -> int:
        return bisect_right(self._starts, getattr(node, "lineno", 0)) - 1

    def _visible(self, found: list[Binding], use: ast.AST, scope: Scope) -> tuple[Binding, ...]:
        if scope is self.module:
            here = self._part(use)
            own = [binding for binding in found if self._part(binding.node) == here]
            found = own or (found if here >= 0 and found[0].name in self._sees[here] else [])
            if not found:
                return ()
        return super()._visible(found, use, scope)
