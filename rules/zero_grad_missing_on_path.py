"""AMP307: gradients are zeroed in one arm of the AMP test and not in the other."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from amplint.flow.violations import Violation
from amplint.model import Applicability, Finding, Fix, Level
from amplint.rewrite import statements
from amplint.rewrite.protocol_fixes import finding, named, statement_at
from amplint.rule import rule
from amplint.source import SourceFile


@rule(
    "AMP307",
    "zero-grad-missing-on-path",
    level=Level.WARNING,
    fix=Applicability.UNSAFE,
    triggers=("zero_grad",),
)
def zero_grad_missing_on_path(file: SourceFile) -> Iterator[Finding]:
    """
    Gradients are zeroed on one arm (FP32 or AMP) and not on the other. There each backward adds to the gradients of all
    iterations before it: training goes on with a mixture that only grows.

    ```python bad
    import torch


    def train(model, loader, optimizer, use_amp):
        scaler = torch.amp.GradScaler("cuda", enabled=use_amp)
        for x in loader:
            with torch.autocast("cuda", dtype=torch.float16, enabled=use_amp):
                loss = model(x).mean()
            if use_amp:
                scaler.scale(loss).backward()
                scaler.step(optimizer)
                scaler.update()
            else:
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
    ```

    ```python good
    import torch


    def train(model, loader, optimizer, use_amp):
        scaler = torch.amp.GradScaler("cuda", enabled=use_amp)
        for x in loader:
            with torch.autocast("cuda", dtype=torch.float16, enabled=use_amp):
                loss = model(x).mean()
            if use_amp:
                scaler.scale(loss).backward()
                scaler.step(optimizer)
                scaler.update()
                optimizer.zero_grad()
            else:
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
    ```
    """
    for violation in file.violations("zero-grad-missing-on-path"):
        optimizer = named(violation.optimizer or "the optimizer")
        message = f"the gradients of {optimizer} are not zeroed on this path and are on the other: they add up for ever"
        yield finding("AMP307", violation, message, _fix(file, violation))


def _fix(file: SourceFile, violation: Violation) -> Fix | None:
    """Zero the gradients at the end of the iteration in the arm that lacks it: after the step and its update."""
    step = statement_at(file, violation)
    if step is None or not violation.optimizer:
        return None
    block = statements.siblings(file, step)
    after = [step, *(other for other in block[block.index(step) :] if _is_update(file, other, violation.scaler))]
    call = f"{violation.optimizer}.zero_grad()"
    edit = statements.insert_after(file, after[-1], call)
    return None if edit is None else Fix(f"Add `{call}`", (edit,), Applicability.UNSAFE)


def _is_update(file: SourceFile, statement: ast.stmt, scaler: str) -> bool:
    return bool(scaler) and file.segment(statement) == f"{scaler}.update()"
