"""AMP310: clipping raises on the infinities that the scaler is there to handle."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from amplint.facts.training import is_scaler, scaler_constructors
from amplint.model import Applicability, Edit, Finding, Fix, Label, Level
from amplint.rule import rule
from amplint.source import SourceFile

_CLIPS = (
    "torch.nn.utils.clip_grad_norm_",
    "torch.nn.utils.clip_grad.clip_grad_norm_",
    "torch.nn.utils.get_total_norm",
)
_SCALER_CALLS = ("unscale_", "step")


@rule(
    "AMP310",
    "clip-error-if-nonfinite",
    level=Level.WARNING,
    fix=Applicability.SAFE,
    triggers=("error_if_nonfinite", "clip_grad_norm_", "get_total_norm"),
)
def clip_error_if_nonfinite(file: SourceFile) -> Iterator[Finding]:
    """
    A scaler finds its scale by trying: infinite gradients in the first iterations are normal, it skips the step and
    halves the scale. `error_if_nonfinite=True` turns the first of them into a RuntimeError that ends the run.

    ```python bad
    import torch


    def step(model, loss, optimizer, scaler: torch.amp.GradScaler):
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0, error_if_nonfinite=True)
        scaler.step(optimizer)
        scaler.update()
    ```

    ```python good
    import torch


    def step(model, loss, optimizer, scaler: torch.amp.GradScaler):
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0, error_if_nonfinite=False)
        scaler.step(optimizer)
        scaler.update()
    ```
    """
    if _never_enabled(file):
        return
    for ref in file.refs:
        if ref.call is None or not any(name in _CLIPS for name in ref.candidates):
            continue
        flag = _flag(ref.call, ref.candidates)
        if flag is None:
            continue
        place, value = flag
        scaled = _scaler_call(file, file.outermost_function(ref.call))
        if scaled is not None:
            label = Label(file.span(scaled), "the scaler handles infinite gradients")
            message = "raises on the first overflow, which is how the scaler finds its scale"
            fix = Fix("Let the scaler skip the step", (Edit(file.span(value), "False"),), Applicability.SAFE)
            yield Finding("AMP310", file.span(place), message, (label,), fix)


def _flag(call: ast.Call, names: tuple[str, ...]) -> tuple[ast.AST, ast.expr] | None:
    """A literal True for `error_if_nonfinite`, with the node that gives it: a keyword or an argument by position."""
    for keyword in call.keywords:
        if keyword.arg == "error_if_nonfinite":
            return (keyword, keyword.value) if _is_true(keyword.value) else None
    position = 2 if any(name.endswith("get_total_norm") for name in names) else 3
    if len(call.args) <= position or any(isinstance(argument, ast.Starred) for argument in call.args):
        return None
    value = call.args[position]
    return (value, value) if _is_true(value) else None


def _is_true(value: ast.expr) -> bool:
    return isinstance(value, ast.Constant) and value.value is True


def _scaler_call(file: SourceFile, function: ast.AST) -> ast.Call | None:
    """The first call on a scaler in a function that says it is in use there."""
    for node in ast.walk(function):
        method = node.func if isinstance(node, ast.Call) else None
        if isinstance(method, ast.Attribute) and method.attr in _SCALER_CALLS and is_scaler(file, method.value):
            assert isinstance(node, ast.Call)
            return node
    return None


def _never_enabled(file: SourceFile) -> bool:
    """Whether every scaler of the file is switched off by a literal."""
    made = scaler_constructors(file)
    return bool(made) and all(
        any(
            keyword.arg == "enabled" and isinstance(keyword.value, ast.Constant) and keyword.value.value is False
            for keyword in call.keywords
        )
        for call in made
    )
