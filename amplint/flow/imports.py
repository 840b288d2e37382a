"""Functions and classes that a file imports from other files of its project."""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING

from amplint.flow import ir
from amplint.flow.functions import Function
from amplint.model import Span

if TYPE_CHECKING:
    from amplint.flow.lower import Context
    from amplint.source import SourceFile

MAX_FILES = 8
"""So many other files are looked into for one file."""
MAX_HOPS = 3
"""So many files may pass a name on (`from .optim import clip` in an `__init__.py`), and call one another."""

FAR = 1 << 40
"""Spans of the n-th other file start at n times this offset, so that no two places are the same."""

_TAKES_PART = re.compile(r"scaler|clip_|\.clip|backward\(|\.step\(|\.grad\b|zero_grad|autocast|GradScaler|unscale_")
"""What stands in every function that takes part in the protocol."""
_CALLED_FOR_IT = re.compile(r"clip|grad|backward|step|scal|train|optim|loss|param|model|net\b", re.IGNORECASE)
_WRAPPER_NAME = re.compile(r"scal|amp|precision|mixed", re.IGNORECASE)
_FOREIGN_ROOTS = frozenset({"torch", "numpy", "os", "sys", "math", "time", "logging", "tqdm", "transformers"})

Target = tuple["Context", str]


class Others:
    """The other files that were looked into for one file, by path, each as the lowering knows it."""

    def __init__(self) -> None:
        self.contexts: dict[str, Context | None] = {}


class Imports:
    """What the names of one file, given by its context, stand for in the project's other files."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._file = context.file
        self._known: dict[tuple[str, ...], Target | None] = {}

    def function(self, call: ast.Call) -> str | None:
        """The procedure of another file that a call runs, None for any other call."""
        if self._file.project is None or not _CALLED_FOR_IT.search(self._file.segment(call)):
            return None
        found = self._find(call.func)
        if found is None:
            return None
        context, name = found
        full = f"{context.mark}{name}"
        function = context.functions.by_name.get(full)
        if function is None or not isinstance(function.node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            return None
        self._register(function)
        return full

    def callable_class(self, call: ast.Call) -> str | None:
        """The class of another file that a call makes an instance of, if its instances are called to scale."""
        name = getattr(call.func, "attr", getattr(call.func, "id", ""))
        if self._file.project is None or not name[:1].isupper() or not _WRAPPER_NAME.search(name):
            return None
        found = self._find(call.func)
        if found is None:
            return None
        context, inner = found
        methods = context.functions.methods.get(inner, {})
        if "__call__" not in methods:
            return None
        for full in methods.values():
            self._register(context.functions.by_name[full])
        full = f"{context.mark}{inner}"
        self._context.functions.methods[full] = methods
        return full

    def _register(self, function: Function) -> None:
        self._context.functions.by_name[function.name] = function

    def _find(self, func: ast.expr) -> Target | None:
        dotted = _dotted(func, self._file)
        if dotted is None or dotted[0] in _FOREIGN_ROOTS:
            return None
        if dotted not in self._known:
            self._known[dotted] = self._located(dotted, self._file, MAX_HOPS)
        return self._known[dotted]

    def _located(self, dotted: tuple[str, ...], file: SourceFile, hops: int) -> Target | None:
        """Where `dotted`, as `file` imports it, is defined: a level of dots or "", names of modules, a name in it."""
        assert file.project is not None
        module, name = dotted[0] + ".".join(dotted[1:-1]), dotted[-1]
        others = self._context.others
        other = file.project.source(module, file.filename)
        self._context.root.lookups[module, file.filename] = "" if other is None else other.filename
        if other is None or other.filename == self._context.root.filename:
            return None
        block = _block(name, other.text)
        if block is None:
            return self._passed_on(name, other, hops) if name in other.text else None
        if not _TAKES_PART.search(block):
            return None
        if other.filename not in others.contexts:
            if len(others.contexts) >= MAX_FILES:
                return None
            others.contexts[other.filename] = self._context.beside(other, len(others.contexts) + 1)
        context = others.contexts[other.filename]
        return None if context is None else (context, name)

    def _passed_on(self, name: str, other: SourceFile, hops: int) -> Target | None:
        try:
            bindings = other.names.module.bindings.get(name, [])
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            return None
        if hops == 0 or len(bindings) != 1 or bindings[0].kind != "import":
            return None
        dotted = _imported(bindings[0].node, bindings[0].alias)
        return None if dotted is None else self._located(dotted, other, hops - 1)


def _imported(node: ast.AST, alias: ast.alias | None) -> tuple[str, ...] | None:
    """A level of dots ("" for an absolute import) and the names that an import binds a name to."""
    if alias is None:
        return None
    if isinstance(node, ast.ImportFrom):
        return ("." * node.level, *(node.module.split(".") if node.module else ()), alias.name)
    names = alias.name.split(".")
    return ("", *(names if alias.asname else names[:1]))


def _dotted(func: ast.expr, file: SourceFile) -> tuple[str, ...] | None:
    attributes: list[str] = []
    while isinstance(func, ast.Attribute):
        attributes.insert(0, func.attr)
        func = func.value
    bindings = file.names.lookup(func) if isinstance(func, ast.Name) else ()
    if len(bindings) != 1 or bindings[0].kind != "import":
        return None
    dotted = _imported(bindings[0].node, bindings[0].alias)
    if dotted is None or (not dotted[0] and dotted[1] in _FOREIGN_ROOTS):
        return None
    whole = (*dotted, *attributes)
    return whole if len(whole) > (1 if dotted[0] else 2) else None


def _block(name: str, text: str) -> str | None:
    """The text of a function or class at the top of a module."""
    head = re.search(rf"^(?:(?:async )?def|class) {re.escape(name)}\b", text, re.MULTILINE)
    if head is None:
        return None
    end = re.compile(r"^(?:@|def |class |async def |[A-Za-z_])", re.MULTILINE).search(text, head.end())
    return text[head.start() : end.start() if end else len(text)]


def moved(procedure: ir.Procedure, by: int) -> None:
    """Move all places of a procedure, in place."""
    procedure.span = Span(procedure.span.start + by, procedure.span.end + by)
    procedure.body = _moved(procedure.body, by)


def _moved(value: tuple[object, ...], by: int) -> ir.Block:
    if isinstance(value, Span):
        return Span(value.start + by, value.end + by)  # type: ignore[return-value]
    parts = [_moved(part, by) if isinstance(part, tuple) else part for part in value]
    return tuple(parts) if type(value) is tuple else type(value)(*parts)  # type: ignore[return-value, arg-type]
