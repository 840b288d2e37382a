"""Worlds: what may be true at a point of a function, and how worlds merge.

A world holds the contents of the few cells that matter, the typestates, the guard facts assumed so far and the
autocast regions entered. Worlds that agree in all but facts merge and keep the facts that they share (property
simulation), so their number follows the number of typestates, not of paths.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from amplint.flow.protocol import UNKNOWN
from amplint.model import Span

MAX_WORLDS = 32

Stack = tuple[Span, ...]
"""The calls that lead from the root of an analysis to the running function, outermost first."""

Formula = tuple[object, ...]
"""A resolved condition: ("true",), ("false",), ("maybe",), ("atom", key), ("not", f) or ("and", f, g)."""

Abstract = tuple[object, ...]
"""The contents of a cell: ("object", id), ("off",), ("none",), ("unbound",), ("scaled", scaler), ("region", span,
formula or None), which keep worlds apart; ("bool", truth), ("null",) for a None that is no scaler, ("plain",),
("gradient",), ("when", formula), which do not.
"""

_KEPT_APART = frozenset({"object", "off", "none", "unbound", "scaled", "region"})

Key = tuple[str, ...]
"""A typestate's name: ("scale", scaler), ("checks", scaler), ("stage", scaler, optimizer), ("gradients", scaler,
optimizer), ("region", span), ("lap",).
"""


class Mark(NamedTuple):
    """Where something happened last; `old` once a loop has gone round since."""

    span: Span
    stack: Stack
    old: bool
    procedure: str


class Step(NamedTuple):
    """A decision on the way: which test had which truth, or which jump was taken."""

    span: Span
    text: str
    truth: bool
    stack: Stack


class Active(NamedTuple):
    """An autocast region that was entered; `on` is False for `autocast(enabled=False)`."""

    span: Span
    stack: Stack
    on: bool


class World:
    """One possible state; treated as a value: methods return changed copies."""

    __slots__ = ("_identity", "cells", "facts", "marks", "regions", "trail", "types")

    def __init__(
        self,
        cells: Mapping[str, Abstract],
        types: Mapping[Key, str],
        facts: frozenset[tuple[str, bool]] = frozenset(),
        regions: tuple[Active, ...] = (),
        marks: Mapping[Key, Mark] | None = None,
        trail: tuple[Step, ...] = (),
    ) -> None:
        self.cells = cells
        self.types = types
        self.facts = facts
        self.regions = regions
        self.marks: Mapping[Key, Mark] = {} if marks is None else marks
        self.trail = trail
        self._identity: tuple[object, ...] | None = None

    def copy(
        self,
        *,
        cells: Mapping[str, Abstract] | None = None,
        types: Mapping[Key, str] | None = None,
        facts: frozenset[tuple[str, bool]] | None = None,
        regions: tuple[Active, ...] | None = None,
        marks: Mapping[Key, Mark] | None = None,
        trail: tuple[Step, ...] | None = None,
    ) -> World:
        """The world with the given parts in place of its own."""
        return World(
            self.cells if cells is None else cells,
            self.types if types is None else types,
            self.facts if facts is None else facts,
            self.regions if regions is None else regions,
            self.marks if marks is None else marks,
            self.trail if trail is None else trail,
        )

    def typed(self, key: Key, state: str) -> World:
        """The world with one typestate set."""
        if self.types.get(key) == state:
            return self
        return self.copy(types={**self.types, key: state})

    def marked(self, key: Key, mark: Mark) -> World:
        """The world with one mark set."""
        return self.copy(marks={**self.marks, key: mark})

    def identity(self) -> tuple[object, ...]:
        """What two worlds must share to merge."""
        if self._identity is None:
            apart = frozenset(item for item in self.cells.items() if item[1][0] in _KEPT_APART)
            # Who is blamed for a missing update() must not depend on which of two arms came first.
            begun = [
                (key, mark.span)
                for key, mark in self.marks.items()
                if key[0] == "stage" and self.types.get(key) in ("stepped", "unscaled")
            ]
            self._identity = apart, frozenset(self.types.items()), self.regions, frozenset(begun)
        return self._identity

    def known(self) -> tuple[object, ...]:
        """All that a fixpoint compares."""
        return (*self.identity(), frozenset(self.cells.items()), self.facts)

    # -- typestates -------------------------------------------------------------------------------------------------

    def scalers(self) -> list[str]:
        """The scalers whose typestates are tracked."""
        return [key[1] for key in self.types if key[0] == "scale"]

    def optimizers(self, scaler: str) -> list[str]:
        """The optimizers that have typestates of their own with a scaler."""
        return [key[2] for key in self.types if key[0] == "gradients" and key[1] == scaler and key[2] != "*"]

    def state(self, table: str, scaler: str, optimizer: str = "") -> str:
        """A typestate; an optimizer that was not met before has that of `*`."""
        if not optimizer:
            return self.types.get((table, scaler), UNKNOWN)
        found = self.types.get((table, scaler, optimizer))
        return found if found is not None else self.types.get((table, scaler, "*"), UNKNOWN)

    def gradients(self, scaler: str) -> set[str]:
        """The states of the gradients of all optimizers met, or of any optimizer if none was."""
        known = {self.types["gradients", scaler, optimizer] for optimizer in self.optimizers(scaler)}
        return known or {self.state("gradients", scaler, "*")}

    def settled(self) -> World:
        """The world in which the only optimizer met stands for any other, so that worlds do not differ in both."""
        types: dict[Key, str] | None = None
        for scaler in self.scalers():
            met = self.optimizers(scaler)
            for table in ("stage", "gradients") if len(met) == 1 else ():
                state = self.types.get((table, scaler, met[0]))
                if state is not None and self.types.get((table, scaler, "*")) != state:
                    types = dict(self.types) if types is None else types
                    types[table, scaler, "*"] = state
        return self if types is None else self.copy(types=types)

    def apart(self, pairs: set[tuple[str, str]]) -> World:
        """The world without pairs of a scaler and an optimizer that never meet, where the optimizer has a scaler of its
        own: what its gradients are for the others decides nothing.
        """
        owned = {optimizer for _, optimizer in pairs}
        strange = {
            key
            for key in self.types
            if len(key) == 3 and key[2] in owned and (key[1], key[2]) not in pairs and key[0] in ("stage", "gradients")
        }
        if not strange:
            return self
        return self.copy(types={key: state for key, state in self.types.items() if key not in strange})

    def track(self, scaler: str, scale: str, stage: str, checks: str, gradients: str) -> World:
        """The world with a scaler in the given states, whatever was known of it before."""
        kept = {key: value for key, value in self.types.items() if len(key) < 2 or key[1] != scaler}
        kept["scale", scaler] = scale
        kept["checks", scaler] = checks
        kept["stage", scaler, "*"] = stage
        kept["gradients", scaler, "*"] = gradients
        return self.copy(types=kept)

    def forget(self, scaler: str) -> World:
        """The world without any state of a scaler (it is None or disabled here)."""
        if ("scale", scaler) not in self.types:
            return self
        return self.copy(types={key: v for key, v in self.types.items() if len(key) < 2 or key[1] != scaler})

    def doubt(self, scaler: str | None = None, optimizer: str | None = None) -> World:
        """The world with the states of a scaler, an optimizer or their pair unknown (of everything, if neither is
        given).
        """

        def meant(key: Key) -> bool:
            if key[0] not in ("scale", "checks", "stage", "gradients"):
                return False
            if scaler is not None and key[1] != scaler:
                return False
            return optimizer is None or (len(key) == 3 and key[2] == optimizer)

        types = {key: UNKNOWN if meant(key) else value for key, value in self.types.items()}
        if optimizer is not None:
            for known in [scaler] if scaler is not None else self.scalers():
                types["checks", known] = UNKNOWN
                types["stage", known, optimizer] = UNKNOWN
                types["gradients", known, optimizer] = UNKNOWN
        return self.copy(types=types)

    def round(self) -> World:
        """The world after a loop has gone round once more: what was marked is older than the iteration."""
        marks = {key: mark if mark.old else mark._replace(old=True) for key, mark in self.marks.items()}
        held = {value[1] for value in self.cells.values() if value[0] in ("object", "scaled")}
        types = {key: state for key, state in self.types.items() if not any(_lost(name, held) for name in key[1:])}
        types["lap",] = "later"
        return self.copy(types=types, marks=marks)


def _lost(name: str, held: set[object]) -> bool:
    """Whether an object was made here and nothing holds it any more."""
    return name.startswith("new@") and name not in held


Worlds = list[World]


def join(worlds: Iterable[World]) -> Worlds:
    """The worlds with those merged that agree in all that keeps worlds apart; what else differs is forgotten.

    Beyond `MAX_WORLDS`, one world that knows what all share.
    """
    groups: dict[tuple[object, ...], World] = {}
    for world in worlds:
        key = world.identity()
        other = groups.get(key)
        groups[key] = world if other is None else _merge(other, world)
    merged = list(groups.values())
    return merged if len(merged) <= MAX_WORLDS else [_blend(merged)]


def _merge(one: World, other: World) -> World:
    facts = one.facts if one.facts == other.facts else one.facts & other.facts
    cells = one.cells
    if cells != other.cells:
        cells = {path: value for path, value in cells.items() if other.cells.get(path) == value}
    if facts is one.facts and cells is one.cells:
        return one
    return one.copy(cells=cells, facts=facts)


def _blend(worlds: Worlds) -> World:
    first = worlds[0]
    cells = {path: value for path, value in first.cells.items() if all(w.cells.get(path) == value for w in worlds)}
    types: dict[Key, str] = {}
    for key in {key for world in worlds for key in world.types}:
        states = {world.types.get(key) for world in worlds}
        types[key] = (
            states.pop() or UNKNOWN if len(states) == 1 else first.types.get(key, "yes") if len(key) == 1 else UNKNOWN
        )
    facts = frozenset.intersection(*(world.facts for world in worlds))
    regions = first.regions if all(world.regions == first.regions for world in worlds) else ()
    return World(cells, types, facts, regions, first.marks, first.trail)


def view(worlds: Worlds) -> set[tuple[object, ...] | object]:
    """What a fixpoint compares."""
    return {world.known() for world in worlds}


def common(first: Stack, second: Stack) -> int:
    """How many calls two stacks share."""
    count = 0
    for one, other in zip(first, second, strict=False):
        if one != other:
            break
        count += 1
    return count
