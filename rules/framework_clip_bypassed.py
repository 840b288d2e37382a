"""AMP602: gradients are clipped by torch where Accelerate must do it."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from amplint.facts import frameworks
from amplint.model import Applicability, Edit, Finding, Fix, Label, Level
from amplint.rule import rule
from amplint.source import SourceFile

_CLIPS = {
    "torch.nn.utils.clip_grad_norm_": "clip_grad_norm_",
    "torch.nn.utils.clip_grad_value_": "clip_grad_value_",
    "torch.nn.utils.clip_grad.clip_grad_norm_": "clip_grad_norm_",
    "torch.nn.utils.clip_grad.clip_grad_value_": "clip_grad_value_",
}


@rule(
    "AMP602",
    "framework-clip-bypassed",
    level=Level.WARNING,
    fix=Applicability.SAFE,
    triggers=("Accelerator",),
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

    Silent where `accelerator.unscale_gradients()` is called, and where the precision in view is `no` or `bf16`.
    """
    for holder in frameworks.holders(file):
        if holder.kind != frameworks.ACCELERATE or holder.precision in ("no", "bf16"):
            continue
        wrapped = frameworks.prepared(file, holder)
        unscales = {
            frameworks.enclosing_function(file, call)
            for call in frameworks.calls_on(file, holder, "unscale_gradients", *_CLIPS.values())
        }
        for ref in file.refs:
            method = _CLIPS.get(ref.candidates[0]) if len(ref.candidates) == 1 else None
            call = ref.call
            if method is None or call is None or not frameworks.reaches(file, holder, call):
                continue
            function = frameworks.enclosing_function(file, call)
            if function in unscales or not _is_step_of(file, function, wrapped, holder):
                continue
            labels = [] if holder.call is None else [Label(file.span(holder.call), "set up here by Accelerate")]
            edit = Edit(file.span(call.func), f"{holder.text}.{method}")
            fix = Fix(f"Use `{holder.text}.{method}`", (edit,), Applicability.SAFE)
            message = "gradients are clipped while Accelerate's loss scale is still on them, which shrinks the update"
            yield Finding("AMP602", file.span(call), message, tuple(labels), fix)


def _is_step_of(file: SourceFile, function: ast.AST, wrapped: set[str], holder: frameworks.Holder) -> bool:
    """Whether a function holds a backward of the holder or steps what it prepared."""
    for node in ast.walk(function):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            receiver = file.segment(node.func.value)
            if node.func.attr == "backward" and receiver == holder.text:
                return True
            if node.func.attr == "step" and receiver in wrapped:
                return True
    return False
