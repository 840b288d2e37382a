"""Optimizers that step under a condition, and whose gradients are used before it: where they are unscaled."""

from __future__ import annotations

import ast
from collections.abc import Callable
from typing import TYPE_CHECKING

from amplint.migrate.facts import Facts
from amplint.migrate.gradients.conditions import plain
from amplint.migrate.gradients.optimizers import concerns
from amplint.migrate.model import RefusalError
from amplint.migrate.tree import (
    LOOPS,
    blocks,
    chain,
    header,
    inside_own_loop,
    is_none,
    lift,
    statements_in,
    walk,
)
from amplint.rewrite.statements import siblings

if TYPE_CHECKING:
    from amplint.source import SourceFile

_MISSING = (
    "gradients are used here of an optimizer that may not have been made, and nothing would unscale them then; "
    "use them under the condition under which it steps"
)


def _check_way(members: list[ast.stmt]) -> None:
    """Raise `RefusalError` where statements between unscaling and a step may end the iteration, or stop for infinite
    gradients."""
    for member in members:
        for node in walk(member):
            leaves = isinstance(node, (ast.Continue, ast.Break, ast.Return, ast.Raise))
            if leaves and not inside_own_loop(member, node):
                raise RefusalError(node, "the iteration can end here between unscaling and the step")
            if isinstance(node, ast.Call) and any(keyword.arg == "error_if_nonfinite" for keyword in node.keywords):
                raise RefusalError(node, "infinite gradients raise here, and a scaler meets them as a matter of course")


class ConditionalSteps:
    """Finds the places; `uses` says whether a node uses gradients, `goes_backward` whether it makes them."""

    def __init__(self, facts: Facts, uses: Callable[[ast.AST], bool], goes_backward: Callable[[ast.AST], bool]) -> None:
        self.facts = facts
        self.file: SourceFile = facts.file
        self._uses = uses
        self._goes_backward = goes_backward
        self.covered: set[ast.stmt] = set()
        """The statements that use gradients of such an optimizer, which is unscaled before them."""

    def place(self, step: ast.Call, steps: list[ast.Call]) -> ast.stmt | None:
        """The statement before which the optimizer of a step is unscaled, in the arm of the condition of the step that
        uses its gradients first. None where they are not used, or not under that; `steps` are those of the function.

        Raises `RefusalError` where the optimizer may be missing and its gradients are used without asking.
        """
        way = self._way(self.file.statement(step))
        if way is None:
            return None
        members, guards = way
        used = [u for u in self._users(members) if self._is_of(u, step, steps)]
        if not used:
            return None
        arms = [self._arm(u, guards) for u in used]
        if not all(arms):
            if self._may_be_missing(step.func.value, guards):  # type: ignore[attr-defined]
                raise RefusalError(used[arms.index(None)], _MISSING)
            return None
        _check_way(members[next(i for i, m in enumerate(members) if used[0] in (m, *statements_in(m))) :])
        self.covered.update(used)
        return lift(self.file, used[0], arms[0] or [])

    def _way(self, statement: ast.stmt) -> tuple[list[ast.stmt], set[tuple[str, bool]]] | None:
        """The statements behind the last backward and before a step in the block of that, and the conditions around the
        step; None where there are none, or where the step stands in a loop of its own."""
        guards: set[tuple[str, bool]] = set()
        for current in chain(self.file, statement):
            block = siblings(self.file, current)
            before = block[: block.index(current)]
            sinks = [i for i, s in enumerate(before) if any(self._goes_backward(node) for node in walk(s))]
            if sinks:
                return (before[sinks[-1] + 1 :], guards) if guards else None
            around = self.file.parent(current)
            if isinstance(around, LOOPS):
                return None
            if isinstance(around, ast.If):
                text, holds = plain(self.facts, around.test)
                guards.add((text, holds == (block is around.body)))
        return None

    def _users(self, members: list[ast.stmt]) -> list[ast.stmt]:
        """The statements that use gradients, those in blocks by themselves, in the order of the text."""
        found = []
        for member in members:
            for statement in [member, *statements_in(member)]:
                nodes = header(statement) if blocks(statement) else walk(statement)
                if any(self._uses(node) for node in nodes):
                    found.append(statement)
        return found

    def _is_of(self, user: ast.stmt, step: ast.Call, steps: list[ast.Call]) -> bool:
        """Whether a statement may use gradients of a step's optimizer: it names that, or none and not only others'."""
        around = [s for s in chain(self.file, user) if isinstance(s, ast.For)]
        whole = next((s for s in reversed(around) if not any(self._goes_backward(n) for n in walk(s))), user)
        receivers = {ast.dump(other.func.value) for other in steps}  # type: ignore[attr-defined]
        named = {ast.dump(node) for node in walk(whole) if isinstance(node, ast.expr)} & receivers
        if named:
            return ast.dump(step.func.value) in named  # type: ignore[attr-defined]
        return concerns(self.facts, [whole], step, steps)

    def _arm(self, user: ast.stmt, guards: set[tuple[str, bool]]) -> list[ast.stmt] | None:
        """The arm of a condition around a statement that is also one around the step."""
        for current in chain(self.file, user):
            around = self.file.parent(current)
            if isinstance(around, ast.If):
                block = siblings(self.file, current)
                text, holds = plain(self.facts, around.test)
                if (text, holds == (block is around.body)) in guards:
                    return block
        return None

    def _may_be_missing(self, optimizer: ast.expr, guards: set[tuple[str, bool]]) -> bool:
        """Whether an optimizer may be None, or is made under a condition under which it steps."""
        texts = {text for text, _ in guards}
        if f"{ast.unparse(optimizer)} is not None" in texts:
            return True
        for value in self.file.values.of(optimizer):
            if isinstance(value, ast.expr) and is_none(value):
                return True
            around = chain(self.file, self.file.statement(value)) if isinstance(value, ast.Call) else []
            if any(isinstance(s, ast.If) and plain(self.facts, s.test)[0] in texts for s in around):
                return True
        return False
