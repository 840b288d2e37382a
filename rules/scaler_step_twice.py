"""AMP205: the same optimizer is stepped twice through the scaler."""

from __future__ import annotations

from collections.abc import Iterator

from amplint.flow.violations import Violation
from amplint.model import Applicability, Finding, Fix, Level
from amplint.rewrite.protocol_fixes import bare_call, call_at, delete, finding, named, same_block
from amplint.rule import rule
from amplint.source import SourceFile


@rule(
    "AMP205",
    "scaler-step-twice",
    level=Level.ERROR,
    fix=Applicability.SAFE,
    triggers=(".step(",),
)
def scaler_step_twice(file: SourceFile) -> Iterator[Finding]:
    """
    A second `scaler.step` of an optimizer before `update()` raises `step() has already been called since the last
    update()`. A disabled scaler steps twice without a word.

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
            scaler.step(optimizer)
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
    for violation in file.violations("scaler-step-twice"):
        optimizer = named(violation.optimizer or "the optimizer")
        message = f"{optimizer} was already stepped since the last `update()`: torch raises"
        yield finding("AMP205", violation, message, _fix(file, violation))


def _fix(file: SourceFile, violation: Violation) -> Fix | None:
    """Delete the second step where the first one stands in the same block."""
    second = bare_call(file, violation)
    first = call_at(file, violation.related) if violation.related is not None else None
    if second is None or first is None or not violation.certain or not same_block(file, second, file.statement(first)):
        return None
    edit = delete(file, second) if file.statement(first) is not second else None
    return None if edit is None else Fix("Step once", (edit,), Applicability.SAFE)
