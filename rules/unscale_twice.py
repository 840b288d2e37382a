"""AMP303: the gradients of an optimizer are unscaled twice."""

from __future__ import annotations

from collections.abc import Iterator

from amplint.flow.violations import Violation
from amplint.model import Applicability, Finding, Fix, Level, Span
from amplint.rewrite.protocol_fixes import bare_call, call_at, delete, finding, named, same_block
from amplint.rule import rule
from amplint.source import SourceFile


@rule(
    "AMP303",
    "unscale-twice",
    level=Level.ERROR,
    fix=Applicability.SAFE,
    triggers=("unscale_",),
)
def unscale_twice(file: SourceFile) -> Iterator[Finding]:
    """
    A second `unscale_` of an optimizer before `update()` raises `unscale_() has already been called on this optimizer
    since the last update()`. A disabled scaler does not, so a test without a GPU passes.

    ```python bad
    import torch


    def train(model, loader, optimizer):
        scaler = torch.amp.GradScaler("cuda")
        for x in loader:
            optimizer.zero_grad()
            with torch.autocast("cuda", dtype=torch.float16):
                loss = model(x).mean()
            scaler.scale(loss).backward()
            scaler.unscale_(optimizer)
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            scaler.unscale_(optimizer)
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
            scaler.unscale_(optimizer)
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            scaler.step(optimizer)
            scaler.update()
    ```
    """
    for violation in file.violations("unscale-twice"):
        optimizer = named(violation.optimizer or "the optimizer")
        message = f"the gradients of {optimizer} were already unscaled since the last `update()`: torch raises"
        yield finding("AMP303", violation, message, _fix(file, violation))


def _fix(file: SourceFile, violation: Violation) -> Fix | None:
    """Delete the second call where the first one stands in the same block."""
    second = bare_call(file, violation)
    first = call_at(file, violation.related) if violation.related is not None else None
    if second is None or first is None:
        return None
    earlier = file.statement(first)
    if earlier is second or not same_block(file, second, earlier):
        return None
    between = file.segment(Span(file.span(earlier).end, file.span(second).start))
    if not violation.certain and "update(" in between:
        return None
    edit = delete(file, second)
    return None if edit is None else Fix("Unscale once", (edit,), Applicability.SAFE)
