"""How much memory the tensors of a run take at most, counted as they are made and freed.

What `torch.cuda.max_memory_allocated` is for a GPU, but exact to the byte and the same on every device: each storage
counts from the operation that makes it to its end, whoever holds it (parameters, gradients, the optimizer's state,
activations saved for backward, autocast's casts of the weights). What kernels need for themselves is not seen.
"""

from __future__ import annotations

import weakref
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

SCALER = 128
"""Bytes that a GradScaler may need: its scale, the inverse of that, a counter and a flag, one value each."""


class TensorMemory(TorchDispatchMode):
    """Counts while it is entered; `peak` is in bytes."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.peak = 0
        self._now = 0
        self._alive: set[int] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        for leaf in tree_leaves(result):
            if isinstance(leaf, torch.Tensor) and leaf.layout is torch.strided:
                self._count(leaf.untyped_storage())
        return result

    def _count(self, storage: torch.UntypedStorage) -> None:
        number = storage._cdata
        if number in self._alive:
            return
        self._alive.add(number)
        self._now += storage.nbytes()
        self.peak = max(self.peak, self._now)
        weakref.finalize(storage, self._freed, number, storage.nbytes())

    def _freed(self, number: int, size: int) -> None:
        self._alive.discard(number)
        self._now -= size
