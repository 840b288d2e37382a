"""AMP103: the model runs in the region, its loss after it."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from amplint.facts.precision import Lowered, LoweredByFunction, LoweredValues
from amplint.facts.training import FLOAT32_LOSSES, is_unknown_loss, losses
from amplint.model import Applicability, Edit, Finding, Fix, Label, Level, Span
from amplint.rule import rule
from amplint.source import SourceFile


@rule("AMP103", "loss-outside-autocast", level=Level.WARNING, fix=Applicability.UNSAFE, triggers=("autocast",))
def loss_outside_autocast(file: SourceFile) -> Iterator[Finding]:
    """
    What a model returns from an autocast region is half precision, and a loss that is computed on it after the region
    is too: the relative error of a cross entropy is 1e-3 instead of 3e-8, a confident row gives exactly 0, and a
    float16 loss overflows in the first backward with the default scale of 65536. Inside the region autocast runs losses
    in float32.

    ```python bad
    import torch
    import torch.nn.functional as F


    def compute_loss(model, x, y):
        with torch.autocast("cuda", dtype=torch.float16):
            logits = model(x)
        return F.cross_entropy(logits, y)
    ```

    ```python good
    import torch
    import torch.nn.functional as F


    def compute_loss(model, x, y):
        with torch.autocast("cuda", dtype=torch.float16):
            logits = model(x)
        return F.cross_entropy(logits.float(), y)
    ```

    Moving the loss into the region is as good. The fix is unsafe since it can't see the dtype that the model returns.
    Losses that compare with a float32 target (`mse_loss`, `l1_loss`) are promoted to float32 and stay silent, unless
    the target is seen to be half precision too, and so does the evaluation of a bfloat16 model, where nothing can
    overflow and the loss is only reported.
    """
    by_function = LoweredByFunction(file)
    for call in file.names.calls:
        if not call.args or not (known := losses(file, call) or _unknown(file, call)):
            continue
        if file.regions.active(call):
            continue
        function = file.values.enclosing_function(call)
        lowered = by_function[function]
        source = lowered.behind(call.args[0])
        if source is None or (known <= FLOAT32_LOSSES and not _target_is_half(lowered, call)):
            continue
        if source.region.dtypes == {"bfloat16"} and file.regions.without_grad(call):
            continue
        yield _finding(file, call, source)


def _unknown(file: SourceFile, call: ast.Call) -> frozenset[str]:
    return frozenset(("?",)) if is_unknown_loss(file, call) else frozenset()


def _target_is_half(lowered: LoweredValues, call: ast.Call) -> bool:
    if len(call.args) < 2:
        return False
    target = call.args[1]
    if isinstance(target, ast.Call) and isinstance(target.func, ast.Attribute):
        if target.func.attr in ("half", "bfloat16"):
            return True
        if (
            target.func.attr == "to"
            and target.args
            and ast.unparse(target.args[0]) == f"{ast.unparse(call.args[0])}.dtype"
        ):
            return True
    return lowered.behind(target) is not None


def _finding(file: SourceFile, call: ast.Call, source: Lowered) -> Finding:
    argument = call.args[0]
    end = file.span(argument).end
    text = ".float()" if isinstance(argument, (ast.Name, ast.Attribute, ast.Call, ast.Subscript)) else ""
    fix = Fix("Compute the loss in float32", (Edit(Span(end, end), text),), Applicability.UNSAFE) if text else None
    return Finding(
        "AMP103",
        file.span(call),
        "the loss is computed after the autocast region in half precision: its relative error is 1e-3 instead of 3e-8",
        (
            Label(file.span(source.call), "the model runs in half precision here"),
            Label(file.span(source.region.expression), "in this region"),
        ),
        fix,
    )
