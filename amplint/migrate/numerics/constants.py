"""Numbers that the text shows, and what float16 makes of them."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from amplint.source import SourceFile

_DEPTH = 4
_LARGEST = 65504.0
"""The largest float16."""
_LARGEST_FLOAT32 = 3.4028234663852886e38


def number(file: SourceFile, node: ast.expr, depth: int = 0) -> float | None:
    """The number that an expression surely is: a literal, arithmetic with literals, a name for one, a float's limit."""
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        inner = number(file, node.operand, depth)
        return None if inner is None else -inner
    if isinstance(node, ast.Constant) and isinstance(node.value, (int, float)) and not isinstance(node.value, bool):
        return float(node.value)
    if isinstance(node, ast.BinOp) and depth < _DEPTH:
        return _computed(node.op, number(file, node.left, depth + 1), number(file, node.right, depth + 1))
    if isinstance(node, ast.Attribute) and node.attr in ("min", "max") and isinstance(node.value, ast.Call):
        limits = file.resolve(node.value.func)
        kinds = {name for a in node.value.args for name in file.resolve(a)}
        if "torch.finfo" in limits and kinds & {"torch.float32", "torch.float"}:
            return _LARGEST_FLOAT32 if node.attr == "max" else -_LARGEST_FLOAT32
    if isinstance(node, ast.Call) and "torch.tensor" in file.resolve(node.func) and node.args:
        return number(file, node.args[0], depth + 1)
    if isinstance(node, (ast.Name, ast.Attribute)) and depth < _DEPTH:
        values = file.values.of(node)
        found = [number(file, v, depth + 1) if isinstance(v, ast.expr) and v is not node else None for v in values]
        known = [number for number in found if number is not None]
        if not known and isinstance(node, ast.Attribute):
            known = [value for default in _defaults(file, node.attr) if (value := number(file, default, depth + 1))]
        return max(known, key=abs) if known else None
    return None


def _defaults(file: SourceFile, name: str) -> list[ast.expr]:
    """The defaults that `add_argument` gives the options behind an attribute."""
    calls = [file.parent(use) for use in file.names.attributes.get("add_argument", ())]
    found = []
    for call in calls:
        if isinstance(call, ast.Call) and any(
            isinstance(a, ast.Constant) and str(a.value).lstrip("-").replace("-", "_") == name for a in call.args
        ):
            found += [keyword.value for keyword in call.keywords if keyword.arg == "default"]
    return found


def _computed(op: ast.operator, left: float | None, right: float | None) -> float | None:
    if left is None or right is None:
        return None
    try:
        if isinstance(op, ast.Mult):
            return left * right
        if isinstance(op, ast.Add):
            return left + right
        if isinstance(op, ast.Sub):
            return left - right
        if isinstance(op, ast.Pow):
            return float(left**right)
    except (ArithmeticError, TypeError):
        return None
    return None


def is_beyond_float16(file: SourceFile, node: ast.expr) -> bool:
    """Whether a number is finite and beyond the range of float16."""
    value = number(file, node)
    return value is not None and _LARGEST < abs(value) < float("inf")
