"""Imports that bind no name of their own: `from torch.cuda.amp import *` and `import torch.cuda.amp`."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from amplint.modernize.exports import is_exported, is_package
from amplint.modernize.imports import Bound
from amplint.modernize.refusal import RefusalError
from amplint.modernize.spelling import RE_EXPORTED, Spelling, current_module, dotted, require_module
from amplint.modernize.uses import Import, Use
from amplint.names import STAR_EXPORTS, Binding
from amplint.rewrite.statements import siblings

if TYPE_CHECKING:
    from amplint.modernize.groups import Group
    from amplint.modernize.shim import Shim
    from amplint.source import SourceFile

_SUBMODULES = ("autocast_mode", "grad_scaler", "common", "amp_definitely_not_available")


def spell_star(file: SourceFile, imported: Import, uses: list[Use], shim: Shim) -> Spelling:
    """Import what is used by name, or write it with dots; raises `RefusalError` where it is not certain."""
    names = file.names
    for star in names.module.stars:
        other = star.alias is not imported.alias and star.target not in STAR_EXPORTS
        if other and star.node.lineno > imported.statement.lineno:  # type: ignore[attr-defined]
            raise RefusalError("another star import below may bring the same names")
    if any(not names.lookup(load) for name in _SUBMODULES for load in names.loads.get(name, ())):
        raise RefusalError("submodules that the star import brings are used")
    if is_package(file):
        if any(use.move is not None and use.move.shim for use in uses):
            raise RefusalError("other files may import the names from here")
        require_module(file, current_module(imported.old), whole=True)
        bound = Bound(current_module(imported.old), "*")
        return Spelling(tuple(use.root.id for use in uses), ((imported, (bound,)),), caution=RE_EXPORTED)
    if any(is_exported(file, name) for name in STAR_EXPORTS[imported.old]):
        raise RefusalError("`__all__` lists names that the star import brings")
    moves = [use.move for use in uses if use.move is not None]
    assert len(moves) == len(uses), "names that must stay were refused before"
    shimmed = any(move.shim for move in moves)
    callees = [shim.local(move) if move.shim else dotted(file, use) for use, move in zip(uses, moves, strict=True)]
    if None not in callees:
        texts = tuple(text for text in callees if text is not None)
        return Spelling(texts, ((imported, ()),), dotted=not shimmed)
    needed = {Bound(move.module, move.name) for move in moves if not move.shim}
    return Spelling(tuple(use.root.id for use in uses), ((imported, tuple(sorted(needed))),))


def spell_bare(file: SourceFile, imported: Import, groups: list[Group]) -> Spelling:
    """`import torch.cuda.amp` becomes `import torch`, or goes where `torch` is imported beside it or not used."""
    scope = file.scope(imported.statement)
    used = "torch" in file.names.loads or groups  # what is reached through a group may come to need `torch`
    if not used and not is_exported(file, "torch") and not is_package(file):
        return Spelling((), ((imported, ()),))
    elsewhere = any(
        binding.alias is not imported.alias and _serves(file, imported, binding)
        for binding in scope.bindings.get("torch", ())
    )
    return Spelling((), ((imported, () if elsewhere else (Bound("", "torch"),)),))


def _serves(file: SourceFile, imported: Import, binding: Binding) -> bool:
    """Whether another import binds `torch` in the same block, in time for all that uses it."""
    statement = binding.node
    if binding.kind != "import" or binding.target != "torch" or binding.alias is None:
        return False
    if not any(statement is member for member in siblings(file, imported.statement)):
        return False
    place = (imported.alias.lineno, imported.alias.col_offset)
    if (binding.alias.lineno, binding.alias.col_offset) < place:
        return True
    if _is_old(binding.alias):
        return False
    assert isinstance(statement, ast.stmt)
    return not any(place[0] <= load.lineno < statement.lineno for load in file.names.loads.get("torch", ()))


def _is_old(alias: ast.alias) -> bool:
    """Whether an alias is itself a deprecated module, whose statement may go."""
    return alias.name in STAR_EXPORTS and alias.name not in ("torch.amp", "torch.cuda")
