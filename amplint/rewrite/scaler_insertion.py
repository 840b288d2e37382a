"""Put a GradScaler into a plain training loop: construct it before the loop, scale, step and update inside."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from amplint.facts.contexts import Autocast
from amplint.facts.training import is_optimizer_name
from amplint.facts.values import inside, path_of
from amplint.model import Edit
from amplint.rewrite import statements
from amplint.torch_api import APIS, CURRENT

if TYPE_CHECKING:
    from amplint.source import SourceFile

_NAME = "scaler"
_CLIPS = frozenset(("clip_grad_norm_", "clip_grad_value_", "clip_grad_norm", "clip_grad_value"))


def insert_scaler(file: SourceFile, backward: ast.Call, autocast: Autocast) -> tuple[Edit, ...] | None:
    """The edits that scale one loss and step its optimizer through a new scaler.

    None unless the loop is simple: one backward and one optimizer step in it, in statements of their own, no clipping,
    nothing that already has the name `scaler`, `torch` itself imported, and autocast on one known device.
    """
    loop = _outermost_loop(file, backward)
    devices = autocast.devices
    if loop is None or len(devices) != 1 or _NAME in file.names.loads or file.resolve(_torch(backward)) != ("torch",):
        return None
    calls = [node for node in inside(loop) if isinstance(node, ast.Call)]
    steps = [call for call in calls if _is_step(call)]
    backwards = [call for call in calls if isinstance(call.func, ast.Attribute) and call.func.attr == "backward"]
    if len(steps) != 1 or backwards != [backward] or any(_last(call) in _CLIPS for call in calls):
        return None
    step, made = steps[0], _construction(file, next(iter(devices)))
    alone = all(isinstance(file.parent(call), ast.Expr) for call in (step, backward))
    if made is None or step.args or step.keywords or not alone:
        return None
    before = statements.insert_before(file, loop, f"{_NAME} = {made}")
    update = statements.insert_after(file, file.statement(step), f"{_NAME}.update()")
    if before is None or update is None:
        return None
    assert isinstance(backward.func, ast.Attribute)
    assert isinstance(step.func, ast.Attribute)
    loss = backward.func.value
    return (
        before,
        Edit(file.span(loss), f"{_NAME}.scale({file.segment(loss)})"),
        Edit(file.span(step), f"{_NAME}.step({file.segment(step.func.value)})"),
        update,
    )


def _torch(place: ast.expr) -> ast.Name:
    return ast.copy_location(ast.Name("torch", ast.Load()), place)


def _construction(file: SourceFile, device: str) -> str | None:
    floor = file.settings.target_torch or CURRENT
    if APIS["torch.amp.GradScaler"].signature(floor) is not None:
        return f'torch.amp.GradScaler("{device}")'
    return "torch.cuda.amp.GradScaler()" if device == "cuda" else None


def _outermost_loop(file: SourceFile, node: ast.AST) -> ast.stmt | None:
    found, current = None, file.parent(node)
    while current is not None and not isinstance(current, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
        if isinstance(current, (ast.For, ast.AsyncFor, ast.While)):
            found = current
        current = file.parent(current)
    return found


def _last(call: ast.Call) -> str:
    return path_of(call.func).rsplit(".", 1)[-1]


def _is_step(call: ast.Call) -> bool:
    """Whether a call steps an optimizer, by the optimizer's name."""
    func = call.func
    return isinstance(func, ast.Attribute) and func.attr == "step" and is_optimizer_name(func.value)
