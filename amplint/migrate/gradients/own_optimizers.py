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


def is_empty(file: SourceFile, maker: ast.AST) -> bool:
    """Whether a call makes an optimizer of the file that has no parameters: its constructor does not call torch's."""
    made = file.values.of(maker.func) if isinstance(maker, ast.Call) else ()
    for cls in made:
        init = file.values.method(cls, "__init__") if isinstance(cls, ast.ClassDef) else None
        if isinstance(cls, ast.ClassDef) and cls in classes(file) and init is not None:
            return not any(isinstance(n, ast.Attribute) and n.attr == "__init__" for n in ast.walk(init))
    return False
