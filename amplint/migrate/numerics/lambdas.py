"""Lambdas: what runs of them under the regions, and what their parameters and those of comprehensions stand for."""

from __future__ import annotations

import ast
from collections.abc import Iterable
from typing import TYPE_CHECKING

from amplint.facts.values import default_of

if TYPE_CHECKING:
    from amplint.names import Scope
    from amplint.source import SourceFile


def of_call(file: SourceFile, call: ast.Call) -> list[ast.Lambda]:
    """The lambdas that a call runs; none where it may run something else."""
    values = file.values.of(call.func)
    found = [value for value in values if isinstance(value, ast.Lambda)]
    return found if len(found) == len(values) else []


def reached(file: SourceFile, nodes: Iterable[ast.AST]) -> list[ast.Lambda]:
    """The lambdas that stand among nodes, those that their calls may run, and those that are handed to a call."""
    found: dict[ast.Lambda, None] = {}
    pending = list(nodes)
    while pending:
        node = pending.pop()
        named: list[ast.AST | None] = [node]
        if isinstance(node, ast.Call):
            for part in (node.func, *node.args, *(keyword.value for keyword in node.keywords)):
                named += file.values.of(part) if isinstance(part, (ast.Name, ast.Attribute)) else (part,)
            if isinstance(node.func, ast.Attribute) and named[1:2] == [node.func]:
                named += _kept_as(file, node.func.attr)
        for value in named:
            if isinstance(value, ast.Lambda) and value not in found:
                found[value] = None
                pending += ast.walk(value.body)
    return list(found)


def _kept_as(file: SourceFile, attribute: str) -> list[ast.expr]:
    """What the file assigns to an attribute of any object."""
    uses = [file.parent(use) for use in file.names.attributes.get(attribute, ()) if isinstance(use.ctx, ast.Store)]
    return [use.value for use in uses if isinstance(use, ast.Assign)]


def scope_of(file: SourceFile, name: ast.Name) -> Scope | None:
    """The lambda or comprehension that a name is a parameter of."""
    scope: Scope | None = file.names.scope_of(name)
    while scope is not None and name.id not in scope.bindings:
        scope = scope.parent
    return scope if scope is not None and scope.kind in ("lambda", "comprehension") else None


def sources(file: SourceFile, scope: Scope, name: str) -> list[ast.expr] | None:
    """What a parameter of a lambda is given by all calls, or what a comprehension's name runs over; None where that
    can't be seen."""
    if isinstance(scope.node, (ast.ListComp, ast.SetComp, ast.GeneratorExp, ast.DictComp)):
        return [
            generator.iter
            for generator in scope.node.generators
            if any(isinstance(n, ast.Name) and n.id == name for n in ast.walk(generator.target))
        ]
    assert isinstance(scope.node, ast.Lambda)
    arguments = scope.node.args
    names = [arg.arg for arg in (*arguments.posonlyargs, *arguments.args)]
    calls = [call for call in file.names.calls if scope.node in of_call(file, call)]
    found = []
    for call in calls:
        given = next((keyword.value for keyword in call.keywords if keyword.arg == name), None)
        place = names.index(name) if name in names else len(call.args)
        if given is None and place < len(call.args):
            given = call.args[place]
        if given is None:
            given = next((default_of(arguments, arg) for arg in arguments.args if arg.arg == name), None)
        if given is None or isinstance(given, ast.Starred):
            return None
        found.append(given)
    return found or None
