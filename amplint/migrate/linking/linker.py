"""Links files to one text that means the same, and takes the text apart again after it was migrated.

Imports of linked files go, and each name of another file is written as that file writes it. Where two files use one
global name for different things, those get names of their own. All of it is undone in the parts of the new text: what
remains are the edits of the migration.
"""

from __future__ import annotations

import ast
import builtins
import os
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from amplint.edits import apply_fixes
from amplint.migrate.linking.modules import Entity, Modules
from amplint.migrate.linking.parts import mark
from amplint.migrate.linking.symbols import LinkError, Symbols
from amplint.migrate.screening import is_wrapper_name
from amplint.model import Applicability, Edit, Fix, Span

if TYPE_CHECKING:
    from amplint.source import SourceFile

_PLACEHOLDER = "amplint_import_{}"
_WORD = r"(?<![\w.]){}(?!\w)"


class Part(NamedTuple):
    """A file in a linked text: its first row there (from 1), and what has to be undone in it.

    `ended` says whether its last line has a line end. `imports` are pairs of import statements, as linked and as they
    were; `names` those of names.
    """

    path: str
    first_row: int
    rows: int
    ended: bool
    imports: tuple[tuple[str, str], ...]
    names: tuple[tuple[str, str], ...]


class Linked(NamedTuple):
    """Files as one text; `sees` are the global names of others that each part imports."""

    text: str
    parts: tuple[Part, ...]
    sees: tuple[frozenset[str], ...]

    def place(self, row: int) -> tuple[str, int]:
        """The file and the row in it of a row of the linked text."""
        part = max((p for p in self.parts if p.first_row <= row), key=lambda p: p.first_row, default=self.parts[0])
        return part.path, min(max(row - part.first_row + 1, 1), part.rows)

    def split(self, text: str) -> dict[str, str] | None:
        """The files of a changed linked text, by path; None where they can't be told."""
        found: dict[str, str] = {}
        rest = text
        for number in range(len(self.parts)):
            head, found_mark, rest = rest.partition(mark(number) + "\n")
            if not found_mark or (number == 0 and head):
                return None
            if number:
                found[self.parts[number - 1].path] = head
        found[self.parts[-1].path] = rest
        for part in self.parts:
            own = found[part.path] if part.ended else found[part.path].removesuffix("\n")
            for linked, original in part.imports:
                if own.count(linked) != 1:
                    return None
                own = own.replace(linked, original)
            for linked, original in part.names:
                own = re.sub(_WORD.format(re.escape(linked)), lambda _, text=original: text, own)  # type: ignore[misc]
            found[part.path] = own
        return found


def link(paths: Sequence[str], texts: Mapping[str, str], modules: Modules) -> Linked:
    """Link files, each after those that it imports; the text stands where the last one does.

    Raises `LinkError` where they can't be.
    """
    return _Linker(paths, texts, modules).linked()


class _Linker:
    def __init__(self, paths: Sequence[str], texts: Mapping[str, str], modules: Modules) -> None:
        self.paths = list(paths)
        self.modules = modules
        self.files: dict[str, SourceFile] = {}
        for path in self.paths:
            file = modules.file(path)
            if file is None:
                raise LinkError(path, ast.Module([], []), "this file does not parse")
            if "\r" in texts[path]:
                raise LinkError(path, file.tree, "its lines do not all end in the same way")
            self.files[path] = file
        linked = frozenset(self.paths)
        self.symbols = {path: Symbols(self.files[path], path, linked, modules) for path in self.paths}
        self.texts = texts
        self._numbers = 0

    def linked(self) -> Linked:
        """The linked text."""
        new = self._new_names()
        text, row = "", 1
        parts: list[Part] = []
        for number, path in enumerate(self.paths):
            own, imports, names = self._part(path, new)
            ended = own.endswith("\n")
            own += "" if ended else "\n"
            rows = own.count("\n")
            parts.append(Part(path, row + 1, rows, ended, imports, names))
            text += f"{mark(number)}\n{own}"
            row += rows + 1
        sees = [
            frozenset(new.get(reference.entity, reference.entity[1]) for reference in self.symbols[path].references)
            for path in self.paths
        ]
        return Linked(text, tuple(parts), tuple(sees))

    # -- names --------------------------------------------------------------------------------------------------------

    def _new_names(self) -> dict[Entity, str]:
        """The names of those global things that can't keep theirs; imports of libraries count as their file's."""
        meanings: dict[str, dict[tuple[str, ...], list[str]]] = {}
        for path, symbols in self.symbols.items():
            for name in symbols.names.module.bindings:
                meanings.setdefault(name, {}).setdefault(symbols.meaning(name), []).append(path)
        renamed: dict[Entity, None] = {}
        for name, found in meanings.items():
            imports = [key for key in found if key[0] == "import"]
            free = any(name in symbols.free for symbols in self.symbols.values()) or hasattr(builtins, name)
            for key, paths in found.items():
                if key[0] == "linked" and key[2] and (len(found) > 1 or free):
                    renamed[key[1], key[2]] = None
                elif key[0] == "import" and key is not imports[0]:
                    renamed.update(dict.fromkeys((path, name) for path in paths))
        for symbols in self.symbols.values():
            for reference in symbols.references:
                if reference.spelling != reference.entity[1]:
                    renamed[reference.entity] = None
        return {entity: self._fresh(entity) for entity in renamed}

    def _fresh(self, entity: Entity) -> str:
        """A name that no file holds; it ends as the old one does, since much is known by such ends (`..._device`)."""
        path, name = entity
        if is_wrapper_name(name):
            raise LinkError(path, ast.Module([], []), f"`{name}` means something else in another of the files")
        letter = "P" if name[:1].isupper() else "p"
        number = self.paths.index(path) + 1 if path in self.paths else 0
        candidate = f"{letter}{number}_{name}"
        while any(candidate in text for text in self.texts.values()):
            number += len(self.paths) + 1
            candidate = f"{letter}{number}_{name}"
        return candidate

    # -- one file -----------------------------------------------------------------------------------------------------

    def _part(
        self, path: str, new: Mapping[Entity, str]
    ) -> tuple[str, tuple[tuple[str, str], ...], tuple[tuple[str, str], ...]]:
        symbols = self.symbols[path]
        edits: list[Edit] = []
        names: dict[str, str] = {}
        own = {name for owner, name in new if owner == path}
        for name in own:
            edits += [Edit(span, new[path, name]) for span in symbols.definitions(name)]
            names[new[path, name]] = name
        for reference in symbols.references:
            linked = new.get(reference.entity, reference.entity[1])
            if linked != reference.spelling:
                edits.append(Edit(reference.span, linked))
                if names.setdefault(linked, reference.spelling) != reference.spelling:
                    raise LinkError(path, self._at(path, reference.span), "one name of another file has two names here")
        imports = []
        for node in symbols.names.imports:
            statement = self._import(path, node, {name: new[path, name] for name in own})
            if statement is not None:
                imports.append((statement, self.files[path].segment(node)))
                edits.append(Edit(self.files[path].span(node), statement))
        result = apply_fixes(self.texts[path], [Fix("link", tuple(edits), Applicability.UNSAFE)] if edits else [])
        if edits and not result.applied:
            raise LinkError(path, self.files[path].tree, "its names can't be linked")
        return result.text, tuple(imports), tuple(names.items())

    def _at(self, path: str, span: Span) -> ast.AST:
        return ast.Pass(lineno=self.files[path].row(span.start), col_offset=0)

    def _import(self, path: str, node: ast.Import | ast.ImportFrom, own: Mapping[str, str]) -> str | None:
        """An import statement without what is linked, as the last file would write it; None where it can stay."""
        kept = [alias for alias in node.names if not self._is_linked(path, node, alias)]
        head = ""
        if isinstance(node, ast.ImportFrom):
            module = self._module(path, node)
            head = f"from {module} "
            changed = module != "." * node.level + (node.module or "")
        else:
            changed = False
        changed = changed or len(kept) < len(node.names)
        parts = []
        for alias in kept:
            name = alias.asname or alias.name
            if name in own and isinstance(node, ast.Import) and not alias.asname and "." in name:
                raise LinkError(path, node, f"`{name}` means something else in another of the files")
            changed = changed or name in own
            bound = own.get(name, alias.asname)
            parts.append(f"{alias.name} as {bound}" if bound else alias.name)
        if not changed:
            return None
        self._numbers += 1
        placeholder = _PLACEHOLDER.format(self._numbers)
        lines = "\n" * self.files[path].segment(node).count("\n")
        if not parts:
            return f"from {placeholder} import ({lines}{placeholder})" if lines else f"import {placeholder}"
        if parts == ["*"] or not head:
            if lines:
                raise LinkError(path, node, "this import stands on several lines and can't be linked")
            return f"{head}import {', '.join(parts)}; import {placeholder}"
        return f"{head}import ({', '.join(parts)},{lines} {placeholder})"

    def _is_linked(self, path: str, node: ast.Import | ast.ImportFrom, alias: ast.alias) -> bool:
        linked = set(self.paths)
        if isinstance(node, ast.ImportFrom) and alias.name == "*":
            return bool(linked.intersection(self.modules.paths("." * node.level + (node.module or ""), path)))
        if isinstance(node, ast.Import) and not alias.asname and "." in alias.name:
            return False  # it may bind a package for other uses; what is linked does not go by it any more
        return any(owner in linked for owner, _ in self.modules.imported(path, node, alias))

    def _module(self, path: str, node: ast.ImportFrom) -> str:
        """The module of an import, as the last file, where the linked text stands, would write it."""
        module = "." * node.level + (node.module or "")
        here, there = os.path.dirname(path), os.path.dirname(self.paths[-1])
        if here == there:
            return module
        if node.level:
            base = here
            for _ in range(node.level - 1):
                base = os.path.dirname(base)
            target = os.path.join(base, *(node.module.split(".") if node.module else ()))
        else:
            found = self.modules.paths(module, path)
            if not found or found == self.modules.paths(module, self.paths[-1]):
                return module
            target = os.path.splitext(found[0])[0].removesuffix(f"{os.sep}__init__")
        relative = os.path.relpath(target, there).split(os.sep)
        ups = relative.count(os.pardir)
        return "." * (ups + 1) + ".".join(part for part in relative[ups:] if part != os.curdir)
