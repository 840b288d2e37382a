"""What names and attributes around torch are worth on a given release: the version itself, and what exists on it."""

from __future__ import annotations

from typing import Any

from amplint.torch_api import APIS
from amplint.versions import version_words as words
from amplint.versions.releases import Release, since
from amplint.versions.version_values import (
    UNKNOWN,
    Missing,
    NotComparableError,
    Qualified,
    Text,
    Version,
    compare,
    numbers_of,
    torch_version,
)


def contains(holder: Any, item: Any, release: Release) -> bool:
    """`item in holder`; a holder that stands for something of torch holds its attributes (`dir(torch.amp)`)."""
    if isinstance(holder, (Qualified, Missing)):
        first = since(f"{holder}.{item}")
        if first is None:
            raise NotComparableError
        return release[:2] >= first
    if isinstance(holder, (list, tuple)):
        return any(compare("==", item, other, True) for other in holder)
    return str(item) in str(holder)


def known_value(qualified: str, release: Release) -> Any:
    """The value of a qualified name: the version itself, or a part of the AMP layer that exists in the release."""
    if qualified in ("torch.__version__", "torch.torch_version.__version__"):
        return torch_version(release)
    if qualified in ("torch.version.__version__", "torch.version.git_version"):
        return Text(torch_version(release)) if qualified.endswith("__version__") else UNKNOWN
    first = since(qualified)
    if first is None:
        return UNKNOWN
    return Qualified(qualified) if release[:2] >= first else Missing(qualified)


def value_by_name(name: str, release: Release) -> Any:
    """The value of a flag, a version or a part of one that is defined elsewhere, by what its name says."""
    if words.is_version_name(name):
        return torch_version(release)
    part = words.part_of_version(name)
    if part is not None:
        return release[part]
    meaning = words.flag_meaning(name)
    return (
        UNKNOWN if meaning is None else compare(meaning[0], Version(release[:2]), Version(numbers_of(meaning[1])), True)
    )


def attribute_of(base: Any, attribute: str, release: Release) -> Any:
    """The value of an attribute of a value; raises `LookupError` where a mapping lacks it."""
    if isinstance(base, Version):
        if attribute in ("major", "minor", "micro"):
            return [*base.numbers, 0, 0][("major", "minor", "micro").index(attribute)]
        if attribute in ("release", "version"):
            return base.numbers
        if attribute in ("base_version", "public", "vstring"):
            return Text(base)
    if isinstance(base, dict):
        return base[attribute]
    if isinstance(base, (Qualified, Missing)):
        if attribute == "__version__" and base == "torch":
            return torch_version(release)
        if attribute in ("parameters", "args", "kwonlyargs") and base in APIS:
            signature = APIS[base].signature(release[:2])
            return [] if signature is None else [*signature.positional, *signature.keyword]
        if attribute == "__all__":
            return base
        return known_value(f"{base}.{attribute}", release)
    return UNKNOWN
