"""Functions whose parameters a migration changed, and the files of the project that call them."""

from __future__ import annotations

import ast
import re
from collections.abc import Collection, Iterable
from typing import TYPE_CHECKING

from amplint.migrate.linking.modules import Modules

if TYPE_CHECKING:
    from amplint.source import SourceFile

_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


def changed(old: str, new: str) -> set[str]:
    """The names of the functions whose parameters are not what they were; `.name` for a method, the class for its
    `__init__`."""
    before, after = _parameters(old), _parameters(new)
    return {key[1] for key, found in after.items() if key in before and before[key] != found}


def _parameters(text: str) -> dict[tuple[str, str], list[str]]:
    """The parameters of all functions, by their class and the name by which they are called."""
    found: dict[tuple[str, str], list[str]] = {}
    stack: list[tuple[ast.AST, str]] = [(ast.parse(text), "")]
    while stack:
        node, cls = stack.pop()
        for child in ast.iter_child_nodes(node):
            if isinstance(child, _FUNCTIONS):
                name = child.name if not cls else cls if child.name == "__init__" else f".{child.name}"
                found.setdefault((cls, name), []).append(ast.dump(child.args))
            inner = child.name if isinstance(child, ast.ClassDef) else "" if isinstance(child, _FUNCTIONS) else cls
            stack.append((child, inner))
    return found


def outside(path: str, names: Collection[str], modules: Modules, files: Iterable[str], inside: Collection[str]) -> str:
    """A file of the project, not one of those inside, that may call functions of a file; empty where none does."""
    plain = [name.lstrip(".") for name in names]
    words = re.compile("|".join(rf"\b{re.escape(name)}\b" for name in plain))
    methods = {name[1:] for name in names if name[0] == "."}
    files = list(files)
    holders: set[str] | None = None
    for other in files:
        if other in inside or other == path or not words.search(modules.text(other)):
            continue
        file = modules.file(other)
        if file is None:
            continue
        uses = {name for name in plain if name in file.names.attributes}
        if uses & methods:
            holders = _holders(path, modules, files) if holders is None else holders
            if other in holders:
                return other
        if not modules.may_import(other, path) or path not in modules.neighbours(other):
            continue
        for binding in (b for scope in file.names.scopes.values() for found in scope.bindings.values() for b in found):
            if binding.alias is not None and binding.alias.name in plain and binding.name in file.names.loads:
                return other
        strings = {constant.value for constant in file.names.strings}  # getattr(engine, "train")
        if uses or strings.intersection(plain):
            return other
        if any(name in file.names.loads and not _binds(file, name) for name in plain):
            return other
    return ""


def _holders(path: str, modules: Modules, files: Iterable[str]) -> set[str]:
    """The files that may get objects of a file: those that import it, directly or not, and what they and it import."""
    found, pending = {path}, [path]
    while pending:
        one = pending.pop()
        importers = {f for f in files if f not in found and modules.may_import(f, one) and one in modules.neighbours(f)}
        found |= importers
        pending += importers
    pending = list(found)
    while pending:
        imported = modules.neighbours(pending.pop()) - found
        found |= imported
        pending += imported
    return found


def _binds(file: SourceFile, name: str) -> bool:
    """Whether a file gives a name a value of its own."""
    return any(name in scope.bindings for scope in file.names.scopes.values())
