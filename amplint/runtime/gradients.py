"""How many values of gradients are 0, close to it, not finite, or lost; counted on the device, read at the end.

A value is lost if it is 0 although it would not be 0 in float32. Nobody knows the gradients in float32; but the same
graph can be differentiated again from a loss that is larger by a power of two, where every value lies that much further
from the smallest number of float16. A value that is 0 in the script's own backward and finite and not 0 in one of these
has underflowed, and one that is 0 in all of them counts as a true 0 (a unit that is switched off, an unused row). So
the fraction is a lower bound: values are missed that underflow even in the larger backwards, or overflow there.
Since it costs two backwards more, this is done for the 1st, 4th, 16th, 64th, ... backward only, and where gradients are
not accumulated, so that what the backward leaves is its own. Hooks that the script has on tensors run then, too.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch

from amplint.runtime.optimizers import gradient_of
from amplint.runtime.results import GradientReport

LARGER = (2.0**7, 2.0**14)
"""How much larger the loss is from which gradients are computed again."""

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

    @staticmethod
    def is_due(count: int) -> bool:
        """Whether the backward of this number is looked at closely: a power of 4."""
        return count & (count - 1) == 0 and count.bit_length() % 2 == 1

    def larger(
        self, roots: Sequence[torch.Tensor], parameters: Sequence[torch.Tensor]
    ) -> list[tuple[torch.Tensor, torch.Tensor]]:
        """The parameters with what values of their gradients are surely not 0, before the script's own backward.

        An empty list where that can't be told: for losses that are no numbers, and graphs that can't be used twice.
        """
        if not parameters or any(root.numel() != 1 for root in roots):
            return []
        found: dict[int, torch.Tensor] = {}
        try:
            for factor in LARGER:
                start = [torch.full_like(root, factor) for root in roots]
                gradients = torch.autograd.grad(roots, parameters, start, retain_graph=True, allow_unused=True)
                for index, gradient in enumerate(gradients):
                    if gradient is not None and not gradient.is_sparse:
                        surely = torch.isfinite(gradient) & (gradient != 0)
                        found[index] = surely | found[index] if index in found else surely
        except RuntimeError:  # compiled or checkpointed parts that refuse a second backward
            return []
        return [(parameters[index], surely) for index, surely in found.items()]

    def compare(self, larger: Sequence[tuple[torch.Tensor, torch.Tensor]]) -> None:
        """Count which of these values the script's own backward left as 0."""
        with torch.no_grad():
            for parameter, surely in larger:
                gradient = gradient_of(parameter)
                if gradient is not None and not gradient.is_sparse:
                    self._add("compared", torch.count_nonzero(surely | (gradient != 0)))
                    self._add("lost", torch.count_nonzero(surely & (gradient == 0)))

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
            compared=sums.get("compared", 0),
            underflowed=sums.get("lost", 0),
        )

    def _add(self, name: str, count: torch.Tensor) -> None:
        known = self._counts.get((name, count.device))
        if known is None:
            self._counts[name, count.device] = count.clone()
        else:
            known += count


def _values(gradient: torch.Tensor) -> torch.Tensor:
    return gradient.coalesce().values() if gradient.is_sparse else gradient
