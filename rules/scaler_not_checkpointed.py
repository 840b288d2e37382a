"""AMP501: a checkpoint holds the optimizer's state and not the scaler's."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from amplint.facts import checkpoints
from amplint.facts.checkpoints import Saved
from amplint.facts.training import scale_calls
from amplint.facts.values import path_of
from amplint.model import Applicability, Edit, Finding, Fix, Label, Level, Span
from amplint.rewrite import statements
from amplint.rule import rule
from amplint.source import SourceFile

_HELP = "save `scaler.state_dict()` beside the optimizer's state and load it where the optimizer is loaded"


@rule(
    "AMP501",
    "scaler-not-checkpointed",
    level=Level.INFO,
    fix=Applicability.UNSAFE,
    triggers=("GradScaler",),
)
def scaler_not_checkpointed(file: SourceFile) -> Iterator[Finding]:
    """
    The optimizer's state is saved and the loss scale is not, so a resumed run starts from 65536 again and skips steps
    until the scale has come down (8 of the first 20 where it was measured). Weights are never harmed.

    ```python bad
    import torch


    def train(model, loader, optimizer, path, resume=None):
        scaler = torch.amp.GradScaler("cuda")
        if resume is not None:
            checkpoint = torch.load(resume)
            model.load_state_dict(checkpoint["model"])
            optimizer.load_state_dict(checkpoint["optimizer"])
        for x in loader:
            optimizer.zero_grad()
            with torch.autocast("cuda", dtype=torch.float16):
                loss = model(x).mean()
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
        state = {
            "model": model.state_dict(),
            "optimizer": optimizer.state_dict(),
        }
        torch.save(state, path)
    ```

    ```python good
    import torch


    def train(model, loader, optimizer, path, resume=None):
        scaler = torch.amp.GradScaler("cuda")
        if resume is not None:
            checkpoint = torch.load(resume)
            model.load_state_dict(checkpoint["model"])
            optimizer.load_state_dict(checkpoint["optimizer"])
            if "scaler" in checkpoint:
                scaler.load_state_dict(checkpoint["scaler"])
        for x in loader:
            optimizer.zero_grad()
            with torch.autocast("cuda", dtype=torch.float16):
                loss = model(x).mean()
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
        state = {
            "model": model.state_dict(),
            "optimizer": optimizer.state_dict(),
            "scaler": scaler.state_dict(),
        }
        torch.save(state, path)
    ```

    Reported only in a file that makes a GradScaler and scales with one. A `save_checkpoint(model, optimizer, ...)` of
    another file is reported once, at its first call, where no scaler is among the arguments.
    """
    made = checkpoints.scalers(file)
    if not made or not scale_calls(file) or checkpoints.mentions_scaler_state(file):
        return
    name, statement = next(iter(made.items()))
    label = Label(file.span(statement), "the scaler is made here")
    message = (
        "the checkpoint holds the optimizer's state and not the scaler's: a resumed run starts at scale 65536 again"
    )
    found = False
    for entry in checkpoints.saved(file):
        found = True
        for optimizer in entry.optimizers[:1] if entry.direct is not None else entry.optimizers:
            place = file.span(entry.direct or optimizer)
            fix = _fix(file, entry, optimizer, name, statement) if optimizer is entry.optimizers[-1] else None
            yield Finding("AMP501", place, message, (label,), fix, help="" if fix else _HELP)
    if not found:
        for call in checkpoints.saving_calls(file):
            yield Finding("AMP501", file.span(call), message, (label,), help=_HELP)
            break


def _fix(file: SourceFile, entry: Saved, optimizer: ast.Call, scaler: str, made: ast.AST) -> Fix | None:
    """Save the scaler beside the optimizer, and load it after the optimizer where the file loads it."""
    assert isinstance(optimizer.func, ast.Attribute)
    if not _reachable(file, scaler, made, entry.node):
        return None
    key = checkpoints.key_of(file, entry, optimizer)
    own_key = key.replace("optimizer", "scaler") if "optimizer" in key else "scaler"
    edits = [_save(file, entry, optimizer, scaler, own_key)]
    for call in checkpoints.loads(file, path_of(optimizer.func.value)):
        load = _load(file, call, key, scaler, own_key, made)
        if load is None:
            return None
        edits.append(load)
    return Fix("Save and load the scaler's state", tuple(edits), Applicability.UNSAFE)


def _save(file: SourceFile, entry: Saved, optimizer: ast.Call, scaler: str, key: str) -> Edit:
    """The entry after the optimizer's, on a line of its own where entries stand on lines of their own."""
    is_dict = isinstance(entry.node, ast.Dict)
    quote = '"'
    if isinstance(entry.node, ast.Dict):
        keys = [k for k in entry.node.keys if isinstance(k, ast.Constant)]
        quote = file.segment(keys[0])[:1] if keys and file.segment(keys[0])[:1] in "'\"" else '"'
    text = f"{quote}{key}{quote}: {scaler}.state_dict()" if is_dict else f"{key}={scaler}.state_dict()"
    end = file.span(optimizer).end
    line = file.line_span(optimizer.lineno)
    head = file.segment(Span(line.start, file.span(optimizer).start))
    if optimizer.lineno == entry.node.lineno:
        return Edit(Span(end, end), f", {text}")
    indent = head[: len(head) - len(head.lstrip())]
    return Edit(Span(end, end), f",{statements.line_break(file.encoded, end)}{indent}{text}")


def _load(file: SourceFile, call: ast.Call, key: str, scaler: str, own_key: str, made: ast.AST) -> Edit | None:
    """The lines after the optimizer's `load_state_dict`, None where the scaler does not exist there yet."""
    state = call.args[0] if len(call.args) == 1 else None
    if not isinstance(state, ast.Subscript) or not path_of(state.value):
        return None
    if (
        not isinstance(state.slice, ast.Constant)
        or state.slice.value != key
        or not _reachable(file, scaler, made, call)
    ):
        return None
    quoted = file.segment(state.slice).replace(key, own_key)
    source = path_of(state.value)
    code = f"if {quoted} in {source}:\n    {scaler}.load_state_dict({source}[{quoted}])"
    return statements.insert_after(file, file.statement(call), code)


def _reachable(file: SourceFile, scaler: str, made: ast.AST, place: ast.AST) -> bool:
    """Whether the scaler's name means it at a place: same function and made before, or an attribute of the class."""
    here, there = file.outermost_function(place), file.outermost_function(made)
    if scaler.startswith("self."):
        return here is not file.tree and (here is not there or _before(made, place))
    return here is there and _before(made, place)


def _before(first: ast.AST, second: ast.AST) -> bool:
    return (first.lineno, first.col_offset) < (second.lineno, second.col_offset)  # type: ignore[attr-defined]
