"""Gradients that overflowed: the scaler skips the step, and nothing keeps them from what a script computes itself."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, Final

from amplint.facts.values import path_of
from amplint.migrate.facts import Facts
from amplint.migrate.model import RefusalError
from amplint.migrate.tree import statements_in, walk

if TYPE_CHECKING:
    from amplint.facts.values import Function

_ADDS: Final = frozenset(("add_", "sub_", "mul_", "addcmul_", "addcdiv_", "lerp_", "copy_"))
_PARAMETERS: Final = frozenset(("parameters", "named_parameters"))
_BY_HAND: Final = (
    "parameters are changed by their gradients here, which may be infinite in a step that the scaler skips; let an "
    "optimizer do it"
)
_ASSERTED: Final = "infinite gradients stop the script here, and a scaler meets them as a matter of course"
_CARRIED: Final = (
    "a running average of gradients is added to gradients here, and one step that the scaler skips would leave it "
    "infinite; keep it in an optimizer"
)


def check(facts: Facts) -> None:
    """Raise `RefusalError` where gradients come into parameters without the optimizer, or into a running average that
    comes back into gradients. In float16 the first steps overflow, and the scaler skips them alone."""
    owners: list[Function | ast.Module] = [*facts.functions, facts.file.tree]
    for owner in owners:
        if owner in facts.functions and facts.is_step_of_optimizer(owner):
            continue
        statements = list(statements_in(owner))
        names = _names_of_gradients(statements)
        parameters = _parameters(statements)
        for statement in statements:
            if isinstance(statement, ast.Assert) and _asks_for_finite_gradients(statement.test, names):
                raise RefusalError(statement, _ASSERTED)
            if _changes_parameter(statement, parameters, names):
                raise RefusalError(statement, _BY_HAND)
        carried = {path for statement in statements if (path := _averaged(statement, names))}
        for statement in statements:
            if any(_is_gradient(target) and _reads(given, carried) for target, given in _changes(statement)):
                raise RefusalError(statement, _CARRIED)


def _changes(statement: ast.stmt) -> list[tuple[ast.expr, list[ast.expr]]]:
    """What a statement gives a value, or changes in place, and of what the new value is made."""
    if isinstance(statement, ast.Assign):
        return [(target, [statement.value]) for target in statement.targets]
    if isinstance(statement, ast.AugAssign):
        return [(statement.target, [statement.target, statement.value])]
    found = []
    for node in walk(statement) if isinstance(statement, ast.Expr) else ():
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _ADDS:
            receiver: ast.expr = node.func.value
            while isinstance(receiver, ast.Call) and isinstance(receiver.func, ast.Attribute):
                receiver = receiver.func.value  # `a.mul_(0.9).add_(b)` changes `a`
            found.append((receiver, [receiver, *node.args, *(keyword.value for keyword in node.keywords)]))
    return found


def _is_gradient(node: ast.AST) -> bool:
    """Whether an expression is `p.grad`, or `p.grad.data`."""
    while isinstance(node, ast.Attribute):
        if node.attr == "grad":
            return True
        node = node.value
    return False


def _has_gradient(node: ast.AST, names: set[str]) -> bool:
    return any(
        (isinstance(inner, ast.Attribute) and inner.attr == "grad")
        or (isinstance(inner, ast.Name) and inner.id in names)
        for inner in ast.walk(node)
    )


def _asks_for_finite_gradients(test: ast.expr, names: set[str]) -> bool:
    asked = {node.attr for node in ast.walk(test) if isinstance(node, ast.Attribute)}
    return bool(asked & {"isnan", "isinf", "isfinite"}) and _has_gradient(test, names)


def _names_of_gradients(statements: list[ast.stmt]) -> set[str]:
    """The names of what is computed of gradients."""
    found: set[str] = set()
    for statement in statements:
        if isinstance(statement, ast.Assign) and _has_gradient(statement.value, found):
            found |= {target.id for target in statement.targets if isinstance(target, ast.Name)}
    return found


def _parameters(statements: list[ast.stmt]) -> set[str]:
    """The variables of loops over parameters."""
    return {
        name.id
        for statement in statements
        if isinstance(statement, ast.For)
        and any(
            (isinstance(n, ast.Attribute) and n.attr in _PARAMETERS)
            or (isinstance(n, ast.Constant) and n.value == "params")
            for n in ast.walk(statement.iter)
        )
        for name in ast.walk(statement.target)
        if isinstance(name, ast.Name)
    }


def _changes_parameter(statement: ast.stmt, parameters: set[str], names: set[str]) -> bool:
    """Whether a statement adds something of a gradient to a parameter: `p.add_(p.grad)`, `p -= lr * p.grad`."""
    return any(
        _is_one(target, parameters) and any(_has_gradient(value, names) for value in given)
        for target, given in _changes(statement)
        if not isinstance(target, ast.Name) or not isinstance(statement, ast.Assign)
    )


def _is_one(node: ast.AST, parameters: set[str]) -> bool:
    """Whether an expression is a parameter, or its data."""
    return isinstance(node, (ast.Name, ast.Attribute)) and path_of(node).removesuffix(".data") in parameters


def _averaged(statement: ast.stmt, names: set[str]) -> str:
    """The path of a container in which a statement averages gradients with what was there before; else empty."""
    for target, given in _changes(statement):
        path = path_of(target.value) if isinstance(target, ast.Subscript) else ""
        if path and _reads(given, {path}) and any(_has_gradient(value, names) for value in given):
            return path
    return ""


def _reads(given: list[ast.expr], paths: set[str]) -> bool:
    return any(
        isinstance(node, (ast.Name, ast.Attribute)) and path_of(node) in paths
        for value in given
        for node in ast.walk(value)
    )
