"""The runs of statements that go under autocast: between two barriers, from the first node of a graph to the last."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, NamedTuple

from amplint.facts.values import Function, path_of
from amplint.migrate.facts import Facts
from amplint.migrate.model import RefusalError
from amplint.migrate.numerics import states
from amplint.migrate.numerics.constants import number
from amplint.migrate.regions.sinks import Sink, Sinks
from amplint.migrate.tree import (
    FUNCTIONS,
    assigned_paths,
    blocks,
    header,
    paths_in,
    position,
    statements_in,
    walk,
)

if TYPE_CHECKING:
    from amplint.source import SourceFile

_MODERATE = (1e-3, 1e3)
"""Factors that bring no scalar of float16 to an end of its range that it was not near to before."""
_CHANGES_WEIGHTS = frozenset(("load_state_dict", "copy_", "clamp_", "lerp_", "swap_parameters_with_swa"))


class Run(NamedTuple):
    """Statements of one block that go under autocast; `bind` is a sink whose loss is computed at the end of the run.

    Without statements of its own, `first` and `last` are the statement of the sink.
    """

    first: ast.stmt
    last: ast.stmt
    statements: tuple[ast.stmt, ...]
    bind: Sink | None = None

    def nodes(self) -> list[ast.AST]:
        """All nodes that run under the region."""
        found = [node for statement in self.statements for node in walk(statement)]
        return found + (list(ast.walk(self.bind.expression)) if self.bind is not None else [])


class Runs:
    """Finds the runs of one function or of the module."""

    def __init__(self, facts: Facts, sinks: Sinks, owner: Function | ast.Module) -> None:
        self.facts = facts
        self.file: SourceFile = facts.file
        self.graph = sinks.graph(owner)
        self.nodes = sinks.nodes.get(owner, set()) | {s for s in statements_in(owner) if states.advances(facts, s)}
        self.binds = {
            sink.statement: sink
            for sink in sinks.all
            if sink.owner is owner
            and not _is_light(facts.file, sink.expression)
            and self.graph.is_graph(sink.expression)
        }
        self.found: list[Run] = []
        for block in blocks(owner):
            self._block(block)
        self._cover_readers(owner)

    def _cover_readers(self, owner: Function | ast.Module) -> None:
        """Models that run outside on what a region computed would meet half precision: they get a region too."""
        covered = {id(node) for run in self.found for node in run.nodes()}
        half = {
            path
            for run in self.found
            for statement in run.statements
            for inner in walk(statement)
            if isinstance(inner, ast.stmt)
            for path, value, _ in assigned_paths(inner)
            if self.graph.is_graph(value)
        }
        if not half:
            return
        for statement in statements_in(owner):
            if id(statement) in covered or isinstance(statement, (*FUNCTIONS, ast.ClassDef)):
                continue
            for node in header(statement):
                if not isinstance(node, ast.Call) or self.facts.module_of(node) is None or id(node) in covered:
                    continue
                if self.facts.trains(node):
                    continue  # a method of a model that trains has regions of its own
                read = {path for argument in node.args for path in paths_in(argument)}
                read = {path for path in read if path in half or path.split(".", 1)[0] in half}
                if not any(self._comes_from(path, statement, covered) for path in read):
                    continue
                if position(statement) < min(position(run.first) for run in self.found):
                    continue
                if blocks(statement) or self.is_barrier(statement):
                    raise RefusalError(
                        statement, "a model runs here on what the forward computed, in another precision"
                    )
                self._add(Run(statement, statement, (statement,)))
                break

    def _comes_from(self, path: str, statement: ast.stmt, covered: set[int]) -> bool:
        """Whether a value may be one that a region computed, and not one of its name that was computed since."""
        made = [definition for definition, _ in self.graph.reaching(path, statement)]
        return not made or any(id(definition) in covered for definition in made)

    def _block(self, block: list[ast.stmt]) -> None:
        run: list[ast.stmt] = []
        for statement in block:
            if isinstance(statement, (*FUNCTIONS, ast.ClassDef)):
                self._flush(run, None)
                continue
            if not self.is_barrier(statement):
                run.append(statement)
                continue
            self._flush(run, self.binds.get(statement))
            if blocks(statement):
                if statement in self.nodes and any(
                    isinstance(n, ast.Call) and self.graph.is_source(n) for n in header(statement)
                ):
                    raise RefusalError(
                        statement, "a model is run in the head of a statement that goes backward; run it before"
                    )
                for inner in blocks(statement):
                    self._block(inner)
        self._flush(run, None)

    def _flush(self, run: list[ast.stmt], bind: Sink | None) -> None:
        statements = list(run)
        run.clear()
        indices = [i for i, statement in enumerate(statements) if self._holds_node(statement)]
        if bind is None:
            indices = self._without_afterthought(statements, indices)
        if bind is not None:
            first = statements[indices[0]] if indices else bind.statement
            chosen = tuple(statements[indices[0] :]) if indices else ()
            self._add(Run(first, bind.statement, chosen, bind))
        elif any(self._holds_node(statements[i], with_grad=True) for i in indices):
            chosen = tuple(statements[indices[0] : indices[-1] + 1])
            self._add(Run(chosen[0], chosen[-1], chosen))

    @staticmethod
    def _without_afterthought(statements: list[ast.stmt], indices: list[int]) -> list[int]:
        """The places of nodes, without a last `loss = loss / steps` that stands apart: autocast does nothing to it, and
        a region up to it would hold what is logged before."""
        if len(indices) < 2 or indices[-1] == indices[-2] + 1:
            return indices
        last = statements[indices[-1]]
        if not isinstance(last, (ast.Assign, ast.AugAssign)):
            return indices
        divisor = last.value
        if isinstance(last, ast.Assign) and isinstance(last.value, ast.BinOp) and isinstance(last.value.op, ast.Div):
            divisor = last.value.right
            divides = path_of(last.value.left) == path_of(last.targets[0])
        else:
            divides = isinstance(last, ast.AugAssign) and isinstance(last.op, ast.Div)
        count = path_of(divisor) or (isinstance(divisor, ast.Constant) and isinstance(divisor.value, int))
        return indices[:-1] if divides and count else indices

    def _add(self, run: Run) -> None:
        for statement in run.statements:
            for node in walk(statement):
                if isinstance(node, (ast.Yield, ast.YieldFrom, ast.Await)):
                    raise RefusalError(node, "the forward holds a yield or await, which autocast must not be around")
        for part in self._apart(run):
            self.found.append(part)

    def _apart(self, run: Run) -> list[Run]:
        """Split a run where a `no_grad` forward stands between others on the same model (its weights get cached)."""
        parts: list[list[ast.stmt]] = [[]]
        for statement in run.statements:
            others = [s for s in run.statements if s is not statement]
            if self._runs_without_grad(statement) and self._modules(others) & self._modules([statement]):
                parts += [[statement], []]
            else:
                parts[-1].append(statement)
        if len(parts) == 1:
            return [run]
        found = []
        kept = [part for part in parts if part and any(self._needs_region(s) for s in part)]
        for part in kept:
            needed = [i for i, s in enumerate(part) if self._needs_region(s)]
            chosen = tuple(part[needed[0] : needed[-1] + 1])
            found.append(Run(chosen[0], chosen[-1], chosen))
        if run.bind is not None:
            if (
                found
                and found[-1].statements[-1] is run.statements[-1]
                and not self._runs_without_grad(run.statements[-1])
            ):
                last = found.pop()
                found.append(Run(last.first, run.bind.statement, last.statements, run.bind))
            else:
                found.append(Run(run.bind.statement, run.bind.statement, (), run.bind))
        return found

    def _modules(self, statements: list[ast.stmt]) -> set[str]:
        """The paths of the models that statements run; a helper's models are those of its arguments."""
        found: set[str] = set()
        for statement in statements:
            for node in walk(statement):
                if isinstance(node, ast.Call) and (module := self.facts.module_of(node)) is not None:
                    found.add(path_of(module))
                elif isinstance(node, ast.Call) and self.graph.is_source(node):
                    found.update(path_of(a) for a in node.args if path_of(a))
        return found

    def _needs_region(self, statement: ast.stmt) -> bool:
        return self._holds_node(statement) or self._runs_without_grad(statement)

    def _runs_without_grad(self, statement: ast.stmt) -> bool:
        """Whether a statement is a `no_grad` block that runs a model."""
        if not isinstance(statement, ast.With):
            return False
        if not any(self.file.regions.is_no_grad(item.context_expr) for item in statement.items):
            return False
        return any(isinstance(n, ast.Call) and self.facts.module_of(n) is not None for n in walk(statement))

    def _holds_node(self, statement: ast.stmt, with_grad: bool = False) -> bool:
        stack: list[ast.stmt] = [statement]
        while stack:
            current = stack.pop()
            if current in self.nodes and not (with_grad and self.graph.is_without_grad(current)):
                return True
            if not isinstance(current, (*FUNCTIONS, ast.ClassDef)):
                stack += [member for block in blocks(current) for member in block]
        return False

    def is_barrier(self, statement: ast.stmt) -> bool:
        """Whether a statement must not run under autocast, or ends what one region may hold."""
        for node in walk(statement):
            if self.facts.trains(node) or self.facts.reads_gradient(node):
                return True
            if isinstance(node, ast.Call):
                name = path_of(node.func).rsplit(".", 1)[-1]
                if name in self.facts.trainer_names or (name in _CHANGES_WEIGHTS and not self._changes_output(node)):
                    return True  # a call by the name of a function that trains may be one of it
                for function in self.file.values.functions(node):
                    if function in self.facts.gradient_readers or _changes_weights(function):
                        return True
        return False

    def _changes_output(self, call: ast.Call) -> bool:
        """Whether what is changed in place is surely an output of the forward, as in `out.data.clamp_(0, 1)`."""
        root = path_of(call.func).split(".", 1)[0]
        reaching = self.graph.reaching(root, self.file.statement(call)) if root and root != "self" else []
        return bool(reaching) and all(
            isinstance(statement, ast.Assign) and self.graph.is_graph(value) and not self.graph.is_parameter(value)
            for statement, value in reaching
        )


def _changes_weights(function: Function) -> bool:
    return any(
        isinstance(node, ast.Attribute)
        and (node.attr == "load_state_dict" or (node.attr == "copy_" and "data" in ast.unparse(node.value)))
        for node in walk(function)
    )


def _is_light(file: SourceFile, node: ast.expr) -> bool:
    """Whether autocast changes nothing of how a loss is computed of named values: by a mean, a sum of weighted terms or
    a division, as in `loss.mean()` and `loss / accumulation`."""
    if isinstance(node, ast.Call):
        if not isinstance(node.func, ast.Attribute) or node.args or node.keywords:
            return False
        return node.func.attr == "mean" and _is_light(file, node.func.value)
    if isinstance(node, ast.UnaryOp):
        return isinstance(node.op, ast.USub) and _is_light(file, node.operand)
    if isinstance(node, ast.BinOp):
        if not isinstance(node.op, (ast.Add, ast.Sub, ast.Mult, ast.Div)):
            return False
        sides = [(side, number(file, side)) for side in (node.left, node.right)]
        return all(
            _is_light(file, side) if value is None else _MODERATE[0] <= abs(value) <= _MODERATE[1]
            for side, value in sides
        )
    while isinstance(node, ast.Subscript):
        node = node.value
    return bool(path_of(node))
