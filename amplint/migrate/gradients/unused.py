"""Functions that a file defines and never runs, such as a `plot_grad_flow` kept for another day."""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING

from amplint.facts.values import Function

if TYPE_CHECKING:
    from amplint.source import SourceFile

_BY_OTHERS = frozenset(("forward", "backward", "jvp", "vjp", "setup_context", "main"))
_PLAIN_BASES = frozenset(("object", "abc.ABC", "torch.nn.Module"))
_LOOKS_UP = frozenset(("globals", "locals", "vars", "eval", "exec", "__import__"))


def is_unused(file: SourceFile, function: Function) -> bool:
    """Whether nothing in a file runs a function: its name stands nowhere else, not in a string either, nothing is
    looked up by a name that is computed, and no class that is out of view may call it as a method of its own."""
    name = function.name
    if function.decorator_list or name in _BY_OTHERS or re.fullmatch(r"__\w+__", name):
        return False
    if file.names.loads.get(name) or file.names.attributes.get(name):
        return False
    owner = file.parent(function)
    if isinstance(owner, ast.ClassDef) and not _has_plain_bases(file, owner):
        return False
    return not any(_may_name(file, node, name) for node in ast.walk(file.tree))


def _has_plain_bases(file: SourceFile, cls: ast.ClassDef) -> bool:
    for entry in file.values.lineage(cls):
        for base in entry.bases:
            if any(isinstance(value, ast.ClassDef) for value in file.values.of(base)):
                continue
            names = file.resolve(base) or ((base.id,) if isinstance(base, ast.Name) else ("?",))
            if not set(names) <= _PLAIN_BASES:
                return False
    return not any(keyword.arg != "metaclass" for entry in file.values.lineage(cls) for keyword in entry.keywords)


def _may_name(file: SourceFile, node: ast.AST, name: str) -> bool:
    """Whether a node may stand for a function by its name: a string with it, or a name that is computed."""
    if isinstance(node, ast.Constant):
        return isinstance(node.value, str) and node.value != "" and name == node.value.strip()
    if isinstance(node, (ast.Import, ast.ImportFrom)):
        return any(alias.name == name for alias in node.names)
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name):
        return False
    if node.func.id in ("getattr", "attrgetter", "methodcaller"):
        return not all(isinstance(argument, ast.Constant) for argument in node.args[1:2] or node.args)
    return node.func.id in _LOOKS_UP and not file.resolve(node.func)
