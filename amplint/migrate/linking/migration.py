"""Migrates the files of a run: each by itself, or those together that share a training loop."""

from __future__ import annotations

import ast
import os
import re
from collections.abc import Callable, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

from amplint.migrate.comparison import edits_between, new_faults
from amplint.migrate.linking import callers
from amplint.migrate.linking.groups import Imports, united
from amplint.migrate.linking.homes import Homes, same_code, unbound, with_torch
from amplint.migrate.linking.linker import Linked, link
from amplint.migrate.linking.modules import Modules, project_files
from amplint.migrate.linking.parts import LinkedFile
from amplint.migrate.linking.symbols import LinkError
from amplint.migrate.migration import UNSAVED_REASON, migrate_file, migrate_source
from amplint.migrate.model import MIGRATED, PARTLY, REFUSED, LoopReport, MigrationResult, Options, RefusalError
from amplint.migrate.scalers.checkpoints import UNSAVED
from amplint.modules import Project
from amplint.settings import DEFAULT
from amplint.source import SourceFile

if TYPE_CHECKING:
    from amplint.settings import Settings

_TRAINING_WORDS = ("backward", "optim", "autograd", "grad(", "training_step", "Trainer", ".fit")
"""A file that trains, itself or by a framework, has one of these in its text."""
_FILES = 16
"""So many files are linked at most."""
_LINE = re.compile(r"(?<![\w`])line (\d+)(?=: )")
_TOGETHER = "changes together with {}"


class Migrations(NamedTuple):
    """The results by file, what amplint itself failed with, by the files that have none because of it, and the files
    that must be written together or not at all."""

    results: dict[str, MigrationResult]
    failures: dict[str, Exception]
    groups: list[list[str]]


def migrate_files(texts: Mapping[str, str], settings: Callable[[str], Settings], options: Options) -> Migrations:
    """Migrate files, given as their texts by path; `settings` are those of a path. Files that do not train have no
    result of their own.

    Files that share a training loop, which makes its optimizer in one and goes backward in another, are migrated
    together or left together. Of the other files of their projects, those that may call what would change are looked
    for: such a file has to be given too.
    """
    return _Run(texts, settings, options).results()


class _Run:
    def __init__(self, texts: Mapping[str, str], settings: Callable[[str], Settings], options: Options) -> None:
        self.names = {os.path.abspath(name): name for name in texts}
        self.texts = {path: texts[name] for path, name in self.names.items()}
        self.plain = {path: text.replace("\r\n", "\n") for path, text in self.texts.items()}
        self.settings = settings
        self.options = options
        self.failures: dict[str, Exception] = {}
        self.alone: dict[str, MigrationResult] = {}
        for path, name in self.names.items():
            if not is_about_training(self.texts[path]):
                continue
            try:
                self.alone[path] = migrate_source(self.texts[path], name, settings(name), options)
            except Exception as error:
                self.failures[name] = error

    @cached_property
    def modules(self) -> Modules:
        """The files of the run as they import one another."""
        name = next(iter(self.names.values()))
        return Modules(self.plain, self.settings(name))

    @cached_property
    def imports(self) -> Imports:
        """Which of the given files import which."""
        return Imports(self.texts, self.modules)

    @cached_property
    def project(self) -> list[str]:
        """All files of the projects of the run."""
        return sorted({*project_files({os.path.dirname(path) for path in self.texts}), *self.texts})

    def results(self) -> Migrations:
        """The result for each file, by its name as it was given."""
        found = dict(self.alone)
        seeds = [path for path, result in self.alone.items() if self._needs_others(path, result)]
        joined: set[str] = set()
        groups: list[list[str]] = []
        for group in united(self.imports.around([path], self.alone) for path in seeds):
            together = self._best(group, [path for path in seeds if path in group])
            changed = {path for path, result in together.items() if result.text != self.texts[path]}
            joined |= changed
            groups += [sorted(self.names[path] for path in changed)] if changed else []
            for path, result in together.items():
                if changed or (path in self.alone and self.alone[path].text == self.texts[path]):
                    found[path] = result if changed or result.loops else self._own(path)
        for path in seeds:
            if path not in joined:
                found[path] = self._left(path, found[path])
        results = {name: found[path] for path, name in self.names.items() if path in found}
        return Migrations(results, self.failures, groups)

    def _best(self, group: set[str], seeds: list[str]) -> dict[str, MigrationResult]:
        """The results of files that were linked: those that train, or else with all that they import."""
        first: dict[str, MigrationResult] = {}
        for files in (group, self.imports.around(group, self.texts)):
            results = self._grown(files)
            first = first or results
            if any(results[path].text != self.texts[path] for path in seeds if path in results):
                return results
        return first

    def _grown(self, group: set[str]) -> dict[str, MigrationResult]:
        """The results of linked files, with those that call what changes."""
        results: dict[str, MigrationResult] = {}
        while 1 < len(group) <= _FILES and not any(self.names[path] in self.failures for path in group):
            try:
                results, caller = self._together(self.imports.ordered(group))
            except Exception as error:
                self.failures.update(dict.fromkeys((self.names[path] for path in group), error))
                return {}
            if caller not in self.texts:
                break
            group = self.imports.around([*group, caller], self.alone)
        return results

    def _needs_others(self, path: str, result: MigrationResult) -> bool:
        """Whether other files may matter to a file's migration."""
        if result.text != self.texts[path]:
            names = callers.changed(self.texts[path], result.text)
            if names and callers.outside(path, names, self.modules, self.project, {path}):
                return True
            return any(loop.missing for loop in result.loops)
        return any(loop.status == REFUSED for loop in result.loops)

    def _own(self, path: str) -> MigrationResult:
        """What is said of a file alone, but that it needs others, which were there."""
        return self.alone[path]._replace(loops=[loop for loop in self.alone[path].loops if not loop.missing])

    # -- one file -----------------------------------------------------------------------------------------------------

    def _left(self, path: str, result: MigrationResult) -> MigrationResult:
        """The result of a file that was not migrated with others: refused where others call what it would change."""
        if result.text != self.texts[path]:
            names = callers.changed(self.texts[path], result.text)
            caller = callers.outside(path, names, self.modules, self.project, {path}) if names else ""
            if not caller:
                return result
            reason = f"`{self._name(caller)}` calls what would change here; {self._both(caller, path)}"
            loops = [LoopReport(loop.line, REFUSED, reason, missing="caller") for loop in result.loops if loop.training]
            return MigrationResult(self.texts[path], loops)
        loops = [loop._replace(reason=loop.reason + self._hint(path, loop)) for loop in result.loops]
        return result._replace(loops=loops)

    def _hint(self, path: str, loop: LoopReport) -> str:
        """Where what a loop misses is, for a user to give that file too."""
        if loop.missing == "caller":
            found = [o for o in self.project if self.modules.may_import(o, path) and path in self.modules.neighbours(o)]
        elif loop.missing == "loop":
            found = [o for o in self.modules.neighbours(path) if ".backward(" in (self.modules.text(o) or "")]
        else:
            return ""
        found = [other for other in sorted(found) if other not in self.texts]
        if not found:
            return ""
        where = "it is called in" if loop.missing == "caller" else "that is"
        names = " and ".join(f"`{self._name(other)}`" for other in found[:3])
        return f" ({where} {names}: {self._both(*found[:3], path)})"

    def _both(self, *paths: str) -> str:
        return f"give both: `amplint migrate {' '.join(self._name(path) for path in paths)}`"

    def _name(self, path: str) -> str:
        if path in self.names:
            return self.names[path]
        given = next(iter(self.names.values()))
        return path if os.path.isabs(given) else os.path.relpath(path)

    # -- several files ------------------------------------------------------------------------------------------------

    def _together(self, paths: list[str]) -> tuple[dict[str, MigrationResult], str]:
        """The results of files that were linked, and another file that calls what would change."""
        mixed = [p for p in paths if self._ended(p, self.plain[p]) != self.texts[p]]
        try:
            if mixed:
                raise LinkError(mixed[0], ast.Module([], []), "its lines do not all end in the same way")
            linked = link(paths, self.plain, self.modules)
        except LinkError as error:
            return self._unlinked(paths, error), ""
        root = self.names[paths[-1]]
        file = LinkedFile(linked.text, root, self.settings(root), linked.sees)
        result = migrate_file(file, self.options)
        if result.text == linked.text:
            return self._reports(linked, result, self.plain), ""
        new = linked.split(result.text)
        objection = self._torn(paths, result.text, new)
        faults = {} if objection else self._faults(paths, new or {})
        objection = objection or next((text for code, text in faults.values() if code != UNSAVED), "")
        caller = "" if objection else self._caller(paths, new or {})
        if caller:
            every = " ".join(self._name(path) for path in (caller, *paths))
            objection = f"`{self._name(caller)}` calls what would change; give it too: `amplint migrate {every}`"
        if objection or new is None:
            refused = [LoopReport(loop.line, REFUSED, objection) for loop in result.loops if loop.training]
            return self._reports(linked, MigrationResult(linked.text, refused), self.plain), caller
        reports = self._reports(linked, result, new)
        for path in faults:
            first = min(loop.line for loop in reports[path].loops)
            reports[path].loops.append(LoopReport(first, PARTLY, UNSAVED_REASON, (), False, "checkpoint"))
        return reports, ""

    def _unlinked(self, paths: list[str], error: LinkError) -> dict[str, MigrationResult]:
        """What is said of loops that need other files where those can't be linked."""
        row = getattr(error.node, "lineno", 1)
        reason = f"line {row} of {self._name(error.path)}: {error.reason}"
        return {
            path: self.alone[path]._replace(
                loops=[
                    loop._replace(reason=f"{loop.reason} ({reason})") if loop.missing else loop
                    for loop in self.alone[path].loops
                ]
            )
            for path in paths
            if path in self.alone
        }

    def _torn(self, paths: list[str], text: str, new: dict[str, str] | None) -> str:
        """What stands against taking a migrated text apart: a name that a file can't have, or that the files, linked
        again, are another text. Imports that files need are added."""
        apart = "the migration gets in the way of what the files import from one another"
        if new is None:
            return apart
        homes = Homes(paths, {path: self.plain[path] for path in paths}, new, self.modules)
        try:
            homes.settle()
            again = link(paths, new, Modules({**self.plain, **new}, self.settings(self.names[paths[-1]])))
        except LinkError:
            return apart
        except RefusalError as refusal:
            return refusal.reason
        if not same_code(again.text, text, homes.moved):
            return apart
        for path in paths:
            if "torch" in unbound(new[path]) - unbound(self.plain[path]):
                new[path] = with_torch(new[path])
        return ""

    def _faults(self, paths: list[str], new: dict[str, str]) -> dict[str, tuple[str, str]]:
        """The first new fault of each new file that the rules find with the other new files in view."""
        found = {}
        project = _NewProject(self.project, new)
        for path in paths:
            file = SourceFile(self.plain[path], path, self.settings(self.names[path]))
            if new[path] != self.plain[path] and (faults := new_faults(file, new[path], project)):
                found[path] = next((fault for fault in faults if fault[0] != UNSAVED), faults[0])
        return found

    def _caller(self, paths: list[str], new: dict[str, str]) -> str:
        """Another file of the project that calls what would change, empty where none does."""
        for path in paths:
            names = callers.changed(self.plain[path], new[path])
            caller = callers.outside(path, names, self.modules, self.project, set(paths)) if names else ""
            if caller:
                return caller
        return ""

    def _reports(self, linked: Linked, result: MigrationResult, new: Mapping[str, str]) -> dict[str, MigrationResult]:
        new = {part.path: self._ended(part.path, new[part.path]) for part in linked.parts}
        edits = {path: edits_between(self.texts[path], text) for path, text in new.items()}
        loops: dict[str, list[LoopReport]] = {path: [] for path in edits if path in self.alone or edits[path]}
        for loop in result.loops:
            path, row = linked.place(loop.line)
            reason = _LINE.sub(lambda match, path=path: self._place(linked, int(match[1]), path), loop.reason)  # type: ignore[misc]
            own = edits[path] if loop.status == MIGRATED else ()
            loops.setdefault(path, []).append(loop._replace(line=row, reason=reason, edits=own))
        trained = [self._name(path) for path, found in loops.items() if any(loop.training for loop in found)]
        for path in loops:
            changes = edits[path]
            if changes and not any(loop.edits for loop in loops[path]):
                row = SourceFile(self.texts[path], path, self.settings(path)).row(changes[0].span.start)
                reason = _TOGETHER.format(" and ".join(trained))
                loops[path].append(LoopReport(row, MIGRATED, reason, changes, False))
        return {path: MigrationResult(new[path], loops[path], edits[path]) for path in loops}

    def _ended(self, path: str, text: str) -> str:
        """A text with the line ends of a file."""
        return text.replace("\n", "\r\n") if "\r\n" in self.texts[path] else text

    def _place(self, linked: Linked, row: int, here: str) -> str:
        path, own = linked.place(row)
        return f"line {own}" if path == here else f"line {own} of {self._name(path)}"


class _NewProject(Project):
    """The files of a project, some of them with new texts."""

    def __init__(self, paths: list[str], texts: Mapping[str, str]) -> None:
        super().__init__(paths)
        self._texts = texts

    def _read(self, path: str) -> SourceFile | None:
        if path in self._texts:
            return SourceFile(self._texts[path], path, DEFAULT, self)
        return super()._read(path)


def is_about_training(text: str) -> bool:
    """Whether a file may train."""
    return any(word in text for word in _TRAINING_WORDS)
