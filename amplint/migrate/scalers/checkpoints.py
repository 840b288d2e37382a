"""The scaler's state joins the checkpoints of the optimizers that it serves, and is loaded where theirs is."""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING

from amplint.facts import checkpoints
from amplint.facts.values import path_of
from amplint.migrate.editor import Editor
from amplint.migrate.facts import Facts
from amplint.migrate.model import RefusalError
from amplint.migrate.scalers import objects
from amplint.migrate.scalers.making import Scalers
from amplint.model import Span
from amplint.rewrite import statements

if TYPE_CHECKING:
    from amplint.source import SourceFile

UNSAVED = "AMP501"
"""The rule about checkpoints without the scaler's state; its fix does what is left."""


def join(facts: Facts, scalers: Scalers, editor: Editor) -> None:
    """Save and load the state of a scaler beside an optimizer's, under a key of its own.

    The scaler is handed on as the optimizer is. Where it can't be, all is left as it is; AMP501 then tells.
    """
    file = facts.file
    if checkpoints.mentions_scaler_state(file):
        return
    keys: dict[str, str] = {}
    for entry in checkpoints.saved(file):
        state = entry.optimizers[-1]
        key = checkpoints.key_of(file, entry, state)
        own = key.replace("optimizer", "scaler") if "optimizer" in key else "scaler"
        text = _text(scalers, editor, state.func.value, file.statement(state))  # type: ignore[attr-defined]
        if text:
            saved = f"{text}.state_dict()"
            if _is_optional(file, scalers, state):
                saved += f" if {text} is not None else None"
            _save(file, editor, entry, state, own, saved)
            keys[key] = own
    for use in file.names.attributes.get("load_state_dict", ()) if keys else ():
        call = file.parent(use)
        loaded = call.args[0] if isinstance(call, ast.Call) and call.func is use and len(call.args) == 1 else None
        if not isinstance(loaded, ast.Subscript) or not path_of(loaded.value) or not facts.is_optimizer(use.value):
            continue
        key = loaded.slice.value if isinstance(loaded.slice, ast.Constant) else None  # type: ignore[assignment]
        statement = file.statement(use)
        if key not in keys or not isinstance(statement, ast.Expr):
            continue
        text = _text(scalers, editor, use.value, statement)
        if text:
            quoted = file.segment(loaded.slice).replace(key, keys[key])
            source = path_of(loaded.value)
            given = f"{text} is not None and " if _is_optional(file, scalers, statement) else ""
            unit = editor.unit(file.indentation(statement))
            code = f"if {given}{source}.get({quoted}):\n{unit}{text}.load_state_dict({source}[{quoted}])"
            editor.insert_after(statement, code)


def _is_optional(file: SourceFile, scalers: Scalers, node: ast.AST) -> bool:
    """Whether the function of a node may be called without an optimizer, and so without a scaler."""
    return file.values.enclosing_function(node) in scalers.optional


def _text(scalers: Scalers, editor: Editor, optimizer: ast.expr, at: ast.stmt) -> str:
    """The scaler of an optimizer at a statement, empty where it can't be brought there; nothing is then written."""
    marks = scalers.mark(), editor.mark(), set(scalers.made)
    try:
        text = scalers.text_for([optimizer], at)
        if all(objects.hand_over(scalers, owner) for owner in set(scalers.made) - marks[2]):
            return text
    except RefusalError:
        pass
    scalers.restore(marks[0])
    editor.restore(marks[1])
    return ""


def _save(file: SourceFile, editor: Editor, entry: checkpoints.Saved, state: ast.Call, key: str, saved: str) -> None:
    """Write the entry behind the optimizer's, on a line of its own where entries have lines of their own."""
    value: ast.expr = state
    above = file.parent(state)
    if isinstance(above, ast.IfExp):
        value = above
    text = f"{key}={saved}"
    if isinstance(entry.node, ast.Dict):
        keys = [k for k in entry.node.keys if isinstance(k, ast.Constant)]
        quote = file.segment(keys[0])[:1] if keys and file.segment(keys[0])[:1] in "'\"" else '"'
        text = f"{quote}{key}{quote}: {saved}"
    end = file.span(value).end
    if value.lineno == entry.node.lineno:
        editor.insert(end, f", {text}")
        return
    head = file.segment(Span(file.line_span(value.lineno).start, file.span(value).start))
    indent = head[: len(head) - len(head.lstrip())]
    editor.insert(end, f",{statements.line_break(file.encoded, end)}{indent}{text}")


def with_fix(file: SourceFile, text: str) -> str:
    """A migrated text in which the fix of AMP501 has saved what could not be saved before."""
    if "state_dict" not in text:
        return text
    from amplint.check import fix_source

    fixed = fix_source(
        text, file.filename, file.settings._replace(select=(UNSAVED,), ignore=(), extend_select=()), unsafe=True
    ).text
    # A disabled scaler saves an empty state, which an enabled one does not take.
    return re.sub(r"\bif (['\"][\w ]*scaler[\w ]*['\"]) in ([\w.]+):", r"if \2.get(\1):", fixed)
