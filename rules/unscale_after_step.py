"""AMP304: the gradients are unscaled after the step that needed it."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from amplint.facts.values import path_of
from amplint.flow.violations import Violation
from amplint.model import Applicability, Finding, Fix, Level
from amplint.rewrite import statements
from amplint.rewrite.protocol_fixes import bare_call, call_at, finding, move, named, same_block
from amplint.rule import rule
from amplint.source import SourceFile

_CLIP = "clip_grad"


@rule(
    "AMP304",
    "unscale-after-step",
    level=Level.ERROR,
    fix=Applicability.SAFE,
    triggers=("unscale_",),
)
def unscale_after_step(file: SourceFile) -> Iterator[Finding]:
    """
    `scaler.step` has already unscaled the gradients and used them. `unscale_` after it raises `unscale_() is being
    called after step()`.

    ```python bad
    import torch


    def train(model, loader, optimizer):
        scaler = torch.amp.GradScaler("cuda")
        for x in loader:
            optimizer.zero_grad()
            with torch.autocast("cuda", dtype=torch.float16):
                loss = model(x).mean()
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.unscale_(optimizer)
            scaler.update()
    ```

    ```python good
    import torch


    def train(model, loader, optimizer):
        scaler = torch.amp.GradScaler("cuda")
        for x in loader:
            optimizer.zero_grad()
            with torch.autocast("cuda", dtype=torch.float16):
                loss = model(x).mean()
            scaler.scale(loss).backward()
            scaler.unscale_(optimizer)
            scaler.step(optimizer)
            scaler.update()
    ```
    """
    for violation in file.violations("unscale-after-step"):
        optimizer = named(violation.optimizer or "the optimizer")
        message = f"{optimizer} was already stepped since the last `update()`: torch raises at this `unscale_`"
        yield finding("AMP304", violation, message, _fix(file, violation))


def _fix(file: SourceFile, violation: Violation) -> Fix | None:
    """Unscale before the step where both stand in one block, and clip before it as well where a clip follows."""
    unscale = bare_call(file, violation)
    step = call_at(file, violation.related) if violation.related is not None else None
    if unscale is None or step is None or not violation.certain or not same_block(file, unscale, file.statement(step)):
        return None
    clip = _last_clip(file, unscale)
    if clip is None:
        edits = move(file, unscale, before=file.statement(step))
    else:
        edits = move(file, file.statement(step), after=clip)
    return None if edits is None else Fix("Unscale before the step", edits, Applicability.SAFE)


def _last_clip(file: SourceFile, unscale: ast.stmt) -> ast.stmt | None:
    """The last clip that directly follows an `unscale_`, perhaps with others of its kind between."""
    block = statements.siblings(file, unscale)
    last = None
    for statement in block[block.index(unscale) + 1 :]:
        if not any(isinstance(node, ast.Call) and _CLIP in path_of(node.func) for node in ast.walk(statement)):
            break
        last = statement
    return last
