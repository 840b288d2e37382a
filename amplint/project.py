"""Where a project begins, and how its TOML files are read."""

from __future__ import annotations

import os
from typing import Any


def repository_root(directory: str) -> str | None:
    """The nearest directory, from an absolute one upwards, that holds `.git`; None outside a repository."""
    while not os.path.lexists(os.path.join(directory, ".git")):
        parent = os.path.dirname(directory)
        if parent == directory:
            return None
        directory = parent
    return directory


def path_from(directory: str, path: str) -> str:
    """A path relative to a directory, with slashes, as texts name it that must be the same on every machine."""
    return os.path.relpath(path, directory).replace(os.sep, "/")


def parse_toml(data: bytes) -> dict[str, Any]:
    """Parse a TOML file; raises `ValueError` with the reason and the line when it is not one."""
    import sys

    if sys.version_info >= (3, 11):
        import tomllib
    else:
        import tomli as tomllib
    try:
        return tomllib.loads(data.decode("utf-8-sig"))
    except RecursionError:
        raise ValueError("nested too deeply") from None
