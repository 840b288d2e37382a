"""In which stage the gradients of an optimizer may be, and how the ways of a program meet."""

from __future__ import annotations

import ast
from itertools import chain
from typing import NamedTuple

from amplint.migrate.gradients.ownership import Model, Optimizer

NONE, SCALED, UNSCALED, SPOILT, TWICE = "none", "scaled", "unscaled", "spoilt", "unscaled twice"
READY, OPEN, STEPPED = "ready", "unscaled by hand", "stepped"

Stage = tuple[str, str]
_START: frozenset[Stage] = frozenset(((NONE, READY),))
NOTHING: frozenset[bool] = frozenset((False,))


class Plan(NamedTuple):
    """What is written: optimizers that are unscaled before a statement, those whose scaler is updated behind one, and
    those whose scaler is updated before one that ends the iteration."""

    unscaled: dict[ast.stmt, list[ast.expr]]
    updated: dict[ast.stmt, list[ast.expr]]
    closed: dict[ast.stmt, list[ast.expr]]


class State:
    """What may be true at a place: the stages of each optimizer, and whether each scaler has seen a step.

    `cleared` are the models whose gradients were reset since anything went backward.
    """

    __slots__ = ("cleared", "seen", "stages")

    def __init__(
        self,
        stages: dict[Optimizer, frozenset[Stage]] | None = None,
        seen: dict[ast.AST | None, frozenset[bool]] | None = None,
        cleared: frozenset[Model] = frozenset(),
    ) -> None:
        self.stages = dict(stages or {})
        self.seen = dict(seen or {})
        self.cleared = cleared

    def copy(self) -> State:
        """A state of its own."""
        return State(self.stages, self.seen, self.cleared)

    def of(self, optimizer: Optimizer) -> frozenset[Stage]:
        """The stages that an optimizer may be in."""
        return self.stages.get(optimizer, _START)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, State):
            return False
        return (self.stages, self.seen, self.cleared) == (other.stages, other.seen, other.cleared)

    __hash__ = None  # type: ignore[assignment]


class Flow(NamedTuple):
    """The states in which a block is left, by the way it is left; None where it is not left that way."""

    ends: State | None
    breaks: State | None = None
    continues: State | None = None
    returns: State | None = None


def join(*states: State | None) -> State | None:
    """What may be true where several ways meet."""
    given = [state for state in states if state is not None]
    if not given:
        return None
    found = State(cleared=frozenset.intersection(*(state.cleared for state in given)))
    for optimizer in chain.from_iterable(state.stages for state in given):
        if optimizer not in found.stages:
            found.stages[optimizer] = frozenset().union(*(state.of(optimizer) for state in given))
    for scaler in chain.from_iterable(state.seen for state in given):
        if scaler not in found.seen:
            found.seen[scaler] = frozenset().union(*(state.seen.get(scaler, NOTHING) for state in given))
    return found


def met(flows: list[Flow]) -> Flow:
    """Where ways through several blocks lead."""
    return Flow(
        join(*(flow.ends for flow in flows)),
        join(*(flow.breaks for flow in flows)),
        join(*(flow.continues for flow in flows)),
        join(*(flow.returns for flow in flows)),
    )


def never_stepped(state: State) -> State:
    """A state without the stages behind a step."""
    stages = {o: frozenset(s for s in found if s[0] != UNSCALED) for o, found in state.stages.items()}
    return State({o: found for o, found in stages.items() if found}, state.seen)
