"""The releases of torch as bits of a mask, and which names of the AMP layer exist in which of them.

What a test says of the version is the set of releases on which it holds. A set is an integer, one bit a release, so
that `and`, `or` and `not` of tests are `&`, `|` and complement.
"""

from __future__ import annotations

from typing import NamedTuple

from amplint.torch_api import APIS, NEWEST, OLDEST, STATE_QUERIES, STATE_QUERIES_SINCE, Version

Release = tuple[int, int, int]

_LAST_1_MINOR = 13
_FUTURE: Version = (NEWEST[0], NEWEST[1] + 1)

RELEASES: tuple[Release, ...] = tuple(
    (major, minor, micro)
    for major, last in ((1, _LAST_1_MINOR), _FUTURE)
    for minor in range(last + 1)
    for micro in (0, 1)
)
"""Torch 1.0.0 to the newest, two micro releases each, and one beyond, which stands for all that is to come."""

ALL = (1 << len(RELEASES)) - 1
NONE = 0
FUTURE = 0b11 << (len(RELEASES) - 2)
"""The releases that do not exist yet."""


class TorchRange(NamedTuple):
    """The torch versions on which something runs: from `low` on and before `high`; None where there is no bound."""

    low: Version | None
    high: Version | None


def at_least(version: Version) -> int:
    """The releases from a version on."""
    return sum(1 << index for index, release in enumerate(RELEASES) if release[:2] >= version)


def range_of(mask: int) -> TorchRange:
    """The smallest range that holds all releases of a mask; an empty mask gives a range without any."""
    if not mask:
        return TorchRange(_FUTURE, _FUTURE)
    first = RELEASES[(mask & -mask).bit_length() - 1][:2]
    last = RELEASES[mask.bit_length() - 1][:2]
    return TorchRange(
        None if mask & 1 else first,
        None if mask & FUTURE else next((r[:2] for r in RELEASES if r[:2] > last), None),
    )


_MODULES: dict[str, Version] = {
    "torch": (0, 0),
    "torch.cuda": (0, 0),
    "torch.cuda.amp": (1, 6),
    "torch.cuda.amp.autocast_mode": (1, 6),
    "torch.cuda.amp.grad_scaler": (1, 6),
    "torch.cpu": OLDEST,
    "torch.cpu.amp": OLDEST,
    "torch.cpu.amp.autocast_mode": OLDEST,
    "torch.cpu.amp.grad_scaler": (2, 3),
    "torch.amp": (1, 12),
    "torch.amp.autocast_mode": (1, 12),
    "torch.amp.grad_scaler": (2, 3),
}
_FUNCTIONS: dict[str, Version] = {
    query.new: STATE_QUERIES_SINCE for query in STATE_QUERIES.values() if not query.new.endswith("_enabled")
}


def since(name: str) -> Version | None:
    """The first torch that has a qualified name of the AMP layer, None for a name that isn't known."""
    if name in APIS:
        return APIS[name].since
    return _MODULES.get(name) or _FUNCTIONS.get(name)


def module_since(name: str) -> Version | None:
    """The first torch that has a module of the AMP layer, None for a name that isn't one."""
    return _MODULES.get(name)
