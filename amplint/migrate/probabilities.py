"""Binary cross entropy of probabilities, which CUDA autocast forbids: repaired where the sigmoid is in view.

The sigmoid is given float32 (`torch.sigmoid(x.float())`) and the loss an fp32 island, which is exact: in float32 both
change nothing.
"""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from amplint.facts.training import targets_of
from amplint.facts.values import Function, path_of, returns
from amplint.migrate.editor import Editor
from amplint.migrate.facts import Facts
from amplint.migrate.model import RefusalError
from amplint.migrate.sinks import Sinks
from amplint.migrate.tree import FUNCTIONS, owner_of, walk

if TYPE_CHECKING:
    from amplint.source import SourceFile

_SAME_VALUE = frozenset(
    ("view", "squeeze", "reshape", "flatten", "contiguous", "unsqueeze", "float", "view_as", "to", "cuda")
)
_ADVICE = (
    "BCELoss takes probabilities, which CUDA autocast forbids; let the model return logits and use BCEWithLogitsLoss"
)


class Probabilities:
    """Repairs calls of `BCELoss` and `F.binary_cross_entropy`; `RefusalError` where it can't be done exactly."""

    def __init__(self, facts: Facts, sinks: Sinks, editor: Editor) -> None:
        self.facts = facts
        self.file: SourceFile = facts.file
        self.sinks = sinks
        self.editor = editor
        self._done: set[ast.AST] = set()

    def repair(self, call: ast.Call) -> None:
        """Run one loss and the sigmoids behind it in float32."""
        if call in self._done:
            return
        self._done.add(call)
        given = call.args[0] if call.args else None
        if given is None or isinstance(given, ast.Starred):
            raise RefusalError(call, _ADVICE)
        statement = self.file.statement(call)
        sigmoids = self._trace(given, 0, set())
        if not sigmoids:
            raise RefusalError(call, _ADVICE)
        if not isinstance(statement, (ast.Assign, ast.AugAssign, ast.Return)):
            raise RefusalError(call, _ADVICE)
        if any(
            isinstance(n, ast.Call) and self.sinks.graph(owner_of(self.file, n)).is_source(n) for n in walk(statement)
        ):
            raise RefusalError(call, _ADVICE)
        for sigmoid in sigmoids:
            if sigmoid in self._done:
                continue
            self._done.add(sigmoid)
            inner = sigmoid.args[0] if sigmoid.args else sigmoid.func.value  # type: ignore[attr-defined]
            text = self.file.segment(inner)
            if isinstance(inner, (ast.BinOp, ast.UnaryOp, ast.IfExp)):
                self.editor.replace(inner, f"({text}).float()")
            else:
                self.editor.insert(self.file.span(inner).end, ".float()")
        if given not in sigmoids:
            if isinstance(given, (ast.Name, ast.Attribute, ast.Call, ast.Subscript)):
                self.editor.insert(self.file.span(given).end, ".float()")
            else:
                raise RefusalError(call, _ADVICE)
        holder = self._tensor(given)
        if statement not in self._done:
            self._done.add(statement)
            self.editor.wrap(
                statement, statement, f"with torch.autocast(device_type={holder}.device.type, enabled=False):"
            )

    def _tensor(self, node: ast.expr) -> str:
        """A plain name of a tensor in an expression, whose device is that of the loss."""
        for inner in ast.walk(node):
            if isinstance(inner, (ast.Name, ast.Attribute)) and path_of(inner) and not self.file.resolve(inner):
                parent = self.file.parent(inner)
                if not (isinstance(parent, ast.Call) and parent.func is inner) and not isinstance(
                    parent, ast.Attribute
                ):
                    return path_of(inner)
                if isinstance(parent, ast.Attribute) and parent.attr in _SAME_VALUE:
                    return path_of(inner)
        raise RefusalError(node, _ADVICE)

    # -- tracing ------------------------------------------------------------------------------------------------------

    def _trace(self, node: ast.expr, depth: int, seen: set[ast.AST], index: int | None = None) -> list[ast.Call]:
        """The sigmoids that an expression surely comes from, empty where it may come from something else."""
        if depth > 12 or node in seen:
            return []
        seen = seen | {node}
        if isinstance(node, ast.Tuple) and index is not None and index < len(node.elts):
            return self._trace(node.elts[index], depth + 1, seen)
        if isinstance(node, ast.Call):
            return self._trace_call(node, depth, seen, index)
        if isinstance(node, ast.Subscript):
            position = node.slice.value if isinstance(node.slice, ast.Constant) else None
            return self._trace(node.value, depth + 1, seen, position if isinstance(position, int) else None)
        if isinstance(node, ast.IfExp):
            return self._all([(node.body, index), (node.orelse, index)], depth, seen)
        if isinstance(node, ast.Name):
            return self._trace_name(node, depth, seen, index)
        return []

    def _trace_call(self, call: ast.Call, depth: int, seen: set[ast.AST], index: int | None) -> list[ast.Call]:
        names = self.file.resolve(call.func)
        if names and names[0] in ("torch.sigmoid", "torch.nn.functional.sigmoid", "torch.special.expit"):
            return [call]
        if isinstance(call.func, ast.Attribute) and not names:
            if call.func.attr == "sigmoid" and not call.args:
                return [call]
            if call.func.attr in _SAME_VALUE:
                return self._trace(call.func.value, depth + 1, seen, index)
        functions: tuple[Function, ...] = self.file.values.functions(call)
        made = [v for v in self.file.values.of(call.func) if isinstance(v, ast.Call)]
        if any("torch.nn.Sigmoid" in self.file.resolve(v.func) for v in made):
            return [call]
        if not functions:
            return []
        return self._all([(value, index) for function in functions for value in returns(function)], depth, seen)

    def _trace_name(self, node: ast.Name, depth: int, seen: set[ast.AST], index: int | None) -> list[ast.Call]:
        found: list[tuple[ast.expr, int | None]] = []
        for binding in self.file.names.lookup(node):
            if isinstance(binding.node, ast.Assign):
                targets = targets_of(binding.node)
                place = next((i for i, t in enumerate(targets) if isinstance(t, ast.Name) and t.id == node.id), 0)
                direct = len(targets) == 1
                found.append((binding.node.value, index if direct else place))
            elif binding.kind == "param" and isinstance(binding.node, ast.arg):
                arguments = self.file.parent(binding.node)
                function = self.file.parent(arguments) if arguments is not None else None
                if not isinstance(function, FUNCTIONS):
                    return []
                calls = self.file.values.calls(function)
                for call in calls:
                    given = self.file.values.argument(call, function, node.id)
                    if given is None:
                        return []
                    found.append((given, index))
            else:
                return []
        return self._all(found, depth, seen)

    def _all(self, sources: list[tuple[ast.expr, int | None]], depth: int, seen: set[ast.AST]) -> list[ast.Call]:
        result: list[ast.Call] = []
        for source, index in sources:
            part = self._trace(source, depth + 1, seen, index)
            if not part:
                return []
            result += part
        return result
