"""AMP204: the scaler is updated between the steps of several optimizers."""

from __future__ import annotations

from collections.abc import Iterator

from amplint.flow.violations import Violation
from amplint.model import Applicability, Finding, Fix, Level
from amplint.rewrite.protocol_fixes import bare_call, delete, finding, innermost_loop, method_calls
from amplint.rule import rule
from amplint.source import SourceFile


@rule(
    "AMP204",
    "update-between-optimizers",
    level=Level.ERROR,
    fix=Applicability.UNSAFE,
    triggers=(".update(",),
)
def update_between_optimizers(file: SourceFile) -> Iterator[Finding]:
    """
    Both optimizers' gradients were scaled with the scale of the backward. An update between their steps may change it,
    and the second step then divides by another scale: it moved 0.25 instead of 0.5 when the scale grew and 1.0 when it
    shrank. Update once, after the last step.

    ```python bad
    import torch


    def train(model, loader, opt_a, opt_b):
        scaler = torch.amp.GradScaler("cuda")
        for x in loader:
            opt_a.zero_grad()
            opt_b.zero_grad()
            with torch.autocast("cuda", dtype=torch.float16):
                loss = model(x).mean()
            scaler.scale(loss).backward()
            scaler.step(opt_a)
            scaler.update()
            scaler.step(opt_b)
            scaler.update()
    ```

    ```python good
    import torch


    def train(model, loader, opt_a, opt_b):
        scaler = torch.amp.GradScaler("cuda")
        for x in loader:
            opt_a.zero_grad()
            opt_b.zero_grad()
            with torch.autocast("cuda", dtype=torch.float16):
                loss = model(x).mean()
            scaler.scale(loss).backward()
            scaler.step(opt_a)
            scaler.step(opt_b)
            scaler.update()
    ```

    A GAN whose optimizers each have a backward of their own after the previous update is silent.
    """
    for violation in file.violations("update-between-optimizers"):
        message = (
            "updated before all optimizers of this backward stepped: the rest is divided by a scale that may differ"
        )
        yield finding("AMP204", violation, message, _fix(file, violation))


def _fix(file: SourceFile, violation: Violation) -> Fix | None:
    """Delete this update, where another one follows in the iteration."""
    statement = bare_call(file, violation)
    if statement is None or not violation.scaler:
        return None
    updates = method_calls(file, innermost_loop(file, statement) or file.tree, "update", violation.scaler)
    edit = delete(file, statement) if any(update.lineno > statement.lineno for update in updates) else None
    return None if edit is None else Fix("Update once, after the last step", (edit,), Applicability.UNSAFE)
