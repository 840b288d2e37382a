"""The autocast regions that are active in each thread, and a tally of all that were entered."""

from __future__ import annotations

import threading
from collections import Counter
from typing import Any

from amplint.runtime.places import Place
from amplint.runtime.results import RegionReport
from amplint.runtime.tracking import Tracker


class _Active:
    __slots__ = ("cached", "device", "enabled", "instance", "place", "stepped_at")

    def __init__(self, instance: Any, place: Place) -> None:
        self.instance = instance
        self.place = place
        self.device: str = instance.device
        self.enabled: bool = instance._enabled
        self.cached: bool = instance._cache_enabled
        self.stepped_at: Place | None = None


class Regions:
    """Follows the regions; an autocast object entered twice or left out of order is a violation."""

    def __init__(self, tracker: Tracker) -> None:
        self._tracker = tracker
        self._threads = threading.local()
        self._entered: Counter[int] = Counter()
        self._tally: Counter[tuple[Place, str, str, bool]] = Counter()

    def enter(self, instance: Any, place: Place, counts: bool) -> None:
        """An autocast object was entered; one that torch enters itself in a backward does not count."""
        active = _Active(instance, place)
        if self._entered[id(instance)]:
            self._tracker.begin()
            self._tracker.report("autocast-reentered", place)
        self._entered[id(instance)] += 1
        self._stack().append(active)
        if counts:
            dtype = str(instance.fast_dtype).removeprefix("torch.")
            self._tally[place, active.device, dtype, active.enabled] += 1

    def leave(self, instance: Any) -> None:
        """An autocast object was left."""
        if self._entered[id(instance)] > 1:
            self._entered[id(instance)] -= 1
        else:
            del self._entered[id(instance)]
        stack = self._stack()
        for index in range(len(stack) - 1, -1, -1):
            if stack[index].instance is instance:
                if index != len(stack) - 1:
                    self._tracker.begin()
                    self._tracker.report("autocast-around-yield", stack[index].place, stack[-1].place)
                del stack[index]
                return

    def active(self) -> Place | None:
        """Where the region was entered that makes autocast active now, None if it is not."""
        devices = set()
        for region in reversed(self._stack()):
            if region.device not in devices:
                devices.add(region.device)
                if region.enabled:
                    return region.place
        return None

    def step(self, place: Place) -> None:
        """An optimizer stepped: a forward that follows in this region gets the old weights."""
        stack = self._stack()
        if stack and stack[-1].cached and self.active() is not None:
            stack[0].stepped_at = place

    def backward(self, place: Place) -> bool:
        """A backward begins; whether that is under autocast."""
        entered_at = self.active()
        if entered_at is None:
            return False
        self._tracker.report("backward-in-autocast", place, entered_at)
        outermost = self._stack()[0]
        if outermost.stepped_at is not None:
            self._tracker.report("step-in-autocast", outermost.stepped_at, outermost.place)
        return True

    def any_enabled(self) -> bool:
        """Whether any region was ever on."""
        return any(enabled for _, _, _, enabled in self._tally)

    def report(self) -> tuple[RegionReport, ...]:
        """All regions by place."""
        return tuple(RegionReport(*region, entries) for region, entries in sorted(self._tally.items()))

    def _stack(self) -> list[_Active]:
        stack: list[_Active] | None = getattr(self._threads, "stack", None)
        if stack is None:
            stack = self._threads.stack = []
        return stack
