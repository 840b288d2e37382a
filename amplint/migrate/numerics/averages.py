"""Running sums that a forward keeps in a buffer and multiplies with, such as a codebook: they may exceed float16."""

from __future__ import annotations

import ast

from amplint.facts.values import Function, is_self
from amplint.migrate.facts import Facts
from amplint.migrate.model import RefusalError
from amplint.migrate.tree import FUNCTIONS, own_call, walk

_PRODUCTS = frozenset(("matmul", "mm", "bmm", "mv", "einsum", "addmm", "baddbmm", "linear"))
_IN_PLACE = frozenset(("copy_", "add_", "mul_", "div_", "lerp_"))
_SAME_TENSOR = frozenset(("t", "T", "mT", "transpose", "permute", "data", "detach", "clone", "view", "unsqueeze"))


def check(facts: Facts) -> None:
    """Raise `RefusalError` for a module whose forward changes a buffer in place that it also takes a product with.

    An entry that is seldom used is divided by a count near 0 (as in VQ-VAE with moving averages) and exceeds float16.
    """
    for cls in facts.module_classes:
        methods = [member for member in cls.body if isinstance(member, FUNCTIONS)]
        forwards = [method for method in methods if method.name in ("forward", "__call__")]
        called = {own_call(node) for method in forwards for node in walk(method)}
        forwards += [method for method in methods if method.name in called]
        changed = {name for method in forwards for name in _changed(method)}
        for method in forwards:
            for node in walk(method):
                for operand in _operands(facts, node):
                    if (name := _attribute(operand)) in changed:
                        raise RefusalError(
                            operand,
                            f"`self.{name}` is changed in each forward and taken a product with, in which it may "
                            "exceed the range of float16; use --dtype bfloat16",
                        )


def _changed(method: Function) -> set[str]:
    """The attributes that a method changes in place: `self.x.data.copy_(...)`, `self.x.mul_(...)`."""
    found = set()
    for node in walk(method):
        if isinstance(node, ast.Attribute) and node.attr in _IN_PLACE:
            found.add(_attribute(node.value))
    return found - {""}


def _operands(facts: Facts, node: ast.AST) -> list[ast.expr]:
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.MatMult):
        return [node.left, node.right]
    if not isinstance(node, ast.Call):
        return []
    names = facts.file.resolve(node.func)
    if names and names[0].rsplit(".", 1)[-1] in _PRODUCTS:
        return [inner for a in node.args for inner in (a.elts if isinstance(a, (ast.List, ast.Tuple)) else [a])]
    if not names and isinstance(node.func, ast.Attribute) and node.func.attr in _PRODUCTS:
        return [node.func.value, *node.args]
    return []


def _attribute(node: ast.expr) -> str:
    """The `x` of `self.x`, also transposed or without its gradient; an empty string for anything else."""
    while isinstance(node, (ast.Call, ast.Attribute, ast.Subscript)):
        if isinstance(node, ast.Attribute) and is_self(node.value):
            return node.attr
        if isinstance(node, ast.Attribute) and node.attr not in _SAME_TENSOR:
            return ""
        node = node.func if isinstance(node, ast.Call) else node.value
    return ""
