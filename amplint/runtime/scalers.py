"""What the monitor asks real scalers: their state when it first meets them, skipped steps, the history of the scale."""

from __future__ import annotations

from typing import Any

import torch

from amplint.runtime.places import UNKNOWN_PLACE, Place
from amplint.runtime.results import ScaleChange, ScalerReport
from amplint.runtime.tracking import TrackedScaler

METHODS = ("scale", "unscale_", "step", "update")

_SHARDED = "torch.distributed.fsdp.sharded_grad_scaler"
"""The module of the one scaler of torch's own for which no gradients are none of its errors: other ranks have some."""

_AT_ONCE = 256
"""How many values stay on a device before they are read together: each reading waits for the device."""


def scaler_class() -> Any:
    """The base of all scalers: `torch.amp.GradScaler`, before torch 2.3 the one of `torch.cuda.amp`."""
    return getattr(torch.amp, "GradScaler", None) or torch.cuda.amp.GradScaler


class WatchedScaler(TrackedScaler):
    """A `TrackedScaler` that counts skipped steps and follows the scale. Only for scalers that are enabled."""

    def __init__(self, scaler: Any, made_at: Place | None) -> None:
        scale = "unset" if getattr(scaler, "_scale", None) is None else "set"
        states = getattr(scaler, "_per_optimizer_states", {})
        checks = "some" if any(state["found_inf_per_device"] for state in states.values()) else "none"
        super().__init__(scale, checks, made_at)
        self.name = type(scaler).__name__
        self.needs_gradients = all(kind.__module__ != _SHARDED for kind in type(scaler).__mro__)
        self.asked_for_scale = False
        self._skipped = 0
        self._overflows: list[list[torch.Tensor]] = []
        self._history = [ScaleChange(0, float(scaler._init_scale if scale == "unset" else scaler._scale))]
        self._scales: list[tuple[int, torch.Tensor]] = []

    def note_step(self, skipped: bool) -> None:
        """A step that came to its end."""
        self.steps += 1
        self._skipped += skipped

    def note_fused_step(self, found_inf: list[torch.Tensor]) -> None:
        """A step of an optimizer that looks itself whether one of `found_inf` (one a device) is not 0."""
        self.steps += 1
        self._overflows.append(found_inf)
        if len(self._overflows) >= _AT_ONCE or not any(each.is_cuda for each in found_inf):
            self._settle()

    def note_scale(self, scaler: Any) -> None:
        """The scale after an update."""
        scale = scaler._scale
        if scale is None:
            return
        if not scale.is_cuda:
            value = scale.item()
            if value != self._history[-1].scale:
                self._history.append(ScaleChange(self.updates, value))
            return
        self._scales.append((self.updates, scale.detach().clone()))
        if len(self._scales) >= _AT_ONCE:
            self._settle()

    def report(self) -> ScalerReport:
        """What became of this scaler."""
        self._settle()
        place = self.made_at or UNKNOWN_PLACE
        return ScalerReport(
            place,
            self.name,
            True,
            self.unchecked,
            self.unscales,
            self.steps,
            self._skipped,
            self.updates,
            tuple(self._history),
        )

    @property
    def scale_now(self) -> float:
        """The scale after the last update, as far as it was read from the device."""
        self._settle()
        return self._history[-1].scale

    def _settle(self) -> None:
        self._skipped += sum(any(bool(each) for each in found) for found in self._overflows)
        self._overflows.clear()
        for update, tensor in self._scales:
            value = float(tensor)
            if value != self._history[-1].scale:
                self._history.append(ScaleChange(update, value))
        self._scales.clear()
