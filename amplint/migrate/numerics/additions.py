"""Additions and copies by index (`out.index_add_(0, index, x)`), which autocast leaves alone: both tensors must be of
one dtype, which float32 is. A buffer that torch makes has it; else what both are computed from becomes float32."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from amplint.facts.values import Function
from amplint.migrate.editor import Editor
from amplint.migrate.numerics import products
from amplint.migrate.regions.sinks import Sinks

if TYPE_CHECKING:
    from amplint.source import SourceFile

NAMES = frozenset(
    ("index_add", "index_add_", "index_copy", "index_copy_", "scatter", "scatter_", "scatter_add_", "scatter_reduce",
     "scatter_reduce_")
)  # fmt: skip
_BUFFERS = frozenset(("torch.zeros", "torch.ones", "torch.empty", "torch.rand", "torch.randn"))
_FLOATS = frozenset(("torch.float32", "torch.float", "torch.FloatTensor"))
_SAME = frozenset(("view", "reshape", "unsqueeze", "squeeze", "expand", "clone", "contiguous", "cuda", "cpu"))
_DEPTH = 6


def source_of(file: SourceFile, call: ast.Call) -> ast.expr | None:
    """The tensor that is added or copied, None where it can't be told."""
    given = {keyword.arg: keyword.value for keyword in call.keywords}
    place = 3 if file.resolve(call.func) else 2
    return call.args[place] if len(call.args) > place else given.get("source", given.get("src", given.get("tensor")))


def is_float32_buffer(file: SourceFile, call: ast.Call) -> bool:
    """Whether what is added to was surely made by torch in float32."""
    return _is_buffer(file, _target(file, call), set(), 0)


def repair(file: SourceFile, sinks: Sinks, editor: Editor, call: ast.Call, function: Function) -> bool:
    """Write `x = x.float()` at the top of a function for the parameters that both tensors are computed from; whether
    that could be done."""
    source, target = source_of(file, call), _target(file, call)
    if source is None or target is None:
        return False
    return products.widen(file, sinks, editor, [source, target], file.statement(call), function)


def _target(file: SourceFile, call: ast.Call) -> ast.expr | None:
    if file.resolve(call.func):
        return call.args[0] if call.args else None
    return call.func.value if isinstance(call.func, ast.Attribute) else None


def _is_buffer(file: SourceFile, node: ast.AST | None, seen: set[str], depth: int) -> bool:
    if depth > _DEPTH:
        return False
    if isinstance(node, ast.Name):
        if node.id in seen:
            return True  # `out = out.index_add(...)` is what `out` was
        values = file.values.of(node)
        return bool(values) and all(_is_buffer(file, value, seen | {node.id}, depth + 1) for value in values)
    if not isinstance(node, ast.Call):
        return False
    names = file.resolve(node.func)
    if names:
        dtypes = [keyword.value for keyword in node.keywords if keyword.arg == "dtype"]
        return names[0] in _BUFFERS and all(_FLOATS & set(file.resolve(dtype)) for dtype in dtypes)
    if not isinstance(node.func, ast.Attribute):
        return False
    kept = node.func.attr in _SAME | NAMES or (node.func.attr == "to" and _is_device(file, node))
    return kept and _is_buffer(file, node.func.value, seen, depth + 1)


def _is_device(file: SourceFile, call: ast.Call) -> bool:
    """Whether the one argument of `to` is a device."""
    if len(call.args) != 1 or call.keywords:
        return False
    argument = call.args[0]
    if isinstance(argument, ast.Constant):
        return isinstance(argument.value, (str, int))
    return "device" in file.segment(argument) or any(
        isinstance(value, ast.Call) and "torch.device" in file.resolve(value.func) for value in file.values.of(argument)
    )
