"""Autograd functions of a file's own: they must not meet half precision, but for those that pass a value on, and its
gradient times a number, as a gradient reversal does."""

from __future__ import annotations

import ast
from collections.abc import Callable
from typing import TYPE_CHECKING

from amplint.facts.values import path_of
from amplint.migrate.model import RefusalError
from amplint.migrate.regions import surrogates
from amplint.migrate.tree import FUNCTIONS, is_none, statements_in

if TYPE_CHECKING:
    from amplint.source import SourceFile

REASON = "a custom autograd function needs custom_fwd and custom_bwd, or float32 inputs; adapt it first"
_BASES = frozenset(("torch.autograd.Function", "Function", "autograd.Function"))

_SAME = frozenset(("view_as", "clone", "view", "contiguous", "neg", "detach", "expand_as"))
_NUMBERS = frozenset(("new_tensor", "float", "item"))


def check(file: SourceFile, nodes: list[ast.AST], is_half: Callable[[ast.expr], bool]) -> None:
    """Raise `RefusalError` for one that runs among the nodes, on what `is_half`, or where that can't be seen; those of
    metrics may stand."""
    inside = {id(node) for node in nodes}
    for cls in (scope for scope in file.names.scopes if isinstance(scope, ast.ClassDef)):
        for use in file.names.loads.get(cls.name, ()):
            attribute = file.parent(use)
            call = file.parent(attribute) if isinstance(attribute, ast.Attribute) else None
            is_called = isinstance(call, ast.Call) and call.func is attribute
            given = call.args if isinstance(call, ast.Call) else []
            if not is_called or id(use) in inside or any(is_half(argument) for argument in given):
                check_class(file, cls)


def check_class(file: SourceFile, cls: ast.ClassDef) -> None:
    """Raise `RefusalError` for an autograd function of a file's own, but for one that passes its input on, or that
    only needs float32 where it is applied."""
    if passes_on(cls) or (surrogates.is_elementwise(file, cls) and surrogates.is_seen(file, cls)):
        return
    for base in cls.bases:
        if _BASES.intersection(file.resolve(base) or (path_of(base),)):
            raise RefusalError(cls, REASON)


def passes_on(cls: ast.ClassDef) -> bool:
    """Whether `forward` returns its first input and `backward` a multiple of the gradient, in any precision."""
    methods = {member.name: member for member in cls.body if isinstance(member, FUNCTIONS)}
    forward, backward = methods.get("forward"), methods.get("backward")
    if forward is None or backward is None or len(methods) != 2:
        return False
    return _is_linear_method(forward) and _is_linear_method(backward)


def _is_linear_method(function: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    """Whether a method gives back its first argument times numbers, and nothing else that is computed of it."""
    arguments = [arg.arg for arg in function.args.args]
    if len(arguments) < 2:
        return False
    context, values = arguments[0], {arguments[1]}
    for statement in statements_in(function):
        if isinstance(statement, ast.Return):
            results = statement.value.elts if isinstance(statement.value, ast.Tuple) else [statement.value]
            if not results or not all(is_none(r) or _is_linear(r, values) for r in results):
                return False
        elif isinstance(statement, ast.Assign):
            target = statement.targets[0]
            if isinstance(target, ast.Name) and _is_linear(statement.value, values):
                values.add(target.id)
            elif not _is_number(statement.value, values) or not (
                isinstance(target, ast.Name) or (isinstance(target, ast.Attribute) and path_of(target.value) == context)
            ):
                return False
        elif not _is_comment(statement) and not (
            isinstance(statement, ast.If) and "needs_input_grad" in ast.unparse(statement.test)
        ):
            return False
    return any(isinstance(statement, ast.Return) for statement in statements_in(function))


def _is_linear(node: ast.expr | None, values: set[str]) -> bool:
    """Whether an expression is one of the values times numbers."""
    if isinstance(node, ast.Name):
        return node.id in values
    if isinstance(node, ast.UnaryOp):
        return isinstance(node.op, ast.USub) and _is_linear(node.operand, values)
    if isinstance(node, ast.BinOp):
        if isinstance(node.op, ast.Mult) and _is_linear(node.right, values):
            return _is_number(node.left, values)
        return (
            isinstance(node.op, (ast.Mult, ast.Div))
            and _is_linear(node.left, values)
            and _is_number(node.right, values)
        )
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        return node.func.attr in _SAME and _is_linear(node.func.value, values)
    return False


def _is_number(node: ast.expr, values: set[str]) -> bool:
    """Whether an expression is made of numbers and of what the context keeps, and not of the values."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _NUMBERS:
        return all(_is_number(argument, values) for argument in node.args)
    return not any(
        isinstance(inner, ast.Call) or (isinstance(inner, ast.Name) and inner.id in values) for inner in ast.walk(node)
    )


def _is_comment(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)
