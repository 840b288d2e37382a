"""The keys of `[tool.amplint]`: what each may hold, and what is said when it holds something else."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from amplint.model import Level
from amplint.selectors import UNREADABLE_FILE, canonical, nearest, unknown_rule
from amplint.settings import COMMAND_LINE, SettingsError

_TYPE_NAMES = {
    bool: "a boolean",
    int: "an integer",
    float: "a number",
    str: "a string",
    list: "a list",
    tuple: "a list",
    dict: "a table",
}


def parse_table(table: Mapping[str, object], place: str) -> dict[str, Any]:
    """Turn the keys and values of one source into fields of `Settings` and their values.

    `place` names the source in messages; where it is `COMMAND_LINE`, keys are shown as options and a selector may hold
    several, joined by commas. Raises `SettingsError` for an unknown key, code or name and for a value of the wrong
    type.
    """
    fields: dict[str, Any] = {}
    for key, value in table.items():
        parse = _PARSERS.get(key)
        if parse is None:
            hint = "; write the settings without [tool.amplint]" if key == "tool" else nearest(key, _PARSERS)
            raise SettingsError(f"{place}: unknown setting `{key}`{hint}")
        label = f"--{key}" if place == COMMAND_LINE else f"{place} {key}"
        if place == COMMAND_LINE and parse in (_selectors, _ignored):
            value = [part.strip() for text in _texts(value, label) for part in text.split(",") if part.strip()]
        fields[key.replace("-", "_")] = parse(value, label)
    return fields


def _expected(what: str, value: object, label: str) -> SettingsError:
    return SettingsError(f"{label}: expected {what}, not {_type_name(value)}")


def _type_name(value: object) -> str:
    return _TYPE_NAMES.get(type(value), f"a {type(value).__name__}")


def _texts(value: object, label: str) -> tuple[str, ...]:
    if isinstance(value, str):
        raise SettingsError(f'{label}: expected a list of strings, not a string; write ["{value}"]')
    if not isinstance(value, (list, tuple)):
        raise _expected("a list of strings", value, label)
    for item in value:
        if not isinstance(item, str):
            raise SettingsError(f"{label}: expected a list of strings, not one with {_type_name(item)} in it")
    return tuple(value)


def _patterns(value: object, label: str) -> tuple[str, ...]:
    return tuple(pattern.removeprefix(".") if pattern.startswith("./") else pattern for pattern in _texts(value, label))


def _selectors(value: object, label: str) -> tuple[str, ...]:
    selectors = []
    for text in _texts(value, label):
        selector = canonical(text)
        if selector is None:
            raise SettingsError(f"{label}: {unknown_rule(text)}")
        selectors.append(selector)
    return tuple(selectors)


def _ignored(value: object, label: str) -> tuple[str, ...]:
    selectors = _selectors(value, label)
    if UNREADABLE_FILE in selectors:
        raise SettingsError(f"{label}: `{UNREADABLE_FILE}` cannot be ignored, leave such files out with `exclude`")
    return selectors


def _per_file_ignores(value: object, label: str) -> tuple[tuple[str, tuple[str, ...]], ...]:
    if not isinstance(value, dict):
        raise _expected("a table of patterns and lists of rules", value, label)
    patterns = _patterns(list(value), label)
    return tuple(
        (pattern, _ignored(codes, f'{label}."{pattern}"'))
        for pattern, codes in zip(patterns, value.values(), strict=True)
    )


def _target_torch(value: object, label: str) -> tuple[int, int] | None:
    if not isinstance(value, str):
        raise _expected('a string such as "2.3" or "current"', value, label)
    if value == "current":
        return None
    match = re.fullmatch(r"(\d{1,3})\.(\d{1,3})(?:\.\d{1,3})?", value, re.ASCII)
    if match is None:
        raise SettingsError(f'{label}: `{value}` is not a version of torch such as "1.13", "2.3.1" or "current"')
    return int(match[1]), int(match[2])


def _wrappers(value: object, label: str) -> tuple[str, ...]:
    names = _texts(value, label)
    for name in names:
        if not all(part.isidentifier() for part in name.split(".")):
            raise SettingsError(f"{label}: `{name}` is not a dotted name such as `timm.utils.NativeScaler`")
    return names


def _one_of(*choices: str) -> Callable[[object, str], str]:
    def parse(value: object, label: str) -> str:
        listed = ", ".join(f'"{choice}"' for choice in choices)
        if not isinstance(value, str):
            raise _expected(f"one of {listed}", value, label)
        if value not in choices:
            raise SettingsError(f"{label}: `{value}` is not one of {listed}{nearest(value, choices)}")
        return value

    return parse


def _level(value: object, label: str) -> Level:
    return Level.parse(_one_of("info", "warning", "error")(value, label))


_PARSERS: dict[str, Callable[[Any, str], Any]] = {
    "select": _selectors,
    "ignore": _ignored,
    "extend-select": _selectors,
    "extend-ignore": _ignored,
    "per-file-ignores": _per_file_ignores,
    "exclude": _patterns,
    "extend-exclude": _patterns,
    "target-torch": _target_torch,
    "compat": _one_of("none", "shim"),
    "autocast": _one_of("torch.amp.autocast", "torch.autocast"),
    "wrappers": _wrappers,
    "fail-level": _level,
}
