"""Summaries: what a call of one of the file's procedures does to a world, remembered for the next round of a loop.

A summary is exact: it belongs to one call, entered in one state. Helpers that are entered in another state, or from
another place, are interpreted anew, so that their places and guards keep their meaning.
"""

from __future__ import annotations

from typing import NamedTuple

from amplint.flow import ir
from amplint.flow.worlds import Stack, World, Worlds

Key = tuple[object, ...]


class Effect(NamedTuple):
    """What a call does: the worlds it leaves by returning, and those in which it may raise."""

    left: Worlds
    raised: Worlds


class Summaries:
    """The effects of calls, by call and by the state in which it is entered."""

    def __init__(self) -> None:
        self._effects: dict[Key, Effect] = {}

    @staticmethod
    def key(call: ir.Invoke, stack: Stack, alias: dict[str, str], world: World) -> Key:
        """What the effect of a call depends on: the place, what its parameters stand for, and the state."""
        return call.target, stack, frozenset(alias.items()), world.known()

    def find(self, key: Key) -> Effect | None:
        """The effect of a call, None where it has not been interpreted yet."""
        return self._effects.get(key)

    def keep(self, key: Key, effect: Effect) -> None:
        """Remember what a call did."""
        self._effects[key] = effect
