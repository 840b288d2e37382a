"""Where the line that makes a scaler stands: beside its optimizers, before all that uses it, and in no loop."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, NamedTuple

from amplint.migrate.model import RefusalError
from amplint.migrate.tree import common_block, lift, loops_of, position
from amplint.rewrite.statements import siblings

if TYPE_CHECKING:
    from amplint.source import SourceFile


class Place(NamedTuple):
    """Before or after a statement; `makers` are the statements that make the optimizers of this scaler."""

    statement: ast.stmt
    before: bool
    makers: tuple[ast.stmt, ...]


def places(file: SourceFile, makers: set[ast.stmt], uses: list[ast.stmt]) -> list[Place]:
    """The places of one function, or of the module, at which scalers are made; raises `RefusalError` where none is
    right.

    One place behind the last optimizer serves them all; where some are used before others are made, that behind the
    first, or behind the last before the use; where they are made and used in different branches, one in each.
    Optimizers that are made anew in each round of a loop share one scaler from before the loop, which keeps its scale.
    """
    ordered = sorted(makers, key=position)
    block = common_block(file, ordered)
    members = [member for maker in ordered if (member := lift(file, maker, block)) is not None]
    last = members[-1]
    loops = loops_of(file, last)
    if loops:
        place = Place(loops[-1], True, tuple(ordered))
        early = next((use for use in uses if not is_before(file, place, use)), None)
        if early is not None:
            raise RefusalError(early, "the optimizer is used before it is made")
        return [place]
    for statement in (last, ordered[0], *reversed(members)):
        place = Place(statement, False, tuple(ordered))
        if not loops_of(file, statement) and all(is_before(file, place, use) for use in uses):
            return [place]
    each = [Place(maker, False, (maker,)) for maker in ordered if not loops_of(file, maker)]
    needed = [place for place in each if any(is_before(file, place, use) for use in uses)]
    for use in uses:
        if not any(is_before(file, place, use) for place in needed):
            raise RefusalError(use, "the optimizer is used before it is made, or in a branch in which it is not made")
    return needed


def is_before(file: SourceFile, place: Place, use: ast.stmt) -> bool:
    """Whether the place has been passed whenever a use is reached."""
    block = siblings(file, place.statement)
    member = lift(file, use, block)
    if member is None:
        return False
    distance = block.index(member) - block.index(place.statement)
    return distance >= 0 if place.before else distance > 0
