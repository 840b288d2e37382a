"""AMP210: the scaler can't step an optimizer that evaluates a closure."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from amplint.facts.training import mentions_scaler
from amplint.facts.values import is_self
from amplint.model import Finding, Level
from amplint.rule import rule
from amplint.source import SourceFile
from amplint.torch_api import APIS

_EVALUATES_OFTEN = ("torch.optim.LBFGS", "torch.optim.lbfgs.LBFGS")


@rule(
    "AMP210",
    "scaler-step-with-closure",
    level=Level.ERROR,
    triggers=(".step(",),
)
def scaler_step_with_closure(file: SourceFile) -> Iterator[Finding]:
    """
    `scaler.step(optimizer, closure=...)` raises `Closure use is not currently supported if GradScaler is enabled`. By
    position the closure goes through unnoticed and runs on gradients that are still scaled: SGD reached a loss of 7e13
    where 0.19 is right. LBFGS calls its closure several times a step, and only the first time is unscaled.

    ```python bad
    import torch


    def train(model, loader, optimizer):
        scaler = torch.amp.GradScaler("cuda")
        for x in loader:

            def closure():
                optimizer.zero_grad()
                with torch.autocast("cuda", dtype=torch.float16):
                    loss = model(x).mean()
                scaler.scale(loss).backward()
                return loss

            scaler.step(optimizer, closure)
            scaler.update()
    ```

    ```python good
    import torch


    def train(model, loader, optimizer):
        for x in loader:

            def closure():
                optimizer.zero_grad()
                with torch.autocast("cuda", dtype=torch.bfloat16):
                    loss = model(x).mean()
                loss.backward()
                return loss

            optimizer.step(closure)
    ```

    There is no fix: train in bfloat16 without a scaler, or with an optimizer that needs no closure.
    """
    for use in file.names.attributes.get("step", ()):
        call = file.parent(use)
        if not isinstance(call, ast.Call) or call.func is not use or not _is_scaler(file, use.value):
            continue
        closure = next((keyword.value for keyword in call.keywords if keyword.arg == "closure"), None)
        if closure is not None and _is_function(file, closure):
            message = "a closure given to `scaler.step` raises as soon as the scaler is enabled"
            yield Finding("AMP210", file.span(call), message)
        elif len(call.args) > 1 and _is_function(file, call.args[1]):
            message = "the closure runs on gradients that are still scaled, and its step uses them as they are"
            yield Finding("AMP210", file.span(call), message)
        elif call.args and _is_lbfgs(file, call.args[0]):
            message = "this optimizer evaluates a closure several times a step, which the scaler does not support"
            yield Finding("AMP210", file.span(call), message)


def _is_scaler(file: SourceFile, node: ast.expr) -> bool:
    """Whether an expression is torch's scaler: made in the file, or a name or attribute of the class called so.

    What hangs on another object (`state.scaler`) may be anything: Composer's takes closures.
    """
    made = [name for name in file.values.constructed(node) if isinstance(name, str)]
    if made:
        return all(name in APIS and APIS[name].kind == "scaler" for name in made)
    own = isinstance(node, ast.Name) or (isinstance(node, ast.Attribute) and is_self(node.value))
    return own and mentions_scaler(node)


def _is_function(file: SourceFile, node: ast.expr) -> bool:
    """Whether a closure is surely one; a parameter that is handed on may be None."""
    values = file.values.of(node)
    return bool(values) and all(isinstance(value, (ast.FunctionDef, ast.Lambda)) for value in values)


def _is_lbfgs(file: SourceFile, node: ast.expr) -> bool:
    made = [name for name in file.values.constructed(node) if isinstance(name, str)]
    return bool(made) and all(name in _EVALUATES_OFTEN for name in made)
