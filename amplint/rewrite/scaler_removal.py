"""Take a GradScaler out of a training loop: the loss goes backward and the optimizer steps without it."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from amplint.model import Edit
from amplint.rewrite import statements

if TYPE_CHECKING:
    from amplint.source import SourceFile

_GONE = ("update", "unscale_")


def remove_scaler(file: SourceFile, constructor: ast.Call) -> tuple[Edit, ...] | None:
    """The edits that remove a scaler which one name holds in one function.

    None where it is used in another way than `scale`, `unscale_`, `step` and `update`, or where a statement that has to
    go is the only one of its block.
    """
    statement = file.parent(constructor)
    if not isinstance(statement, ast.Assign) or len(statement.targets) != 1:
        return None
    target = statement.targets[0]
    if not isinstance(target, ast.Name):
        return None
    scope = file.scope(target)
    if len(scope.bindings.get(target.id, ())) != 1 or scope.kind == "module":
        return None
    edits: list[Edit] = [statements.delete_statement(file, statement)]
    for use in file.names.loads.get(target.id, ()):
        if file.scope(use) is not scope:
            return None
        edit = _without(file, use)
        if edit is None:
            return None
        edits.append(edit)
    return tuple(edits)


def _without(file: SourceFile, use: ast.Name) -> Edit | None:
    """The edit for one use of the scaler."""
    method = file.parent(use)
    call = file.parent(method) if isinstance(method, ast.Attribute) else None
    if not isinstance(method, ast.Attribute) or not isinstance(call, ast.Call) or call.func is not method:
        return None
    statement = file.parent(call)
    if method.attr in _GONE:
        if not isinstance(statement, ast.Expr) or len(statements.siblings(file, statement)) == 1:
            return None
        return statements.delete_statement(file, statement)
    if len(call.args) != 1 or call.keywords or isinstance(call.args[0], ast.Starred):
        return None
    text = file.segment(call.args[0])
    if method.attr == "scale":
        plain = isinstance(call.args[0], (ast.Name, ast.Attribute, ast.Call, ast.Subscript))
        return Edit(file.span(call), text if plain else f"({text})")
    if method.attr == "step" and isinstance(call.args[0], (ast.Name, ast.Attribute, ast.Subscript)):
        return Edit(file.span(call), f"{text}.step()")
    return None
