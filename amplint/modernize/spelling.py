"""How the replacement is written where a deprecated name was used, and what that means for the imports.

An existing `from torch.amp import ...` is extended; else a bound `torch` is used with dots and the old import goes;
else the old import becomes one of the replacement.
"""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, NamedTuple

from amplint.model import Edit, Span
from amplint.modernize.exports import is_needed_as_text, is_re_export
from amplint.modernize.groups import Group
from amplint.modernize.imports import Bound, Statement
from amplint.modernize.moves import Move
from amplint.modernize.refusal import RefusalError
from amplint.modernize.uses import Import, Use
from amplint.modernize.visible import bindings_at, is_bound, visible_name
from amplint.rewrite.statements import siblings
from amplint.torch_api import APIS
from amplint.versions.releases import module_since

if TYPE_CHECKING:
    from amplint.source import SourceFile


Change = tuple[Import, tuple[Bound, ...]]
"""An import and what is imported in its place."""

Merge = tuple[ast.ImportFrom, Bound]
"""An existing import and what it is to import too."""


RE_EXPORTED = "other files may import the name from here and call it the old way"


class Spelling(NamedTuple):
    """What a group needs to move.

    `callees` holds the new text of each use, in their order. `changes` says what becomes of the aliases of import
    statements, `merged` what existing statements are to import too. `caution` says on what the change rests, where that
    can't be seen. `dotted` says that each use can be rewritten whether the imports change or not.
    """

    callees: tuple[str, ...]
    changes: tuple[Change, ...] = ()
    merged: tuple[Merge, ...] = ()
    edits: tuple[Edit, ...] = ()
    caution: str = ""
    dotted: bool = False


def dotted(file: SourceFile, use: Use) -> str | None:
    """The replacement written with dots from `torch`, None where `torch` isn't bound."""
    assert use.move is not None
    torch = visible_name(file, "torch", use.root)
    return None if torch is None else torch + use.move.new.removeprefix("torch")


def spell(file: SourceFile, group: Group) -> Spelling:
    """Decide how a group is written; raises `RefusalError` where no way is certain to work."""
    if group.scope.kind == "class":
        raise RefusalError(f"`{group.name}` is an attribute of a class, which other code may read")
    if group.assignments:
        return _spell_variable(file, group)
    re_exported = is_re_export(file, group)
    kept = is_needed_as_text(file, group) or re_exported
    if group.imports[0].parent:
        return _spell_parent(file, group, kept)
    placed = any(_holds_its_block(file, imported.statement, group) for imported in group.imports)
    spelled = _spell_name if group.imports[0].move is not None else _spell_module
    return spelled(file, group, kept, placed)._replace(caution=RE_EXPORTED if re_exported else "")


def _all_dotted(file: SourceFile, uses: list[Use]) -> tuple[str, ...] | None:
    found = [dotted(file, use) for use in uses]
    return None if None in found else tuple(text for text in found if text is not None)


def dropped(group: Group) -> tuple[Change, ...]:
    """The imports of a group, each to go."""
    return tuple((imported, ()) for imported in group.imports)


# -- from torch.cuda.amp import autocast ------------------------------------------------------------------------------


def _spell_name(file: SourceFile, group: Group, kept: bool, placed: bool) -> Spelling:
    move = group.imports[0].move
    assert move is not None
    if not placed:
        if not group.uses and not kept:
            return Spelling((), dropped(group), dotted=True)
        merged = _merged(file, group, move, kept)
        if merged is not None:
            return merged
        if not kept and (callees := _all_dotted(file, group.uses)) is not None:
            return Spelling(callees, dropped(group), dotted=True)
    local = _local_name(file, group, move, kept)
    asname = next((imported.alias.asname for imported in group.imports), None)
    bound = Bound(move.module, move.name, asname or (None if local == move.name else local))
    return Spelling((local,) * len(group.uses), tuple((imported, (bound,)) for imported in group.imports))


def _local_name(file: SourceFile, group: Group, move: Move, kept: bool) -> str:
    """The name that the replacement has in this file: the old one, unless that says what is no longer true."""
    if any(imported.alias.asname for imported in group.imports) or group.name == move.name:
        return group.name
    if kept:
        raise RefusalError(f"other code may rely on the name `{group.name}`")
    if is_bound(file, move.name):
        raise RefusalError(f"`{move.name}` is already bound in this file")
    return move.name


def _merged(file: SourceFile, group: Group, move: Move, kept: bool) -> Spelling | None:
    """Use a `from torch.amp import` at the top of the file, None where there is none that serves."""
    statement = _import_from(file, move.module, group)
    if statement is None:
        return None
    for alias in statement.names:
        if alias.name == move.name:
            local = alias.asname or alias.name
            seen = all(
                [binding.target for binding in bindings_at(file, local, use.root)] == [move.new] for use in group.uses
            )
            return Spelling((local,) * len(group.uses), dropped(group)) if seen and not kept else None
    if group.scope is not file.names.module:
        return None
    local = _local_name(file, group, move, kept)
    bound = Bound(move.module, move.name, None if local == move.name else local)
    return Spelling((local,) * len(group.uses), dropped(group), ((statement, bound),))


def _import_from(file: SourceFile, module: str, group: Group) -> ast.ImportFrom | None:
    """The first `from module import` at the top level that runs before all uses."""
    first = min((use.root.lineno for use in group.uses), default=None)
    if module == "torch":
        return None  # `torch` itself is then bound as a rule, and dots are plainer
    for statement in file.tree.body:
        if isinstance(statement, ast.ImportFrom) and statement.module == module and not statement.level:
            stars = any(alias.name == "*" for alias in statement.names)
            if not stars and (first is None or statement.lineno < first):
                return statement
    return None


# -- from torch.cuda import amp ---------------------------------------------------------------------------------------


def _spell_module(file: SourceFile, group: Group, kept: bool, placed: bool) -> Spelling:
    if not kept and not placed and (callees := _all_dotted(file, group.uses)) is not None:
        return Spelling(callees, dropped(group), dotted=True)
    module = current_module(group.imports[0].old)
    if all(use.move is not None and use.move.new.startswith("torch.amp.") for use in group.uses):
        require_module(file, module, whole=kept)
        texts = tuple(f"{group.name}.{use.move.name}" for use in group.uses if use.move is not None)
        return Spelling(texts, tuple((imported, (_module_bound(imported, module),)) for imported in group.imports))
    return _with_torch_bound(file, group)


def current_module(old: str) -> str:
    """The module that took the place of a deprecated one."""
    return "torch.amp" + old.partition(".amp")[2]


def require_module(file: SourceFile, module: str, *, whole: bool) -> None:
    """Raise `RefusalError` where the oldest supported torch lacks a module, or with `whole` something in it."""
    floor = file.settings.target_torch
    needed = [APIS[name].since for name in APIS if whole and name.rpartition(".")[0] == module]
    since = max([*needed, module_since(module) or (0, 0)])
    if floor is not None and floor < since:
        lacking = f"all of `{module}`" if whole else f"`{module}`"
        raise RefusalError(f"only torch {since[0]}.{since[1]} and later have {lacking}")


def _module_bound(imported: Import, module: str) -> Bound:
    if isinstance(imported.statement, ast.Import):
        return Bound("", module, imported.alias.asname)
    parent, _, name = module.rpartition(".")
    return Bound(parent, name, imported.alias.asname)


def _with_torch_bound(file: SourceFile, group: Group) -> Spelling:
    """Import `torch` in the place of the old module."""
    if is_bound(file, "torch") or len(group.imports) != 1:
        raise RefusalError("`torch` is not bound")
    bound = Bound("", "torch")
    texts = tuple(use.move.new for use in group.uses if use.move is not None)
    return Spelling(texts, ((group.imports[0], (bound,)),))


# -- from torch import cuda -------------------------------------------------------------------------------------------


def _spell_parent(file: SourceFile, group: Group, kept: bool) -> Spelling:
    stays = kept or bool(group.others)
    callees = _all_dotted(file, group.uses)
    if callees is not None:
        return Spelling(callees, () if stays else dropped(group), dotted=True)
    if not stays:
        return _with_torch_bound(file, group)
    statement = group.imports[0].statement
    if is_bound(file, "torch") or len(group.imports) != 1:
        raise RefusalError("`torch` is not bound")
    texts = tuple(use.move.new for use in group.uses if use.move is not None)
    start = file.span(statement).start
    if not _starts_its_line(file, statement):
        raise RefusalError(f"the import of line {statement.lineno} shares its line with other code")
    edit = Edit(Span(start, start), f"import torch{file.newline}{file.indentation(statement)}")
    return Spelling(texts, (), (), (edit,))


def _starts_its_line(file: SourceFile, statement: ast.stmt) -> bool:
    line = file.line_span(statement.lineno)
    return not file.encoded[line.start : file.span(statement).start].strip()


# -- amp = torch.cuda.amp ---------------------------------------------------------------------------------------------


def _spell_variable(file: SourceFile, group: Group) -> Spelling:
    if any(use.ref.names[0] != ("torch",) for use in group.assignments):
        raise RefusalError("the module is reached through another name")
    if any(use.move is None or not use.move.new.startswith("torch.amp.") for use in group.uses):
        raise RefusalError("the module has no counterpart with all that is used of it")
    for use in group.assignments:
        require_module(file, current_module(use.old), whole=False)
    edits = tuple(
        Edit(file.span(use.node), use.root.id + current_module(use.old).removeprefix("torch"))
        for use in group.assignments
    )
    texts = tuple(f"{group.name}.{use.move.name}" for use in group.uses if use.move is not None)
    return Spelling(texts, edits=edits)


# -- places -----------------------------------------------------------------------------------------------------------


def _holds_its_block(file: SourceFile, statement: Statement, group: Group) -> bool:
    """Whether a block would lose its point without an import: it holds nothing else, or tries it."""
    parent = file.parent(statement)
    if parent is None or parent is file.tree:
        return False
    if isinstance(parent, ast.Try) and statement in parent.body:
        return True
    return all(isinstance(member, (ast.Import, ast.ImportFrom)) for member in siblings(file, statement))
