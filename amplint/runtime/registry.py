"""What is known of objects, by identity and without keeping them alive."""

from __future__ import annotations

import weakref
from typing import Any, Generic, TypeVar

Value = TypeVar("Value")


class Registry(Generic[Value]):
    """Values for objects; a value goes when its object does. Objects that can't be referred to weakly stay."""

    def __init__(self) -> None:
        self.entries: dict[int, tuple[Any, Value]] = {}  # by id; the first is a reference, or the object itself
        self.values: list[Value] = []

    def get(self, key: object) -> Value | None:
        """The value of an object, None if it has none."""
        found = self.entries.get(id(key))
        return None if found is None else found[1]

    def add(self, key: object, value: Value) -> None:
        """Give an object a value."""
        number = id(key)

        def forget(_: object) -> None:
            self.entries.pop(number, None)
            self.values = [entry for _, entry in self.entries.values()]

        try:
            reference: Any = weakref.ref(key, forget)
        except TypeError:
            reference = key
        self.entries[number] = reference, value
        self.values = [entry for _, entry in self.entries.values()]
