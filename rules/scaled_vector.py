"""AMP311: a vector is scaled and reduced afterwards."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from amplint.facts.training import scale_calls
from amplint.model import Applicability, Edit, Finding, Fix, Level, Span
from amplint.rule import rule
from amplint.source import SourceFile

_REDUCTIONS = ("mean", "sum")


@rule(
    "AMP311",
    "scaled-vector",
    level=Level.WARNING,
    fix=Applicability.SAFE,
    triggers=(".scale(",),
)
def scaled_vector(file: SourceFile) -> Iterator[Finding]:
    """
    A float16 vector times the loss scale overflows before it is reduced: 2.0 times 65536 is infinite in float16, while
    a scalar loss is promoted to float32. Every such step is skipped. Scale the reduced loss.

    ```python bad
    import torch


    def step(model, x, optimizer, scaler: torch.amp.GradScaler):
        with torch.autocast("cuda", dtype=torch.float16):
            losses = model(x)
        scaler.scale(losses).mean().backward()
        scaler.step(optimizer)
        scaler.update()
    ```

    ```python good
    import torch


    def step(model, x, optimizer, scaler: torch.amp.GradScaler):
        with torch.autocast("cuda", dtype=torch.float16):
            losses = model(x)
        scaler.scale(losses.mean()).backward()
        scaler.step(optimizer)
        scaler.update()
    ```
    """
    for call in scale_calls(file):
        method = file.parent(call)
        reduction = file.parent(method) if method is not None else None
        if not isinstance(method, ast.Attribute) or method.attr not in _REDUCTIONS:
            continue
        if isinstance(reduction, ast.Call) and reduction.func is method:
            message = f"scaled before `{method.attr}()`: in float16 the products overflow and the step is skipped"
            yield Finding("AMP311", file.span(reduction), message, (), _fix(file, call, method, reduction))


def _fix(file: SourceFile, call: ast.Call, method: ast.Attribute, reduction: ast.Call) -> Fix | None:
    """Move the reduction inside `scale(...)`."""
    if len(call.args) != 1 or isinstance(call.args[0], ast.Starred):
        return None
    value = call.args[0]
    tail = Span(file.span(call).end, file.span(reduction).end)
    moved = file.segment(tail).strip()
    if not moved.startswith(f".{method.attr}"):
        return None
    end = file.span(value).end
    opening, closing = "", ""
    if not isinstance(value, (ast.Name, ast.Attribute, ast.Subscript, ast.Call)):
        opening, closing = "(", ")"
    start = file.span(value).start
    edits = [Edit(Span(end, end), f"{closing}{moved}"), Edit(tail, "")]
    if opening:
        edits.append(Edit(Span(start, start), opening))
    return Fix(f"Scale the result of `{method.attr}()`", tuple(edits), Applicability.SAFE)
