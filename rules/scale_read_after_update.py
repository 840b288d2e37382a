"""AMP504: this iteration's scaling is undone with the next iteration's scale."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from amplint.facts.training import targets_of
from amplint.facts.values import path_of
from amplint.model import Applicability, Edit, Finding, Fix, Label, Level
from amplint.rewrite import statements
from amplint.rule import rule
from amplint.source import SourceFile

Functions = (ast.FunctionDef, ast.AsyncFunctionDef)


@rule(
    "AMP504",
    "scale-read-after-update",
    level=Level.WARNING,
    fix=Applicability.UNSAFE,
    triggers=("get_scale",),
)
def scale_read_after_update(file: SourceFile) -> Iterator[Finding]:
    """
    `update()` may halve or double the scale, so dividing this iteration's scaled loss by `get_scale()` after it is
    wrong by that factor in just the iterations that one wants to see.

    ```python bad
    import torch


    def step(model, x, optimizer, scaler: torch.amp.GradScaler):
        with torch.autocast("cuda", dtype=torch.float16):
            loss = model(x).mean()
        scaled = scaler.scale(loss)
        scaled.backward()
        scaler.step(optimizer)
        scaler.update()
        return scaled.item() / scaler.get_scale()
    ```

    ```python good
    import torch


    def step(model, x, optimizer, scaler: torch.amp.GradScaler):
        with torch.autocast("cuda", dtype=torch.float16):
            loss = model(x).mean()
        scaled = scaler.scale(loss)
        scaled.backward()
        scaler.step(optimizer)
        loss_scale = scaler.get_scale()
        scaler.update()
        return scaled.item() / loss_scale
    ```

    Comparing the scale before and after `update()`, to see whether the step was skipped, is right and silent.
    """
    for use in file.names.attributes.get("get_scale", ()):
        read = file.parent(use)
        scaler = path_of(use.value)
        if not isinstance(read, ast.Call) or not scaler:
            continue
        function = file.enclosing(read, *Functions) or file.tree
        undone = _undone(file, read)
        update = _last_update(file, function, scaler, read)
        if undone is None or update is None or not _is_scaled(file, function, undone, scaler, update):
            continue
        message = "the loss was scaled before `update()`, which may have changed the scale that it is divided by here"
        label = Label(file.span(update), "the scale may change here")
        yield Finding("AMP504", file.span(read), message, (label,), _fix(file, function, scaler, read, update))


def _undone(file: SourceFile, read: ast.Call) -> ast.expr | None:
    """What is divided by the scale: `a` in `a / s.get_scale()` and `a * (1.0 / s.get_scale())`."""
    parent = file.parent(read)
    if not isinstance(parent, ast.BinOp) or not isinstance(parent.op, ast.Div) or parent.right is not read:
        return None
    if not isinstance(parent.left, ast.Constant):
        return parent.left
    above = file.parent(parent)
    if isinstance(above, ast.BinOp) and isinstance(above.op, ast.Mult):
        return above.left if above.right is parent else above.right
    return None


def _last_update(file: SourceFile, function: ast.AST, scaler: str, read: ast.Call) -> ast.Call | None:
    """The last call before the read that updates the scaler, itself or through a helper of the file."""
    found = None
    for node in ast.walk(function):
        if isinstance(node, ast.Call) and (node.lineno, node.col_offset) < (read.lineno, read.col_offset):
            if file.enclosing(node, *Functions) not in (
                function,
                None if function is file.tree else function,
            ):
                continue
            if _updates(file, node, scaler) and (found is None or node.lineno > found.lineno):
                found = node
    return found


def _updates(file: SourceFile, call: ast.Call, scaler: str) -> bool:
    if path_of(call.func) == f"{scaler}.update":
        return True
    if not scaler.startswith("self.") or not path_of(call.func).startswith("self."):
        return False
    helpers = [value for value in file.values.of(call.func) if isinstance(value, Functions)]
    return any(
        isinstance(node, ast.Call) and path_of(node.func) == f"{scaler}.update"
        for helper in helpers
        for node in ast.walk(helper)
    )


def _is_scaled(file: SourceFile, function: ast.AST, value: ast.expr, scaler: str, update: ast.Call) -> bool:
    """Whether a value comes from `<scaler>.scale(...)` before the update, also through names in between."""
    assignments = [
        (node.value, {path_of(target) for target in targets_of(node)})
        for node in ast.walk(function)
        if isinstance(node, ast.Assign) and node.lineno < value.lineno
    ]
    pending, seen = [value], {value}
    while pending:
        current = pending.pop()
        parts = list(ast.walk(current))
        calls = [part for part in parts if isinstance(part, ast.Call) and path_of(part.func) == f"{scaler}.scale"]
        if any(call.lineno < update.lineno for call in calls):
            return True
        names = {path_of(part) for part in parts if isinstance(part, (ast.Name, ast.Attribute))} - {""}
        for source, targets in assignments:
            if source not in seen and targets & names:
                seen.add(source)
                pending.append(source)
    return False


def _fix(file: SourceFile, function: ast.AST, scaler: str, read: ast.Call, update: ast.Call) -> Fix | None:
    """Read the scale into a name before the update, where both stand in one block."""
    statement = file.statement(update)
    if file.statement(read) not in statements.siblings(file, statement):
        return None
    taken = {node.id for node in ast.walk(function) if isinstance(node, ast.Name)}
    if "loss_scale" in taken:
        return None
    before = statements.insert_before(file, statement, f"loss_scale = {scaler}.get_scale()")
    if before is None:
        return None
    return Fix("Read the scale before `update()`", (before, Edit(file.span(read), "loss_scale")), Applicability.UNSAFE)
