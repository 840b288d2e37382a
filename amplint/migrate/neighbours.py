"""Modules and losses that a script imports from files beside it run under its regions too: they are read for what half
precision breaks, and the script is refused where such a file must be adapted first."""

from __future__ import annotations

import ast
import os
from collections.abc import Iterator
from typing import TYPE_CHECKING

from amplint.facts.values import Function
from amplint.migrate.editor import Editor
from amplint.migrate.facts import Facts
from amplint.migrate.model import Options, RefusalError
from amplint.migrate.numerics.review import Numerics
from amplint.migrate.regions.autograd_functions import check_class
from amplint.migrate.regions.sinks import Sinks
from amplint.migrate.screening import check_uses
from amplint.migrate.tree import FUNCTIONS
from amplint.project import repository_root

if TYPE_CHECKING:
    from amplint.source import SourceFile

_FOREIGN = frozenset(("torch", "torchvision", "numpy", "timm", "transformers", "scipy", "sklearn"))
_HOPS = 3
_ABOVE = 3
"""How many directories above a script are searched for the packages that it imports, outside of a repository."""

Definition = ast.ClassDef | Function


class Neighbours:
    """The files of the disk that a script imports, read when they are asked for."""

    def __init__(self, file: SourceFile, options: Options) -> None:
        self.file = file
        self.options = options
        self._files: dict[str, SourceFile | None] = {}
        self._facts: dict[SourceFile, Facts] = {}

    def check(self, nodes: list[ast.AST]) -> None:
        """Read the modules that a script makes, and the functions that `nodes` call, in other files.

        `RefusalError` where one of them must be adapted, with the import as its place.
        """
        if not os.path.isfile(self.file.filename):
            return
        called = {id(node) for node in nodes}
        for call in self.file.names.calls:
            for other, definition in self._definitions(self.file, call.func, _HOPS):
                if isinstance(definition, ast.ClassDef):
                    runs = self.facts(other).is_module_class(definition)
                else:
                    runs = id(call) in called or _makes_modules(self.facts(other), definition)
                if runs:
                    self._check(call, other, definition)

    def makes_module(self, call: ast.Call) -> bool:
        """Whether a call makes a module whose class another file defines."""
        return os.path.isfile(self.file.filename) and any(
            isinstance(definition, ast.ClassDef) and self.facts(other).is_module_class(definition)
            for other, definition in self._definitions(self.file, call.func, _HOPS)
        )

    def facts(self, file: SourceFile) -> Facts:
        """The facts of another file."""
        if file not in self._facts:
            self._facts[file] = Facts(file)
        return self._facts[file]

    # -- reading ------------------------------------------------------------------------------------------------------

    def _check(self, call: ast.Call, other: SourceFile, definition: Definition) -> None:
        for file, reached in self._reached(other, definition).items():
            facts = self.facts(file)
            name = os.path.basename(file.filename)
            try:
                for entry in reached:
                    if isinstance(entry, ast.ClassDef):
                        check_class(file, entry)
                functions = [entry for entry in reached if isinstance(entry, FUNCTIONS)]
                check_uses(file, [node for function in functions for node in ast.walk(function)])
                editor = Editor(file)
                Numerics(facts, Sinks(facts), editor, self.options).check([], functions)
            except RefusalError as refusal:
                line = getattr(refusal.node, "lineno", 1)
                raise RefusalError(
                    call, f"this runs `{name}`, whose line {line} must be adapted first: {refusal.reason}"
                ) from None
            edits = sorted(edit.span.start for edit in editor.edits())
            if edits:
                line = file.location(edits[0]).row
                raise RefusalError(
                    call, f"this runs `{name}`, whose line {line} must compute in float32 first, with `.float()`"
                )

    def _reached(self, file: SourceFile, definition: Definition) -> dict[SourceFile, list[Definition]]:
        """What a definition runs, in its file and in others, functions and the classes of custom gradients."""
        found: dict[SourceFile, dict[Definition, None]] = {}
        pending: list[tuple[SourceFile, Definition, int]] = [(file, definition, _HOPS)]
        while pending:
            owner, entry, hops = pending.pop()
            known = found.setdefault(owner, {})
            if entry in known:
                continue
            known[entry] = None
            if isinstance(entry, ast.ClassDef):
                for base in owner.values.lineage(entry):
                    pending += [(owner, member, hops) for member in base.body if isinstance(member, FUNCTIONS)]
                    known.setdefault(base, None)
            for node in ast.walk(entry):
                if not isinstance(node, (ast.Call, ast.Attribute)):
                    continue
                target = node.func if isinstance(node, ast.Call) else node.value
                if isinstance(node, ast.Call):
                    pending += [(owner, function, hops) for function in owner.values.functions(node)]
                if isinstance(target, ast.Name):
                    pending += [(owner, v, hops) for v in owner.values.of(target) if isinstance(v, ast.ClassDef)]
                if hops:
                    pending += [(o, d, hops - 1) for o, d in self._definitions(owner, target, hops - 1)]
        return {owner: list(entries) for owner, entries in found.items()}

    # -- finding ------------------------------------------------------------------------------------------------------

    def _definitions(self, file: SourceFile, func: ast.expr, hops: int) -> Iterator[tuple[SourceFile, Definition]]:
        """The classes and functions of other files that an expression names."""
        names = file.resolve(func)
        if not names and isinstance(func, ast.Name) and not file.names.lookup(func):
            names = tuple(f"{module}.{func.id}" for module in _stars(file))
        for name in names:
            if name.lstrip(".").split(".", 1)[0] not in _FOREIGN:
                yield from self._located(file, name, hops)

    def _located(self, file: SourceFile, dotted: str, hops: int) -> Iterator[tuple[SourceFile, Definition]]:
        module, _, name = dotted.rpartition(".")
        level = len(dotted) - len(dotted.lstrip("."))
        other = self._source(file, module if module.strip(".") else "." * level)
        if other is None or other is self.file:
            return
        bindings = other.names.module.bindings.get(name, [])
        for binding in bindings:
            if isinstance(binding.node, (ast.ClassDef, *FUNCTIONS)):
                yield other, binding.node
            elif binding.kind == "import" and hops and binding.target:
                yield from self._located(other, binding.target, hops - 1)
        if not bindings and hops:
            for star in _stars(other):
                yield from self._located(other, f"{star}.{name}" if star.strip(".") else star + name, hops - 1)

    def _source(self, file: SourceFile, module: str) -> SourceFile | None:
        """The file of a module as another file imports it, None where there is none to be read."""
        directory = os.path.dirname(os.path.abspath(file.filename))
        bare = module.lstrip(".")
        parts = bare.split(".") if bare else []
        if level := len(module) - len(bare):
            for _ in range(level - 1):
                directory = os.path.dirname(directory)
            return self._read(directory, parts)
        root = repository_root(directory)
        for _ in range(_ABOVE if root is None else _ABOVE + directory.count(os.sep) - root.count(os.sep)):
            if (found := self._read(directory, parts)) is not None:
                return found
            if directory in (root, os.path.dirname(directory)):
                break
            directory = os.path.dirname(directory)
        return None

    def _read(self, directory: str, parts: list[str]) -> SourceFile | None:
        from amplint.files import FileError, UndecodableError, decode, read
        from amplint.source import SourceFile

        base = os.path.join(directory, *parts)
        for path in (f"{base}.py", os.path.join(base, "__init__.py")):
            if path not in self._files and os.path.isfile(path):
                try:
                    made = SourceFile(decode(read(path)).text, path, self.file.settings)
                    _ = made.tree
                    self._files[path] = made
                except (OSError, FileError, UndecodableError, SyntaxError, ValueError, RecursionError, MemoryError):
                    self._files[path] = None
            if self._files.get(path) is not None:
                return self._files[path]
        return None


def _stars(file: SourceFile) -> list[str]:
    """The modules from which a file imports everything."""
    return [
        "." * node.level + (node.module or "")
        for node in file.names.imports
        if isinstance(node, ast.ImportFrom) and any(alias.name == "*" for alias in node.names)
    ]


def _makes_modules(facts: Facts, function: ast.AST) -> bool:
    """Whether a function makes a module of its file, as `resnet18()` does."""
    return any(
        isinstance(value, ast.ClassDef) and facts.is_module_class(value)
        for node in ast.walk(function)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
        for value in facts.file.values.of(node.func)
    )
