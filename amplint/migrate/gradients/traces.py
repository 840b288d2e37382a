"""Follows a loss back to the models that are in its graph: those that may be, and those that are on every way."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from amplint.facts.values import Function, is_self, path_of
from amplint.migrate.regions.graph import Graph
from amplint.migrate.regions.packed import is_packed
from amplint.migrate.tree import (
    LOOPS,
    assigned_paths,
    chain,
    lift,
    may_be_skipped,
    owner_of,
    paths_in,
    position,
    statements_in,
    walk,
)

if TYPE_CHECKING:
    from amplint.migrate.gradients.ownership import Model, Names, Ownership

_BUDGET = 400
"""How many definitions under tests one loss is followed through for what is sure."""
_CUTS = frozenset(("detach", "item", "numpy", "tolist", "argmax", "data", "backward", "detach_"))
_PARAMETERS = frozenset(("parameters", "named_parameters", "trainable_parameters"))


class Trace:
    """Follows a loss back to the models that are in its graph."""

    def __init__(self, ownership: Ownership, graph: Graph, around: set[ast.stmt], names: Names) -> None:
        self.ownership = ownership
        self.facts = ownership.facts
        self.file = ownership.file
        self.graph = graph
        self.around = around
        self.names = names
        self.may: set[Model] = set()
        self.sure: set[Model] = set()
        self.unknown = False
        self.forks = False
        self._seen: set[tuple[str, ast.stmt, bool]] = set()
        self._left = _BUDGET

    def expression(self, root: ast.expr, at: ast.stmt, sure: bool) -> None:
        """Add the models in the graph of an expression; `sure` where it is part of the loss on every way."""
        stack: list[tuple[ast.AST, bool]] = [(root, sure)]
        while stack and not self.unknown:
            node, certain = stack.pop()
            if isinstance(node, (ast.Lambda, ast.Constant, ast.Compare, ast.JoinedStr)):
                continue
            if isinstance(node, ast.IfExp):
                self._either(node, at, certain)
                continue
            if is_packed(self.file, node):
                stack.append((node.value, certain))  # type: ignore[attr-defined]
                continue
            if isinstance(node, ast.Attribute) and node.attr in _CUTS:
                continue
            if isinstance(node, ast.Call):
                self._call(node, certain, stack)
                continue
            if isinstance(node, (ast.Name, ast.Attribute)) and (path := path_of(node)):
                self._path(node, path, at, certain)
                continue
            stack += [(child, certain) for child in ast.iter_child_nodes(node)]

    def _either(self, node: ast.IfExp, at: ast.stmt, sure: bool) -> None:
        """Follow the two values of a conditional expression: what both reach is reached on every way."""
        before, seen = self.sure, self._seen
        reached: list[set[Model]] = []
        for arm in (node.body, node.orelse):
            self.sure, self._seen = set(), set(seen)
            self.expression(arm, at, sure and self._spend())
            reached.append(self.sure)
        self.sure, self._seen = before | (reached[0] & reached[1]), seen

    def _call(self, call: ast.Call, sure: bool, stack: list[tuple[ast.AST, bool]]) -> None:
        func = call.func
        if isinstance(func, ast.Attribute) and func.attr in _CUTS:
            return
        if self.file.regions.without_grad(call):
            return
        arguments = [*call.args, *(keyword.value for keyword in call.keywords)]
        module = self._module(call)
        if module is not None:
            self._add(self.ownership.models(module, self.names), sure)
            stack += [(argument, sure) for argument in arguments]
            return
        if isinstance(func, ast.Attribute) and func.attr in _PARAMETERS:
            self._add(self.ownership.models(func.value, self.names), sure)
            return
        functions = self.file.values.functions(call)
        if functions:
            self._helpers(functions, call, sure)
        elif not self.file.resolve(func) and not isinstance(func, ast.Attribute) and self.graph.is_source(call):
            self.unknown = True
        for argument in arguments:
            if not (isinstance(argument, (ast.Name, ast.Attribute)) and self.facts.is_module(argument) and functions):
                stack.append((argument, sure))
        if isinstance(func, ast.Attribute) and not self.file.resolve(func):
            stack.append((func.value, sure))

    def _module(self, call: ast.Call) -> ast.expr | None:
        """The module that a call runs; a trainer's `self.net`, whose class the file defines, is one too."""
        module = self.facts.module_of(call)
        return call.func if module is None and self.facts.is_module(call.func) else module

    def _helpers(self, functions: tuple[Function, ...], call: ast.Call, sure: bool) -> None:
        """Add the models that one of several functions runs; sure are those that all of them run."""
        before, shared = self.sure, None
        for function in functions:
            self.sure = set()
            self._helper(function, call, sure)
            shared = self.sure if shared is None else shared & self.sure
        self.sure = before | (shared or set())
        self.forks |= len(functions) > 1

    def _helper(self, function: Function, call: ast.Call, sure: bool) -> None:
        """Add the models that a helper runs, by its parameters."""
        given: dict[str, frozenset[Model] | None] = {}
        for arg in (*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs):
            value = self.file.values.argument(call, function, arg.arg)
            if isinstance(value, (ast.Name, ast.Attribute)) and path_of(value):
                given[arg.arg] = self.ownership.models(value, self.names)
        inner = self.names._replace(optimizers={}, models=given)
        for node in walk(function):
            if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load) and self._keeps_graph(node):
                self.unknown = True  # what other methods computed comes into it
            if not isinstance(node, ast.Call) or self.file.regions.without_grad(node):
                continue
            if (module := self._module(node)) is not None:
                around = chain(self.file, self.file.statement(node))
                skipped = any(isinstance(s, ast.If) for s in around) or self._returns_before(function, node)
                self._add(self.ownership.models(module, inner), sure and not skipped)
            elif self.graph.is_source(node):
                self.unknown = True

    def _keeps_graph(self, node: ast.Attribute) -> bool:
        """Whether methods of an object give an attribute of it a value with a graph."""
        cls = self.file.values.enclosing_class(node) if is_self(node.value) else None
        if cls is None or self.facts.is_module_class(cls) or self.facts.is_module(node):
            return False
        assigned = (v for entry in self.file.values.lineage(cls) for v in self.file.values.assigned(entry, node.attr))
        graph = self.ownership.sinks.graph
        return any(v is not None and graph(owner_of(self.file, v)).is_graph(v) for v in assigned)

    def _returns_before(self, function: Function, call: ast.Call) -> bool:
        """Whether a function may return before a call, without another forward in what it returns."""
        return any(
            isinstance(s, ast.Return)
            and position(s) < position(call)
            and s is not self.file.statement(call)
            and not any(isinstance(n, ast.Call) and self.facts.module_of(n) is not None for n in ast.walk(s))
            for s in statements_in(function)
        )

    def _is_skipped(self, statement: ast.stmt) -> bool:
        """Whether a `continue` or `break` before a statement may skip it in each round of its loop, which does not hold
        the backward."""
        for loop in chain(self.file, statement)[1:]:
            if isinstance(loop, LOOPS) and loop not in self.around:
                return may_be_skipped(loop, statement)
        return False

    def _path(self, node: ast.expr, path: str, at: ast.stmt, sure: bool) -> None:
        if self.facts.is_module(node) or self.file.resolve(node):
            if not self.file.resolve(node):
                self._add(self.ownership.models(node, self.names), sure)
            return
        if (path, at, sure) in self._seen:
            return
        self._seen.add((path, at, sure))
        reaching = self.graph.reaching(path, at)
        if not reaching and (path.startswith("self.") or (isinstance(node, ast.Name) and self.graph.is_graph(node))):
            self.unknown = True
        certain: list[tuple[ast.stmt, ast.expr]] = []
        others: list[tuple[ast.stmt, ast.expr]] = []
        for statement, value in reaching:
            under_test = any(
                isinstance(s, (ast.If, ast.Try)) and s not in self.around for s in chain(self.file, statement)[1:]
            ) or self._is_skipped(statement)
            replaced = any(self._replaces(other, inner, statement, path) for other, inner in reaching)
            (others if under_test or replaced else certain).append((statement, value))
        for statement, value in certain:
            self.expression(value, statement, sure)
        self._one_of(path, others, sure, any(_is_whole(path, statement) for statement, _ in certain))

    def _one_of(self, path: str, definitions: list[tuple[ast.stmt, ast.expr]], sure: bool, optional: bool) -> None:
        """Follow definitions of which one or another holds: what all of them reach is reached on every way, and what
        both arms of an `if` add; `optional` where the value may be another one."""
        before, seen = self.sure, self._seen
        shared: set[Model] | None = None
        arms: dict[ast.If, tuple[set[Model], set[Model]]] = {}
        for statement, value in definitions:
            self.sure, self._seen = set(), set(seen)
            self.expression(value, statement, sure and self._spend())
            if _is_whole(path, statement) and not optional:
                shared = self.sure if shared is None else shared & self.sure
            elif (arm := self._arm(statement)) is not None:
                arms.setdefault(arm[0], (set(), set()))[arm[1]].update(self.sure)
        added = [one & other for one, other in arms.values()]
        self.sure, self._seen = before.union(shared or set(), *added), seen

    def _arm(self, statement: ast.stmt) -> tuple[ast.If, bool] | None:
        """The one `if` around a statement, and whether it is in its `else`; None where there is none, or more."""
        tests = [
            s for s in chain(self.file, statement)[1:] if isinstance(s, (ast.If, ast.Try)) and s not in self.around
        ]
        if len(tests) != 1 or not isinstance(tests[0], ast.If):
            return None
        return tests[0], lift(self.file, statement, tests[0].orelse) is not None

    def _spend(self) -> bool:
        """Whether there is still time to follow definitions one by one."""
        self._left -= 1
        return self._left > 0

    @staticmethod
    def _replaces(other: ast.stmt, value: ast.expr, statement: ast.stmt, path: str) -> bool:
        """Whether another definition may stand in the place of one; one by index leaves the rest of a value there."""
        return (
            isinstance(other, (ast.Assign, ast.AnnAssign))
            and _is_whole(path, other)
            and position(other) > position(statement)
            and path not in paths_in(value)
        )

    def _add(self, models: frozenset[Model] | None, sure: bool) -> None:
        if models is None:
            self.unknown = True
            return
        self.may |= models
        self.sure |= models if sure else frozenset()


def _is_whole(path: str, statement: ast.stmt) -> bool:
    """Whether a statement gives a path a new value, and not a part of it or something more."""
    return any(whole and given == path for given, _, whole in assigned_paths(statement))
