"""AMP601: the framework must run the backward pass, and the code runs its own."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from amplint.facts import frameworks
from amplint.facts.frameworks import Holder
from amplint.model import Applicability, Edit, Finding, Fix, Label, Level, Span
from amplint.rule import rule
from amplint.source import SourceFile


@rule(
    "AMP601",
    "framework-backward-bypassed",
    level=Level.ERROR,
    fix=Applicability.SAFE,
    triggers=("Accelerator", "Fabric", "LightningModule"),
)
def framework_backward_bypassed(file: SourceFile) -> Iterator[Finding]:
    """
    Accelerate, Fabric and Lightning's manual optimisation own the loss scaler. A plain `loss.backward()` leaves the
    loss unscaled, so small float16 gradients become zero and the framework's step then divides by a scale that was
    never applied; Accelerate's division by the accumulation steps is lost too.

    ```python bad
    from accelerate import Accelerator


    def train(model, loader, optimizer):
        accelerator = Accelerator(mixed_precision="fp16")
        model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
        for x, y in loader:
            optimizer.zero_grad()
            loss = (model(x) - y).pow(2).mean()
            loss.backward()
            optimizer.step()
    ```

    ```python good
    from accelerate import Accelerator


    def train(model, loader, optimizer):
        accelerator = Accelerator(mixed_precision="fp16")
        model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
        for x, y in loader:
            optimizer.zero_grad()
            loss = (model(x) - y).pow(2).mean()
            accelerator.backward(loss)
            optimizer.step()
    ```

    In a LightningModule with `self.automatic_optimization = False` the call is `self.manual_backward(loss)`. Silent
    where the precision in view is `no` or `bf16` and no accumulation is set, and in a function that calls the
    framework's own `backward` on another path.
    """
    for holder in frameworks.holders(file):
        yield from _bypassed_holder(file, holder)
    for module in frameworks.lightning_modules(file):
        if _optimizes_by_hand(file, module):
            yield from _bypassed_lightning(file, module)


def _bypassed_holder(file: SourceFile, holder: Holder) -> Iterator[Finding]:
    wrapped = frameworks.prepared(file, holder)
    own = {file.outermost_function(call) for call in frameworks.calls_on(file, holder, "backward")}
    if not holder.scales_gradients or (not wrapped and holder.call is not None):
        return
    for call in file.names.calls:
        function = file.outermost_function(call)
        if not frameworks.is_tensor_backward(call) or function in own or not frameworks.reaches(file, holder, call):
            continue
        if not _steps_prepared(file, function, wrapped):
            continue
        message = f"this backward goes round {holder.kind}: the loss is not scaled, small float16 gradients become zero"
        labels = [] if holder.call is None else [Label(file.span(holder.call), f"set up here by {holder.kind}")]
        yield Finding("AMP601", file.span(call), message, tuple(labels), _fix(file, call, f"{holder.text}.backward"))


def _steps_prepared(file: SourceFile, function: ast.AST, wrapped: set[str]) -> bool:
    """Whether something that was prepared is stepped in a function."""
    receivers = (
        node.func.value
        for node in ast.walk(function)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "step"
    )
    return any(file.segment(receiver) in wrapped for receiver in receivers)


def _optimizes_by_hand(file: SourceFile, module: ast.ClassDef) -> bool:
    switches = (
        node
        for node in ast.walk(module)
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant) and node.value.value is False
    )
    return any(file.segment(node.targets[0]).endswith("automatic_optimization") for node in switches)


def _bypassed_lightning(file: SourceFile, module: ast.ClassDef) -> Iterator[Finding]:
    for method in module.body:
        if not isinstance(method, (ast.FunctionDef, ast.AsyncFunctionDef)):
            continue
        calls = [node for node in ast.walk(method) if isinstance(node, ast.Call)]
        if any(isinstance(call.func, ast.Attribute) and call.func.attr == "manual_backward" for call in calls):
            continue
        for call in calls:
            if frameworks.is_tensor_backward(call):
                message = (
                    "this backward goes round Lightning: under 16-bit precision the loss is not scaled, "
                    "small float16 gradients become zero"
                )
                yield Finding("AMP601", file.span(call), message, (), _fix(file, call, "self.manual_backward"))


def _fix(file: SourceFile, call: ast.Call, backward: str) -> Fix | None:
    """Give the loss to the framework's backward; a loss that is already scaled by hand is left to the user."""
    assert isinstance(call.func, ast.Attribute)
    loss = call.func.value
    if not isinstance(loss, (ast.Name, ast.Attribute, ast.Subscript)):
        return None
    span, receiver = file.span(call), file.span(loss)
    opening = file.encoded.index(b"(", receiver.end)
    separator = ", " if call.keywords else ""
    edits = (Edit(Span(span.start, opening + 1), f"{backward}({file.segment(loss)}{separator}"),)
    return Fix(f"Use `{backward}`", edits, Applicability.SAFE)
