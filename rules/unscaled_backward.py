"""AMP208: a loss goes backward unscaled, and its gradients go through the scaler."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from amplint.flow.violations import Violation
from amplint.model import Applicability, Edit, Finding, Fix, Level
from amplint.rewrite.protocol_fixes import call_at, finding
from amplint.rule import rule
from amplint.source import SourceFile


@rule(
    "AMP208",
    "unscaled-backward",
    level=Level.ERROR,
    fix=Applicability.SAFE,
    triggers=(".backward(",),
)
def unscaled_backward(file: SourceFile) -> Iterator[Finding]:
    """
    The scaler divides all gradients by the scale, also those of a loss that was never multiplied by it: their share of
    the update shrinks by up to 65536. Training goes on and learns little (a loss stayed at 0.649 in 200 steps where
    0.019 was due). With nothing scaled at all, torch raises.

    ```python bad
    import torch


    def train(model, loader, optimizer):
        scaler = torch.amp.GradScaler("cuda")
        for x in loader:
            optimizer.zero_grad()
            with torch.autocast("cuda", dtype=torch.float16):
                loss, extra = model(x)
            scaler.scale(loss).backward(retain_graph=True)
            extra.backward()
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
                loss, extra = model(x)
            scaler.scale(loss).backward(retain_graph=True)
            scaler.scale(extra).backward()
            scaler.step(optimizer)
            scaler.update()
    ```
    """
    for violation in file.violations("unscaled-backward"):
        message = "this loss is not scaled and its gradients are divided by the scale all the same: they all but vanish"
        yield finding("AMP208", violation, message, _fix(file, violation))


def _fix(file: SourceFile, violation: Violation) -> Fix | None:
    """Scale the loss in the call."""
    call = call_at(file, violation.span) if violation.span == violation.place else None
    if call is None or not violation.scaler or not isinstance(call.func, ast.Attribute):
        return None
    loss = call.func.value
    if call.func.attr != "backward" or call.args or not isinstance(loss, (ast.Name, ast.Attribute, ast.Subscript)):
        return None
    edit = Edit(file.span(loss), f"{violation.scaler}.scale({file.segment(loss)})")
    return Fix("Scale the loss", (edit,), Applicability.SAFE)
