"""What a file writes into its checkpoints and reads back: the states of optimizers and scalers."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from amplint.facts.training import scaler_constructors, targets_of
from amplint.facts.values import path_of

if TYPE_CHECKING:
    from amplint.source import SourceFile

_OPTIMIZER = re.compile(r"optim|(?:^|[._])opt(?:$|[_\d])", re.IGNORECASE)
_MODEL_KEY = re.compile(r"model|net|state_dict|module|weights", re.IGNORECASE)
_SCALER = re.compile(r"scaler|\bamp\b|grad_scale", re.IGNORECASE)
_SAVES = re.compile(r"(?:save|store|write|dump).*(?:checkpoint|ckpt|snapshot|state)|^checkpoint$", re.IGNORECASE)


class Saved(NamedTuple):
    """A collection that becomes a checkpoint.

    `node` is the dict literal or the call (`dict(...)`, `Snapshot(...)`) with the states in it; `optimizers` are the
    calls `<optimizer>.state_dict()` in it; `direct` is the `torch.save` call that it is an argument of, or None.
    """

    node: ast.Dict | ast.Call
    optimizers: tuple[ast.Call, ...]
    direct: ast.Call | None


def scalers(file: SourceFile) -> dict[str, ast.AST]:
    """The names and attributes that are given a new GradScaler in the file, each with its first assignment."""
    found: dict[str, ast.AST] = {}
    for call in scaler_constructors(file):
        statement = file.statement(call)
        for target in targets_of(statement):
            if path_of(target):
                found.setdefault(path_of(target), statement)
    return found


def mentions_scaler_state(file: SourceFile) -> bool:
    """Whether a scaler's state is saved or loaded anywhere in the file, or a key of a checkpoint is named after one."""
    for name in ("state_dict", "load_state_dict"):
        for use in file.names.attributes.get(name, ()):
            if _SCALER.search(file.segment(use.value)):
                return True
    return any(
        isinstance(parent := file.parent(text), (ast.Dict, ast.Subscript, ast.Compare))
        and "scaler" in str(text.value).lower()
        and not (isinstance(parent, ast.Dict) and text in parent.values)
        for text in file.names.strings
    )


def saved(file: SourceFile) -> Iterator[Saved]:
    """Every collection that holds an optimizer's state beside a model's and no scaler's, in the order of the text."""
    seen: set[ast.AST] = set()
    for use in file.names.attributes.get("state_dict", ()):
        call = file.parent(use)
        holder = _collection(file, call) if isinstance(call, ast.Call) and call.func is use else None
        if holder is None or holder in seen or not _is_checkpoint(file, holder):
            continue
        seen.add(holder)
        optimizers = tuple(entry for key, entry in _states(file, holder) if _is_optimizer(key, entry))
        if optimizers:
            yield Saved(holder, optimizers, _direct_save(file, holder))


def saving_calls(file: SourceFile) -> Iterator[ast.Call]:
    """Calls such as `save_checkpoint(model, optimizer, path)` of functions that are not in the file."""
    for call in file.names.calls:
        path = path_of(call.func)
        if not path or not _SAVES.search(path.rsplit(".", 1)[-1]) or _is_local(file, call):
            continue
        arguments = [*call.args, *(keyword.value for keyword in call.keywords)]
        if any(_SCALER.search(file.segment(argument)) for argument in arguments):
            continue
        if any(_OPTIMIZER.search(path_of(argument)) for argument in arguments if path_of(argument)):
            yield call


def loads(file: SourceFile, optimizer: str) -> Iterator[ast.Call]:
    """The calls `<optimizer>.load_state_dict(checkpoint[key])` of an optimizer, by how it is written."""
    for use in file.names.attributes.get("load_state_dict", ()):
        call = file.parent(use)
        if isinstance(call, ast.Call) and call.func is use and path_of(use.value) == optimizer:
            yield call


def key_of(file: SourceFile, entry: Saved, optimizer: ast.Call) -> str:
    """The key under which a collection holds an optimizer's state."""
    return next((key for key, state in _states(file, entry.node) if state is optimizer), "")


def _collection(file: SourceFile, call: ast.AST) -> ast.Dict | ast.Call | None:
    """The dict or the call with keywords that a state is an entry of."""
    child, parent = call, file.parent(call)
    if isinstance(parent, ast.IfExp):
        child, parent = parent, file.parent(parent)
    if isinstance(parent, ast.Dict) and child in parent.values:
        return parent
    if isinstance(parent, ast.keyword):
        above = file.parent(parent)
        return above if isinstance(above, ast.Call) else None
    return None


def _entries(file: SourceFile, holder: ast.Dict | ast.Call) -> Iterator[tuple[str, ast.expr]]:
    if isinstance(holder, ast.Dict):
        for key, value in zip(holder.keys, holder.values, strict=True):
            yield (str(key.value) if isinstance(key, ast.Constant) else "" if key is None else file.segment(key)), value
    else:
        for keyword in holder.keywords:
            yield keyword.arg or "", keyword.value


def _states(file: SourceFile, holder: ast.Dict | ast.Call) -> Iterator[tuple[str, ast.Call]]:
    for key, value in _entries(file, holder):
        state = value.body if isinstance(value, ast.IfExp) else value
        if isinstance(state, ast.Call) and path_of(state.func).endswith(".state_dict"):
            yield key, state


def _is_checkpoint(file: SourceFile, holder: ast.Dict | ast.Call) -> bool:
    """Whether a collection holds a model and no scaler; one that unpacks another may hold anything."""
    entries = list(_entries(file, holder))
    if any(not key or _SCALER.search(key) or _SCALER.search(file.segment(value)) for key, value in entries):
        return False
    return any(_MODEL_KEY.search(key) and not _OPTIMIZER.search(key) for key, _ in entries)


def _is_optimizer(key: str, state: ast.Call) -> bool:
    assert isinstance(state.func, ast.Attribute)
    return bool(_OPTIMIZER.search(path_of(state.func.value)) or _OPTIMIZER.search(key))


def _direct_save(file: SourceFile, holder: ast.Dict | ast.Call) -> ast.Call | None:
    parent = file.parent(holder)
    if isinstance(parent, ast.Call) and parent.args[:1] == [holder] and "torch.save" in file.resolve(parent.func):
        return parent
    return None


def _is_local(file: SourceFile, call: ast.Call) -> bool:
    """Whether the called function is defined in the file, where its own dict is looked at."""
    if isinstance(call.func, ast.Name):
        return any(binding.kind == "def" for binding in file.names.lookup(call.func))
    return any(isinstance(value, (ast.FunctionDef, ast.AsyncFunctionDef)) for value in file.values.of(call.func))
