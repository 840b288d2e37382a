"""AMP302: gradients are read or changed while they are multiplied by the loss scale."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from amplint.flow.violations import Violation
from amplint.model import Applicability, Finding, Fix, Level
from amplint.rewrite import statements
from amplint.rewrite.protocol_fixes import finding
from amplint.rewrite.statements import siblings
from amplint.rule import rule
from amplint.source import SourceFile


@rule(
    "AMP302",
    "grad-read-before-unscale",
    level=Level.WARNING,
    fix=Applicability.UNSAFE,
    triggers=("grad",),
)
def grad_read_before_unscale(file: SourceFile) -> Iterator[Finding]:
    """
    What is read here is the gradient times the loss scale: a logged norm is 65536 times too big and jumps with the
    scale, a comparison with a threshold always holds, and noise or decay added to it all but vanishes.

    ```python bad
    import torch


    def train(model, loader, optimizer, log):
        scaler = torch.amp.GradScaler("cuda")
        for x in loader:
            optimizer.zero_grad()
            with torch.autocast("cuda", dtype=torch.float16):
                loss = model(x).mean()
            scaler.scale(loss).backward()
            log(sum(p.grad.norm() for p in model.parameters()))
            scaler.step(optimizer)
            scaler.update()
    ```

    ```python good
    import torch


    def train(model, loader, optimizer, log):
        scaler = torch.amp.GradScaler("cuda")
        for x in loader:
            optimizer.zero_grad()
            with torch.autocast("cuda", dtype=torch.float16):
                loss = model(x).mean()
            scaler.scale(loss).backward()
            scaler.unscale_(optimizer)
            log(sum(p.grad.norm() for p in model.parameters()))
            scaler.step(optimizer)
            scaler.update()
    ```
    """
    for violation in file.violations("grad-read-before-unscale"):
        message = "gradients are used while they are multiplied by the loss scale, 65536 times their size at first"
        yield finding("AMP302", violation, message, _fix(file, violation))


def _fix(file: SourceFile, violation: Violation) -> Fix | None:
    """Unscale before the statement that reads, with the one optimizer that the scaler steps here."""
    if violation.span != violation.place or not violation.scaler or len(violation.optimizers) != 1:
        return None
    statement = _statement(file, violation)
    if statement is None:
        return None
    call = f"{violation.scaler}.unscale_({violation.optimizers[0]})"
    edit = statements.insert_before(file, statement, call)
    return None if edit is None else Fix(f"Call `{call}` first", (edit,), Applicability.UNSAFE)


def _statement(file: SourceFile, violation: Violation) -> ast.stmt | None:
    """The statement in the block of the scaler's step that holds the read, so that no loop repeats the call."""
    steps = [
        file.statement(call)
        for call in file.names.calls
        if file.segment(call.func) == f"{violation.scaler}.step" and file.span(call).start > violation.span.start
    ]
    for step in steps[:1]:
        for member in siblings(file, step):
            span = file.span(member)
            if span.start <= violation.span.start and violation.span.end <= span.end:
                return member
    return None
