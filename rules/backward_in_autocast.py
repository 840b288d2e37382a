"""AMP101: the backward pass runs under autocast."""

from __future__ import annotations

from collections.abc import Iterator

from amplint.model import Applicability, Finding, Level
from amplint.rewrite.protocol_fixes import call_at, enter_in_loop, finding, leave_region
from amplint.rule import rule
from amplint.source import SourceFile


@rule(
    "AMP101",
    "backward-in-autocast",
    level=Level.WARNING,
    fix=Applicability.SAFE,
    triggers=("autocast",),
)
def backward_in_autocast(file: SourceFile) -> Iterator[Finding]:
    """
    Backward operations run in the dtype that autocast chose for the forward; a backward under autocast chooses once
    more. An ordinary network gets the same gradients bit for bit, but parts that were kept in float32 lose them: a
    gradient norm of 271064 became infinite and one of 3e-8 became zero. torch's documentation advises against it.

    ```python bad
    import torch


    def train(model, loader, optimizer):
        for x in loader:
            optimizer.zero_grad()
            with torch.autocast("cuda", dtype=torch.bfloat16):
                loss = model(x).mean()
                loss.backward()
            optimizer.step()
    ```

    ```python good
    import torch


    def train(model, loader, optimizer):
        for x in loader:
            optimizer.zero_grad()
            with torch.autocast("cuda", dtype=torch.bfloat16):
                loss = model(x).mean()
            loss.backward()
            optimizer.step()
    ```

    A backward in a helper that is called in the region, or in a decorated function, is reported too. The fix is offered
    where the backward and what follows it are the tail of the block, and moves the tail out with its comments.
    """
    for violation in file.violations("backward-in-autocast"):
        call = call_at(file, violation.place)
        direct = call is not None and violation.place == violation.span
        fix = leave_region(file, call) or enter_in_loop(file, call) if direct and call is not None else None
        message = "backward runs under autocast: gradients of parts kept in float32 can overflow or vanish"
        yield finding("AMP101", violation, message, fix, help="" if fix else "end the region before the backward pass")
