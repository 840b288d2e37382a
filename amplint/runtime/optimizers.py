"""What the monitor asks real optimizers: which parameters they have, and what is in their gradients."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import torch

from amplint.flow.protocol import UNKNOWN
from amplint.runtime.tracking import TrackedOptimizer

_Base: Any = getattr(torch._C, "TensorBase", None) or torch._C._TensorBase  # before 2.1
GRAD: Any = _Base.__dict__["grad"]
"""torch's own `grad`, which works while `torch.Tensor.grad` is watched."""

gradient_of = GRAD.__get__

Snapshot = list[tuple[Any, int]]


class WatchedOptimizer(TrackedOptimizer):
    """A `TrackedOptimizer` that knows the parameters of the real one. Anything with `param_groups` will do."""

    def __init__(self, optimizer: Any) -> None:
        self._sizes: list[int] = []
        self._parameters: list[torch.Tensor] = []
        self.ids: set[int] = set()
        self.version = -1
        self._real = weakref.ref(optimizer)
        self.refresh()
        super().__init__(type(optimizer).__name__, UNKNOWN if self.has_gradients() else "clean")

    def refresh(self) -> None:
        """Look again whether groups or parameters were added."""
        optimizer = self._real()
        if optimizer is None:
            return
        groups = optimizer.param_groups
        sizes = self._sizes
        if len(groups) == len(sizes) == 1:  # at every backward, and nearly always
            listed = groups[0]["params"]
            if len(listed) == sizes[0] and (not self._parameters or self._parameters[0] is listed[0]):
                return
        same = len(groups) == len(sizes)
        for group, size in zip(groups, sizes, strict=False):
            if len(group["params"]) != size:
                same = False
        if not same or (self._parameters and self._parameters[0] is not groups[0]["params"][0]):
            self._sizes = [len(group["params"]) for group in groups]
            self._parameters = [p for group in groups for p in group["params"] if isinstance(p, torch.Tensor)]
            self.ids = set(map(id, self._parameters))

    def has_any(self, tensors: list[Any]) -> bool:
        """Whether one of the tensors is a parameter of this optimizer."""
        ids = self.ids
        return any(id(tensor) in ids for tensor in tensors)

    def has_gradients(self) -> bool:
        """Whether any parameter has a gradient."""
        return self.first_gradient() is not None

    def first_gradient(self) -> torch.Tensor | None:
        """The gradient of the first parameter that has one."""
        for parameter in self._parameters:
            gradient: torch.Tensor | None = gradient_of(parameter)
            if gradient is not None:
                return gradient
        return None

    def differentiable(self) -> list[torch.Tensor]:
        """The parameters that take gradients."""
        return [parameter for parameter in self._parameters if parameter.requires_grad]

    def gradients_now(self) -> list[torch.Tensor]:
        """All gradients."""
        return [gradient for gradient in map(gradient_of, self._parameters) if gradient is not None]

    def all_zero(self) -> bool:
        """Whether every value of every gradient is 0; this waits for the device."""
        return not any(bool(torch.any(_dense(gradient))) for gradient in self.gradients_now())

    def snapshot(self) -> Snapshot:
        """What a backward is compared with: each gradient and how often it was written to."""
        gradients = map(gradient_of, self._parameters)
        return [(gradient, -1 if gradient is None else gradient._version) for gradient in gradients]

    def reached(self, before: Snapshot | None) -> bool:
        """Whether a gradient has changed since `before`, which is None if there was none; then notes the version."""
        if before is None:
            gradient = self.first_gradient()
            self.version = -1 if gradient is None else gradient._version
            return gradient is not None
        for parameter, (old, version) in zip(self._parameters, before, strict=False):
            gradient = gradient_of(parameter)
            if gradient is not old or (gradient is not None and gradient._version != version):
                self.note_version()
                return True
        return False

    def note_version(self) -> None:
        """From now on, writes to the gradients are somebody else's."""
        gradient = self.first_gradient()
        self.version = -1 if gradient is None else gradient._version

    def was_changed(self) -> bool:
        """Whether something wrote to the gradients since `note_version`."""
        gradient = self.first_gradient()
        return gradient is not None and gradient._version != self.version


def existing(base: type) -> list[Any]:
    """The instances of a class that are alive, made before anybody watched."""
    candidates = gc.get_objects()
    classes = {found for found in set(map(type, candidates)) if issubclass(found, base)}
    return [candidate for candidate in candidates if type(candidate) in classes]


def _dense(gradient: torch.Tensor) -> torch.Tensor:
    return gradient.coalesce().values() if gradient.is_sparse else gradient
