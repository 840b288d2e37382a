"""What a call of `backward` becomes under a scaler, and which gradients it may be given."""

from __future__ import annotations

import ast

from amplint.facts.training import losses
from amplint.facts.values import path_of
from amplint.migrate.editor import Editor
from amplint.migrate.facts import Facts
from amplint.migrate.model import RefusalError
from amplint.migrate.regions.graph import Graph
from amplint.migrate.tree import base_path
from amplint.model import Span

_GRADIENT = "backward() gets a gradient or makes a graph of its own, which scaling would change"
_CONSTANTS = frozenset(
    f"torch.{name}"
    for name in (
        "ones", "ones_like", "full", "full_like", "tensor", "Tensor", "FloatTensor", "cuda.FloatTensor", "neg", "zeros",
    )
)  # fmt: skip
_MOVES = frozenset(
    ("to", "cuda", "cpu", "float", "expand", "expand_as", "view", "repeat", "type", "neg", "fill_", "mul")
)
_SCALARS = frozenset(("mean", "sum"))


def write_backward(facts: Facts, graph: Graph, editor: Editor, call: ast.Call, scaler: str, name: str) -> None:
    """Write `scaler.scale(loss).backward()`; `name` is that of the loss where it was an expression, else empty.

    A constant gradient, as in `loss.backward(minus_one)`, stays: it is multiplied with the scale. The loss is given as
    float32 then, unless it is a scalar: a half vector times the scale would be infinite. Raises `RefusalError` for any
    other gradient and for graphs of the backward itself.
    """
    file = facts.file
    receiver = facts.loss_of(call)
    statement = file.statement(call)
    if not isinstance(statement, ast.Expr) or statement.value is not call:
        raise RefusalError(call, "backward() is part of another expression; put it on a line of its own")
    if not isinstance(call.func, ast.Attribute) or call.func.value is not receiver:
        _write_function(facts, editor, call, scaler, name)
        return
    given = call.args[0] if call.args else next((k.value for k in call.keywords if k.arg == "gradient"), None)
    known = all(keyword.arg in ("retain_graph", "gradient") for keyword in call.keywords)
    if not known or len(call.args) > 1 or (given is not None and not is_constant_gradient(facts, given)):
        raise RefusalError(call, _GRADIENT)
    vector = given is not None and not (
        isinstance(given, ast.Constant) or _is_scalar(facts, graph, receiver, statement)
    )
    cast = ".float()" if vector else ""
    if not name and file.span(call).start != file.span(receiver).start:  # it stands in parentheses
        name = f"({file.segment(receiver)})" if cast else file.segment(receiver)
    if name:
        span = Span(file.span(call).start, file.span(call.func).end)
        editor.replace(span, f"{scaler}.scale({name}{cast}).backward")
        return
    span = file.span(receiver)
    editor.insert(span.start, f"{scaler}.scale(")
    editor.insert(span.end, f"{cast})")


def _write_function(facts: Facts, editor: Editor, call: ast.Call, scaler: str, name: str) -> None:
    """Write `torch.autograd.backward(scaler.scale(loss))`."""
    if len(call.args) > 1 or any(keyword.arg not in ("tensors", "retain_graph") for keyword in call.keywords):
        raise RefusalError(call, _GRADIENT)
    span = facts.file.span(facts.loss_of(call))
    if name:
        editor.replace(span, f"{scaler}.scale({name})")
        return
    editor.insert(span.start, f"{scaler}.scale(")
    editor.insert(span.end, ")")


def is_constant_gradient(facts: Facts, node: ast.expr, depth: int = 0) -> bool:
    """Whether a gradient is surely a constant, such as `one`, `-torch.ones(8)` or None."""
    file = facts.file
    if depth > 8:
        return False
    if isinstance(node, ast.Constant):
        return True
    if isinstance(node, ast.UnaryOp):
        return is_constant_gradient(facts, node.operand, depth + 1)
    if isinstance(node, ast.BinOp):
        return all(is_constant_gradient(facts, side, depth + 1) for side in (node.left, node.right))
    if isinstance(node, ast.IfExp):
        return all(is_constant_gradient(facts, side, depth + 1) for side in (node.body, node.orelse))
    if isinstance(node, (ast.Name, ast.Attribute)):
        if file.resolve(node):
            return False
        values = file.values.of(node)
        own = path_of(node)
        # `one = one.cuda()` is a value of `one` that leads back to it.
        others = [v for v in values if not (isinstance(v, ast.Call) and _is_moved(v) and _receiver(v) == own)]
        return bool(others) and all(
            isinstance(value, ast.expr) and value is not node and is_constant_gradient(facts, value, depth + 1)
            for value in others
        )
    if not isinstance(node, ast.Call):
        return False
    names = file.resolve(node.func)
    if "torch.autograd.Variable" in names and node.args:
        return is_constant_gradient(facts, node.args[0], depth + 1)
    if names:
        return any(name in _CONSTANTS for name in names)
    return _is_moved(node) and is_constant_gradient(facts, node.func.value, depth + 1)  # type: ignore[attr-defined]


def _is_moved(call: ast.Call) -> bool:
    return isinstance(call.func, ast.Attribute) and call.func.attr in _MOVES


def _receiver(call: ast.Call) -> str:
    """The path on which a method is called."""
    return base_path(call.func.value) if isinstance(call.func, ast.Attribute) else ""


def _is_scalar(facts: Facts, graph: Graph, loss: ast.expr, at: ast.stmt, depth: int = 0) -> bool:
    """Whether a loss surely has no dimensions: a loss function, a mean or a sum over all made it."""
    file = facts.file
    if isinstance(loss, (ast.Name, ast.Attribute)) and path_of(loss) and depth < 4:
        reaching = [(s, v) for s, v in graph.reaching(path_of(loss), at) if graph.is_graph(v)]
        return bool(reaching) and all(_is_scalar(facts, graph, value, s, depth + 1) for s, value in reaching)
    if isinstance(loss, ast.UnaryOp):
        return _is_scalar(facts, graph, loss.operand, at, depth)
    if isinstance(loss, ast.BinOp):
        sides = [side for side in (loss.left, loss.right) if graph.is_graph(side)]
        return bool(sides) and all(_is_scalar(facts, graph, side, at, depth) for side in sides)
    if not isinstance(loss, ast.Call):
        return False
    if losses(file, loss):
        return not any(keyword.arg == "reduction" for keyword in loss.keywords)
    if any(name.removeprefix("torch.") in _SCALARS for name in file.resolve(loss.func)):
        return len(loss.args) == 1 and not loss.keywords
    return isinstance(loss.func, ast.Attribute) and loss.func.attr in _SCALARS and not (loss.args or loss.keywords)
