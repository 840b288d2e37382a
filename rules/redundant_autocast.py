"""AMP604: an autocast of one's own inside a framework that already runs one."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from amplint.facts import frameworks
from amplint.facts.frameworks import Holder
from amplint.model import Finding, Label, Level
from amplint.rule import rule
from amplint.source import Ref, SourceFile
from amplint.torch_api import APIS

_STEPS = ("training_step", "validation_step", "test_step", "predict_step", "forward")


@rule(
    "AMP604",
    "redundant-autocast",
    level=Level.INFO,
    triggers=("autocast",),
)
def redundant_autocast(file: SourceFile) -> Iterator[Finding]:
    """
    The framework already runs the step under autocast. A region of one's own adds nothing while both agree, and wins
    without a word when the framework's precision is changed later: the option then no longer does what it says.

    ```python bad
    import lightning.pytorch as pl
    import torch


    class Net(pl.LightningModule):
        def training_step(self, batch, batch_idx):
            with torch.autocast("cuda"):
                return self.net(batch).mean()


    trainer = pl.Trainer(precision="16-mixed")
    ```

    ```python good
    import lightning.pytorch as pl


    class Net(pl.LightningModule):
        def training_step(self, batch, batch_idx):
            return self.net(batch).mean()


    trainer = pl.Trainer(precision="16-mixed")
    ```

    Only reported where the framework's precision is a literal in the same file; with Accelerate and Fabric, whose
    prepared models bring their own autocast, where a region holds nothing but calls of such models.
    `autocast(enabled=False)` islands and regions with a dtype of their own are silent.
    """
    steps = _lightning_steps(file)
    holders = [holder for holder in frameworks.holders(file) if holder.runs_autocast]
    for ref in file.refs:
        if not _is_plain_autocast(ref):
            continue
        if any(_inside(file, ref.statement, step) for step in steps):
            message = "the framework already runs this step under autocast, and this region overrides its precision"
            yield Finding("AMP604", file.span(ref.call or ref.node), message)
            continue
        for holder in holders:
            if frameworks.reaches(file, holder, ref.statement) and _holds_only_models(file, ref, holder):
                message = f"{holder.kind} runs this model under its own autocast: the region around it does nothing"
                labels = () if holder.call is None else (Label(file.span(holder.call), "its precision is chosen here"),)
                yield Finding("AMP604", file.span(ref.call or ref.node), message, labels)
                break


def _holds_only_models(file: SourceFile, ref: Ref, holder: Holder) -> bool:
    """Whether a region computes nothing but calls of prepared models, and parts of what they return."""
    region = ref.statement
    if not isinstance(region, ast.With) or len(region.items) != 1:
        return False
    models = frameworks.prepared(file, holder)
    calls = 0
    for statement in region.body:
        if not isinstance(statement, (ast.Assign, ast.Expr)):
            return False
        value = statement.value
        while isinstance(value, (ast.Attribute, ast.Subscript)):
            value = value.value
        if isinstance(value, ast.Call) and file.segment(value.func) in models and _is_prepared(file, value.func):
            calls += 1
        elif not isinstance(value, ast.Name):
            return False
    return calls > 0


def _is_prepared(file: SourceFile, model: ast.expr) -> bool:
    """Whether a name is bound to what a method of a framework returns, not a parameter of the same name."""
    bindings = file.names.lookup(model) if isinstance(model, ast.Name) else ()
    assigned = [binding.node for binding in bindings]
    return not isinstance(model, ast.Name) or any(
        isinstance(node, ast.Assign) and isinstance(node.value, ast.Call) and isinstance(node.value.func, ast.Attribute)
        for node in assigned
    )


def _lightning_steps(file: SourceFile) -> list[ast.AST]:
    if not frameworks.is_mixed(frameworks.trainer_precision(file)):
        return []
    return [
        method
        for module in frameworks.lightning_modules(file)
        for method in module.body
        if isinstance(method, (ast.FunctionDef, ast.AsyncFunctionDef)) and method.name in _STEPS
    ]


def _is_plain_autocast(ref: Ref) -> bool:
    """Whether a reference is an autocast call that neither switches itself off nor asks for a dtype."""
    if ref.call is None or not all(name in APIS and APIS[name].kind == "autocast" for name in ref.candidates):
        return False
    named = {keyword.arg for keyword in ref.call.keywords}
    return not named & {"enabled", "dtype", None} and len(ref.call.args) <= 1


def _inside(file: SourceFile, node: ast.AST, owner: ast.AST) -> bool:
    current: ast.AST | None = node
    while current is not None and current is not owner:
        current = file.parent(current)
    return current is owner
