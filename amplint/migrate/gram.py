"""Products of a matrix with itself: Gram matrices of images leave the range of float16, similarities do not."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from amplint.facts.values import path_of, returns

if TYPE_CHECKING:
    from amplint.source import SourceFile

_DEPTH = 4
_PRODUCTS = frozenset(("mm", "bmm", "matmul"))
_TURNS = frozenset(("t", "transpose", "permute", "contiguous"))
_VIEWS = frozenset(("view", "reshape", "contiguous", "detach", "clone", "squeeze", "float", "flatten", "to", "cuda"))


def is_gram(file: SourceFile, node: ast.Call | ast.BinOp, name: str = "") -> bool:
    """Whether a call of the function `name`, or a `@`, multiplies a matrix by itself, and its rows may be large."""
    factors = [node.left, node.right] if isinstance(node, ast.BinOp) else _factors(node, name)
    if len(factors) != 2:
        return False
    first, second = (_unturned(factor) for factor in factors)
    return ast.dump(first) == ast.dump(second) and not _is_normalized(file, first, 0)


def _factors(call: ast.Call, name: str) -> list[ast.expr]:
    """The two factors of a product, empty where a call is none."""
    if name == "einsum":
        return call.args[1:] if len(call.args) == 3 else []
    factors = list(call.args) if name in _PRODUCTS else []
    if len(factors) == 1 and isinstance(call.func, ast.Attribute):
        factors.insert(0, call.func.value)
    return factors


def _unturned(node: ast.expr) -> ast.expr:
    """A matrix whose transpose an expression is; one that is not turned stands for itself."""
    while True:
        if isinstance(node, ast.Attribute) and node.attr in ("T", "mT"):
            node = node.value
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _TURNS:
            node = node.func.value
        else:
            return node


def _is_normalized(file: SourceFile, node: ast.expr, depth: int) -> bool:
    """Whether the rows of a matrix surely have length 1."""
    if isinstance(node, ast.Call):
        names = file.resolve(node.func)
        if "torch.nn.functional.normalize" in names:
            return True
        parts = node.args[0] if "torch.cat" in names and node.args else None
        if isinstance(parts, (ast.List, ast.Tuple)):
            return all(_is_normalized(file, part, depth + 1) for part in parts.elts)
        is_view = isinstance(node.func, ast.Attribute) and node.func.attr in _VIEWS and not names
        return is_view and _is_normalized(file, node.func.value, depth + 1)  # type: ignore[attr-defined]
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div):
        return "norm" in file.segment(node.right)
    if isinstance(node, ast.Name) and depth < _DEPTH:
        bindings = file.names.lookup(node)
        return bool(bindings) and all(_gives_normalized(file, b.node, node.id, depth + 1) for b in bindings)
    return False


def _gives_normalized(file: SourceFile, statement: ast.AST, name: str, depth: int) -> bool:
    """Whether an assignment gives a name such a matrix, also as one of those that a function returns."""
    if not isinstance(statement, ast.Assign):
        return False
    target, value = statement.targets[0], statement.value
    if isinstance(target, ast.Name):
        return _is_normalized(file, value, depth)
    functions = file.values.functions(value) if isinstance(value, ast.Call) else ()
    results = [result for function in functions for result in returns(function)]
    names = [path_of(element) for element in getattr(target, "elts", ())]
    return bool(results) and all(
        isinstance(result, ast.Tuple)
        and len(result.elts) == len(names)
        and _is_normalized(file, result.elts[names.index(name)], depth)
        for result in results
    )
