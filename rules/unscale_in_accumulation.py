"""AMP305: gradients are unscaled before all micro-batches have added theirs."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from amplint.flow.violations import Violation
from amplint.model import Applicability, Edit, Finding, Fix, Level, Span
from amplint.rewrite import statements
from amplint.rewrite.protocol_fixes import bare_call, finding, innermost_loop, method_calls
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
    """Move the call, and what depends on it before the branch that steps, into that branch."""
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
    between = block[block.index(unscale) : block.index(branch)]
    moved = _dependent(file, between)
    if not all(statements.owns_its_lines(file, statement) for statement in (*between, step)):
        return None
    if _bound(moved) & _read(loop, moved):
        return None
    runs = [moved] if len(moved) == len(between) else [[statement] for statement in moved]
    place = statements.line_start(file.encoded, file.span(step).start)
    edits, texts = [], []
    for run in runs:
        start = statements.line_start(file.encoded, file.span(run[0]).start)
        end = statements.next_line(file.encoded, file.span(run[-1]).end)
        text = file.segment(Span(start, end))
        try:
            texts.append(statements.reindent(text, file.indentation(unscale), file.indentation(step)))
        except ValueError:
            return None
        edits.append(Edit(Span(start, end), ""))
    edits.append(Edit(Span(place, place), "".join(texts)))
    return Fix("Unscale where the optimizer steps", tuple(edits), Applicability.UNSAFE)


def _dependent(file: SourceFile, block: list[ast.stmt]) -> list[ast.stmt]:
    """The first statement of a block, those that use gradients, and those that need a value from one of these."""
    found = block[:1]
    for statement in block[1:]:
        text = file.segment(statement)
        if "clip" in text or ".grad" in text or _names(statement, ast.Load) & _bound(found):
            found.append(statement)
    return found


def _bound(block: list[ast.stmt]) -> frozenset[str]:
    """The names that a block gives a value."""
    return frozenset[str]().union(*(_names(statement, ast.Store) for statement in block))


def _read(loop: ast.AST, block: list[ast.stmt]) -> frozenset[str]:
    """The names that a loop reads outside a block."""
    inside = {node for statement in block for node in ast.walk(statement)}
    names = (node for node in ast.walk(loop) if isinstance(node, ast.Name) and node not in inside)
    return frozenset(name.id for name in names if isinstance(name.ctx, ast.Load))


def _names(root: ast.AST, context: type[ast.expr_context]) -> frozenset[str]:
    return frozenset(n.id for n in ast.walk(root) if isinstance(n, ast.Name) and isinstance(n.ctx, context))
