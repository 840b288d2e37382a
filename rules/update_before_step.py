"""AMP203: the scaler is updated with nothing to update from."""

from __future__ import annotations

from collections.abc import Iterator

from amplint.flow.violations import Violation
from amplint.model import Applicability, Finding, Fix, Level
from amplint.rewrite.protocol_fixes import bare_call, finding, innermost_loop, method_calls, move, same_block
from amplint.rule import rule
from amplint.source import SourceFile


@rule(
    "AMP203",
    "update-before-step",
    level=Level.ERROR,
    fix=Applicability.SAFE,
    triggers=(".update(",),
)
def update_before_step(file: SourceFile) -> Iterator[Finding]:
    """
    `update()` sets the scale from what `unscale_` and `step` saw since the last update. Before the step there is
    nothing, and it raises `No inf checks were recorded prior to update`; with an `unscale_` in between, the first step
    is divided by the scale twice.

    ```python bad
    import torch


    def train(model, loader, optimizer):
        scaler = torch.amp.GradScaler("cuda")
        for x in loader:
            optimizer.zero_grad()
            with torch.autocast("cuda", dtype=torch.float16):
                loss = model(x).mean()
            scaler.scale(loss).backward()
            scaler.update()
            scaler.step(optimizer)
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
            scaler.step(optimizer)
            scaler.update()
    ```
    """
    for violation in file.violations("update-before-step"):
        message = (
            "`update()` before any step or `unscale_` of this iteration: torch raises, no inf checks were recorded"
        )
        yield finding("AMP203", violation, message, _fix(file, violation))


def _fix(file: SourceFile, violation: Violation) -> Fix | None:
    """Move the update behind the last step after it in the same block."""
    update = bare_call(file, violation)
    loop = innermost_loop(file, update) if update is not None else None
    if update is None or not violation.scaler:
        return None
    steps = [file.statement(call) for call in method_calls(file, loop or file.tree, "step", violation.scaler)]
    later = [step for step in steps if step.lineno > update.lineno and same_block(file, update, step)]
    edits = move(file, update, after=later[-1]) if later else None
    return None if edits is None else Fix("Update after the step", edits, Applicability.SAFE)
