"""One block that imports a current name, or the deprecated one where torch is older than the current name.

The deprecated and the current classes differ in their first parameter only, and the current ones default to CUDA: with
keywords the same calls work on both. `custom_fwd` and `custom_bwd` get their device with `functools.partial`.
"""

from __future__ import annotations

import ast
from functools import cached_property
from typing import TYPE_CHECKING

from amplint.model import Edit, Span
from amplint.modernize.exports import is_exported, is_package, is_re_export
from amplint.modernize.groups import Group
from amplint.modernize.imports import Changes, Statement, import_order
from amplint.modernize.moves import Move
from amplint.modernize.partials import partial_at_top
from amplint.modernize.refusal import RefusalError
from amplint.torch_api import APIS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from amplint.source import SourceFile


class Shim:
    """The fallback block of one file, and the names that it binds."""

    def __init__(self, file: SourceFile, groups: list[Group]) -> None:
        self._file = file
        self._groups = [group for group in groups if self.binds(group)]
        self._moves: dict[str, Move] = {}
        self._for_others: set[str] = set()

    def binds(self, group: Group) -> bool:
        """Whether the name of a group is one that the block is to bind."""
        return bool(group.imports) and all(i.move is not None and i.move.shim for i in group.imports)

    def local(self, move: Move) -> str:
        """The name that the block binds to a replacement; raises `RefusalError` where it is something else already."""
        name = self._locals.get(move.new, move.name)
        ours = {id(i.alias) for group in self._groups for i in group.imports if i.move and i.move.new == move.new}
        for scope in self._file.names.scopes.values():
            for binding in scope.bindings.get(name, ()):
                if id(binding.alias) not in ours:
                    raise RefusalError(f"line {binding.node.lineno} binds `{name}` too")  # type: ignore[attr-defined]
        self._moves[name] = move
        return name

    @cached_property
    def _locals(self) -> dict[str, str]:
        """The names that the file has for replacements, by qualified name."""
        found: dict[str, str] = {}
        for group in self._groups:
            move = group.imports[0].move
            if move is not None and group.scope is self._file.names.module:
                found.setdefault(move.new, group.name)
        return found

    def block_edits(self, changes: Mapping[Statement, Changes]) -> list[Edit]:
        """The edits that put the block behind the imports at the top of the file."""
        for group in self._groups:
            move = group.imports[0].move
            if move is not None and is_re_export(self._file, group):
                name = self.local(move)
                if not is_exported(self._file, name) and not is_package(self._file):
                    self._for_others.add(name)
        if not self._moves:
            return []
        anchor = self._last_import()
        newline = self._file.newline
        partial = ""
        edits: list[Edit] = []
        customs = sorted(name for name, move in self._moves.items() if move.kind == "custom")
        if customs:
            partial, edits = partial_at_top(self._file, anchor)
        place = self._file.line_span(anchor.end_lineno or anchor.lineno).end
        lead = "" if self._is_first(anchor, changes) else newline
        if self._file.encoded[place - 1 : place] not in (b"\n", b"\r"):
            lead = newline + lead
        code = "".join(line + newline for line in self._lines(partial, customs))
        return [*edits, Edit(Span(place, place), lead + code)]

    def _lines(self, partial: str, customs: list[str]) -> list[str]:
        aliases = sorted(
            (
                move.name if name == move.name and name not in self._for_others else f"{move.name} as {name}"
                for name, move in self._moves.items()
            ),
            key=import_order,
        )
        since = max(version for move in self._moves.values() if (version := APIS[move.old].replacement_since))
        names = ", ".join(aliases)
        lines = [
            "try:",
            f"    from torch.amp import {names}",
            f"except ImportError:  # torch < {since[0]}.{since[1]}",
            f"    from torch.cuda.amp import {names}",
        ]
        if customs:
            lines.append("else:")
            lines += [f'    {name} = {partial}({name}, device_type="cuda")' for name in customs]
        return lines

    def _is_first(self, anchor: ast.stmt, changes: Mapping[Statement, Changes]) -> bool:
        """Whether nothing stays of the file up to the end of a statement."""
        body = self._file.tree.body
        if self._file.encoded[: self._file.span(body[0]).start].strip():
            return False
        return all(
            isinstance(statement, (ast.Import, ast.ImportFrom))
            and [changes.get(statement, {}).get(alias) for alias in statement.names] == [()] * len(statement.names)
            for statement in body[: body.index(anchor) + 1]
        )

    def _last_import(self) -> ast.stmt:
        """The last of the imports with which the file starts.

        Raises `RefusalError` where there are none, or where other code follows on the same line.
        """
        last: ast.stmt | None = None
        for statement in self._file.tree.body:
            if isinstance(statement, (ast.Import, ast.ImportFrom)):
                last = statement
            elif last is not None:
                if statement.lineno == last.end_lineno:
                    raise RefusalError(f"the import of line {last.lineno} shares its line with other code")
                break
        if last is None:
            raise RefusalError("there is no import at the top of the file")
        return last
