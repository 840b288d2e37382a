"""Which deprecated names are to move, and where to, for the torch versions that a project supports."""

from __future__ import annotations

from typing import Literal, NamedTuple

from amplint.settings import Settings
from amplint.torch_api import (
    APIS,
    AUTOCAST_SPELLINGS,
    DEPRECATED_MODULES,
    STATE_QUERIES,
    STATE_QUERIES_SINCE,
    Version,
)

Kind = Literal["autocast", "scaler", "custom", "query"]


class Move(NamedTuple):
    """One deprecated name and its replacement.

    `old` and `new` are qualified names, `device` is what the old name implies and the new one is told. A `shim` is a
    move to a name that the oldest supported torch does not have, so that a fallback must stand beside it.
    """

    old: str
    new: str
    kind: Kind
    device: str
    shim: bool = False

    @property
    def module(self) -> str:
        """The module from which the replacement is imported."""
        return self.new.rpartition(".")[0]

    @property
    def name(self) -> str:
        """The replacement's name in its module."""
        return self.new.rpartition(".")[2]


class Family(NamedTuple):
    """The names with which one rule deals.

    `moves` holds those that are to move, by qualified name. `left` are deprecated names that stay because nothing in
    the oldest supported torch can take their place. `modules` are the modules that hold nothing but deprecated names.
    """

    code: str
    moves: dict[str, Move]
    left: frozenset[str]
    modules: frozenset[str]

    def knows(self, qualified: str) -> bool:
        """Whether a qualified name is deprecated, to be moved or not."""
        return qualified in self.moves or qualified in self.left


_KINDS: dict[str, Kind] = {
    "autocast": "autocast",
    "scaler": "scaler",
    "custom_fwd": "custom",
    "custom_bwd": "custom",
}


def deprecated_api(settings: Settings) -> Family:
    """The family of AMP001: what `torch.cuda.amp` and `torch.cpu.amp` hold."""
    moves: dict[str, Move] = {}
    left: set[str] = set()
    for name, api in APIS.items():
        if api.deprecated_since is None:
            continue
        kind = _KINDS[api.kind]
        new, shim = _replacement(kind, api.device, api.replacement, api.replacement_since, settings)
        if new:
            moves[name] = Move(name, new, kind, api.device, shim)
        else:
            left.add(name)
    return Family("AMP001", moves, frozenset(left), frozenset(DEPRECATED_MODULES))


def _replacement(kind: Kind, device: str, new: str, since: Version | None, settings: Settings) -> tuple[str, bool]:
    """The replacement on the torch versions of a project, "" if there is none, and whether it needs a fallback."""
    floor = settings.target_torch
    if kind == "autocast":
        if floor is None or floor >= AUTOCAST_SPELLINGS["torch.amp.autocast"]:
            return settings.autocast, False
        return ("torch.autocast" if floor >= AUTOCAST_SPELLINGS["torch.autocast"] else ""), False
    if floor is None or since is None or floor >= since:
        return new, False
    if settings.compat == "shim" and device == "cuda":
        return new, True
    return "", False


def deprecated_state(settings: Settings) -> Family:
    """The family of AMP002: the functions of the autocast state that have a device in their name."""
    floor = settings.target_torch
    if floor is not None and floor < STATE_QUERIES_SINCE:
        return Family("AMP002", {}, frozenset(STATE_QUERIES), frozenset())
    moves = {query.old: Move(query.old, query.new, "query", query.device) for query in STATE_QUERIES.values()}
    return Family("AMP002", moves, frozenset(), frozenset())
