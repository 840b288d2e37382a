"""Which optimizers step on what a function computes, and how they are written there."""

from __future__ import annotations

import ast
from functools import cached_property
from typing import TYPE_CHECKING

from amplint.facts.values import Function, is_self, path_of
from amplint.migrate.facts import Facts
from amplint.migrate.gradients.stages import Plan
from amplint.migrate.model import RefusalError
from amplint.migrate.tree import (
    FUNCTIONS,
    LOOPS,
    base_path,
    blocks,
    chain,
    lift,
    loops_of,
    overlaps,
    owner_of,
    position,
    walk,
)

if TYPE_CHECKING:
    from amplint.source import SourceFile


class OptimizersInView:
    """Follows optimizers through the calls between the functions that step them and those that compute for them."""

    def __init__(self, facts: Facts, steps_of: dict[Function | ast.Module, list[ast.Call]]) -> None:
        self.facts = facts
        self.file: SourceFile = facts.file
        self.facts = facts
        self.steps_of = steps_of

    def at(self, place: ast.AST) -> list[ast.expr]:
        """The optimizers that step on the graphs or gradients of a function, as they are written there."""
        found = self._named(place)
        if not found:
            found = self._optimizers_beside(place)
        if not found:
            raise RefusalError(
                place,
                "no optimizer that trains on this is in view, so nothing can unscale the gradients; step one of "
                "torch.optim in this file",
            )
        return found

    def _named(self, place: ast.AST) -> list[ast.expr]:
        owner = owner_of(self.file, place)
        return self._optimizers_in(owner, set()) or self._optimizers_above(owner, set())

    @cached_property
    def backward_functions(self) -> frozenset[Function]:
        """The functions that go backward, also by calling others."""
        return self.facts.closure_of(self.facts.owners(list(self.facts.backwards)))

    @cached_property
    def step_functions(self) -> frozenset[Function]:
        """The functions that step an optimizer, also by calling others."""
        return self.facts.closure_of(self.facts.owners(list(self.facts.steps)))

    def only(self, place: ast.stmt) -> ast.expr | None:
        """The one optimizer that steps on what a function computes, None where it has no name or is not alone."""
        found = {path_of(optimizer): optimizer for optimizer in self.at(place)}
        if len(found) != 1 or "" in found:
            return None
        (optimizer,) = found.values()
        if self.file.parent(optimizer) is None:
            self.file.names.parents[optimizer] = place  # a name that stands for a parameter
        return optimizer

    def _optimizers_in(self, owner: Function | ast.Module, seen: set[ast.AST]) -> list[ast.expr]:
        """The optimizers that a function steps, itself or by calling others."""
        if owner in seen:
            return []
        seen.add(owner)
        if owner in self.steps_of:
            return [step.func.value for step in self.steps_of[owner]]  # type: ignore[attr-defined]
        found: list[ast.expr] = []
        for node in walk(owner):
            for function in self.file.values.functions(node) if isinstance(node, ast.Call) else ():
                for optimizer in self._optimizers_in(function, seen):
                    found += self._outside(optimizer, function, node)  # type: ignore[arg-type]
        return found

    def _outside(self, optimizer: ast.expr, function: Function, call: ast.Call) -> list[ast.expr]:
        """What an optimizer of a function is called where the function is called."""
        root = base_path(optimizer).split(".", 1)[0]
        if root == "self":
            if self.facts.wrappers.calls_from_outside(call):
                return [call.func.value]  # type: ignore[attr-defined]
            return [optimizer] if self._same_self(call, function) else []
        scope = self.file.names.scopes[function]
        bindings = scope.bindings.get(root, [])
        if not bindings:
            return [optimizer]
        if all(binding.kind == "param" for binding in bindings) and isinstance(optimizer, ast.Name):
            given = self.file.values.argument(call, function, root)
            return [] if given is None else [given]
        return []

    def _optimizers_above(self, owner: Function | ast.Module, seen: set[ast.AST]) -> list[ast.expr]:
        """The optimizers that the callers of a function step, as far as they are in view in it."""
        if owner in seen or not isinstance(owner, FUNCTIONS):
            return []
        seen.add(owner)
        found: list[ast.expr] = []
        for call in self.file.values.calls(owner):
            caller = owner_of(self.file, call)
            around = self._optimizers_in(caller, set()) or self._optimizers_above(caller, seen)
            for optimizer in around:
                found += self._inside(optimizer, owner, call, caller)
        return found

    def _optimizers_beside(self, place: ast.AST) -> list[ast.expr]:
        """The optimizers that other methods of an object step, of whose class the file makes one object at most: what
        its users call in turn (`trainer.forward(x)`, `trainer.backward()`, `trainer.step()`) is of that one."""
        cls = self.file.values.enclosing_class(place)
        if cls is None or not self._is_one(cls):
            return []
        family = self.file.values.lineage(cls)
        return [
            step.func.value  # type: ignore[attr-defined]
            for owner, steps in self.steps_of.items()
            if self.file.values.enclosing_class(steps[0]) in family and isinstance(owner, FUNCTIONS)
            for step in steps
            if base_path(step.func.value).startswith("self.")  # type: ignore[attr-defined]
        ]

    def _is_one(self, cls: ast.ClassDef) -> bool:
        """Whether a file makes at most one object of a class and of those that extend it."""
        kinds = [
            c for c in self.file.names.scopes if isinstance(c, ast.ClassDef) and cls in self.file.values.lineage(c)
        ]
        uses = [use for kind in kinds for use in self.file.names.loads.get(kind.name, ())]
        made = [use for use in uses if not isinstance(self.file.parent(use), ast.ClassDef)]
        if any(not isinstance(self.file.parent(use), ast.Call) for use in made) or len(made) > 1:
            return False
        node: ast.AST | None = made[0] if made else None
        while node is not None:
            node = self.file.parent(node)
            if isinstance(node, FUNCTIONS):
                calls = self.file.values.calls(node)
                if len(calls) > 1 or any(loops_of(self.file, self.file.statement(call)) for call in calls):
                    return False
            if isinstance(node, (*LOOPS, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp, ast.Lambda)):
                return False
        return True

    def _same_self(self, call: ast.Call, function: Function) -> bool:
        """Whether `self` in a function that is called is that of the caller: a method's, or a closure's in a method."""
        if isinstance(call.func, ast.Attribute) and isinstance(call.func.value, ast.Call):
            return path_of(call.func.value.func) == "super"
        around = self.file.values.enclosing_function(function)
        is_own = isinstance(call.func, ast.Attribute) and is_self(call.func.value)
        return is_own or (around is not None and around is owner_of(self.file, call))

    def _inside(
        self, optimizer: ast.expr, function: Function, call: ast.Call, caller: Function | ast.Module
    ) -> list[ast.expr]:
        """What an optimizer of a caller is called in the function that it calls."""
        path = base_path(optimizer)
        if path.startswith("self."):
            return [optimizer] if self._same_self(call, function) else []
        for arg in (*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs):
            given = self.file.values.argument(call, function, arg.arg)
            if given is not None and base_path(given) == path:
                return [ast.Name(id=arg.arg, ctx=ast.Load())]
        root = path.split(".", 1)[0]
        is_global = caller is self.file.tree or root not in self.file.names.scopes[caller].bindings
        return [optimizer] if is_global and root not in self.file.names.scopes[function].bindings else []


def is_made_here(file: SourceFile, step: ast.Call) -> bool:
    """Whether an optimizer is made in the function that steps it, so that both name its model alike."""
    owner = owner_of(file, step)
    made = [value for value in file.values.of(step.func.value) if isinstance(value, ast.Call)]  # type: ignore[attr-defined]
    return bool(made) and all(owner_of(file, value) is owner for value in made)


def modules_of(file: SourceFile, step: ast.Call) -> set[str]:
    found: set[str] = set()
    for value in file.values.of(step.func.value):  # type: ignore[attr-defined]
        if isinstance(value, ast.Call):
            found |= {
                path_of(node.value)
                for node in ast.walk(value)
                if isinstance(node, ast.Attribute) and node.attr == "parameters" and path_of(node.value)
            }
    return found


def concerns(facts: Facts, members: list[ast.stmt], step: ast.Call, steps: list[ast.Call]) -> bool:
    """Whether gradients that statements use belong to a step's optimizer: all do where there is one.

    Where this can't be told, all optimizers are unscaled; a later look at all ways refuses where one has no gradients
    yet. Raises `RefusalError` where the one optimizer surely has other parameters.
    """
    file = facts.file
    mine = modules_of(file, step)
    used = {
        path_of(node.value)
        for member in members
        for node in walk(member)
        if isinstance(node, ast.Attribute) and node.attr in ("parameters", "named_parameters") and path_of(node.value)
    }
    if len({ast.dump(other.func) for other in steps}) == 1:
        own = any(overlaps(one, other) for one in used for other in mine)
        if mine and used and is_made_here(file, step) and not own:
            raise RefusalError(step, "the gradients that are used are not those of the optimizer's own parameters")
        return True
    handed: set[str] = set()
    for call in (n for member in members for n in walk(member) if isinstance(n, ast.Call) and facts.calls_reader(n)):
        optimizers = {ast.dump(argument) for argument in call.args if facts.is_optimizer(argument)}
        handed |= optimizers
        if not optimizers:
            used |= {path_of(argument) for argument in call.args if facts.is_module(argument)} or {""}
    if handed and (not used or ast.dump(step.func.value) in handed):  # type: ignore[attr-defined]
        return ast.dump(step.func.value) in handed  # type: ignore[attr-defined]
    known = set().union(*(modules_of(file, other) for other in steps))
    return not mine or not used <= known or bool(used & mine)


def meets_scaled(facts: Facts, plan: Plan, statement: ast.stmt, steps: list[ast.Call], sinks: list[ast.stmt]) -> bool:
    """Whether gradients that a statement uses may be of an optimizer that steps behind it, in an arm of its own, and
    is not unscaled before; `steps` are those of the function, `sinks` its statements that go backward."""
    around = [
        s for s in chain(facts.file, statement) if isinstance(s, ast.For) and not any(k in walk(s) for k in sinks)
    ]
    whole = around[-1] if around else statement
    named = {ast.dump(n) for n in walk(whole) if isinstance(n, ast.expr) and path_of(n) and facts.is_optimizer(n)}
    unscaled = {
        ast.dump(optimizer)
        for before, optimizers in plan.unscaled.items()
        for optimizer in optimizers
        if position(before) <= position(statement)
    }
    receivers = {ast.dump(step.func.value): step for step in steps}  # type: ignore[attr-defined]
    for dump in receivers if len(receivers) > 1 else ():
        if dump in unscaled or (named and dump not in named):
            continue
        for step in steps:
            at = facts.file.statement(step)
            if ast.dump(step.func.value) != dump or position(at) <= position(statement):  # type: ignore[attr-defined]
                continue
            if any(position(statement) < position(sink) < position(at) for sink in sinks):
                continue
            if _in_other_arms(facts.file, statement, at):
                continue
            if dump in named or concerns(facts, [whole], step, steps):
                return True
    return False


def _in_other_arms(file: SourceFile, one: ast.stmt, other: ast.stmt) -> bool:
    """Whether two statements stand in different arms of one condition."""
    for outer in chain(file, one):
        arms = blocks(outer) if isinstance(outer, ast.If) else []
        holding = [[i for i, arm in enumerate(arms) if lift(file, s, arm) is not None] for s in (one, other)]
        if all(holding):
            return holding[0] != holding[1]
    return False
