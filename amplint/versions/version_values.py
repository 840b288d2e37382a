"""The values that version tests compute with, and how they compare.

Two ways to read `torch.__version__.split("+")[0] >= "2.4"`: what Python does (text, so 2.10 sorts before 2.4) and what
its author means (versions). Guards want the second, the rule against such tests wants both.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable
from typing import Any, Final

from amplint.versions.releases import Release

OPERATORS: dict[str, Callable[[Any, Any], bool]] = {
    "<": operator.lt,
    "<=": operator.le,
    "==": operator.eq,
    "!=": operator.ne,
    ">=": operator.ge,
    ">": operator.gt,
}

_NUMBERS = re.compile(r"\s*v?(\d+(?:\.\d+)*)")


Environment = dict[str, Any]
"""The values of the names that a comprehension or a call binds."""

UNKNOWN: Final = object()
"""The value of what can't be computed."""


class NotComparableError(Exception):
    """Two values whose order can't be told."""


class Version:
    """`torch.__version__` and what version parsers make of a text: compares as a version, can be cut as a text.

    `of_torch` tells the version of torch that runs from one that it is compared with.
    """

    __slots__ = ("numbers", "of_torch")

    def __init__(self, numbers: tuple[int, ...], of_torch: bool = False) -> None:
        self.numbers = numbers
        self.of_torch = of_torch

    def __str__(self) -> str:
        return ".".join(map(str, self.numbers))


class Text(str):
    """A text cut out of a version: Python compares it letter by letter."""

    __slots__ = ()


class Qualified(str):
    """Something of torch that exists, by its qualified name."""

    __slots__ = ()


class Missing(str):
    """Something of torch that does not exist in a release, by its qualified name."""

    __slots__ = ()


def torch_version(release: Release) -> Version:
    """The value of `torch.__version__` in a release."""
    return Version(release, True)


def numbers_of(value: object) -> tuple[int, ...]:
    """The numbers of anything that stands for a version; raises `NotComparableError` where there are none."""
    if isinstance(value, Version):
        return value.numbers
    if isinstance(value, bool):
        raise NotComparableError
    if isinstance(value, int):
        return (value,)
    if isinstance(value, (str, float)):
        match = _NUMBERS.match(str(value))
        if match is None:
            raise NotComparableError
        return tuple(int(part) for part in match.group(1).split("."))
    if isinstance(value, (tuple, list)):
        return tuple(number for item in value for number in numbers_of(item)[:1])
    raise NotComparableError


def is_version_like(value: object) -> bool:
    """Whether a value is a version, or a text or a sequence of texts cut out of one."""
    if isinstance(value, (tuple, list)):
        return any(isinstance(item, Text) for item in value)
    return isinstance(value, (Version, Text))


def compare(symbol: str, left: object, right: object, intended: bool) -> bool:
    """Compare two values; raises `NotComparableError` or `TypeError` where that can't be done.

    With `intended`, texts that were cut out of a version compare as versions.
    """
    parsed = (Version, Text) if intended else Version
    as_versions = isinstance(left, parsed) or isinstance(right, parsed)
    if intended and not as_versions:
        as_versions = is_version_like(left) or is_version_like(right)
    if not as_versions:
        if isinstance(left, (Qualified, Missing)) or isinstance(right, (Qualified, Missing)):
            raise NotComparableError
        return OPERATORS[symbol](left, right)
    first, second = numbers_of(left), numbers_of(right)
    if not (isinstance(left, (tuple, list)) or isinstance(right, (tuple, list))):
        length = max(len(first), len(second))
        first += (0,) * (length - len(first))
        second += (0,) * (length - len(second))
    return OPERATORS[symbol](first, second)


def truth_value(value: Any) -> bool:
    """Whether a value counts as true; what exists does, what is missing does not."""
    return isinstance(value, (Version, Qualified)) or (not isinstance(value, Missing) and bool(value))


def same(values: list[Any]) -> Any:
    """The one value of several that agree, else unknown."""
    if not values or any(value is UNKNOWN for value in values):
        return UNKNOWN
    first = values[0]
    if all(value == first and type(value) is type(first) for value in values):
        return first
    return UNKNOWN


def text_of(text: str, parts: list[Any]) -> str:
    """A text made of parts, marked where one of them comes from a version."""
    return Text(text) if any(isinstance(part, (Version, Text)) for part in parts) else text
