"""Optimizers that a file defines itself: `GradScaler.step` steps them like torch's, after it has unscaled gradients."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from amplint.facts.values import Function

if TYPE_CHECKING:
    from amplint.source import SourceFile


def classes(file: SourceFile) -> frozenset[ast.AST]:
    """The classes of a file that are optimizers of torch."""
    return frozenset(
        cls
        for cls in file.names.scopes
        if isinstance(cls, ast.ClassDef)
        for entry in file.values.lineage(cls)
        for base in entry.bases
        if any(name.startswith("torch.optim.") for name in file.resolve(base))
    )


def is_step(file: SourceFile, own: frozenset[ast.AST], function: Function) -> bool:
    """Whether a function is the `step` of one of the classes, or a method that its class alone calls for it."""
    cls = file.parent(function)
    if cls not in own:
        return False
    if function.name == "step":
        return True
    callers = [file.values.enclosing_function(call) for call in file.values.calls(function)]
    return bool(callers) and all(
        caller is not None
        and caller is not function
        and file.parent(caller) is cls
        and caller.name in ("step", "__init__")
        for caller in callers
    )
