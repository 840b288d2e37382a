"""Tests as conditions of the IR: pure ones become atoms whose text does not depend on the spelling of a comparison."""

from __future__ import annotations

import ast
from collections.abc import Callable

from amplint.flow import ir
from amplint.flow.paths import last_name, path_of
from amplint.flow.vocabulary import PURE_CALLS

Naming = Callable[[str], str]
"""From a path in the source to a path of the IR."""


class _ImpureError(Exception):
    """The expression does something or can't be written as an atom."""


class _Text:
    """An expression as text with gaps for paths."""

    def __init__(self, naming: Naming) -> None:
        self.naming = naming
        self.texts: list[str] = [""]
        self.paths: list[str] = []

    def add(self, text: str) -> None:
        self.texts[-1] += text

    def gap(self, path: str) -> None:
        self.paths.append(self.naming(path))
        self.texts.append("")

    def expression(self, node: ast.AST) -> None:
        path = path_of(node)
        if path is not None and "[*]" not in path:
            self.gap(path)
        elif isinstance(node, ast.Constant):
            self.add(repr(node.value))
        elif isinstance(node, ast.BinOp):
            self._join("(", (node.left, node.right), f" {type(node.op).__name__} ", ")")
        elif isinstance(node, ast.UnaryOp):
            self._join(f"{type(node.op).__name__} ", (node.operand,), "", "")
        elif isinstance(node, ast.BoolOp):
            self._join("(", tuple(node.values), f" {type(node.op).__name__} ", ")")
        elif isinstance(node, ast.Compare):
            self.expression(node.left)
            for operator, right in zip(node.ops, node.comparators, strict=True):
                self.add(f" {type(operator).__name__} ")
                self.expression(right)
        elif isinstance(node, (ast.Tuple, ast.List, ast.Set)):
            self._join("[", tuple(node.elts), ", ", "]")
        elif isinstance(node, ast.Subscript):
            self._join("", (node.value, node.slice), "[", "]")
        elif isinstance(node, ast.Attribute):
            self.expression(node.value)
            self.add(f".{node.attr}")
        elif isinstance(node, ast.Call) and last_name(node.func) in PURE_CALLS:
            if isinstance(node.func, ast.Attribute):
                self.expression(node.func.value)
                self.add(".")
            self._join(f"{last_name(node.func)}(", (*node.args, *(k.value for k in node.keywords)), ", ", ")")
        else:
            raise _ImpureError

    def _join(self, head: str, parts: tuple[ast.expr, ...], between: str, tail: str) -> None:
        self.add(head)
        for index, part in enumerate(parts):
            if index:
                self.add(between)
            self.expression(part)
        self.add(tail)


def atom(node: ast.expr, naming: Naming) -> ir.Cond:
    """The condition that a pure expression is true, `Maybe` for any other."""
    if isinstance(node, ast.Compare) and len(node.ops) == 1:
        return _comparison(node.left, node.ops[0], node.comparators[0], naming)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mod):  # `if i % k:` and `if i % k != 0:` are one test
        return ir.Not(_comparison(node, ast.Eq(), ast.Constant(0), naming))
    if isinstance(node, ast.Compare):
        parts = zip([node.left, *node.comparators], node.ops, node.comparators, strict=False)
        conditions = [_comparison(left, operator, right, naming) for left, operator, right in parts]
        whole = conditions[0]
        for condition in conditions[1:]:
            whole = ir.Both(whole, condition)
        return whole
    return _plain(naming, node)


def _plain(naming: Naming, *parts: ast.expr | str) -> ir.Cond:
    text = _Text(naming)
    try:
        for part in parts:
            if isinstance(part, str):
                text.add(part)
            else:
                text.expression(part)
    except _ImpureError:
        return ir.Maybe()
    return ir.Atom(tuple(text.texts), tuple(text.paths))


def _comparison(left: ast.expr, operator: ast.cmpop, right: ast.expr, naming: Naming) -> ir.Cond:
    if isinstance(operator, (ast.NotEq, ast.IsNot, ast.NotIn, ast.GtE, ast.LtE)):
        opposite = {ast.NotEq: ast.Eq, ast.IsNot: ast.Is, ast.NotIn: ast.In, ast.GtE: ast.Lt, ast.LtE: ast.Gt}
        return ir.Not(_comparison(left, opposite[type(operator)](), right, naming))
    if isinstance(operator, ast.Gt):
        return _comparison(right, ast.Lt(), left, naming)
    if isinstance(operator, (ast.Eq, ast.Is)):
        if isinstance(left, ast.Constant) and not isinstance(right, ast.Constant):
            left, right = right, left
        path = path_of(left)
        if path is not None and isinstance(right, ast.Constant):
            if right.value is None:
                return ir.IsNone(naming(path))
            if right.value is True:
                return ir.Truthy(naming(path))
            if right.value is False:
                return ir.Not(ir.Truthy(naming(path)))
        found = _plain(naming, left, " == ", right)
        if path is not None and isinstance(right, ast.Constant) and right.value and isinstance(found, ir.Atom):
            return found._replace(implied=((True, ir.Truthy(naming(path)), True),))
        return found
    if isinstance(operator, ast.Lt):
        found = _plain(naming, left, " < ", right)
        path = path_of(right)
        positive = isinstance(left, ast.Constant) and isinstance(left.value, (int, float)) and left.value >= 0
        if positive and path is not None and "[*]" not in path and isinstance(found, ir.Atom):
            return found._replace(implied=((True, ir.Truthy(naming(path)), True),))
        return found
    return _plain(naming, left, f" {type(operator).__name__} ", right)
