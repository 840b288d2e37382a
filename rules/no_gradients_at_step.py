"""AMP214: the gradients are thrown away between the backward and the step."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from amplint.flow.violations import Violation
from amplint.model import Applicability, Finding, Fix, Level
from amplint.rewrite.protocol_fixes import bare_call, call_at, finding, innermost_loop, method_calls, move, same_block
from amplint.rule import rule
from amplint.source import SourceFile


@rule(
    "AMP214",
    "no-gradients-at-step",
    level=Level.ERROR,
    fix=Applicability.SAFE,
    triggers=("zero_grad",),
)
def no_gradients_at_step(file: SourceFile) -> Iterator[Finding]:
    """
    `zero_grad()` stands between the backward and the step, so the step finds no gradients: the scaler raises `No inf
    checks were recorded for this optimizer`, and with `set_to_none=False`, or switched off, the weights never move.

    ```python bad
    import torch


    def train(model, loader, optimizer):
        scaler = torch.amp.GradScaler("cuda")
        for x in loader:
            with torch.autocast("cuda", dtype=torch.float16):
                loss = model(x).mean()
            scaler.scale(loss).backward()
            optimizer.zero_grad()
            scaler.step(optimizer)
            scaler.update()
    ```

    ```python good
    import torch


    def train(model, loader, optimizer):
        scaler = torch.amp.GradScaler("cuda")
        for x in loader:
            with torch.autocast("cuda", dtype=torch.float16):
                loss = model(x).mean()
            optimizer.zero_grad()
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
    ```
    """
    for violation in file.violations("no-gradients-at-step"):
        message = "the gradients of the backward were zeroed before this step: torch raises or the weights do not move"
        yield finding("AMP214", violation, message, _fix(file, violation))


def _fix(file: SourceFile, violation: Violation) -> Fix | None:
    """Move the `zero_grad()` before the only scaled backward of the block."""
    zero = _zeroing(file, violation)
    loop = innermost_loop(file, zero) if zero is not None else None
    if zero is None or loop is None or not violation.scaler:
        return None
    backward = [file.statement(call) for call in method_calls(file, loop, "scale", violation.scaler)]
    earlier = [
        statement for statement in backward if statement.lineno < zero.lineno and same_block(file, zero, statement)
    ]
    edits = move(file, zero, before=earlier[0]) if len(earlier) == 1 else None
    return None if edits is None else Fix("Zero the gradients before the backward", edits, Applicability.SAFE)


def _zeroing(file: SourceFile, violation: Violation) -> ast.Expr | None:
    """The statement that zeroes the gradients: the blamed one or the related one."""
    for span in (violation.span, violation.related):
        call = call_at(file, span) if span is not None else None
        if call is not None and file.segment(call.func).endswith("zero_grad"):
            return bare_call(file, violation._replace(span=file.span(call), place=file.span(call)))
    return None
