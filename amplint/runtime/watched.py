"""What the monitor knows of the scalers and optimizers of the process: the state that all its hooks share."""

from __future__ import annotations

import threading
from collections.abc import Callable
from threading import get_ident
from typing import Any

import torch

from amplint.runtime.gradients import GradientCounter
from amplint.runtime.optimizers import WatchedOptimizer
from amplint.runtime.places import UNKNOWN_PLACE, Place
from amplint.runtime.regions import Regions
from amplint.runtime.registry import Registry
from amplint.runtime.results import BackwardReport, ScalerReport
from amplint.runtime.scalers import WatchedScaler
from amplint.runtime.tracking import Tracker

Function = Callable[..., Any]


class Watched:
    """The automata of all scalers and optimizers, the autocast regions, and the counters."""

    def __init__(self, gradients: GradientCounter | None) -> None:
        self.tracker = Tracker()
        self.regions = Regions(self.tracker)
        self.counter = gradients
        self.plain_steps = 0
        self.low_precision: bool | None = None
        self._scalers: Registry[WatchedScaler | None] = Registry()  # None: switched off
        self._all_scalers: list[WatchedScaler | ScalerReport] = []
        self._optimizers: Registry[WatchedOptimizer] = Registry()
        self._enabled = 0  # scalers that are not switched off
        self._backwards = {"scaled": 0, "plain": 0, "mixed": 0, "unknown": 0, "in autocast": 0}
        self._in_backward = False
        self._stepping: Any = None  # the optimizer that a scaler steps now
        self._stepped = False
        self._busy: int | None = None  # the thread that is in a backward or a scaler's step
        self._several_threads = False  # have trained at the same time
        self._scaled_now: list[WatchedOptimizer] = []  # whose gradients must not be read now; always this list

    def backward_report(self) -> BackwardReport:
        """The calls of backward()."""
        counts = self._backwards
        plain = counts["plain"] + counts["unknown"]
        return BackwardReport(counts["scaled"], plain, counts["mixed"], counts["in autocast"])

    def scaler_reports(self) -> tuple[ScalerReport, ...]:
        """All scalers in the order in which they were met."""
        return tuple(each if isinstance(each, ScalerReport) else each.report() for each in self._all_scalers)

    def watch_scaler(self, scaler: Any, made_at: Place | None = None) -> WatchedScaler | None:
        """The automata of a scaler, None if it is switched off."""
        entry = self._scalers.entries.get(id(scaler))
        if entry is not None:
            return entry[1]
        known: WatchedScaler | None = None
        name = type(scaler).__name__
        if scaler._enabled:
            known = WatchedScaler(scaler, made_at)
            self._enabled += 1
        self._scalers.add(scaler, known)
        off = ScalerReport(made_at or UNKNOWN_PLACE, name, False, "", 0, 0, 0, 0, ())
        self._all_scalers.append(off if known is None else known)
        return known

    def watch_optimizer(self, optimizer: Any) -> WatchedOptimizer:
        """The automata of an optimizer."""
        entry = self._optimizers.entries.get(id(optimizer))
        if entry is not None:
            return entry[1]
        watched = WatchedOptimizer(optimizer)
        for other in self._optimizers.values:
            if watched.ids and (other.ids <= watched.ids or watched.ids <= other.ids):
                watched.aliases.append(other)
                other.aliases.append(watched)
        self._optimizers.add(optimizer, watched)
        return watched

    def _watch_threads(self) -> None:
        """Give up where two threads train at the same time: whose gradients are whose can't be told.

        Nor may gradients be looked at any more: another thread's backward writes them without holding the GIL.
        """
        if self._busy is None or self._busy == get_ident():
            return
        own = {thread.ident for thread in threading.enumerate() if not thread.name.startswith("Dummy")}
        if get_ident() in own:  # others belong to torch, and work for the thread that is busy
            self._several_threads = True
            for scaler in self._scalers.values:
                if scaler is not None:
                    self.tracker.give_up(scaler, "several threads train at the same time")

    def _run(self, original: Function, *args: Any, **kwargs: Any) -> Any:
        try:
            return original(*args, **kwargs)
        except BaseException:
            self.tracker.raised()
            raise

    @staticmethod
    def _distributed() -> bool:
        """Whether other processes take part, to which no call must go that they don't make, too."""
        return torch.distributed.is_available() and torch.distributed.is_initialized()

    def _scales(self) -> list[float]:
        scales = [each.scale_now for each in self._scalers.values if each is not None]
        return [scale for scale in scales if scale != 1.0]

    def _look_again(self) -> None:
        """Find out anew whose gradients must not be read."""
        self._scaled_now[:] = [each for each in self._optimizers.values if each.gradients == "scaled"]


def found_inf(scaler: Any, optimizer: Any) -> list[torch.Tensor]:
    """What the scaler's checks of this optimizer's gradients found, one value a device, not 0 for inf and nan."""
    return list(scaler._per_optimizer_states[id(optimizer)]["found_inf_per_device"].values())
