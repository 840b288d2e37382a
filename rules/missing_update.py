"""AMP201: a loop steps through the scaler and never updates it."""

from __future__ import annotations

from collections.abc import Iterator

from amplint.flow.violations import Violation
from amplint.model import Applicability, Finding, Fix, Level
from amplint.rewrite import statements
from amplint.rewrite.protocol_fixes import bare_call, finding, named
from amplint.rule import rule
from amplint.source import SourceFile


@rule(
    "AMP201",
    "missing-update",
    level=Level.ERROR,
    fix=Applicability.SAFE,
    triggers=(".step(",),
)
def missing_update(file: SourceFile) -> Iterator[Finding]:
    """
    `scaler.update()` ends an iteration: it sets the scale and makes the scaler ready again. Without it the second
    iteration raises `step() has already been called since the last update()`.

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

    A disabled scaler accepts it silently, so a test on a machine without a GPU does not see it.
    """
    for violation in file.violations("missing-update"):
        message = f"{named(violation.scaler or 'the scaler')} is never updated: the next iteration raises at its step"
        yield finding("AMP201", violation, message, _fix(file, violation))


def _fix(file: SourceFile, violation: Violation) -> Fix | None:
    """Update after the step; with several optimizers the last step can't be told from one of them."""
    step = bare_call(file, violation)
    if step is None or not violation.scaler or len(violation.optimizers) > 1:
        return None
    edit = statements.insert_after(file, step, f"{violation.scaler}.update()")
    return None if edit is None else Fix(f"Add `{violation.scaler}.update()`", (edit,), Applicability.SAFE)
