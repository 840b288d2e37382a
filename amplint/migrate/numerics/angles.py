"""Angles and square roots of cosines: `acos(c)` and `sqrt(1 - c**2)` are NaN where rounding has left `c` beyond 1, as
half precision does far more often than float32. The product that makes the cosine runs in float32."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from amplint.facts.values import path_of
from amplint.migrate.model import RefusalError
from amplint.migrate.numerics.half import HalfValues
from amplint.migrate.tree import owner_of

if TYPE_CHECKING:
    from amplint.source import SourceFile

_ANGLES = frozenset(("acos", "arccos", "asin", "arcsin", "atanh", "arctanh"))
_ROOTS = frozenset(("sqrt", "sqrt_"))
_LIMITS = frozenset(("clamp", "clamp_", "clip", "relu", "relu_", "abs", "maximum", "max", "clamp_min"))
_REASON = (
    "a value that half precision may have rounded beyond 1 goes into `{}`, which is NaN there; compute it in float32, "
    "with `.float()`"
)


def rounded(file: SourceFile, half: HalfValues, call: ast.Call, name: str) -> ast.expr | None:
    """What a call takes an angle of, or the root of what is left of 1, where half precision may have rounded it."""
    names = file.resolve(call.func)
    if (names and not names[0].startswith("torch")) or name not in _ANGLES | _ROOTS:
        return None
    if names:
        given = call.args[0] if call.args else None
    else:
        given = call.func.value if isinstance(call.func, ast.Attribute) else None
        if given is not None and path_of(given) in ("math", "np", "numpy"):
            return None
    if given is None or not half.may_be_rounded(given):
        return None
    is_rest = name in _ANGLES or (_is_rest_of_one(file, given) and not _is_limited(given))
    return given if is_rest else None


def refusal(call: ast.Call, name: str) -> RefusalError:
    """What is said of such a call whose argument can't be computed in float32."""
    return RefusalError(call, _REASON.format(name))


def _is_rest_of_one(file: SourceFile, node: ast.expr, depth: int = 0) -> bool:
    """Whether an expression takes something from 1, itself or by a name."""
    if isinstance(node, ast.BinOp):
        left = node.left
        return isinstance(node.op, ast.Sub) and isinstance(left, ast.Constant) and left.value == 1
    if isinstance(node, ast.Name) and depth < 2:
        owner = owner_of(file, node)
        values = [v for v in file.values.of(node) if isinstance(v, ast.expr) and owner_of(file, v) is owner]
        return any(_is_rest_of_one(file, value, depth + 1) for value in values)
    return False


def _is_limited(node: ast.expr) -> bool:
    return any(isinstance(n, ast.Attribute) and n.attr in _LIMITS for n in ast.walk(node))
