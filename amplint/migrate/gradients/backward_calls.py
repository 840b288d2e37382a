"""The calls that go backward on a loss, and what goes backward in ways that can't be followed."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from amplint.facts.values import is_self, path_of

if TYPE_CHECKING:
    from amplint.source import SourceFile

_FUNCTION = "torch.autograd.backward"
_BY_NAME = frozenset(("getattr", "operator.methodcaller", "operator.attrgetter"))


def find(file: SourceFile) -> tuple[ast.Call, ...]:
    """The calls `loss.backward(...)` and `torch.autograd.backward(loss)`, in the order of the text."""
    found = [call for call in _functional(file) if _single_loss(call) is not None]
    for use in file.names.attributes.get("backward", ()):
        call = file.parent(use)
        if isinstance(call, ast.Call) and call.func is use and not file.values.functions(call):
            receiver = use.value
            is_super = isinstance(receiver, ast.Call) and path_of(receiver.func) == "super"
            if not is_super and not is_self(receiver) and not file.resolve(use):
                found.append(call)
    return tuple(sorted(found, key=lambda c: (c.lineno, c.col_offset)))


def hidden(file: SourceFile) -> tuple[ast.expr, ...]:
    """Where something goes backward and is no plain call: on several tensors, by `getattr`, as a bound method."""
    found: list[ast.expr] = [call for call in _functional(file) if _single_loss(call) is None]
    plain = find(file)
    for use in file.names.attributes.get("backward", ()):
        call = file.parent(use)
        if isinstance(call, ast.Call) and call.func is use:
            if call in plain and _in_lambda(file, call):
                found.append(call)
        elif isinstance(use.ctx, ast.Load) and not is_self(use.value) and not file.resolve(use):
            found.append(use)
    for text in file.names.strings:
        call = file.parent(text)
        if text.value == "backward" and isinstance(call, ast.Call) and text in call.args:
            names = file.resolve(call.func) or (path_of(call.func),)
            if _BY_NAME.intersection(names):
                found.append(call)
    return tuple(found)


def loss_of(file: SourceFile, call: ast.Call) -> ast.expr:
    """What a call among those found goes backward on."""
    if _FUNCTION in file.resolve(call.func):
        loss = _single_loss(call)
        assert loss is not None
        return loss
    assert isinstance(call.func, ast.Attribute)
    return call.func.value


def _functional(file: SourceFile) -> list[ast.Call]:
    return [call for call in file.names.calls if _FUNCTION in file.resolve(call.func)]


def _single_loss(call: ast.Call) -> ast.expr | None:
    """The one tensor that `torch.autograd.backward` gets, None where it gets several or something unknown."""
    given = call.args[0] if call.args else next((k.value for k in call.keywords if k.arg == "tensors"), None)
    if isinstance(given, (ast.List, ast.Tuple)):
        given = given.elts[0] if len(given.elts) == 1 else None
    return None if isinstance(given, (ast.ListComp, ast.GeneratorExp, ast.Starred)) else given


def _in_lambda(file: SourceFile, node: ast.AST) -> bool:
    parent = file.parent(node)
    while isinstance(parent, ast.expr):
        if isinstance(parent, ast.Lambda):
            return True
        parent = file.parent(parent)
    return False
