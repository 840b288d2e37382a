"""Masks that fill with a constant beyond float16, such as -1e9: they are applied to float32."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from amplint.facts.values import path_of
from amplint.migrate.editor import Editor
from amplint.migrate.model import RefusalError
from amplint.migrate.numerics.constants import is_beyond_float16

if TYPE_CHECKING:
    from amplint.source import SourceFile

_MAKES_NEW = frozenset(("matmul", "bmm", "mm", "einsum", "baddbmm", "masked_fill", "softmax", "tanh"))
_OPERATIONS = (ast.BinOp, ast.UnaryOp, ast.IfExp, ast.Compare, ast.BoolOp)


def repair(file: SourceFile, editor: Editor, call: ast.Call) -> None:
    """`x.masked_fill(mask, -1e9)` becomes `x.float().masked_fill(mask, -1e9)`, and `x.masked_fill_(mask, -1e9)`
    becomes `x = x.float().masked_fill(mask, -1e9)`.

    Raises `RefusalError` where the tensor that is filled in place may have another name.
    """
    value = next((k.value for k in call.keywords if k.arg == "value"), call.args[-1] if call.args else None)
    if value is None or not is_beyond_float16(file, value):
        return
    is_function = bool(file.resolve(call.func))
    name = (file.resolve(call.func) or (path_of(call.func) or getattr(call.func, "attr", ""),))[0].rsplit(".", 1)[-1]
    if name == "masked_fill" and is_function and call.args:
        _in_float32(file, editor, call.args[0])
    elif name == "masked_fill" and isinstance(call.func, ast.Attribute):
        _in_float32(file, editor, call.func.value)
    elif is_function or not isinstance(call.func, ast.Attribute) or not _in_place(file, editor, call, call.func):
        raise RefusalError(call, "the constant of this mask exceeds the range of float16; use --dtype bfloat16")


def _in_float32(file: SourceFile, editor: Editor, node: ast.expr) -> None:
    """Write `.float()` behind an expression."""
    span = file.span(node)
    if not isinstance(node, _OPERATIONS):
        editor.insert(span.end, ".float()")
    elif isinstance(file.parent(node), ast.Attribute) and file.encoded[span.end : span.end + 1] == b")":
        editor.insert(span.end + 1, ".float()")
    else:
        editor.replace(node, f"({file.segment(node)}).float()")


def _in_place(file: SourceFile, editor: Editor, call: ast.Call, func: ast.Attribute) -> bool:
    """Fill a new tensor instead of one that no other name has; whether that could be done."""
    statement, name = file.statement(call), func.value
    if not isinstance(name, ast.Name) or not _is_own(file, name, statement):
        return False
    text = f"{name.id}.float().masked_fill"
    if isinstance(statement, ast.Expr) and statement.value is call:
        editor.replace(func, f"{name.id} = {text}")
        return True
    if isinstance(statement, ast.Assign) and statement.value is call:
        targets = statement.targets
        if len(targets) == 1 and isinstance(targets[0], ast.Name) and targets[0].id == name.id:
            editor.replace(func, text)
            return True
    return False


def _is_own(file: SourceFile, name: ast.Name, statement: ast.stmt) -> bool:
    """Whether the tensor of a local name was made for it by arithmetic or a product."""
    made = [binding for binding in file.names.lookup(name) if binding.node is not statement]
    return bool(made) and all(
        binding.kind == "assign" and isinstance(binding.node, ast.Assign) and _makes_new(file, binding.value)
        for binding in made
    )


def _makes_new(file: SourceFile, value: ast.expr | None) -> bool:
    if isinstance(value, ast.Call):
        names = file.resolve(value.func) or (getattr(value.func, "attr", ""),)
        return names[0].rsplit(".", 1)[-1] in _MAKES_NEW
    return isinstance(value, ast.BinOp)
