"""Rewrites the gradient side of a loop: scaled backward, `unscale_` before gradients are used, step, one update."""

from __future__ import annotations

import ast
from itertools import pairwise
from typing import TYPE_CHECKING

from amplint.facts.values import Function, path_of
from amplint.migrate.editor import Editor
from amplint.migrate.facts import Facts
from amplint.migrate.gradients.backward import write_backward
from amplint.migrate.gradients.conditional import ConditionalSteps
from amplint.migrate.gradients.flow import Gradients
from amplint.migrate.gradients.guards import Places, surely_resets
from amplint.migrate.gradients.optimizers import OptimizersInView, concerns, meets_scaled
from amplint.migrate.gradients.stages import Plan
from amplint.migrate.gradients.strangers import Strangers
from amplint.migrate.gradients.unused import is_unused
from amplint.migrate.iteration import is_over
from amplint.migrate.model import RefusalError
from amplint.migrate.regions.sinks import Sinks
from amplint.migrate.scalers.making import Scalers
from amplint.migrate.tree import (
    FUNCTIONS,
    LOOPS,
    blocks,
    chain,
    header,
    inside_own_loop,
    is_leaving_branch,
    lift,
    loop_of,
    owner_of,
    position,
    statements_in,
    walk,
)
from amplint.rewrite.statements import siblings

if TYPE_CHECKING:
    from amplint.source import SourceFile

_CLOSURE = "the optimizer gets a closure, which may run the model more than once; GradScaler can't follow that"
_WRAPPED = "the optimizer is wrapped in another object; its inner optimizer must be given to the scaler"


_DEPTH = 4
"""Through how many functions a step is followed to the backward before it."""


class Protocol:
    """The steps of one file, planned and written to an editor; raises `RefusalError` where an order can't be proved."""

    def __init__(self, facts: Facts, sinks: Sinks, scalers: Scalers, editor: Editor) -> None:
        self.facts = facts
        self.file: SourceFile = facts.file
        self.sinks = sinks
        self.scalers = scalers
        self.editor = editor
        self.steps_of: dict[Function | ast.Module, list[ast.Call]] = {}
        for call in facts.steps:
            self.steps_of.setdefault(owner_of(self.file, call), []).append(call)
        self.in_view = OptimizersInView(facts, self.steps_of)
        self._step_functions = self.in_view.step_functions
        self._backward_functions = self.in_view.backward_functions
        self.strangers = Strangers(facts, self._goes_backward, self._takes_step)
        self.places = Places(facts, self.strangers, self._goes_backward, self._is_sink)
        self.conditional = ConditionalSteps(
            facts, lambda node: facts.uses_gradient(node) or self.strangers.may_use(node), self._goes_backward
        )
        self.plan = Plan({}, {}, {})
        self._guarded: dict[ast.stmt, list[ast.Call]] = {}
        self.bound: dict[ast.Call, str] = {}

    def write(self) -> None:
        """Plan and write everything."""
        for call in self.facts.unknown_steps():
            raise RefusalError(
                call, "what this `step()` does can't be seen; were it an optimizer's, it must be scaled too"
            )
        for owner, steps in self.steps_of.items():
            self._steps(owner, steps)
        for call in self.facts.backwards:
            self._backward(call)
        self._check_gradient_uses()

    def prove(self) -> None:
        """Follow the gradients to every step under what is written; raises `RefusalError` where they may be wrong."""
        Gradients(self.facts, self.sinks, self.plan).check()

    # -- steps --------------------------------------------------------------------------------------------------------

    def _steps(self, owner: Function | ast.Module, steps: list[ast.Call]) -> None:
        for step in steps:
            self._check_step(owner, step)
        groups: dict[ast.stmt | None, list[ast.Call]] = {}
        for step in steps:
            groups.setdefault(self._loop_of_iteration(step), []).append(step)
        for loop, group in groups.items():
            scaler = self.scalers.text_for([s.func.value for s in group], self.file.statement(group[0]))  # type: ignore[attr-defined]
            bodies = [loop.body] if isinstance(loop, LOOPS) else blocks(owner)
            written = 0
            for body in bodies:
                members = [s for s in group if lift(self.file, self.file.statement(s), body) is not None]
                if members:
                    self._updates(body, members, scaler)
                    written += len(members)
            if written != len(group):
                raise RefusalError(group[0], "the step stands in the else of a loop")
            for step in group:
                receiver = step.func.value  # type: ignore[attr-defined]
                self.editor.replace(step, f"{scaler}.step({self.file.segment(receiver)})")

    def _check_step(self, owner: Function | ast.Module, step: ast.Call) -> None:
        statement = self.file.statement(step)
        if step.args or step.keywords:
            raise RefusalError(step, _CLOSURE)
        if self.facts.is_wrapper(step.func.value):  # type: ignore[attr-defined]
            raise RefusalError(step, _WRAPPED)
        if not isinstance(statement, ast.Expr):
            raise RefusalError(step, "what `step()` returns is used, and a scaler's step returns None where it skips")
        if not self._has_backward_before(owner, statement):
            self._check_callers(owner, step)
        self._unscale(step, statement)

    def _loop_of_iteration(self, step: ast.Call) -> ast.stmt | None:
        """The loop whose round is one iteration of training: one over optimizers is not, nor are other loops that
        only step."""
        statement = self.file.statement(step)
        for loop in (s for s in chain(self.file, statement)[1:] if isinstance(s, LOOPS)):
            if any(self._is_sink(s) for s in statements_in(loop)):
                return loop
            if not is_over(loop, step):
                raise RefusalError(
                    step, "the optimizer is stepped in a loop of its own, so that one update has no place"
                )
        return None

    def _is_sink(self, statement: ast.stmt) -> bool:
        """Whether a statement itself, not what its blocks hold, goes backward."""
        if blocks(statement):
            return False
        return any(self._goes_backward(node) for node in walk(statement))

    def _goes_backward(self, node: ast.AST) -> bool:
        if not isinstance(node, ast.Call):
            return False
        return node in self.facts.backwards or any(
            f in self._backward_functions for f in self.file.values.functions(node)
        )

    def _surely_backward(self, statement: ast.stmt) -> bool:
        """Whether a statement goes backward whenever it runs; a loop is taken to run at least once."""
        if isinstance(statement, ast.If):
            return bool(statement.orelse) and all(any(self._surely_backward(s) for s in b) for b in blocks(statement))
        if isinstance(statement, (ast.With, ast.AsyncWith, *LOOPS)):
            return any(self._surely_backward(s) for s in statement.body)
        if isinstance(statement, ast.Try):
            return any(self._surely_backward(s) for s in statement.body)
        return self._is_sink(statement)

    def _has_backward_before(self, owner: Function | ast.Module, statement: ast.stmt) -> bool:
        """Whether every way to a step passes a backward in the same iteration, and gradients are not reset between."""
        loop = self._training_loop(statement)
        for current in chain(self.file, statement):
            if current is loop:
                break
            block = siblings(self.file, current)
            parent = self.file.parent(current)
            tried = parent.body if isinstance(parent, ast.Try) and current in parent.orelse else []
            for earlier in reversed([*tried, *block[: block.index(current)]]):
                if self._surely_backward(earlier):
                    self._check_leftover(earlier, statement, current)
                    return True
                if surely_resets(self.facts, earlier, statement):
                    return False
            around = self.file.parent(current)
            body = around.body if isinstance(around, ast.Try) and block is around.orelse else []
            if any(self._surely_backward(s) for s in body):
                return True  # the else of a try runs behind its body
        return False

    def _check_leftover(self, earlier: ast.stmt, statement: ast.stmt, current: ast.stmt) -> None:
        """A loop that steps itself may leave no gradients for a step behind it, and `GradScaler.step` raises then."""
        if not isinstance(earlier, LOOPS) or not any(self._takes_step(node) for node in walk(earlier)):
            return
        around = chain(self.file, statement)
        if not any(isinstance(s, ast.If) for s in around[: around.index(current) + 1]):
            raise RefusalError(
                statement,
                "the loop before has stepped already, and a scaler's step without gradients left is an error; "
                "put this step under a condition that some are left",
            )

    def _takes_step(self, node: ast.AST) -> bool:
        if not isinstance(node, ast.Call):
            return False
        return node in self.facts.steps or any(f in self._step_functions for f in self.file.values.functions(node))

    def _training_loop(self, statement: ast.stmt) -> ast.stmt | None:
        loop = loop_of(self.file, statement)
        while loop is not None and not any(self._is_sink(s) for s in statements_in(loop)):
            loop = loop_of(self.file, loop)
        return loop

    def _check_callers(self, owner: Function | ast.Module, step: ast.Call, depth: int = 0) -> None:
        """A helper that only steps must be called after a backward wherever it is called."""
        calls = self.file.values.calls(owner) if isinstance(owner, FUNCTIONS) else ()
        if not calls or owner in self._backward_functions or depth > _DEPTH:
            raise RefusalError(step, "no backward() comes before this step on every path of an iteration")
        for call in calls:
            caller = owner_of(self.file, call)
            if self._has_backward_before(caller, self.file.statement(call)):
                continue
            if isinstance(caller, ast.Module) or caller in self._backward_functions:
                raise RefusalError(
                    call, "the optimizer is stepped here and no backward() comes before it on every path"
                )
            self._check_callers(caller, step, depth + 1)

    # -- updates ------------------------------------------------------------------------------------------------------

    def _updates(self, block: list[ast.stmt], steps: list[ast.Call], scaler: str) -> None:
        """Put one update behind the last step of a block, or one into each branch where no step is sure to run."""
        items: dict[int, list[ast.Call]] = {}
        for step in steps:
            member = lift(self.file, self.file.statement(step), block)
            assert member is not None
            items.setdefault(block.index(member), []).append(step)
        for index in [i for i in items if len(items) > 1 and is_leaving_branch(block[i])]:
            self._update_in(block[index], items.pop(index), scaler)  # an iteration of its own, such as a warm-up
        sure = [i for i in items if self._surely_steps(block[i], items[i])]
        optimizers = [self._identity(step) for group in items.values() for step in group]
        repeated = len(set(optimizers)) < len(optimizers) and len(items) > 1
        if len(items) == 1:
            ((index, group),) = items.items()
            self._update_in(block[index], group, scaler)
        elif sure and not repeated:
            self._check_way(block, min(items), max(items), steps, scaler)
            self._update(block[max(items)], steps, scaler)
        else:
            for segment in self._segments(block, sorted(items)):
                groups = [items[index] for index in segment]
                names = [self._identity(step) for group in groups for step in group]
                if len(segment) == 1:
                    self._update_in(block[segment[0]], groups[0], scaler)
                elif all(index in sure for index in segment) and len(set(names)) == len(names):
                    every = [step for steps in groups for step in steps]
                    self._check_way(block, segment[0], segment[-1], every, scaler)
                    self._update(block[segment[-1]], every, scaler)
                else:
                    raise RefusalError(
                        groups[0][0], "several steps share a backward, and which of them run can't be told"
                    )

    def _segments(self, block: list[ast.stmt], indices: list[int]) -> list[list[int]]:
        """The statements that step, in groups with a backward of their own; gradients are reset between groups."""
        segments = [[indices[0]]]
        for before, index in pairwise(indices):
            between = block[before + 1 : index]
            if not any(self._surely_backward(s) for s in between) and not self._own(block[index]):
                segments[-1].append(index)
                continue
            around = [*between, block[index]]
            ends = [inner[-1] for inner in blocks(block[before])]
            if any(isinstance(end, (ast.Continue, ast.Return, ast.Break)) for end in ends):
                segments.append([index])  # the iteration ends with the first step, or there was none
                continue
            if not any(self.facts.resets(node) for s in around for node in walk(s)):
                raise RefusalError(block[index], "gradients of one step may be left over here when the scale changes")
            segments.append([index])
        return segments

    def _update_in(self, member: ast.stmt, group: list[ast.Call], scaler: str) -> None:
        sure = isinstance(member, LOOPS) or self._is_guard(member, group)
        if isinstance(member, ast.Expr) or (sure and self._surely_steps(member, group)):
            self._update(member, group, scaler)
            return
        for block in blocks(member):
            inside = [s for s in group if lift(self.file, self.file.statement(s), block) is not None]
            if inside:
                self._updates(block, inside, scaler)

    def _update(self, member: ast.stmt, steps: list[ast.Call], scaler: str) -> None:
        self.plan.updated[member] = [step.func.value for step in steps]  # type: ignore[attr-defined]
        self.editor.insert_after(member, f"{scaler}.update()")

    def _update_before(self, end: ast.stmt, optimizers: list[ast.expr], scaler: str) -> None:
        """Update before a statement that ends the iteration early."""
        if end not in self.plan.closed:
            self.editor.insert_before(end, f"{scaler}.update()")
        self.plan.closed.setdefault(end, []).extend(optimizers)

    def _is_guard(self, member: ast.stmt, group: list[ast.Call]) -> bool:
        """Whether a statement is a condition before which the optimizers of all its steps were unscaled."""
        return all(step in self._guarded.get(member, ()) for step in group)

    def _own(self, member: ast.stmt) -> bool:
        """Whether every step inside a compound statement has its backward inside too."""
        return bool(blocks(member)) and any(self._is_sink(s) for s in statements_in(member))

    def _surely_steps(self, member: ast.stmt, group: list[ast.Call]) -> bool:
        """Whether a step runs whenever a statement does: it is the statement, or a loop over optimizers."""
        if isinstance(member, ast.Expr) or self._is_guard(member, group):
            return True  # what was unscaled is updated, stepped or not
        if isinstance(member, (ast.With, ast.AsyncWith)):
            return any(self._surely_steps(s, group) for s in member.body if any(n in group for n in walk(s)))
        return isinstance(member, ast.For) and all(is_over(member, step) for step in group)

    @staticmethod
    def _identity(step: ast.Call) -> str:
        return ast.dump(step.func.value)  # type: ignore[attr-defined]

    def _check_way(self, block: list[ast.stmt], first: int, last: int, steps: list[ast.Call], scaler: str) -> None:
        """Where the iteration may end between the first step and the update, the scaler is updated there too."""
        for statement in block[first : last + 1]:
            for node in walk(statement):
                if not isinstance(node, (ast.Continue, ast.Break, ast.Return)) or inside_own_loop(statement, node):
                    continue
                if node in self.plan.closed:
                    continue
                done = [step for step in steps if position(step) < position(node)]
                if statement is block[first] or not self._surely_steps(block[first], done):
                    raise RefusalError(
                        node, "the iteration can end here between two steps, before the scaler is updated"
                    )
                self._update_before(node, [step.func.value for step in done], scaler)  # type: ignore[attr-defined]

    # -- gradients ----------------------------------------------------------------------------------------------------

    def _unscale(self, step: ast.Call, statement: ast.stmt) -> None:
        """Unscale the optimizer's gradients before the first use of gradients that leads to a step."""
        optimizer = step.func.value  # type: ignore[attr-defined]
        if (place := self.conditional.place(step, self.steps_of[owner_of(self.file, step)])) is not None:
            if ast.dump(optimizer) not in map(ast.dump, self.plan.unscaled.get(place, ())):
                self._write_unscale(place, optimizer, statement)
            return
        block, at = self.places.of(statement)
        used = self.places.used(block, at)
        if used is None:
            return
        members = block[block.index(used) : block.index(at)]
        if any(self._surely_backward(s) or any(self._goes_backward(n) for n in walk(s)) for s in members):
            raise RefusalError(
                used, "gradients are used before the last backward of the iteration, where they are still scaled"
            )
        ends = self.places.leaving(members, at)
        if not concerns(
            self.facts, [*members, *([at] if used is at else [])], step, self.steps_of[owner_of(self.file, step)]
        ):
            return
        if isinstance(at, ast.If):
            self._guarded.setdefault(at, []).append(step)
        for end in ends:
            self._update_before(end, [optimizer], self.scalers.text_for([optimizer], statement))
        if self.facts.iterated(optimizer) is not None and at is not statement:
            scaler, receiver = self.scalers.text_for([optimizer], statement), self.file.segment(optimizer)
            self.plan.unscaled.setdefault(used, []).append(optimizer)
            target = self.file.segment(at.target) if isinstance(at, ast.For) else ""
            source = self.file.segment(at.iter) if isinstance(at, ast.For) else ""
            unit = self.editor.unit(self.file.indentation(used))
            self.editor.insert_before(used, f"for {target} in {source}:\n{unit}{scaler}.unscale_({receiver})")
        else:
            self._write_unscale(used, optimizer, statement)

    def _write_unscale(self, used: ast.stmt, optimizer: ast.expr, statement: ast.stmt) -> None:
        """Unscale an optimizer before a statement that uses gradients; `statement` steps it."""
        scaler = self.scalers.text_for([optimizer], statement)
        self.plan.unscaled.setdefault(used, []).append(optimizer)
        self.editor.insert_before(used, f"{scaler}.unscale_({self.file.segment(optimizer)})")

    def _check_gradient_uses(self) -> None:
        """Every use of gradients must be of unscaled ones: behind the backward, in a block that leads to a step."""
        own = self.facts.is_step_of_optimizer
        for owner in (self.file.tree, *(f for f in self.facts.functions if not own(f))):
            if owner in self.facts.gradient_readers:
                called = isinstance(owner, ast.Module) or self.file.values.calls(owner)
                if not called and not is_unused(self.file, owner):
                    raise RefusalError(owner, f"`{owner.name}` uses gradients, and where it is called can't be seen")
                continue
            for statement in statements_in(owner):
                nodes = list(header(statement) if blocks(statement) else walk(statement))
                uses = any(self.facts.uses_gradient(n) for n in nodes)
                if not uses and not self.strangers.meets(statement, nodes):
                    continue
                if not (self._is_covered(owner, statement) or self._unscale_for_caller(owner, statement)):
                    reason = "gradients are used here where they may still be scaled" if uses else self.strangers.REASON
                    raise RefusalError(statement, reason)
                steps = self.steps_of.get(owner, [])
                sinks = [s for s in statements_in(owner) if self._is_sink(s)] if len(steps) > 1 else []
                if sinks and meets_scaled(self.facts, self.plan, statement, steps, sinks):
                    raise RefusalError(
                        statement, "gradients are used here of an optimizer that is unscaled only where it steps, later"
                    )

    def _unscale_for_caller(self, owner: ast.AST, statement: ast.stmt) -> bool:
        """Unscale before gradients are used behind the backward of a helper, whose callers step one optimizer."""
        around = [s for s in chain(self.file, statement) if owner not in self.steps_of]
        for current in around:
            block = siblings(self.file, current)
            before, behind = block[: block.index(current)], block[block.index(current) + 1 :]
            steps_here = any(self._takes_step(node) for s in behind for node in walk(s))
            if not any(self._is_sink(s) for s in before) and not (
                steps_here and self._has_backward_before(owner_of(self.file, statement), current)
            ):
                continue
            optimizer = self.in_view.only(statement)
            if optimizer is not None and not any(used in self.plan.unscaled for used in (*before, current)):
                scaler = self.scalers.text_for([optimizer], statement)
                self.plan.unscaled[current] = [optimizer]
                inner = ".".join(filter(None, (path_of(optimizer), self.facts.wrappers.attribute(optimizer))))
                self.editor.insert_before(current, f"{scaler}.unscale_({inner})")
            return optimizer is not None
        return False

    def _is_covered(self, owner: ast.AST, statement: ast.stmt) -> bool:
        steps = self.steps_of.get(owner, [])  # type: ignore[call-overload]
        if statement in self.conditional.covered or (steps and all(self._is_after(s, statement) for s in steps)):
            return True
        for step in steps:
            block, at = self.places.of(self.file.statement(step))
            member = lift(self.file, statement, block)
            used = self.places.used(block, at)
            last = block.index(at) - (0 if isinstance(at, ast.If) else 1)
            if member is not None and used is not None and block.index(used) <= block.index(member) <= last:
                return True
        return False

    def _is_after(self, step: ast.Call, statement: ast.stmt) -> bool:
        """Whether gradients are used behind a step, which has unscaled them, and before the next backward."""
        block, at = self.places.of(self.file.statement(step))
        member = lift(self.file, statement, block)
        if member is None or block.index(member) <= block.index(at):
            return False
        between = block[block.index(at) + 1 : block.index(member) + 1]
        return not any(self._goes_backward(node) for other in between for node in walk(other))

    # -- backward -----------------------------------------------------------------------------------------------------

    def _backward(self, call: ast.Call) -> None:
        scaler = self.scalers.text_for(self.in_view.at(call), self.file.statement(call))
        bound = any(sink.call is call and sink.direct for sink in self.sinks.all)
        graph = self.sinks.graph(owner_of(self.file, call))
        write_backward(self.facts, graph, self.editor, call, scaler, self.bound.get(call, "") if bound else "")
