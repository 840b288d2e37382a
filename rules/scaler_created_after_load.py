"""AMP502: the scaler is built again after a checkpoint was loaded into it."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from amplint.facts.training import in_other_arm, scaler_constructors, targets_of
from amplint.facts.values import path_of
from amplint.model import Finding, Label, Level
from amplint.rule import rule
from amplint.source import SourceFile

_BEFORE_ALL = ("__init__", "__post_init__", "setup", "build", "init", "reset")


@rule(
    "AMP502",
    "scaler-created-after-load",
    level=Level.WARNING,
    triggers=("GradScaler",),
)
def scaler_created_after_load(file: SourceFile) -> Iterator[Finding]:
    """
    The state of a checkpoint goes into a scaler that is replaced afterwards, so the loaded loss scale is lost and the
    run starts from 65536 again, skipping steps until the scale has come down.

    ```python bad
    import torch


    def train(model, optimizer, loader, checkpoint):
        scaler = torch.amp.GradScaler("cuda")
        scaler.load_state_dict(checkpoint["scaler"])
        scaler = torch.amp.GradScaler("cuda")
        for x in loader:
            optimizer.zero_grad()
            with torch.autocast("cuda", dtype=torch.float16):
                loss = model(x).mean()
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
    ```

    ```python good
    import torch


    def train(model, optimizer, loader, checkpoint):
        scaler = torch.amp.GradScaler("cuda")
        scaler.load_state_dict(checkpoint["scaler"])
        for x in loader:
            optimizer.zero_grad()
            with torch.autocast("cuda", dtype=torch.float16):
                loss = model(x).mean()
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
    ```

    In a class it is reported where one method builds the scaler and loads it, and another one builds it again. A
    second construction under a test of the scaler itself (`if self.scaler is None`) is silent.
    """
    built = [(path_of(target), call) for call in scaler_constructors(file) for target in _targets(file, call)]
    for name, load in _loaded(file):
        own = [call for text, call in built if text == name]
        if not any(_same_function(file, call, load) and _before(call, load) for call in own):
            continue
        for call in own:
            if _replaces(file, name, call, load):
                message = "the scaler is built again after its state was loaded, so the loaded loss scale is lost"
                yield Finding("AMP502", file.span(call), message, (Label(file.span(load), "its state is loaded here"),))


def _targets(file: SourceFile, call: ast.Call) -> list[ast.expr]:
    return targets_of(file.statement(call))


def _loaded(file: SourceFile) -> Iterator[tuple[str, ast.Call]]:
    """The scaler and the call that loads its state, also a call of the method that does."""
    for use in file.names.attributes.get("load_state_dict", ()):
        call = file.parent(use)
        if isinstance(call, ast.Call) and call.func is use and path_of(use.value):
            name = path_of(use.value)
            yield name, call
            method = file.enclosing(call, ast.FunctionDef, ast.AsyncFunctionDef)
            if isinstance(method, (ast.FunctionDef, ast.AsyncFunctionDef)) and name.startswith("self."):
                for site in file.values.calls(method):
                    yield name, site


def _replaces(file: SourceFile, name: str, call: ast.Call, load: ast.Call) -> bool:
    """Whether a construction runs after a load: later in the same function, or in a later method of the class."""
    if _tests_scaler(file, name, call):
        return False
    if _same_function(file, call, load):
        return _before(load, call) and not in_other_arm(file, call, load)
    if not name.startswith("self."):
        return False
    owner = file.enclosing(call, ast.ClassDef)
    method = file.enclosing(call, ast.FunctionDef, ast.AsyncFunctionDef)
    if owner is None or owner is not file.enclosing(load, ast.ClassDef):
        return False
    called = str(getattr(method, "name", ""))
    return not called.lstrip("_").startswith(_BEFORE_ALL) and called not in _BEFORE_ALL


def _tests_scaler(file: SourceFile, name: str, call: ast.Call) -> bool:
    current = file.parent(call)
    while current is not None:
        if isinstance(current, (ast.If, ast.IfExp)) and name in file.segment(current.test):
            return True
        current = file.parent(current)
    return False


def _same_function(file: SourceFile, first: ast.AST, second: ast.AST) -> bool:
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef)
    return file.enclosing(first, *kinds) is file.enclosing(second, *kinds)


def _before(first: ast.expr, second: ast.expr) -> bool:
    return (first.lineno, first.col_offset) < (second.lineno, second.col_offset)
