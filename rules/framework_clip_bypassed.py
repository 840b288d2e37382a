"""AMP602: gradients are clipped by torch where Accelerate or Fabric must do it."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from amplint.facts import frameworks
from amplint.facts.frameworks import Holder
from amplint.model import Applicability, Edit, Finding, Fix, Label, Level
from amplint.rule import rule
from amplint.source import SourceFile

_CLIPS = {
    "torch.nn.utils.clip_grad_norm_": "clip_grad_norm_",
    "torch.nn.utils.clip_grad_value_": "clip_grad_value_",
    "torch.nn.utils.clip_grad.clip_grad_norm_": "clip_grad_norm_",
    "torch.nn.utils.clip_grad.clip_grad_value_": "clip_grad_value_",
}

_UNSCALE = {
    frameworks.ACCELERATE: ("unscale_gradients", *sorted({*_CLIPS.values()})),
    frameworks.FABRIC: ("clip_gradients",),
}
"""The methods by which a framework unscales, itself or before it clips (Accelerate 1.x, Lightning 2.x)."""


@rule(
    "AMP602",
    "framework-clip-bypassed",
    level=Level.WARNING,
    fix=Applicability.SAFE,
    triggers=("Accelerator", "Fabric"),
)
def framework_clip_bypassed(file: SourceFile) -> Iterator[Finding]:
    """
    Accelerate unscales gradients in its own `clip_grad_norm_`. torch's function clips them while they are still
    multiplied by the loss scale (65536 at first), so every step meets the threshold and the update all but vanishes.

    ```python bad
    import torch
    from accelerate import Accelerator


    def train(model, loader, optimizer):
        accelerator = Accelerator(mixed_precision="fp16")
        model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
        for x, y in loader:
            optimizer.zero_grad()
            accelerator.backward((model(x) - y).pow(2).mean())
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
    ```

    ```python good
    import torch
    from accelerate import Accelerator


    def train(model, loader, optimizer):
        accelerator = Accelerator(mixed_precision="fp16")
        model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
        for x, y in loader:
            optimizer.zero_grad()
            accelerator.backward((model(x) - y).pow(2).mean())
            accelerator.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
    ```

    Fabric's is `fabric.clip_gradients(model, optimizer, max_norm=1.0)`. Silent where `accelerator.unscale_gradients()`
    is called, and where the precision in view scales no loss (`no`, `bf16`, Fabric's default `32-true`).
    """
    for holder in frameworks.holders(file):
        if not _may_scale(holder):
            continue
        wrapped = frameworks.prepared(file, holder)
        unscales = {file.outermost_function(call) for call in frameworks.calls_on(file, holder, *_UNSCALE[holder.kind])}
        for ref in file.refs:
            method = _CLIPS.get(ref.candidates[0]) if len(ref.candidates) == 1 else None
            call = ref.call
            if method is None or call is None or not frameworks.reaches(file, holder, call):
                continue
            function = file.outermost_function(call)
            if function in unscales or not _is_step_of(file, function, wrapped, holder):
                continue
            labels = [] if holder.call is None else [Label(file.span(holder.call), f"set up here by {holder.kind}")]
            fix = _fix(file, call, method, holder, _stepped(file, function, wrapped))
            message = (
                f"gradients are clipped while {holder.kind}'s loss scale is still on them, which shrinks the update"
            )
            yield Finding("AMP602", file.span(call), message, tuple(labels), fix)


def _may_scale(holder: Holder) -> bool:
    """Whether gradients may carry a loss scale: Accelerate's precision may come from its launcher, and is named
    otherwise; Fabric's is full precision where none is given.
    """
    if holder.kind == frameworks.ACCELERATE:
        return holder.precision not in ("no", "bf16")
    if holder.precision is not None:
        return holder.precision in ("16", "16-mixed")
    return holder.call is None or any(keyword.arg == "precision" for keyword in holder.call.keywords)


def _stepped(file: SourceFile, function: ast.AST, wrapped: set[str]) -> set[str]:
    """The optimizers of the framework that a function steps, as written."""
    return {
        file.segment(node.func.value)
        for node in ast.walk(function)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "step"
    } & wrapped


def _fix(file: SourceFile, call: ast.Call, method: str, holder: Holder, stepped: set[str]) -> Fix | None:
    """Use the framework's own clip; Fabric's needs the module and the optimizer, and is told not to raise when the
    loss scale has just overflowed.
    """
    if holder.kind == frameworks.ACCELERATE:
        edit = Edit(file.span(call.func), f"{holder.text}.{method}")
        return Fix(f"Use `{holder.text}.{method}`", (edit,), Applicability.SAFE)
    parameters = call.args[0] if call.args else None
    if not isinstance(parameters, ast.Call) or not isinstance(parameters.func, ast.Attribute) or parameters.args:
        return None
    if parameters.func.attr != "parameters" or len(stepped) != 1 or len(call.args) != 2 or call.keywords:
        return None
    value = file.segment(call.args[1])
    bound = f"max_norm={value}, error_if_nonfinite=False" if method == "clip_grad_norm_" else f"clip_val={value}"
    text = f"{holder.text}.clip_gradients({file.segment(parameters.func.value)}, {min(stepped)}, {bound})"
    return Fix(f"Use `{holder.text}.clip_gradients`", (Edit(file.span(call), text),), Applicability.SAFE)


def _is_step_of(file: SourceFile, function: ast.AST, wrapped: set[str], holder: Holder) -> bool:
    """Whether a function holds a backward of the holder or steps what it prepared."""
    for node in ast.walk(function):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            receiver = file.segment(node.func.value)
            if node.func.attr == "backward" and receiver == holder.text:
                return True
            if node.func.attr == "step" and receiver in wrapped:
                return True
    return False
