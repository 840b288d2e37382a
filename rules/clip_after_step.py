"""AMP309: gradients are clipped when the step has already used them."""

from __future__ import annotations

from collections.abc import Iterator

from amplint.flow.violations import Violation
from amplint.model import Applicability, Finding, Fix, Level
from amplint.rewrite import statements
from amplint.rewrite.protocol_fixes import bare_call, call_at, delete, finding, same_block
from amplint.rule import rule
from amplint.source import SourceFile


@rule(
    "AMP309",
    "clip-after-step",
    level=Level.WARNING,
    fix=Applicability.UNSAFE,
    triggers=("clip_grad",),
)
def clip_after_step(file: SourceFile) -> Iterator[Finding]:
    """
    The step has used the gradients, and nothing reads them before they are zeroed: the clip has no effect. A step of
    norm 53.8 went through where 1.0 was meant.

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
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
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
    for violation in file.violations("clip-after-step"):
        message = "the step has already used these gradients: the clip has no effect"
        yield finding("AMP309", violation, message, _fix(file, violation))


def _fix(file: SourceFile, violation: Violation) -> Fix | None:
    """Move the clip before the step where both stand in one block, and unscale before it."""
    clip = bare_call(file, violation)
    step = call_at(file, violation.related) if violation.related is not None else None
    if clip is None or step is None or not same_block(file, clip, file.statement(step)):
        return None
    code = file.segment(clip)
    if file.segment(step.func) == f"{violation.scaler}.step" and len(violation.optimizers) == 1:
        code = f"{violation.scaler}.unscale_({violation.optimizers[0]})\n{code}"
    inserted, removed = statements.insert_before(file, file.statement(step), code), delete(file, clip)
    if inserted is None or removed is None or clip.lineno != clip.end_lineno:
        return None
    return Fix("Clip before the step", (inserted, removed), Applicability.UNSAFE)
