"""AMP211: a new scaler for every epoch or iteration."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from amplint.flow.violations import Violation
from amplint.model import Applicability, Finding, Fix, Level
from amplint.rewrite import statements
from amplint.rewrite.protocol_fixes import delete, finding, statement_at
from amplint.rule import rule
from amplint.source import SourceFile

_BOUNDARIES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)


@rule(
    "AMP211",
    "scaler-in-loop",
    level=Level.WARNING,
    fix=Applicability.SAFE,
    triggers=("GradScaler",),
)
def scaler_in_loop(file: SourceFile) -> Iterator[Finding]:
    """
    A scaler finds its scale over many iterations. One that is built anew starts at 65536 again: per epoch it skips the
    first steps of each (6 of 25 were), per iteration it never gets anywhere (100 of 100 steps skipped). It also hides a
    missing `update()`.

    ```python bad
    import torch


    def train(model, loader, optimizer, epochs):
        for epoch in range(epochs):
            scaler = torch.amp.GradScaler("cuda")
            for x in loader:
                optimizer.zero_grad()
                with torch.autocast("cuda", dtype=torch.float16):
                    loss = model(x).mean()
                scaler.scale(loss).backward()
                scaler.step(optimizer)
                scaler.update()
    ```

    ```python good
    import torch


    def train(model, loader, optimizer, epochs):
        scaler = torch.amp.GradScaler("cuda")
        for epoch in range(epochs):
            for x in loader:
                optimizer.zero_grad()
                with torch.autocast("cuda", dtype=torch.float16):
                    loss = model(x).mean()
                scaler.scale(loss).backward()
                scaler.step(optimizer)
                scaler.update()
    ```

    An error where the loop is the one that steps.
    """
    for violation in file.violations("scaler-in-loop"):
        if violation.per_iteration:
            message = "a new scaler in every iteration never finds its scale: all steps are skipped once one overflows"
            level = Level.ERROR
        else:
            message = "a new scaler in every epoch starts at scale 65536 again and skips the first steps of each"
            level = Level.WARNING
        fix = _fix(file, violation)
        hint = "" if fix else "build the scaler once, beside the optimizer, and pass it in"
        yield finding("AMP211", violation, message, fix, level=level, help=hint)


def _fix(file: SourceFile, violation: Violation) -> Fix | None:
    """Move the construction up out of the loops of the function, where it uses nothing that they bind."""
    statement = statement_at(file, violation)
    if not isinstance(statement, ast.Assign) or not statements.owns_its_lines(file, statement):
        return None
    outermost: ast.stmt | None = None
    current = file.parent(statement)
    bound: set[str] = set()
    while current is not None and not isinstance(current, _BOUNDARIES):
        if isinstance(current, (ast.For, ast.AsyncFor, ast.While)):
            outermost = current
            bound |= {n.id for n in ast.walk(current) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
        elif isinstance(current, ast.stmt):
            return None
        current = file.parent(current)
    used = {node.id for node in ast.walk(statement.value) if isinstance(node, ast.Name)}
    if outermost is None or used & bound or statement.lineno != statement.end_lineno:
        return None
    inserted = statements.insert_before(file, outermost, file.segment(statement))
    removed = delete(file, statement)
    if inserted is None or removed is None:
        return None
    return Fix("Build the scaler before the loop", (inserted, removed), Applicability.SAFE)
