"""A linter, autofixer and migrator for PyTorch automatic mixed precision.

`check_source(text, filename, settings)` and `fix_source(text, filename, settings)` are pure functions; see
`amplint.check`. Everything is imported on first use, so that `import amplint` costs nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from amplint import _version

if TYPE_CHECKING:
    from amplint.check import FixResult, check_source, fix_source
    from amplint.model import Applicability, Diagnostic, Level
    from amplint.settings import Settings

__version__ = _version.VERSION

__all__ = [
    "Applicability",
    "Diagnostic",
    "FixResult",
    "Level",
    "Settings",
    "__version__",
    "check_source",
    "fix_source",
]

_HOME = {
    "Applicability": "amplint.model",
    "Diagnostic": "amplint.model",
    "FixResult": "amplint.check",
    "Level": "amplint.model",
    "Settings": "amplint.settings",
    "check_source": "amplint.check",
    "fix_source": "amplint.check",
}


def __getattr__(name: str) -> object:
    if name in _HOME:
        from importlib import import_module

        return getattr(import_module(_HOME[name]), name)
    raise AttributeError(f"module 'amplint' has no attribute {name!r}")
