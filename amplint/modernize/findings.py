"""The findings of one family of deprecated names, as the rules report them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from amplint.model import Finding
from amplint.modernize.moves import Family, Move
from amplint.modernize.plan import Place, Plan
from amplint.modernize.uses import Import

if TYPE_CHECKING:
    from amplint.source import SourceFile


def findings(file: SourceFile, family: Family) -> Iterator[Finding]:
    """Everything of a family that a file uses and that is to move, with its fix or the reason why it has none."""
    for place, fix, note in Plan(file, family).outcomes():
        node = place.alias if isinstance(place, Import) else place.node
        yield Finding(family.code, file.span(node), _message(place), fix=fix, help=note)


def _message(place: Place) -> str:
    if place.move is None:
        return f"`{place.old}` is deprecated since torch 2.4, its contents moved to `torch.amp`"
    return f"`{place.old}` is deprecated since torch 2.4 and warns on every use: use {_replacement(place.move)}"


def _replacement(move: Move) -> str:
    if move.shim:
        return f"`{move.new}` with the old name as a fallback"
    if move.kind == "custom":
        return f'`{move.new}(device_type="{move.device}")`'
    if move.kind == "query" and not move.name.startswith("set_"):
        return f'`{move.new}("{move.device}")`'
    return f'`{move.new}("{move.device}", ...)`'
