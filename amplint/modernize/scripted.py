"""Code that TorchScript compiles: only the deprecated autocast can be scripted, so it stays there."""

from __future__ import annotations

import ast
from functools import cached_property
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from amplint.source import SourceFile

_SCRIPTERS = frozenset(
    f"torch.jit.{name}" for name in ("script", "script_method", "ScriptModule", "export", "script_if_tracing")
)
_MOST_STEPS = 8
_DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)


class Scripted:
    """Which definitions of a file are compiled by TorchScript, as far as the file shows."""

    def __init__(self, file: SourceFile) -> None:
        self._file = file
        self._mentions_jit = "jit" in file.text

    def contains(self, node: ast.AST) -> bool:
        """Whether a node may stand in scripted code."""
        if not self._mentions_jit:
            return False
        around = []
        current = self._file.parent(node)
        while current is not None:
            if isinstance(current, _DEFINITIONS):
                around.append(current)
            current = self._file.parent(current)
        known = self._definitions
        return bool(around) and (known is None or any(definition in known for definition in around))

    @cached_property
    def _definitions(self) -> frozenset[ast.AST] | None:
        """The scripted definitions with all that they use; None where it can't be told which they are."""
        found: list[ast.AST] = []
        for ref in self._file.refs:
            if not _SCRIPTERS.intersection(ref.candidates) or ref.context == "import":
                continue
            holder = self._file.parent(ref.call if ref.call is not None else ref.node)
            if isinstance(holder, _DEFINITIONS):
                found.append(self._whole(holder))
                continue
            definitions = self._behind(ref.call.args[0]) if ref.call is not None and ref.call.args else []
            if not definitions:
                return None
            found += definitions
        reached: set[ast.AST] = set()
        while found:
            definition = found.pop()
            if definition not in reached:
                reached.add(definition)
                names = (node for node in ast.walk(definition) if isinstance(node, ast.Name))
                found += [used for name in names for used in self._behind(name)]
        return frozenset(reached)

    def _whole(self, definition: ast.AST) -> ast.AST:
        """The class of a method, any other definition itself."""
        parent = self._file.parent(definition)
        return parent if isinstance(parent, ast.ClassDef) else definition

    def _behind(self, value: ast.expr, depth: int = 0) -> list[ast.AST]:
        """The functions and classes of this file from which a value is made: `f`, `C()`, `C().eval()`, `x = C()`."""
        while isinstance(value, (ast.Call, ast.Attribute)):
            value = value.func if isinstance(value, ast.Call) else value.value
        if not isinstance(value, ast.Name) or depth > _MOST_STEPS:
            return []
        found: list[ast.AST] = []
        for binding in self._file.names.lookup(value):
            if binding.kind in ("def", "class"):
                found.append(binding.node)
            elif binding.kind == "assign" and binding.value is not None:
                found += self._behind(binding.value, depth + 1)
            else:
                return []
        return found
