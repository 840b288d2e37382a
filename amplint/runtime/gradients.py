"""How many values of gradients are 0, close to it, or not finite; counted on the device, read at the end."""

from __future__ import annotations

from collections.abc import Iterable

import torch

from amplint.runtime.results import GradientReport

SMALLEST_NORMAL = 2.0**-14
"""Below this float16 has fewer than 11 significant bits; below 2**-25 it has 0."""


class GradientCounter:
    """Sums over all gradients that it is shown."""

    def __init__(self) -> None:
        self._sizes = [0, 0]
        self._counts: dict[tuple[str, torch.device], torch.Tensor] = {}

    def after_backward(self, gradients: Iterable[torch.Tensor]) -> None:
        """Count what a backward left."""
        with torch.no_grad():
            for gradient in map(_values, gradients):
                self._sizes[0] += gradient.numel()
                self._add("nonzero", torch.count_nonzero(gradient))
                self._add("small", torch.count_nonzero(gradient.abs() < SMALLEST_NORMAL))

    def at_step(self, gradients: Iterable[torch.Tensor]) -> None:
        """Count what an optimizer used, or would have used if the scaler had not skipped its step."""
        with torch.no_grad():
            for gradient in map(_values, gradients):
                self._sizes[1] += gradient.numel()
                self._add("nonzero at step", torch.count_nonzero(gradient))
                self._add("finite at step", torch.count_nonzero(torch.isfinite(gradient)))

    def report(self) -> GradientReport:
        """The sums."""
        sums: dict[str, int] = {}
        for (name, _), count in self._counts.items():
            sums[name] = sums.get(name, 0) + int(count)
        values, at_step = self._sizes
        zero = values - sums.get("nonzero", 0)
        return GradientReport(
            values=values,
            zero=zero,
            subnormal=sums.get("small", 0) - zero,
            values_at_step=at_step,
            zero_at_step=at_step - sums.get("nonzero at step", 0),
            nonfinite_at_step=at_step - sums.get("finite at step", 0),
        )

    def _add(self, name: str, count: torch.Tensor) -> None:
        known = self._counts.get((name, count.device))
        if known is None:
            self._counts[name, count.device] = count.clone()
        else:
            known += count


def _values(gradient: torch.Tensor) -> torch.Tensor:
    return gradient.coalesce().values() if gradient.is_sparse else gradient
