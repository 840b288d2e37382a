"""Run a text on real torch and note what it does with autocast and GradScaler."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple
from unittest import mock

import torch


class Trace(NamedTuple):
    """What a text did.

    `made` are the autocast and scaler objects with all that they were given, in order; `seen` is the state of autocast
    at each call of `probe()`; `error` is what it raised; `deprecations` are the warnings of deprecated names.
    """

    made: list[tuple[object, ...]]
    seen: list[tuple[object, ...]]
    error: str
    deprecations: list[str]


@contextmanager
def _as_if_cuda_were_there() -> Iterator[None]:
    """Let the CUDA forms of autocast and GradScaler stay enabled; nothing is computed on a GPU."""
    with (
        mock.patch.object(torch.cuda.amp.common, "amp_definitely_not_available", return_value=False),
        mock.patch.object(torch.cuda, "is_bf16_supported", return_value=True),
    ):
        yield


def run(text: str) -> Trace:
    """Run a text; the function `probe` is there for it."""
    made: list[tuple[object, ...]] = []
    seen: list[tuple[object, ...]] = []
    autocast, scaler = torch.amp.autocast_mode.autocast, torch.amp.grad_scaler.GradScaler
    make_autocast, make_scaler = autocast.__init__, scaler.__init__

    def note_autocast(self: Any, *args: Any, **kwargs: Any) -> None:
        make_autocast(self, *args, **kwargs)
        made.append((self.device, self._enabled, self.fast_dtype, self._cache_enabled))

    def note_scaler(self: Any, *args: Any, **kwargs: Any) -> None:
        make_scaler(self, *args, **kwargs)
        state = ("_init_scale", "_growth_factor", "_backoff_factor", "_growth_interval")
        made.append((str(self._device), self._enabled, *(getattr(self, name, None) for name in state)))

    def probe() -> None:
        states = [(torch.is_autocast_enabled(d), torch.get_autocast_dtype(d)) for d in ("cuda", "cpu")]
        seen.append((*states, torch.is_autocast_cache_enabled()))

    error = ""
    with (
        _as_if_cuda_were_there(),
        mock.patch.object(autocast, "__init__", note_autocast),
        mock.patch.object(scaler, "__init__", note_scaler),
        warnings.catch_warnings(record=True) as caught,
    ):
        warnings.simplefilter("always")
        try:
            exec(compile(text, "snippet.py", "exec", dont_inherit=True), {"probe": probe, "__name__": "snippet"})
        except Exception as exception:
            error = repr(exception)
    deprecations = [str(warning.message) for warning in caught if "is deprecated" in str(warning.message)]
    return Trace(made, seen, error, deprecations)
