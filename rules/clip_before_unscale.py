"""AMP301: gradients are clipped while they are multiplied by the loss scale."""

from __future__ import annotations

from collections.abc import Iterator

from amplint.flow.violations import Violation
from amplint.model import Applicability, Finding, Fix, Level
from amplint.rewrite.protocol_fixes import finding, statement_at, unscale_first
from amplint.rule import rule
from amplint.source import SourceFile

_LARGEST_PLAIN_THRESHOLD = 100.0
"""A larger threshold may have been tuned on scaled gradients (users have reported 1e5)."""


@rule(
    "AMP301",
    "clip-before-unscale",
    level=Level.ERROR,
    fix=Applicability.SAFE,
    triggers=("clip_grad", ".grad", "scale"),
)
def clip_before_unscale(file: SourceFile) -> Iterator[Finding]:
    """
    The gradients are still multiplied by the loss scale (65536 at first) when they are clipped, so every step meets the
    threshold and the scaler then divides the rest by the scale: a step of norm 1 became 2.4e-4 at scale 4096. Nothing
    fails; the model learns next to nothing (0.649 after 200 steps where 0.019 is right).

    ```python bad
    import torch


    def train(model, loader, optimizer):
        scaler = torch.amp.GradScaler("cuda")
        for x in loader:
            optimizer.zero_grad()
            with torch.autocast("cuda", dtype=torch.float16):
                loss = model(x).mean()
            scaler.scale(loss).backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
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

    The fix is safe where one optimizer owns the step on every path and the threshold is a literal of at most 100; a
    larger or a computed one may have been tuned on scaled gradients. A threshold multiplied by the scale is silent.
    """
    for violation in file.violations("clip-before-unscale"):
        message = "gradients are clipped while they are multiplied by the loss scale: the update all but vanishes"
        fix = _fix(file, violation)
        hint = "" if fix else "call `unscale_` with the optimizer that steps, before clipping"
        yield finding("AMP301", violation, message, fix, help=hint)


def _fix(file: SourceFile, violation: Violation) -> Fix | None:
    """Unscale before the clip, with the one optimizer that the scaler steps here."""
    statement = statement_at(file, violation)
    unscaled = unscale_first(file, statement, violation) if statement is not None else None
    if unscaled is None:
        return None
    call, edit = unscaled
    plain = violation.threshold is not None and violation.threshold <= _LARGEST_PLAIN_THRESHOLD
    applicability = Applicability.SAFE if violation.certain and plain else Applicability.UNSAFE
    return Fix(f"Call `{call}` first", (edit,), applicability)
