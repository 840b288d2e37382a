"""AMP206: scaled gradients, and a step that does not go through the scaler."""

from __future__ import annotations

from collections.abc import Iterator

from amplint.flow.violations import Violation
from amplint.model import Applicability, Edit, Finding, Fix, Level
from amplint.rewrite.protocol_fixes import call_at, finding, innermost_loop, method_calls, named
from amplint.rule import rule
from amplint.source import SourceFile


@rule(
    "AMP206",
    "step-bypasses-scaler",
    level=Level.ERROR,
    fix=Applicability.SAFE,
    triggers=(".scale(",),
)
def step_bypasses_scaler(file: SourceFile) -> Iterator[Finding]:
    """
    The gradients are multiplied by the loss scale (65536 at first) and the optimizer steps with them as they are. SGD
    turns the weights into NaN; Adam hides it, since it divides the scale out, until the first overflow writes NaN into
    the weights for ever: nobody looks for infinities on this way.

    ```python bad
    import torch


    def train(model, loader, optimizer):
        scaler = torch.amp.GradScaler("cuda")
        for x in loader:
            optimizer.zero_grad()
            with torch.autocast("cuda", dtype=torch.float16):
                loss = model(x).mean()
            scaler.scale(loss).backward()
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

    The fix is safe where the scaler steps this optimizer elsewhere in the file. A scaler used as a fixed multiplier
    (no step, no update) is silent with an optimizer of the Adam family or one that is not in view.
    """
    for violation in file.violations("step-bypasses-scaler"):
        optimizer = named(violation.optimizer or "the optimizer")
        message = f"{optimizer} steps with gradients that are still multiplied by the loss scale"
        yield finding("AMP206", violation, message, _fix(file, violation))


def _fix(file: SourceFile, violation: Violation) -> Fix | None:
    """Step through the scaler, where its update follows and it does not step this optimizer on another path."""
    call = call_at(file, violation.span) if violation.span == violation.place else None
    if call is None or call.args or call.keywords or not violation.scaler or not violation.optimizer:
        return None
    scope = innermost_loop(file, call) or file.tree
    updates = method_calls(file, scope, "update", violation.scaler)
    steps = method_calls(file, scope, "step", violation.scaler)
    if not any(update.lineno > call.lineno for update in updates):
        return None
    if any(step.args and file.segment(step.args[0]) == violation.optimizer for step in steps):
        return None
    known = violation.optimizer in violation.optimizers
    applicability = Applicability.SAFE if known else Applicability.UNSAFE
    text = f"{violation.scaler}.step({violation.optimizer})"
    return Fix(f"Use `{text}`", (Edit(violation.span, text),), applicability)
