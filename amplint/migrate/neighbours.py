"""Modules and losses that a script imports from files beside it run under its regions too: they are read for what half
precision breaks, and the script is refused where such a file must be adapted first."""

from __future__ import annotations

import ast
import os
import re
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from amplint.facts.values import Function, path_of
from amplint.migrate.editor import Editor
from amplint.migrate.facts import Facts
from amplint.migrate.gradients import overflow
from amplint.migrate.model import Options, RefusalError
from amplint.migrate.numerics.review import Numerics
from amplint.migrate.regions.autograd_functions import REASON as CUSTOM
from amplint.migrate.regions.autograd_functions import check_class, passes_on
from amplint.migrate.regions.sinks import Sinks
from amplint.migrate.screening import check_methods, check_uses
from amplint.migrate.tree import FUNCTIONS
from amplint.project import repository_root

if TYPE_CHECKING:
    from amplint.source import SourceFile

_FOREIGN = frozenset(("torch", "torchvision", "numpy", "timm", "transformers", "scipy", "sklearn"))
_LOSS = re.compile(r"loss|criter|penal|dist|objective|energy", re.I)
"""The names of functions that are handed on to be called with outputs."""
_SPARSE = "sparse products have no half-precision kernel on CUDA"
_TAKEN = "gradients are taken there under the region, unscaled; give `amplint migrate` that file too"
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
        methods = {n.func.attr for n in nodes if isinstance(n, ast.Call) and isinstance(n.func, ast.Attribute)}
        for use in self.file.names.attributes.get("apply", ()):
            for other, definition in self._definitions(self.file, use.value, _HOPS):
                if isinstance(definition, ast.ClassDef) and _has_own_gradient(definition) and not passes_on(definition):
                    raise self._first(use, other, RefusalError(definition, CUSTOM))
        for call in self.file.names.calls:
            for other, definition in self._definitions(self.file, call.func, _HOPS):
                self._check_sparse(call, other, definition)
                for run in self._run(other, definition, id(call) in called, methods):
                    self._check(call, other, run)
                    self._check_taken(call, other, run, methods)
            for given in (*call.args, *(keyword.value for keyword in call.keywords)):
                if isinstance(given, (ast.Name, ast.Attribute)) and _LOSS.search(path_of(given)):
                    for other, definition in self._definitions(self.file, given, _HOPS):
                        if isinstance(definition, FUNCTIONS):
                            self._check(call, other, definition)

    def _run(self, other: SourceFile, definition: Definition, called: bool, methods: set[str]) -> list[Definition]:
        """What a call of a definition of another file, in the regions or not, brings under them.

        That is the definition itself, or of an object the methods that have a name which the regions call.
        """
        if isinstance(definition, FUNCTIONS):
            runs = called or _makes_modules(self.facts(other), definition) or _makes_callables(other, definition)
            return [definition] if runs else []
        if self.facts(other).is_module_class(definition):
            return [definition]
        names = {"__call__", *methods}
        members = [member for base in other.values.lineage(definition) for member in base.body]
        return [member for member in members if isinstance(member, FUNCTIONS) and member.name in names]

    def _check_sparse(self, call: ast.Call, other: SourceFile, definition: Definition) -> None:
        """Raise `RefusalError` where a function of another file, for data as well, makes sparse tensors."""
        if not isinstance(definition, FUNCTIONS):
            return
        for file, reached in self._reached(other, definition).items():
            for node in (node for entry in reached if isinstance(entry, FUNCTIONS) for node in ast.walk(entry)):
                names = file.resolve(node) if isinstance(node, ast.Attribute) else ()
                to_sparse = isinstance(node, ast.Attribute) and node.attr == "to_sparse"
                if to_sparse or any(name.startswith("torch.sparse") for name in names):
                    raise self._first(call, file, RefusalError(node, _SPARSE))

    def check_gradients(self, hands_out: Callable[[ast.AST], bool]) -> None:
        """Read the functions and objects of other files that get what holds gradients, in the calls of which
        `hands_out` says so.

        `RefusalError` where one of them keeps what overflowed beyond a step that the scaler skips.
        """
        if not os.path.isfile(self.file.filename):
            return
        for call in self.file.names.calls:
            if not hands_out(call):
                continue
            made = self.file.values.of(call.func.value) if isinstance(call.func, ast.Attribute) else ()
            named = [call.func, *(value.func for value in made if isinstance(value, ast.Call))]
            for other, definition in (found for name in named for found in self._definitions(self.file, name, _HOPS)):
                for file, reached in self._reached(other, definition).items():
                    try:
                        overflow.check(self.facts(file))
                    except RefusalError as refusal:
                        if any(node is refusal.node for entry in reached for node in ast.walk(entry)):
                            raise self._first(call, file, refusal) from None

    @staticmethod
    def _first(call: ast.expr, file: SourceFile, refusal: RefusalError) -> RefusalError:
        """A refusal of a script for what another file must change first."""
        name, line = os.path.basename(file.filename), getattr(refusal.node, "lineno", 1)
        return RefusalError(call, f"this runs `{name}`, whose line {line} must be adapted first: {refusal.reason}")

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

    def _check_taken(self, call: ast.Call, other: SourceFile, definition: Definition, methods: set[str]) -> None:
        """Raise `RefusalError` where what runs under the regions in another file takes gradients itself."""
        names = {"forward", "__call__", *methods}
        members = [definition] if isinstance(definition, FUNCTIONS) else definition.body
        pending = [m for m in members if isinstance(m, FUNCTIONS) and (m is definition or m.name in names)]
        seen: set[ast.AST] = set()
        while pending:
            function = pending.pop()
            if function in seen:
                continue
            seen.add(function)
            for node in ast.walk(function):
                if not isinstance(node, ast.Call):
                    continue
                if "torch.autograd.grad" in other.resolve(node.func) or getattr(node.func, "attr", "") == "backward":
                    raise self._first(call, other, RefusalError(node, _TAKEN))
                pending += other.values.functions(node)

    def _check(self, call: ast.expr, other: SourceFile, definition: Definition) -> None:
        for file, reached in self._reached(other, definition).items():
            facts = self.facts(file)
            name = os.path.basename(file.filename)
            try:
                for entry in reached:
                    if isinstance(entry, ast.ClassDef):
                        check_class(file, entry)
                functions = [
                    node
                    for entry in reached
                    if isinstance(entry, FUNCTIONS)
                    for node in ast.walk(entry)
                    if isinstance(node, FUNCTIONS)
                ]
                nodes = [node for function in functions for node in ast.walk(function)]
                check_uses(file, nodes)
                check_methods(file, nodes)
                editor = Editor(file)
                Numerics(facts, Sinks(facts), editor, self.options).check([], functions)
            except RefusalError as refusal:
                raise self._first(call, file, refusal) from None
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


def _has_own_gradient(cls: ast.ClassDef) -> bool:
    """Whether a class is an autograd function."""
    return any(path_of(base).rsplit(".", 1)[-1] == "Function" for base in cls.bases)


def _makes_callables(file: SourceFile, function: ast.AST) -> bool:
    """Whether a function returns one that it defines, or an object of its file that can be called, as a loss with
    settings of its own."""
    returned = [node.value for node in ast.walk(function) if isinstance(node, ast.Return) and node.value is not None]
    inner = {node.name for node in ast.walk(function) if isinstance(node, FUNCTIONS) and node is not function}
    for value in returned:
        for node in ast.walk(value):
            if isinstance(node, ast.Lambda) or (isinstance(node, ast.Name) and node.id in inner):
                return True
            made = file.values.constructed(node) if isinstance(node, (ast.Name, ast.Attribute, ast.Call)) else ()
            if any(isinstance(cls, ast.ClassDef) and file.values.method(cls, "__call__") for cls in made):
                return True
    return False


def _makes_modules(facts: Facts, function: ast.AST) -> bool:
    """Whether a function makes a module of its file, as `resnet18()` does."""
    return any(
        isinstance(value, ast.ClassDef) and facts.is_module_class(value)
        for node in ast.walk(function)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
        for value in facts.file.values.of(node.func)
    )
