"""AMP305: gradients are unscaled before all micro-batches have added theirs."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from amplint import statements
from amplint.flow.violations import Violation
from amplint.model import Applicability, Edit, Finding, Fix, Level, Span
from amplint.protocol_fixes import bare_call, finding, innermost_loop, method_calls
from amplint.rule import rule
from amplint.source import SourceFile


@rule(
    "AMP305",
    "unscale-in-accumulation",
    level=Level.ERROR,
    fix=Applicability.UNSAFE,
    triggers=("unscale_",),
)
def unscale_in_accumulation(file: SourceFile) -> Iterator[Finding]:
    """
    The next backward adds scaled gradients to those that were unscaled already: the sum is neither (2.9e4 times too big
    with two losses), and a second `unscale_` before the update raises. Unscale once, after the last backward.

    ```python bad
    import torch


    def train(model, loader, optimizer, every):
        scaler = torch.amp.GradScaler("cuda")
        for i, x in enumerate(loader):
            with torch.autocast("cuda", dtype=torch.float16):
                loss = model(x).mean() / every
            scaler.scale(loss).backward()
            scaler.unscale_(optimizer)
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            if (i + 1) % every == 0:
                scaler.step(optimizer)
                scaler.update()
                optimizer.zero_grad()
    ```

    ```python good
    import torch


    def train(model, loader, optimizer, every):
        scaler = torch.amp.GradScaler("cuda")
        for i, x in enumerate(loader):
            with torch.autocast("cuda", dtype=torch.float16):
                loss = model(x).mean() / every
            scaler.scale(loss).backward()
            if (i + 1) % every == 0:
                scaler.unscale_(optimizer)
                torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                scaler.step(optimizer)
                scaler.update()
                optimizer.zero_grad()
    ```
    """
    for violation in file.violations("unscale-in-accumulation"):
        message = "unscaled before the last backward of this step: later gradients are added scaled to unscaled ones"
        yield finding("AMP305", violation, message, _fix(file, violation))


def _fix(file: SourceFile, violation: Violation) -> Fix | None:
    """Move the call, and what stands between it and the branch that steps, into that branch."""
    unscale = bare_call(file, violation)
    loop = innermost_loop(file, unscale) if unscale is not None else None
    if unscale is None or loop is None or not violation.scaler:
        return None
    steps = method_calls(file, loop, "step", violation.scaler)
    if len(steps) != 1:
        return None
    step = file.statement(steps[0])
    branch = file.parent(step)
    block = statements.siblings(file, unscale)
    if not isinstance(branch, ast.If) or branch not in block or branch.orelse or step not in branch.body:
        return None
    moved = block[block.index(unscale) : block.index(branch)]
    if not moved or not all(statements.owns_its_lines(file, statement) for statement in (*moved, step)):
        return None
    start = statements.line_start(file.encoded, file.span(moved[0]).start)
    end = statements.next_line(file.encoded, file.span(moved[-1]).end)
    try:
        text = statements.reindent(file.segment(Span(start, end)), file.indentation(unscale), file.indentation(step))
    except ValueError:
        return None
    place = statements.line_start(file.encoded, file.span(step).start)
    edits = (Edit(Span(start, end), ""), Edit(Span(place, place), text))
    return Fix("Unscale where the optimizer steps", edits, Applicability.UNSAFE)
