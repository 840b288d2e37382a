"""Follows the gradients of each optimizer over all ways through a file, under the protocol that is about to be written.

Gradients are none, scaled, unscaled, or spoilt: scaled by a scale that has changed since, or added to gradients that
were unscaled already. A step on none or on spoilt ones, a second step before the update, or an update without a step
refuse the migration. A loop is taken to run at least once.
"""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from amplint.facts.values import Function, is_self
from amplint.migrate.facts import Facts
from amplint.migrate.gradients import own_optimizers, partial, resets
from amplint.migrate.gradients.conditions import Conditions, Key
from amplint.migrate.gradients.guards import is_boundary, is_guarded
from amplint.migrate.gradients.ownership import NO_NAMES, SELF, Model, Names, Optimizer, Ownership, Reach
from amplint.migrate.gradients.stages import (
    NONE,
    NOTHING,
    OPEN,
    READY,
    SCALED,
    SPOILT,
    STEPPED,
    TWICE,
    UNSCALED,
    Flow,
    Plan,
    State,
    join,
    met,
    never_stepped,
)
from amplint.migrate.iteration import loop_around
from amplint.migrate.model import RefusalError
from amplint.migrate.regions.sinks import Sinks
from amplint.migrate.tree import FUNCTIONS, LOOPS, blocks, chain, header, owner_of, position, statements_in, walk
from amplint.rewrite.statements import siblings

if TYPE_CHECKING:
    from amplint.source import SourceFile

_ROUNDS = 12
_DEPTH = 8
_LEFT_OVER = (
    "gradients that are left over from another step or another scale may reach this step; reset them (zero_grad) "
    "before the first backward of each step"
)
_ADDED_TO = (
    "gradients are used here in an iteration that may not step, and others may be added to them later; use them under "
    "the condition of the step, or reset them (zero_grad) before each backward"
)
_SHARED = "two optimizers share parameters, whose gradients would be unscaled twice"
_NO_GRADIENTS = (
    "this optimizer may step without gradients, which is an error under a scaler; step it where they are made"
)

_EMPTY = "this may step an optimizer that has no parameters, which is an error under a scaler"


class Gradients:
    """Runs through a file; raises `RefusalError` where gradients may be wrong at a step."""

    def __init__(self, facts: Facts, sinks: Sinks, plan: Plan) -> None:
        self.facts = facts
        self.file: SourceFile = facts.file
        self.sinks = sinks
        self.plan = plan
        self.ownership = Ownership(facts, sinks)
        self.known: set[Optimizer] = set()
        self._active: list[Function] = []
        self._relevant: dict[ast.stmt, bool] = {}
        self._functions = self._relevant_functions()
        self._conditions = Conditions(facts)
        self._world: dict[Key, bool] = {}

    def check(self) -> None:
        """Run the module, then what nobody in the file calls, in any order and any number of times; once for each way
        in which fixed conditions may hold."""
        wrappers = self.facts.wrappers
        for step in self.facts.steps:
            if not wrappers.is_own(step.func.value):  # type: ignore[attr-defined]
                self.known.update(self.ownership.optimizers(step.func.value, NO_NAMES))  # type: ignore[attr-defined]
        for call in wrappers.calls:
            self.known.update(self.ownership.optimizers(call.func.value, NO_NAMES))  # type: ignore[attr-defined]
        partial.check(self.ownership, self.ownership.frozen, self.known)
        owners = (self.file.tree, *self._functions)
        asked = [s for o in owners for s in statements_in(o) if isinstance(s, ast.If) and self._is_relevant(s)]
        for world in self._conditions.worlds(asked):
            self._world = world
            self._run()

    def _run(self) -> None:
        """Run the module, then the rest, with fixed conditions as they are in one world."""
        self._block(self.file.tree.body, State(), NO_NAMES)
        roots = [f for f in self.facts.functions if f in self._functions and not self.file.values.calls(f)]
        state: State | None = State()
        for _ in range(3):
            ends = [self._function(root, (state or State()).copy(), NO_NAMES) for root in roots]
            state = join(state, *ends)

    def _relevant_functions(self) -> frozenset[Function]:
        nodes: list[ast.AST] = [n for f in self.facts.functions for n in walk(f) if self._is_event(n)]
        return self.facts.closure_of(self.facts.owners(nodes))

    def _is_event(self, node: ast.AST) -> bool:
        if isinstance(node, ast.Call) and (node in self.facts.backwards or node in self.facts.steps):
            return True
        if not isinstance(node, ast.Attribute) or self.facts.wrappers.runs(self.file.parent(node)):
            return False
        return node.attr == "zero_grad" or resets.is_reset(self.file, node)

    # -- statements ---------------------------------------------------------------------------------------------------

    def _is_relevant(self, statement: ast.stmt) -> bool:
        if statement not in self._relevant:
            self._relevant[statement] = any(
                isinstance(node, (ast.Continue, ast.Break, ast.Return, ast.Raise))
                or node in self.plan.unscaled
                or node in self.plan.updated
                or self._is_event(node)
                or (isinstance(node, ast.Call) and any(f in self._functions for f in self.file.values.functions(node)))
                for node in walk(statement)
            )
        return self._relevant[statement]

    def _block(self, block: list[ast.stmt], state: State | None, names: Names) -> Flow:
        flow = Flow(state)
        for statement in block:
            if flow.ends is None:
                break
            if isinstance(statement, (*FUNCTIONS, ast.ClassDef)) or not self._is_relevant(statement):
                continue
            inner = self._statement(statement, flow.ends.copy(), names)
            flow = Flow(
                inner.ends,
                join(flow.breaks, inner.breaks),
                join(flow.continues, inner.continues),
                join(flow.returns, inner.returns),
            )
        return flow

    def _statement(self, statement: ast.stmt, state: State, names: Names) -> Flow:
        for optimizer in self._all(self.plan.unscaled.get(statement, ()), names):
            self._unscale(optimizer, state, statement)
        for scaler in {self._scaler(o) for o in self._all(self.plan.closed.get(statement, ()), names)}:
            self._update(scaler, state, statement)
        if isinstance(statement, LOOPS):
            flow = self._loop(statement, state, names)
        else:
            self._events(header(statement), state, names)
            flow = self._compound(statement, state, names)
        updated = self._all(self.plan.updated.get(statement, ()), names)
        if updated and flow.ends is not None:
            for scaler in {self._scaler(optimizer) for optimizer in updated}:
                self._update(scaler, flow.ends, statement)
        return flow

    def _all(self, expressions: tuple[ast.expr, ...] | list[ast.expr], names: Names) -> list[Optimizer]:
        found = [o for expression in expressions for o in self.ownership.optimizers(expression, names)]
        return list(dict.fromkeys(found))

    def _compound(self, statement: ast.stmt, state: State, names: Names) -> Flow:
        if isinstance(statement, ast.Continue):
            return Flow(None, None, state)
        if isinstance(statement, ast.Break):
            return Flow(None, state)
        if isinstance(statement, ast.Return):
            return Flow(None, None, None, state)
        if isinstance(statement, ast.Raise):
            return Flow(None)
        if isinstance(statement, ast.Try) or type(statement).__name__ == "TryStar":
            return self._try(statement, state, names)  # type: ignore[arg-type]
        inner = blocks(statement)
        if not inner:
            return Flow(state)
        if isinstance(statement, ast.If):
            arm = self._conditions.only_arm(statement, self._world, names)
            if arm is not None:
                return self._block(arm, state, names)
        if is_boundary(self.facts, self.plan, statement):
            return Flow(join(self._block(inner[0], state.copy(), names).ends, never_stepped(state)))
        flows = [self._block(block, state.copy(), names) for block in inner]
        if isinstance(statement, ast.If) and resets.asks_for_gradient(statement):
            return flows[0]
        always = isinstance(statement, (ast.With, ast.AsyncWith)) or (isinstance(statement, ast.If) and len(inner) > 1)
        return met([*flows, *(() if always else (Flow(state),))])

    def _try(self, statement: ast.Try, state: State, names: Names) -> Flow:
        body = self._block(statement.body, state.copy(), names)
        failed = join(state, body.ends)
        tried = self._block(statement.orelse, body.ends, names) if statement.orelse else body
        flows = [body._replace(ends=None), tried]
        flows += [self._block(handler.body, failed, names) for handler in statement.handlers]
        tried_or_failed = met(flows)
        if not statement.finalbody:
            return tried_or_failed
        last = [self._block(statement.finalbody, state, names) for state in tried_or_failed]
        through = Flow(last[0].ends, last[1].ends, last[2].ends, last[3].ends)
        return met([through, *(flow._replace(ends=None) for flow in last)])

    def _loop(self, loop: ast.For | ast.AsyncFor | ast.While, state: State, names: Names) -> Flow:
        self._events(header(loop), state, names)
        if self._is_over_optimizers(loop):
            return self._block(loop.body, state, names)
        head: State | None = state
        flow = Flow(None)
        for _ in range(_ROUNDS):
            flow = self._block(loop.body, head.copy() if head is not None else None, names)
            around = join(head, flow.ends, flow.continues)
            if around == head:
                break
            head = around
        endless = isinstance(loop, ast.While) and isinstance(loop.test, ast.Constant) and bool(loop.test.value)
        through = None if endless else join(flow.ends, flow.continues)
        rest = self._block(loop.orelse, through, names)
        return Flow(join(rest.ends, flow.breaks), rest.breaks, rest.continues, join(rest.returns, flow.returns))

    def _is_over_optimizers(self, loop: ast.stmt) -> bool:
        """Whether each round of a loop is about another optimizer, or one of a table; its events are then about all of
        them. Where a round goes backward, it must reset gradients first: those of other rounds reach it else."""
        if not isinstance(loop, (ast.For, ast.AsyncFor)):
            return False
        uses = [n for n in walk(loop) if isinstance(n, ast.Attribute) and n.attr in ("step", "zero_grad")]
        backward = [
            position(n)
            for n in walk(loop)
            if isinstance(n, ast.Call)
            and (n in self.facts.backwards or any(f in self._functions for f in self.file.values.functions(n)))
        ]
        if backward and not any(use.attr == "zero_grad" and position(use) < min(backward) for use in uses):
            return False
        return any(
            isinstance(chosen := getattr(use.value, "slice", use.value), ast.Name)
            and loop_around(self.file, chosen) is loop
            for use in uses
        )

    # -- events -------------------------------------------------------------------------------------------------------

    def _events(self, nodes: object, state: State, names: Names) -> None:
        found = [node for node in nodes if isinstance(node, (ast.Call, ast.Attribute))]  # type: ignore[attr-defined]
        for node in sorted(found, key=lambda n: (n.end_lineno or 0, n.end_col_offset or 0)):
            if isinstance(node, ast.Attribute):
                if self._is_event(node):
                    self._reset(node, state, names)
            elif node in self.facts.backwards:
                self._backward(node, state, names)
            elif node in self.facts.steps:
                for optimizer in self.ownership.optimizers(node.func.value, names):  # type: ignore[attr-defined]
                    self._step(optimizer, state, node)
            else:
                functions = self.file.values.functions(node)
                if any(function in self._functions for function in functions):
                    end = join(*(self._call(function, node, state.copy(), names) for function in functions))
                    if end is not None:
                        state.stages, state.seen, state.cleared = end.stages, end.seen, end.cleared

    def _call(self, function: Function, call: ast.Call, state: State, names: Names) -> State | None:
        """The state behind a call, which may be of one of several functions."""
        if function not in self._functions:
            return state
        optimizers: dict[str, tuple[Optimizer, ...]] = {}
        models: dict[str, frozenset[Model] | None] = {}
        constants = self._conditions.constants(function, call, names)
        for arg in (*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs):
            value = self.file.values.argument(call, function, arg.arg)
            if value is None or isinstance(value, ast.Constant):
                if arg.arg in constants and constants[arg.arg] is None:
                    optimizers[arg.arg] = ()
                continue
            if self.facts.is_optimizer(value) or self._holds_optimizers(value):
                optimizers[arg.arg] = self.ownership.optimizers(value, names)
                self.known.update(optimizers[arg.arg])
            elif self.facts.is_module(value):
                models[arg.arg] = self.ownership.models(value, names)
        if self.facts.wrappers.owner(function) and isinstance(call.func, ast.Attribute):
            within = is_self(call.func.value)
            inner = names.optimizers.get(SELF) if within else self.ownership.optimizers(call.func.value, names)
            optimizers.update({SELF: inner} if inner is not None else {})
        return self._function(function, state, Names(optimizers, models, constants))

    def _holds_optimizers(self, node: ast.expr) -> bool:
        values = self.file.values.of(node)
        items = [e for v in values for e in (getattr(v, "elts", None) or getattr(v, "values", None) or ())]
        return bool(items) and all(isinstance(e, ast.expr) and self.facts.is_optimizer(e) for e in items)

    def _function(self, function: Function, state: State, names: Names) -> State | None:
        if function in self._active or len(self._active) > _DEPTH:
            return state
        self._active.append(function)
        try:
            flow = self._block(function.body, state, names)
        finally:
            self._active.pop()
        return join(flow.ends, flow.returns)

    def _scaler(self, optimizer: Optimizer) -> ast.AST | None:
        """The place whose scaler serves an optimizer."""
        return owner_of(self.file, optimizer.makers[0]) if optimizer.makers else None

    def _backward(self, call: ast.Call, state: State, names: Names) -> None:
        reach = self.ownership.reach(call, self.facts.loss_of(call), names)
        state.cleared = frozenset()
        for optimizer in {*self.known, *state.stages}:
            may, sure = self._reaches(reach, optimizer)
            if not may:
                continue
            stages = frozenset((self._added(gradient), phase) for gradient, phase in state.of(optimizer))
            state.stages[optimizer] = stages if sure else stages | state.of(optimizer)

    @staticmethod
    def _added(gradient: str) -> str:
        return {NONE: SCALED, SCALED: SCALED, TWICE: TWICE}.get(gradient, SPOILT)

    def _reaches(self, reach: Reach, optimizer: Optimizer) -> tuple[bool, bool]:
        roots = self.ownership.roots(optimizer)
        if reach.may is None or reach.sure is None or roots is None:
            return True, True
        may, sure = self.ownership.overlap(reach.may, roots), self.ownership.overlap(reach.sure, roots)
        if not sure and not all(self.ownership.is_closed(model.maker) for model in reach.may | roots):
            return True, True
        return may, sure

    def _unscale(self, optimizer: Optimizer, state: State, at: ast.AST) -> None:
        stages = set()
        for gradient, phase in state.of(optimizer):
            if phase != READY:
                raise RefusalError(at, "gradients may be unscaled twice here")
            if gradient == SPOILT and is_guarded(self.facts, self.plan):
                raise RefusalError(at, _ADDED_TO)
            self._expect(gradient, at)
            stages.add((UNSCALED, OPEN))
        state.stages[optimizer] = frozenset(stages)
        self._shared(optimizer, state)
        state.seen[self._scaler(optimizer)] = frozenset((True,))

    def _step(self, optimizer: Optimizer, state: State, at: ast.AST) -> None:
        if any(own_optimizers.is_empty(self.file, maker) for maker in optimizer.makers):
            raise RefusalError(at, _EMPTY)
        for gradient, phase in state.of(optimizer):
            if phase == STEPPED:
                raise RefusalError(at, "this optimizer may step twice before the scaler is updated")
            if phase == OPEN and gradient not in (UNSCALED, NONE):  # those that were reset since are no error
                raise RefusalError(at, "gradients are added here to those that were unscaled already")
            if phase == READY and not (gradient == NONE and self._is_remainder(at)):
                self._expect(gradient, at)
        state.stages[optimizer] = frozenset(((UNSCALED, STEPPED),))
        self._shared(optimizer, state)
        state.seen[self._scaler(optimizer)] = frozenset((True,))

    def _is_remainder(self, step: ast.AST) -> bool:
        """Whether a step stands under a condition of its own behind a loop that goes backward: gradients may be left
        over there, and the condition is trusted to say so."""
        around = chain(self.file, self.file.statement(step))
        tests = [s for s in around if isinstance(s, ast.If)]
        if not tests or any(node in self.facts.backwards for node in walk(tests[-1])):
            return False
        block = siblings(self.file, tests[-1])
        return any(
            isinstance(s, LOOPS) and any(node in self.facts.backwards for node in walk(s))
            for s in block[: block.index(tests[-1])]
        )

    @staticmethod
    def _expect(gradient: str, at: ast.AST) -> None:
        if gradient == NONE:
            raise RefusalError(at, _NO_GRADIENTS)
        if gradient != SCALED:
            raise RefusalError(at, _SHARED if gradient == TWICE else _LEFT_OVER)

    def _shared(self, optimizer: Optimizer, state: State) -> None:
        """What an optimizer unscales is unscaled for all that share its parameters."""
        mine = self.ownership.roots(optimizer)
        for other in {*self.known, *state.stages} - {optimizer}:
            theirs = self.ownership.roots(other)
            if mine is None or theirs is None or not self.ownership.overlap(mine, theirs):
                continue
            state.stages[other] = frozenset(
                (gradient if gradient == NONE else TWICE, phase) for gradient, phase in state.of(other)
            )

    def _update(self, scaler: ast.AST | None, state: State, at: ast.AST) -> None:
        if False in state.seen.get(scaler, NOTHING):
            raise RefusalError(at, "the scaler may be updated here without a step since the last update")
        state.seen[scaler] = NOTHING
        for optimizer in {*self.known, *state.stages}:
            if self._scaler(optimizer) is scaler or None in (scaler, self._scaler(optimizer)):
                state.stages[optimizer] = frozenset(
                    (SPOILT if gradient == SCALED else gradient, READY) for gradient, _ in state.of(optimizer)
                )

    def _reset(self, node: ast.Attribute, state: State, names: Names) -> None:
        """Gradients are gone: those of an optimizer, of a model, or of all that a loop by hand may run over."""
        for optimizer in self._resets(node, state, names):
            state.stages[optimizer] = frozenset((NONE, phase) for _, phase in state.of(optimizer))

    def _resets(self, node: ast.Attribute, state: State, names: Names) -> list[Optimizer]:
        every = list({*self.known, *state.stages})
        receiver = node.value
        if node.attr == "grad":
            return [o for o in every if resets.covers(self.ownership, receiver, o, every, names)]
        iterated = self.facts.iterated(receiver)
        if self.facts.is_optimizer(receiver) or (iterated is not None and self.facts.holds_optimizers(iterated)):
            direct = self.ownership.optimizers(receiver, names)
            whole = [self.ownership.roots(o) for o in direct]
            state.cleared = state.cleared.union(*(w for w in whole if w is not None))
            others = [o for o in every if (r := self.ownership.roots(o)) and self.ownership.contains(state.cleared, r)]
            return [*direct, *others]
        models = self.ownership.models(receiver, names)
        if models is None:
            return every
        state.cleared |= models
        return [o for o in every if (r := self.ownership.roots(o)) is None or self.ownership.contains(state.cleared, r)]
