"""AMP201: a loop steps through the scaler and never updates it."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from amplint.flow.violations import Violation
from amplint.model import Applicability, Finding, Fix, Level
from amplint.rewrite import statements
from amplint.rewrite.protocol_fixes import call_at, finding, innermost_loop, method_calls, named
from amplint.rule import rule
from amplint.source import SourceFile


@rule(
    "AMP201",
    "missing-update",
    level=Level.ERROR,
    fix=Applicability.SAFE,
    triggers=(".step(",),
)
def missing_update(file: SourceFile) -> Iterator[Finding]:
    """
    `scaler.update()` ends an iteration: it sets the scale and makes the scaler ready again. Without it the second
    iteration raises `step() has already been called since the last update()`.

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

    A disabled scaler accepts it silently, so a test on a machine without a GPU does not see it.
    """
    for violation in file.violations("missing-update"):
        message = f"{named(violation.scaler or 'the scaler')} is never updated: the next iteration raises at its step"
        yield finding("AMP201", violation, message, _fix(file, violation))


def _fix(file: SourceFile, violation: Violation) -> Fix | None:
    """Update after the last step of the iteration; with several optimizers it can't be told from one of them."""
    call = call_at(file, violation.span) if violation.span == violation.place else None
    if call is None or not violation.scaler or len(violation.optimizers) > 1:
        return None
    last = _end_of_steps(file, call, violation.scaler)
    edit = statements.insert_after(file, last, f"{violation.scaler}.update()") if last is not None else None
    return None if edit is None else Fix(f"Add `{violation.scaler}.update()`", (edit,), Applicability.SAFE)


def _end_of_steps(file: SourceFile, call: ast.Call, scaler: str) -> ast.stmt | None:
    """The statement after which an iteration has unscaled and stepped, on whatever way; None where it does not step.

    It lies in the innermost block that holds all of these calls, outside of loops over optimizers.
    """
    root: ast.AST = file.outermost_function(call)
    loop = innermost_loop(file, call)
    while loop is not None and not method_calls(file, loop, "scale", scaler):
        loop = innermost_loop(file, loop)
    root = loop if loop is not None else root
    steps = [file.statement(step) for step in method_calls(file, root, "step", scaler)]
    if not steps or not all(isinstance(step, ast.Expr) for step in steps):
        return None
    calls = [*steps, *(file.statement(unscale) for unscale in method_calls(file, root, "unscale_", scaler))]
    last = steps[-1]
    parent = file.parent(last)
    while parent is not None and parent is not root:
        block = statements.siblings(file, last)
        whole = all(any(_holds(file, s, other) for s in block) or _same_test(file, parent, other) for other in calls)
        if whole and not isinstance(parent, (ast.For, ast.AsyncFor, ast.While)):
            break
        if not isinstance(parent, ast.stmt) or isinstance(
            parent, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
        ):
            return None
        last, parent = parent, file.parent(parent)
    return last


def _same_test(file: SourceFile, test: ast.AST, other: ast.stmt) -> bool:
    """Whether a statement stands under a test of its own with the same text: `if scaler is not None:` twice."""
    current = file.parent(other)
    while isinstance(test, ast.If) and current is not None:
        if isinstance(current, ast.If) and file.segment(current.test) == file.segment(test.test):
            return True
        current = file.parent(current)
    return False


def _holds(file: SourceFile, statement: ast.stmt, inner: ast.stmt) -> bool:
    outside, inside = file.span(statement), file.span(inner)
    return outside.start <= inside.start and inside.end <= outside.end
