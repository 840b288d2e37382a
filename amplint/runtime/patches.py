"""Attributes replaced for a while, and put back exactly as they were."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

_ABSENT = object()


class Patches:
    """A stack of replaced attributes."""

    def __init__(self) -> None:
        self._replaced: list[tuple[Any, str, Any]] = []
        self._entries: list[tuple[dict[Any, Any], Any]] = []
        self._functions: dict[int, tuple[Any, Any]] = {}

    def attribute(self, owner: Any, name: str, value: Any) -> None:
        """Set an attribute of a class or module; one that it only inherits is later removed again."""
        self._replaced.append((owner, name, vars(owner).get(name, _ABSENT)))
        setattr(owner, name, value)

    def entry(self, table: dict[Any, Any], key: Any, value: Any) -> None:
        """Add an entry to a table that has none for this key."""
        self._entries.append((table, key))
        table[key] = value

    def function(self, module: Any, name: str, wrapper: Callable[[Any], Any]) -> None:
        """Replace a module's function, if it has it, by `wrapper(function)` in every module that holds it."""
        original = vars(module).get(name)
        if original is not None:
            self._functions[id(original)] = (original, wrapper(original))

    def apply_functions(self) -> None:
        """Put the wrappers of `function` into place."""
        _swap(self._functions)

    def undo(self) -> None:
        """Put everything back, also in modules that were imported meanwhile."""
        while self._replaced:
            owner, name, value = self._replaced.pop()
            if value is _ABSENT:
                delattr(owner, name)
            else:
                setattr(owner, name, value)
        while self._entries:
            table, key = self._entries.pop()
            del table[key]
        _swap({id(wrapper): (wrapper, original) for original, wrapper in self._functions.values()})
        self._functions.clear()


def _swap(pairs: dict[int, tuple[Any, Any]]) -> None:
    for module in list(sys.modules.values()):
        namespace = getattr(module, "__dict__", None)
        if type(namespace) is not dict:
            continue
        for name, value in list(namespace.items()):
            pair = pairs.get(id(value))
            if pair is not None and pair[0] is value:
                namespace[name] = pair[1]
