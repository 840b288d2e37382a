"""Summaries: what a call of one of the file's procedures does to a world, remembered for the next round of a loop.

A summary is exact: it belongs to one call, entered in one state. Helpers that are entered in another state, or from
another place, are interpreted anew, so that their places and guards keep their meaning.
"""

from __future__ import annotations

from amplint.flow import ir
from amplint.flow.worlds import Stack, World, Worlds

Key = tuple[object, ...]


class Summaries:
    """The worlds that calls leave, by call and by the state in which it is entered."""

    def __init__(self) -> None:
        self._left: dict[Key, Worlds] = {}

    @staticmethod
    def key(call: ir.Invoke, stack: Stack, alias: dict[str, str], world: World) -> Key:
        """What the effect of a call depends on: the place, what its parameters stand for, and the state."""
        return call.target, stack, frozenset(alias.items()), world.known()

    def find(self, key: Key) -> Worlds | None:
        """The worlds that a call leaves, None where it has not been interpreted yet."""
        return self._left.get(key)

    def keep(self, key: Key, left: Worlds) -> None:
        """Remember what a call left."""
        self._left[key] = left
