"""AMP202: some way round the loop steps or unscales and misses the update."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from amplint.flow.violations import Violation
from amplint.model import Applicability, Finding, Fix, Level
from amplint.rewrite import statements
from amplint.rewrite.protocol_fixes import call_at, finding, innermost_loop, method_calls
from amplint.rule import rule
from amplint.source import SourceFile


@rule(
    "AMP202",
    "update-skipped-on-path",
    level=Level.ERROR,
    fix=Applicability.UNSAFE,
    triggers=("unscale_", ".step("),
)
def update_skipped_on_path(file: SourceFile) -> Iterator[Finding]:
    """
    After `unscale_` or `step` the scaler waits for `update()`. On one way round the loop the update is skipped, and the
    next iteration raises `unscale_() has already been called on this optimizer since the last update()`. It happens
    just when a batch is bad, long after the start.

    ```python bad
    import torch


    def train(model, loader, optimizer, limit):
        scaler = torch.amp.GradScaler("cuda")
        for x in loader:
            optimizer.zero_grad()
            with torch.autocast("cuda", dtype=torch.float16):
                loss = model(x).mean()
            scaler.scale(loss).backward()
            scaler.unscale_(optimizer)
            norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            if norm > limit:
                continue
            scaler.step(optimizer)
            scaler.update()
    ```

    ```python good
    import torch


    def train(model, loader, optimizer, limit):
        scaler = torch.amp.GradScaler("cuda")
        for x in loader:
            optimizer.zero_grad()
            with torch.autocast("cuda", dtype=torch.float16):
                loss = model(x).mean()
            scaler.scale(loss).backward()
            scaler.unscale_(optimizer)
            norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            if norm > limit:
                scaler.update()
                continue
            scaler.step(optimizer)
            scaler.update()
    ```

    Infinite gradients need no test of one's own: `scaler.step` skips the step by itself. The fix also zeroes the
    gradients of the skipped batch where the loop does so only at its end; where that is not seen, none is offered.
    """
    for violation in file.violations("update-skipped-on-path"):
        message = "a way round the loop reaches the next iteration without `update()`, which then raises here"
        fix = _fix(file, violation)
        hint = "" if fix else "call `update()` where all ways meet, or before the way that leaves early"
        yield finding("AMP202", violation, message, fix, help=hint)


def _fix(file: SourceFile, violation: Violation) -> Fix | None:
    """Update before each `continue` of the loop that stands after the unscaling and has no update before it.

    The gradients of the skipped batch must go too: the next iteration would add to them. Where the loop zeroes them at
    its end, that statement goes before the `continue` as well; where it is not seen to zero them, nothing is offered.
    """
    call = call_at(file, violation.span) if violation.span == violation.place else None
    loop = innermost_loop(file, call) if call is not None else None
    if call is None or loop is None or not violation.scaler:
        return None
    zeroing = _zeroing(file, violation, loop, call)
    if zeroing is None:
        return None
    edits = []
    for node in ast.walk(loop):
        if not isinstance(node, ast.Continue) or node.lineno < call.lineno or innermost_loop(file, node) is not loop:
            continue
        block = statements.siblings(file, node)
        if any(method_calls(file, statement, "update", violation.scaler) for statement in block):
            continue
        if _handles_what_precedes(file, node, call):
            return None
        lines = [f"{violation.scaler}.update()", *(s for s in zeroing if not _holds(file, block, s))]
        edit = statements.insert_before(file, node, "\n".join(lines))
        if edit is None:
            return None
        edits.append(edit)
    if not edits or not method_calls(file, loop, "update", violation.scaler):
        return None
    also = " and zero the gradients" if zeroing else ""
    return Fix(f"Call `{violation.scaler}.update()`{also} before `continue`", tuple(edits), Applicability.UNSAFE)


def _zeroing(
    file: SourceFile, violation: Violation, loop: ast.For | ast.AsyncFor | ast.While, call: ast.Call
) -> list[str] | None:
    """The statements that zero the gradients at the end of a loop, none where it does so at its start; None where
    neither is seen.
    """
    backward = min((scale.lineno for scale in method_calls(file, loop, "scale", violation.scaler)), default=0)
    zeros = method_calls(file, loop, "zero_grad", violation.optimizer)
    if not zeros and len(violation.optimizers) < 2:
        zeros = [
            node
            for node in ast.walk(loop)
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "zero_grad"
        ]
    if any(zero.lineno < backward for zero in zeros):
        return []
    texts = dict.fromkeys(file.segment(zero) for zero in zeros if zero.lineno > call.lineno)
    whole = all(isinstance(file.statement(zero), ast.Expr) for zero in zeros)
    return list(texts) if len(texts) == 1 and whole else None


def _holds(file: SourceFile, block: list[ast.stmt], text: str) -> bool:
    return any(file.segment(statement) == text for statement in block)


def _handles_what_precedes(file: SourceFile, node: ast.AST, call: ast.Call) -> bool:
    """Whether a node handles exceptions of code before a call too, after which there may be nothing to update for."""
    current = file.parent(node)
    while current is not None and not isinstance(current, (ast.For, ast.AsyncFor, ast.While)):
        attempt = file.parent(current)
        if isinstance(current, ast.ExceptHandler) and isinstance(attempt, ast.Try):
            return attempt.body[0].lineno < call.lineno
        current = attempt
    return False
