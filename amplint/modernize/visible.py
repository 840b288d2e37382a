"""Names that code at some place can use: is `torch` bound there, is a name free?"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import TYPE_CHECKING

from amplint.names import Binding
from amplint.rewrite.statements import line_break, siblings

if TYPE_CHECKING:
    from amplint.source import SourceFile


def visible_name(file: SourceFile, qualified: str, at: ast.expr) -> str | None:
    """A name that is bound to `qualified` by an import wherever `at` runs, None if there is none."""
    for name in _names_for(file, qualified):
        bindings = bindings_at(file, name, at)
        imported = bool(bindings) and all(b.kind == "import" and b.target == qualified for b in bindings)
        if imported and any(_runs_before(file, binding, at) for binding in bindings):
            return name
    return None


def bindings_at(file: SourceFile, name: str, at: ast.expr) -> tuple[Binding, ...]:
    """The bindings that a name would have if it stood at the place of an expression."""
    probe = ast.copy_location(ast.Name(name, ast.Load()), at)
    parents = file.names.parents
    parents[probe] = at
    try:
        return file.names.lookup(probe)
    finally:
        del parents[probe]


def is_bound(file: SourceFile, name: str) -> bool:
    """Whether any scope of the file binds a name."""
    return any(name in scope.bindings for scope in file.names.scopes.values())


def _names_for(file: SourceFile, qualified: str) -> Iterator[str]:
    """The names that imports bind to `qualified`: its own last part first."""
    own = qualified.rpartition(".")[2]
    found = file.names.imported.get(qualified, ())
    if own in found:
        yield own
    yield from (name for name in found if name != own)


def _runs_before(file: SourceFile, binding: Binding, at: ast.expr) -> bool:
    """Whether a binding has surely run when `at` runs."""
    statement = binding.node
    assert isinstance(statement, ast.stmt), "an import is a statement"
    holder = file.parent(statement)
    if (statement.lineno, statement.col_offset) >= (at.lineno, at.col_offset):
        return False  # a function may be called before the import below it runs
    if holder is file.tree:
        return True
    block = siblings(file, statement)
    child: ast.AST | None = at
    while child is not None:
        parent = file.parent(child)
        if parent is holder:
            return any(child is member for member in block)
        child = parent
    return False


def line_break_at(file: SourceFile, statement: ast.stmt) -> str:
    """The line end in use where a statement stands."""
    return line_break(file.encoded, file.span(statement).start)
