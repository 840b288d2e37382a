"""The autocast regions that are active in each thread, and a tally of all that were entered."""

from __future__ import annotations

import threading
from typing import Any

from amplint.runtime.places import Place
from amplint.runtime.results import RegionReport
from amplint.runtime.tracking import Tracker


class _Active:
    __slots__ = ("instance", "place", "stepped_at")

    def __init__(self, instance: Any, place: Place) -> None:
        self.instance = instance
        self.place = place
        self.stepped_at: Place | None = None


class Regions:
    """Follows the regions; an autocast object entered twice or left out of order is a violation."""

    def __init__(self, tracker: Tracker) -> None:
        self._tracker = tracker
        self.open = 0
        """How many regions are active in all threads together."""
        self._threads = threading.local()
        self._entered: dict[int, int] = {}
        self._tally: dict[tuple[Place, str, Any, bool], int] = {}

    def enter(self, instance: Any, place: Place, counts: bool) -> None:
        """An autocast object was entered; one that torch enters itself in a backward does not count."""
        number = id(instance)
        entered = self._entered
        if number in entered:
            self._tracker.begin()
            self._tracker.report("autocast-reentered", place)
            entered[number] += 1
        else:
            entered[number] = 1
        self.open += 1
        try:
            stack = self._threads.stack
        except AttributeError:
            stack = self._stack()
        stack.append(_Active(instance, place))
        if counts:
            key = (place, instance.device, instance.fast_dtype, instance._enabled)
            self._tally[key] = self._tally.get(key, 0) + 1

    def leave(self, instance: Any) -> None:
        """An autocast object was left."""
        times = self._entered.pop(id(instance), 0)
        if times > 1:
            self._entered[id(instance)] = times - 1
        try:
            stack = self._threads.stack
        except AttributeError:
            stack = self._stack()
        if stack and stack[-1].instance is instance:
            stack.pop()
            self.open -= 1
            return
        for index in range(len(stack) - 1, -1, -1):
            if stack[index].instance is instance:
                self._tracker.begin()
                self._tracker.report("autocast-around-yield", stack[index].place, stack[-1].place)
                del stack[index]
                self.open -= 1
                return

    def active(self) -> Place | None:
        """Where the region was entered that makes autocast active now, None if it is not."""
        stack = self._stack()
        if not stack:
            return None
        inmost = {region.instance.device: region for region in stack}
        return next((region.place for region in reversed(inmost.values()) if region.instance._enabled), None)

    def step(self, place: Place) -> None:
        """An optimizer stepped: a forward that follows in this region gets the old weights."""
        if not self.open:
            return
        stack = self._stack()
        if stack and stack[-1].instance._cache_enabled and self.active() is not None:
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
        regions = [
            RegionReport(place, device, str(dtype).removeprefix("torch."), enabled, entries)
            for (place, device, dtype, enabled), entries in self._tally.items()
        ]
        return tuple(sorted(regions))

    def _stack(self) -> list[_Active]:
        stack: list[_Active] | None = getattr(self._threads, "stack", None)
        if stack is None:
            stack = self._threads.stack = []
        return stack
