"""Rules of other packages: what the entry-point group `amplint.rules` names.

`importlib.metadata` would take 95 ms to import, so the metadata of installed packages is read directly; an entry is
`anything = package.module`, and importing that module registers its rules with `@rule`.
"""

from __future__ import annotations

import os
import sys
from functools import cache

from amplint.settings import SettingsError

GROUP = "amplint.rules"


@cache
def modules() -> tuple[str, ...]:
    """The modules that installed packages name in the group, in the order of their names."""
    found: set[str] = set()
    for directory in dict.fromkeys(sys.path):
        try:
            with os.scandir(directory or ".") as entries:
                names = [entry.path for entry in entries if entry.name.endswith((".dist-info", ".egg-info"))]
        except OSError:
            continue
        for name in names:
            found.update(_named(os.path.join(name, "entry_points.txt")))
    return tuple(sorted(found))


def load() -> None:
    """Import all of them; raises `SettingsError`, naming the module, where one can't be imported."""
    import importlib

    for module in modules():
        try:
            importlib.import_module(module)
        except Exception as error:  # whatever a foreign module raises, the user must learn which one it was
            raise SettingsError(f"the rules in {module} can't be loaded: {type(error).__name__}: {error}") from error


def _named(path: str) -> set[str]:
    """The modules under the group's heading in one file, none where there is no such file."""
    try:
        with open(path, encoding="utf-8") as file:
            lines = file.read().splitlines()
    except (OSError, ValueError):
        return set()
    found: set[str] = set()
    section = ""
    for line in map(str.strip, lines):
        if line.startswith("["):
            section = line.strip("[] ")
        elif section == GROUP and "=" in line:
            found.add(line.split("=", 1)[1].split(":", 1)[0].split("[", 1)[0].strip())
    return found
