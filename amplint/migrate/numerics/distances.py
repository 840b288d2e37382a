"""Squared distances by products, as in `x ** 2 + y ** 2 - 2 * x @ y.t()`: what is left of large terms that cancel out
is less than half precision rounds away of the product."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from amplint.migrate.numerics.constants import number
from amplint.migrate.numerics.gram import factors, is_gram
from amplint.migrate.tree import owner_of, walk

if TYPE_CHECKING:
    from amplint.source import SourceFile

_SQUARES = frozenset(("pow", "square"))


def is_part(file: SourceFile, node: ast.Call | ast.BinOp, name: str = "") -> bool:
    """Whether a call of the function `name`, or a `@`, is the product of such a distance: it is doubled, and squares
    are taken beside it."""
    if len(factors(node, name)) != 2 or not _is_doubled(file, node):
        return False
    return any(_is_square(file, other) for other in walk(owner_of(file, node)))


def _is_doubled(file: SourceFile, node: ast.Call | ast.BinOp) -> bool:
    if _meets_two(file, node):
        return True
    statement = file.statement(node)
    if not isinstance(statement, ast.Assign) or statement.value is not node or len(statement.targets) != 1:
        return False
    target = statement.targets[0]
    uses = file.names.loads.get(target.id, ()) if isinstance(target, ast.Name) else ()
    owner = owner_of(file, node)
    return any(owner_of(file, use) is owner and _meets_two(file, use) for use in uses)


def _meets_two(file: SourceFile, node: ast.expr) -> bool:
    parent = file.parent(node)
    if isinstance(parent, ast.UnaryOp):
        node, parent = parent, file.parent(parent)
    if not isinstance(parent, ast.BinOp) or not isinstance(parent.op, ast.Mult):
        return False
    value = number(file, parent.right if parent.left is node else parent.left)
    return value is not None and abs(value) == 2


def _is_square(file: SourceFile, node: ast.AST) -> bool:
    if isinstance(node, ast.BinOp):
        squared = isinstance(node.op, ast.Pow) and number(file, node.right) == 2
        return squared or (isinstance(node.op, ast.MatMult) and is_gram(file, node))
    if not isinstance(node, ast.Call):
        return False
    names = file.resolve(node.func) or (getattr(node.func, "attr", ""),)
    last = names[0].rsplit(".", 1)[-1]
    return last in _SQUARES or is_gram(file, node, last)
