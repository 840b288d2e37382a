"""In which precision matrix products run: torch's functions and methods for them, wrapped to count."""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Callable
from threading import get_ident
from typing import Any

import torch
from torch.nn import functional

from amplint.runtime.patches import Patches
from amplint.runtime.results import ProductReport

_CONVOLUTIONS = ("conv1d", "conv2d", "conv3d", "conv_transpose1d", "conv_transpose2d", "conv_transpose3d")
_IN_FUNCTIONAL = ("linear", "scaled_dot_product_attention", *_CONVOLUTIONS)
_IN_TORCH = ("matmul", "mm", "bmm", "mv", "addmm", "addmv", "addbmm", "baddbmm", "einsum")
_METHODS = ("__matmul__", "__rmatmul__", "matmul", "mm", "bmm", "mv", "addmm", "addmv", "addbmm", "baddbmm")
_RECURRENT = ("lstm", "gru", "rnn_tanh", "rnn_relu")

LOW = ("float16", "bfloat16")


class ProductCounter:
    """Counts by operation, precision of the result and whether gradients flow through it."""

    def __init__(self) -> None:
        self._tally: Counter[tuple[str, torch.dtype, bool]] = Counter()
        self._inside: set[int] = set()  # the threads that are in a product now

    def install(self, patches: Patches) -> None:
        """Wrap all functions and methods."""
        for module, names in ((functional, _IN_FUNCTIONAL), (torch, _IN_TORCH)):
            for name in names:
                patches.function(module, name, functools.partial(self._counting_function, patches, name))
        for name in _RECURRENT:
            patches.attribute(torch._VF, name, self._counting(name, getattr(torch._VF, name)))
        for name in _METHODS:
            operation = "matmul" if "matmul" in name else name
            patches.attribute(torch.Tensor, name, self._counting(operation, getattr(torch.Tensor, name)))

    def any_low(self) -> bool | None:
        """Whether any product ran in low precision, None if there was none (compiled code is not looked into)."""
        if not self._tally:
            return None
        return any(str(dtype).removeprefix("torch.") in LOW for _, dtype, _ in self._tally)

    def report(self) -> tuple[ProductReport, ...]:
        """The counts by operation and precision."""
        calls: Counter[tuple[str, str]] = Counter()
        with_gradients: Counter[tuple[str, str]] = Counter()
        for (operation, dtype, gradients), count in self._tally.items():
            key = operation, str(dtype).removeprefix("torch.")
            calls[key] += count
            with_gradients[key] += count * gradients
        return tuple(ProductReport(*key, calls[key], with_gradients[key]) for key in sorted(calls))

    def _counting_function(self, patches: Patches, operation: str, original: Callable[..., Any]) -> Callable[..., Any]:
        """A function that counts and that `torch.jit.script` takes for the original."""
        counting = self._counting(operation, original)
        builtin = torch.jit._builtins._find_builtin(original)
        if builtin is not None:
            patches.entry(torch.jit._builtins._get_builtin_table(), id(counting), builtin)
        return counting

    def _counting(self, operation: str, original: Callable[..., Any]) -> Callable[..., Any]:
        tally, inside = self._tally, self._inside
        is_compiling = getattr(getattr(torch, "compiler", None), "is_compiling", None) or (lambda: False)

        @functools.wraps(original)
        def product(*args: Any, **kwargs: Any) -> Any:
            if is_compiling():
                return original(*args, **kwargs)
            thread = get_ident()
            if thread in inside:  # a mode for torch functions is given this function, and calls it once more
                return original(*args, **kwargs)
            inside.add(thread)
            try:
                result = original(*args, **kwargs)
            finally:
                inside.discard(thread)
            tensor = result[0] if type(result) is tuple else result
            if isinstance(tensor, torch.Tensor):
                tally[operation, tensor.dtype, tensor.requires_grad] += 1
            return result

        return product
