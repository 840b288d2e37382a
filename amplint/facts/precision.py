"""Names that hold low-precision tensors: what a model returned inside an autocast region, followed to its uses."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, NamedTuple

from amplint.facts.contexts import OFF
from amplint.facts.regions import Region
from amplint.facts.training import in_other_arm, is_model_call, returns_float32, source_of, targets_of
from amplint.facts.values import Function, path_of, returns

if TYPE_CHECKING:
    from amplint.source import SourceFile

_HELPERS = 2
"""How many helpers that hand a model's output on are looked through."""


class Lowered(NamedTuple):
    """A low-precision value: the model call behind it, and the region that it ran in."""

    call: ast.Call
    region: Region


class LoweredValues:
    """The names of one function (or of the module) that hold outputs of models which ran in an autocast region."""

    def __init__(self, file: SourceFile, function: Function | None, depth: int = 0) -> None:
        self._file = file
        self._depth = depth
        self.nodes = file.values.body(function)
        self._bindings: dict[str, list[tuple[tuple[int, int], ast.AST]]] = {}
        for node in self.nodes:
            for target in targets_of(node):
                self._bind(target, node)
            if isinstance(node, (ast.For, ast.AsyncFor)):
                for part in ast.walk(node.target):
                    if isinstance(part, ast.expr):
                        self._bind(part, node)

    def _bind(self, target: ast.expr, node: ast.AST) -> None:
        path = path_of(target)
        if path:
            place = (node.lineno, node.col_offset)  # type: ignore[attr-defined]
            self._bindings.setdefault(path, []).append((place, node))

    def behind(self, node: ast.expr) -> Lowered | None:
        """The model output that an expression is (or a view of it), as the last assignment before it says."""
        return self._behind(node, (node.lineno, node.col_offset))

    def _behind(self, node: ast.expr, place: tuple[int, int]) -> Lowered | None:
        source = source_of(node)
        if isinstance(source, ast.Call):
            return self._output(source)
        path = path_of(source)
        before = [entry for entry in self._bindings.get(path, ()) if entry[0] < place]
        if not path or not before:
            return None
        assignment = max(before, key=lambda entry: entry[0])[1]
        if not isinstance(assignment, (ast.Assign, ast.AnnAssign)) or assignment.value is None:
            return None
        if self._on_another_branch(assignment, node):
            return None
        value = source_of(assignment.value)
        if isinstance(value, (ast.Name, ast.Attribute)):
            return self._behind(assignment.value, (assignment.lineno, assignment.col_offset))
        return self._output(value) if isinstance(value, ast.Call) else None

    def _output(self, call: ast.Call) -> Lowered | None:
        """What a call returns, if it is a model that runs in half precision."""
        region = self._file.regions.at(call)
        if region is None:
            return self._returned(call)
        if region.enabled == OFF or not region.is_low_precision:
            return None
        if not is_model_call(self._file, call) or returns_float32(self._file, call):
            return None
        return Lowered(call, region)

    def _returned(self, call: ast.Call) -> Lowered | None:
        """What a helper of the file returns from a region of its own, where all that it returns comes from there."""
        functions = self._file.values.functions(call)
        if len(functions) != 1 or self._depth >= _HELPERS:
            return None
        inner = LoweredValues(self._file, functions[0], self._depth + 1)
        found = [inner.behind(value) for value in returns(functions[0])]
        return found[0] if found and None not in found else None

    def _on_another_branch(self, assignment: ast.AST, use: ast.AST) -> bool:
        """Whether a use can be reached without the assignment: it stands in a branch that the use isn't in."""
        around = set()
        current: ast.AST | None = use
        while current is not None:
            around.add(current)
            current = self._file.parent(current)
        parent = self._file.parent(assignment)
        while parent is not None and parent not in around:
            if isinstance(parent, (ast.If, ast.Try, ast.For, ast.AsyncFor, ast.While, ast.Match, ast.ExceptHandler)):
                return True
            parent = self._file.parent(parent)
        return in_other_arm(self._file, assignment, use)


class LoweredByFunction(dict[Function | None, LoweredValues]):
    """The `LoweredValues` of the functions of a file, made when they are first asked for."""

    def __init__(self, file: SourceFile) -> None:
        super().__init__()
        self._file = file

    def __missing__(self, function: Function | None) -> LoweredValues:
        made = self[function] = LoweredValues(self._file, function)
        return made
