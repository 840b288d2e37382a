"""The monitor: what a training script does to its scalers, gradients and autocast regions while it runs.

The only package that needs torch, which is imported when the monitor is first asked for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from amplint.runtime.monitor import Monitor
    from amplint.runtime.results import Report

__all__ = ["Monitor", "Report"]

_HOMES = {"Monitor": "amplint.runtime.monitor", "Report": "amplint.runtime.results"}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_HOMES[name]), name)
