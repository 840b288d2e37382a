"""AMP306: a gradient penalty is computed from scaled gradients, or from unscaled float16 ones."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from amplint.facts.precision import LoweredValues
from amplint.facts.training import is_scaler, scale_calls, targets_of
from amplint.facts.values import path_of
from amplint.model import Applicability, Finding, Fix, Label, Level
from amplint.rewrite import statements
from amplint.rule import rule
from amplint.source import Ref, SourceFile

Functions = (ast.FunctionDef, ast.AsyncFunctionDef)


@rule(
    "AMP306",
    "scaled-gradient-penalty",
    level=Level.WARNING,
    fix=Applicability.UNSAFE,
    triggers=("create_graph",),
)
def scaled_gradient_penalty(file: SourceFile) -> Iterator[Finding]:
    """
    `scaler.unscale_` does not touch what `autograd.grad` returns. A penalty from scaled gradients is wrong by the scale
    or its square (40.1 where 0.00245 is right), and one from unscaled float16 outputs loses its small gradients to
    zero. Scale the outputs, then divide the gradients by the scale.

    ```python bad
    import torch


    def penalty(critic, real, scaler: torch.amp.GradScaler):
        with torch.autocast("cuda", dtype=torch.float16):
            score = critic(real).sum()
        (grad,) = torch.autograd.grad(scaler.scale(score), real, create_graph=True)
        return grad.pow(2).sum(1).mean()
    ```

    ```python good
    import torch


    def penalty(critic, real, scaler: torch.amp.GradScaler):
        with torch.autocast("cuda", dtype=torch.float16):
            score = critic(real).sum()
        (grad,) = torch.autograd.grad(scaler.scale(score), real, create_graph=True)
        grad = grad * (1.0 / scaler.get_scale())
        return grad.pow(2).sum(1).mean()
    ```
    """
    for ref in file.refs:
        call = ref.call
        if call is None or ref.candidates != ("torch.autograd.grad",) or not _creates_graph(call):
            continue
        function = file.enclosing(call, *Functions)
        scope: ast.AST = function or file.tree
        scaled = _scaled_outputs(file, call, scope)
        if scaled is not None:
            if not _reads_scale(scope, call):
                message = "the penalty is computed from gradients that are still multiplied by the loss scale"
                labels = (Label(file.span(scaled), "the outputs are scaled here"),)
                place = file.span(_first_use(file, call) or call)
                yield Finding("AMP306", place, message, labels, _fix(file, ref, call, scaled))
        else:
            yield from _unscaled(file, call, scope)


def _creates_graph(call: ast.Call) -> bool:
    return any(
        keyword.arg == "create_graph" and isinstance(keyword.value, ast.Constant) and keyword.value.value is True
        for keyword in call.keywords
    )


def _outputs(call: ast.Call) -> ast.expr | None:
    if call.args:
        return call.args[0]
    return next((keyword.value for keyword in call.keywords if keyword.arg == "outputs"), None)


def _scaled_outputs(file: SourceFile, call: ast.Call, scope: ast.AST) -> ast.Call | None:
    """The call that scaled the outputs, in place or by an assignment before."""
    outputs = _outputs(call)
    if outputs is None:
        return None
    scales = [scale for scale in scale_calls(file) if (file.enclosing(scale, *Functions) or file.tree) is scope]
    for scale in scales:
        if scale in ast.walk(outputs):
            return scale
        statement = file.statement(scale)
        names = {path_of(target) for target in targets_of(statement)} - {""}
        if path_of(outputs) in names and statement.lineno < call.lineno:
            return scale
    return None


def _reads_scale(scope: ast.AST, call: ast.Call) -> bool:
    """Whether the scale is read, or an inverse scale named, in the function: the gradients may be divided by it."""
    for node in ast.walk(scope):
        name = node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")
        if name == "get_scale" or "inv_scale" in str(name) or "loss_scale" in str(name):
            return True
    return False


def _first_use(file: SourceFile, call: ast.Call) -> ast.Name | None:
    """Where the gradients are used first, the place at which they should have been divided."""
    names = {path_of(target) for target in targets_of(file.statement(call))} - {""}
    after = (call.end_lineno or 0, call.end_col_offset or 0)
    uses = [use for name in names for use in file.names.loads.get(name, ()) if (use.lineno, use.col_offset) > after]
    return min(uses, key=lambda use: (use.lineno, use.col_offset), default=None)


def _unscaled(file: SourceFile, call: ast.Call, scope: ast.AST) -> Iterator[Finding]:
    """Half outputs whose gradients are taken without scaling, in a function that trains through a scaler."""
    outputs = _outputs(call)
    steps = any(
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr == "step"
        and is_scaler(file, node.func.value)
        for node in ast.walk(scope)
    )
    if outputs is None or not steps:
        return
    lowered = LoweredValues(file, scope if isinstance(scope, Functions) else None).behind(outputs)
    if lowered is not None and "float16" in lowered.region.dtypes and len(lowered.region.dtypes) == 1:
        message = "the penalty's gradients are taken of unscaled float16 outputs, where small ones become zero"
        label = Label(file.span(lowered.call), "this output is float16")
        yield Finding("AMP306", file.span(call), message, (label,))


def _fix(file: SourceFile, ref: Ref, call: ast.Call, scaled: ast.Call) -> Fix | None:
    """Divide the gradient by the scale in the next statement, where one gradient is unpacked into a name."""
    statement = ref.statement
    if not isinstance(statement, ast.Assign) or len(statement.targets) != 1:
        return None
    target = statement.targets[0]
    value = statement.value
    if isinstance(target, ast.Tuple) and len(target.elts) == 1 and value is call:
        gradient = target.elts[0]
    elif isinstance(value, ast.Subscript) and value.value is call:
        gradient = target
    else:
        return None
    if not isinstance(gradient, ast.Name) or not isinstance(scaled.func, ast.Attribute):
        return None
    scaler = file.segment(scaled.func.value)
    code = f"{gradient.id} = {gradient.id} * (1.0 / {scaler}.get_scale())"
    edit = statements.insert_after(file, statement, code)
    return None if edit is None else Fix("Divide the gradient by the scale", (edit,), Applicability.UNSAFE)
