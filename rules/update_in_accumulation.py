"""AMP209: the scaler is updated on every micro-batch and steps only at the boundary."""

from __future__ import annotations

from collections.abc import Iterator

from amplint.flow.violations import Violation
from amplint.model import Applicability, Finding, Fix, Level
from amplint.rewrite.protocol_fixes import bare_call, finding, innermost_loop, method_calls, move
from amplint.rule import rule
from amplint.source import SourceFile


@rule(
    "AMP209",
    "update-in-accumulation",
    level=Level.ERROR,
    fix=Applicability.UNSAFE,
    triggers=(".update(",),
)
def update_in_accumulation(file: SourceFile) -> Iterator[Finding]:
    """
    Gradients of several micro-batches are added up, so all of them must carry the same scale: update only where the
    optimizer steps. On the other micro-batches `update()` raises `No inf checks were recorded prior to update`.

    ```python bad
    import torch


    def train(model, loader, optimizer, every):
        scaler = torch.amp.GradScaler("cuda")
        for i, x in enumerate(loader):
            with torch.autocast("cuda", dtype=torch.float16):
                loss = model(x).mean() / every
            scaler.scale(loss).backward()
            if (i + 1) % every == 0:
                scaler.step(optimizer)
                optimizer.zero_grad()
            scaler.update()
    ```

    ```python good
    import torch


    def train(model, loader, optimizer, every):
        scaler = torch.amp.GradScaler("cuda")
        for i, x in enumerate(loader):
            with torch.autocast("cuda", dtype=torch.float16):
                loss = model(x).mean() / every
            scaler.scale(loss).backward()
            if (i + 1) % every == 0:
                scaler.step(optimizer)
                scaler.update()
                optimizer.zero_grad()
    ```
    """
    for violation in file.violations("update-in-accumulation"):
        message = "updated on micro-batches that do not step: torch raises, and the scale may change half-way"
        yield finding("AMP209", violation, message, _fix(file, violation))


def _fix(file: SourceFile, violation: Violation) -> Fix | None:
    """Move the update behind the only step of the loop."""
    update = bare_call(file, violation)
    loop = innermost_loop(file, update) if update is not None else None
    if update is None or loop is None or not violation.scaler:
        return None
    steps = method_calls(file, loop, "step", violation.scaler)
    edits = move(file, update, after=file.statement(steps[0])) if len(steps) == 1 else None
    return None if edits is None else Fix("Update where the optimizer steps", edits, Applicability.UNSAFE)
