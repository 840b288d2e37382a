"""AMP604: an autocast of one's own inside a framework that already runs one."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from amplint.facts import frameworks
from amplint.model import Finding, Level
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

    Only reported where the framework's precision is a literal in the same file. `autocast(enabled=False)` islands and
    regions with a dtype of their own are silent.
    """
    steps = _lightning_steps(file)
    if not steps:
        return
    for ref in file.refs:
        if _is_plain_autocast(ref) and any(_inside(file, ref.statement, step) for step in steps):
            message = "the framework already runs this step under autocast, and this region overrides its precision"
            yield Finding("AMP604", file.span(ref.call or ref.node), message)


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
