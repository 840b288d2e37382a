"""What becomes of a class or function that is stored instead of called: every call of it that the file shows."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, NamedTuple

from amplint.modernize.exports import is_exported

if TYPE_CHECKING:
    from amplint.names import Scope
    from amplint.source import SourceFile

_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


class Flow(NamedTuple):
    """Where a stored value is called.

    `decorators` are names that stand as bare decorators. `complete` says that nothing else is done with the value in
    this file; `alone` that what is called there can be nothing else. `shared` says that it is an attribute, which
    other files may reach.
    """

    calls: tuple[ast.Call, ...] = ()
    decorators: tuple[ast.Name, ...] = ()
    complete: bool = False
    alone: bool = False
    shared: bool = False


UNSEEN = Flow()


def is_handed_on(file: SourceFile, value: ast.expr) -> bool:
    """Whether a value is returned or put into a container, from where it will be called one day."""
    child: ast.expr = value
    parent = file.parent(child)
    while isinstance(parent, ast.IfExp) and child is not parent.test:
        child, parent = parent, file.parent(parent)
    if isinstance(parent, ast.Dict):
        return child in parent.values
    if isinstance(parent, ast.Lambda):
        return child is parent.body
    return isinstance(parent, (ast.Return, ast.Yield, ast.List, ast.Tuple, ast.Set))


def is_asked_for(file: SourceFile, value: ast.expr) -> bool:
    """Whether a value is only asked whether it is there: `if GradScaler is not None:`, `assert autocast`."""
    child: ast.AST = value
    parent = file.parent(child)
    if isinstance(parent, ast.Compare):
        sides = [parent.left, *parent.comparators]
        return all(side is value or (isinstance(side, ast.Constant) and side.value is None) for side in sides)
    while isinstance(parent, ast.BoolOp) or (isinstance(parent, ast.UnaryOp) and isinstance(parent.op, ast.Not)):
        child, parent = parent, file.parent(parent)
    return isinstance(parent, (ast.If, ast.IfExp, ast.While, ast.Assert)) and child is parent.test


def follow(file: SourceFile, value: ast.expr) -> Flow:
    """Follow a value from the expression that stands for it to all its calls."""
    child: ast.expr = value
    parent = file.parent(child)
    alone = True
    while isinstance(parent, ast.IfExp) and child is not parent.test:
        alone = False
        child, parent = parent, file.parent(parent)
    if isinstance(parent, ast.Call) and parent.func is child:
        return Flow((parent,), (), True, alone)
    if isinstance(parent, ast.Assign) and parent.value is child and len(parent.targets) == 1:
        return _stored(file, parent.targets[0], parent, alone)
    if isinstance(parent, ast.AnnAssign) and parent.value is child:
        return _stored(file, parent.target, parent, alone)
    if isinstance(parent, ast.keyword) and parent.arg == "default_factory":
        return Flow((), (), True, False)  # dataclasses call it without arguments
    if isinstance(parent, ast.arguments):
        return _parameter(file, parent, child)
    return UNSEEN


def _stored(file: SourceFile, target: ast.expr, statement: ast.stmt, alone: bool) -> Flow:
    scope = file.scope(statement)
    if isinstance(target, ast.Name):
        if scope.kind == "class":
            return _attribute(file, target.id, target)
        if target.id in scope.globals or target.id in scope.nonlocals or is_exported(file, target.id):
            return UNSEEN
        return _variable(file, scope, target.id, statement, alone)
    if isinstance(target, ast.Attribute) and isinstance(target.value, ast.Name) and target.value.id in ("self", "cls"):
        return _attribute(file, target.attr, target)
    return UNSEEN


def _variable(file: SourceFile, scope: Scope, name: str, node: ast.AST, alone: bool) -> Flow:
    """The calls of a name where its value comes from one of its bindings."""
    calls: list[ast.Call] = []
    decorators: list[ast.Name] = []
    for inner in file.names.scopes.values():
        if inner is not scope and (name in inner.globals or name in inner.nonlocals):
            return UNSEEN
    for load in file.names.loads.get(name, ()):
        bindings = file.names.lookup(load)
        if not any(binding.node is node for binding in bindings):
            continue
        alone = alone and len(bindings) == 1
        parent = file.parent(load)
        if isinstance(parent, ast.Call) and parent.func is load:
            calls.append(parent)
        elif isinstance(parent, (*_FUNCTIONS, ast.ClassDef)) and load in parent.decorator_list:
            decorators.append(load)
        else:
            return UNSEEN
    return Flow(tuple(calls), tuple(decorators), True, alone)


def _attribute(file: SourceFile, name: str, target: ast.expr) -> Flow:
    """The calls of an attribute of that name in the whole file, whatever object it belongs to."""
    calls: list[ast.Call] = []
    for node in file.names.attributes.get(name, ()):
        if node is target or isinstance(node.ctx, ast.Store):
            continue
        parent = file.parent(node)
        if not (isinstance(parent, ast.Call) and parent.func is node):
            return UNSEEN
        calls.append(parent)
    if isinstance(target, ast.Name) and any(
        file.scope(load) is file.scope(target) for load in file.names.loads.get(name, ())
    ):
        return UNSEEN
    if any(constant.value == name for constant in file.names.strings):
        return UNSEEN
    return Flow(tuple(calls), (), True, False, shared=True)


def _parameter(file: SourceFile, arguments: ast.arguments, default: ast.expr) -> Flow:
    """The calls of a parameter whose default is the value; callers may give others."""
    positional = [*arguments.posonlyargs, *arguments.args]
    pairs: list[tuple[ast.arg, ast.expr | None]] = []
    if arguments.defaults:
        pairs += zip(positional[-len(arguments.defaults) :], arguments.defaults, strict=True)
    pairs += zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)
    parameter = next((arg for arg, value in pairs if value is default), None)
    function = file.parent(arguments)
    if parameter is None or function is None:
        return UNSEEN
    return _variable(file, file.names.scopes[function], parameter.arg, parameter, False)
