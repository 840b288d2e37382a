"""AMP207: the scaler steps the optimizer, and the optimizer steps once more by itself."""

from __future__ import annotations

from collections.abc import Iterator

from amplint.flow.violations import Violation
from amplint.model import Applicability, Finding, Fix, Level
from amplint.rewrite.protocol_fixes import bare_call, call_at, delete, finding, named, same_block
from amplint.rule import rule
from amplint.source import SourceFile


@rule(
    "AMP207",
    "double-step",
    level=Level.ERROR,
    fix=Applicability.SAFE,
    triggers=(".step(",),
)
def double_step(file: SourceFile) -> Iterator[Finding]:
    """
    `scaler.step(optimizer)` has already stepped, unless it found infinite gradients, and then the plain step writes
    just these into the weights. Every other iteration moves the weights twice.

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
            optimizer.step()
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
            scaler.step(optimizer)
            scaler.update()
    ```
    """
    for violation in file.violations("double-step"):
        optimizer = named(violation.optimizer or "the optimizer")
        message = f"{optimizer} steps a second time on the same gradients, also where the scaler skipped the step"
        yield finding("AMP207", violation, message, _fix(file, violation))


def _fix(file: SourceFile, violation: Violation) -> Fix | None:
    """Delete the plain step where the scaler's stands in the same block, so that every way has it."""
    plain = bare_call(file, violation)
    first = call_at(file, violation.related) if violation.related is not None else None
    if plain is None or first is None or not violation.certain or not same_block(file, plain, file.statement(first)):
        return None
    edit = delete(file, plain)
    return None if edit is None else Fix(f"Delete `{file.segment(plain)}`", (edit,), Applicability.SAFE)
