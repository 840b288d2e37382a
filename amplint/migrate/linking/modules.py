"""Which file of a project an import means."""

from __future__ import annotations

import ast
import os
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from amplint.project import repository_root

if TYPE_CHECKING:
    from amplint.settings import Settings
    from amplint.source import SourceFile

_ABOVE = 3
"""How many directories above a file are searched for what it imports, outside of a repository."""
_SOURCES = ("", "src")
_HOPS = 4
"""So many files may pass a name on, as the `__init__.py` of a package does."""

Entity = tuple[str, str]
"""A global name and the absolute path of the file that gives it its value; the name is empty for the module itself."""


class Modules:
    """The files of a project by the names under which they import one another.

    `texts` are the texts of files by absolute path, which count in place of what the disk has; other files are read
    when they are asked for.
    """

    def __init__(self, texts: Mapping[str, str], settings: Settings) -> None:
        self._texts = texts
        self._settings = settings
        self._read: dict[str, str] = {}
        self._files: dict[str, SourceFile | None] = {}
        self._neighbours: dict[str, set[str]] = {}

    def text(self, path: str) -> str:
        """The text of a file, empty where it can't be read."""
        from amplint.files import FileError, UndecodableError, decode, read

        if path not in self._read:
            try:
                self._read[path] = self._texts[path] if path in self._texts else decode(read(path)).text
            except (FileError, UndecodableError):
                self._read[path] = ""
        return self._read[path]

    def file(self, path: str) -> SourceFile | None:
        """A file of the project, None where it can't be read or does not parse."""
        from amplint.source import SourceFile

        if path not in self._files:
            try:
                made = SourceFile(self.text(path), path, self._settings)
                _ = made.names
                self._files[path] = None if made.unseen_rows else made
            except (SyntaxError, ValueError, RecursionError, MemoryError):
                self._files[path] = None
        return self._files[path]

    def paths(self, module: str, asker: str) -> list[str]:
        """The files that a module may be which the file `asker` imports, as `a.b` or `..a.b`; the nearest first.

        More than one means that it depends on where Python is started.
        """
        directory = os.path.dirname(asker)
        bare = module.lstrip(".")
        parts = bare.split(".") if bare else []
        if level := len(module) - len(bare):
            for _ in range(level - 1):
                directory = os.path.dirname(directory)
            return self._in(directory, parts)
        beside = self._in(directory, parts)
        if beside and not self._in(directory, []):
            return beside  # scripts beside one another, in no package
        root = repository_root(directory)
        found: dict[str, None] = {}
        for _ in range(_ABOVE + 1 if root is None else directory.count(os.sep) - root.count(os.sep) + 1):
            for source in _SOURCES:
                found.update(dict.fromkeys(self._in(os.path.join(directory, source) if source else directory, parts)))
            directory = os.path.dirname(directory)
        return list(found)

    def _in(self, directory: str, parts: list[str]) -> list[str]:
        base = os.path.join(directory, *parts)
        candidates = (
            (f"{base}.py", os.path.join(base, "__init__.py")) if parts else (os.path.join(base, "__init__.py"),)
        )
        return [path for path in candidates if path in self._texts or os.path.isfile(path)][:1]

    def entities(self, module: str, name: str, asker: str, hops: int = _HOPS) -> list[Entity]:
        """What `from module import name` binds in the file `asker`: several where that can't be told."""
        found: dict[Entity, None] = {}
        submodule = f"{module}{name}" if module.endswith(".") else f"{module}.{name}"
        paths = self.paths(module, asker)
        for path in paths:
            found.update(dict.fromkeys(self.exported(path, name, hops)))
        if not found or not paths:
            found.update(dict.fromkeys((path, "") for path in self.paths(submodule, asker)))
        return list(found)

    def exported(self, path: str, name: str, hops: int = _HOPS) -> list[Entity]:
        """What a global name of a file stands for, in it or in the file that it comes from."""
        file = self.file(path)
        if file is None or not hops:
            return []
        found: dict[Entity, None] = {}
        bindings = file.names.module.bindings.get(name, ())
        for binding in bindings:
            if binding.kind != "import" or binding.alias is None:
                found[path, name] = None
            elif further := self.imported(path, binding.node, binding.alias, hops - 1):
                found.update(dict.fromkeys(further))
            else:
                found[path, name] = None  # of a library: the name of this file for it
        for module in self.stars(file) if not bindings else ():
            for other in self.paths(module, path):
                found.update(dict.fromkeys(self.exported(other, name, hops - 1)))
        return list(found)

    def imported(self, asker: str, node: ast.AST, alias: ast.alias, hops: int = _HOPS) -> list[Entity]:
        """What one name of an import statement is, where it is of the project; for `import a.b` the module `a.b`."""
        if isinstance(node, ast.ImportFrom):
            module = "." * node.level + (node.module or "")
            return self.entities(module, alias.name, asker, hops)
        return [(path, "") for path in self.paths(alias.name, asker)]

    @staticmethod
    def stars(file: SourceFile) -> list[str]:
        """The modules from which a file imports everything."""
        return [star.target for star in file.names.module.stars]

    def may_import(self, path: str, other: str) -> bool:
        """Whether the text of a file holds a word by which it would import another; a look without parsing."""
        text = self.text(path)
        names = os.path.splitext(other)[0].split(os.sep)[-2:]
        return any(name in text for name in names if name != "__init__")

    def neighbours(self, path: str) -> set[str]:
        """The files of the project that a file imports, by the files from which the names really come too."""
        file = self.file(path)
        found: set[str] = set()
        if path in self._neighbours:
            return self._neighbours[path]
        for node in file.names.imports if file is not None else ():
            for alias in node.names:
                if isinstance(node, ast.ImportFrom):
                    found.update(self.paths("." * node.level + (node.module or ""), path))
                if alias.name != "*":
                    found.update(entity[0] for entity in self.imported(path, node, alias))
        stars = [p for module in (self.stars(file) if file is not None else ()) for p in self.paths(module, path)]
        found.update(other for star in stars for other in self._passed_on(star, _HOPS))
        self._neighbours[path] = found - {path}
        return self._neighbours[path]

    def _passed_on(self, path: str, hops: int) -> set[str]:
        """A file and those whose names it has by star imports."""
        file = self.file(path)
        found = {path}
        for module in self.stars(file) if file is not None and hops else ():
            for other in self.paths(module, path):
                found |= self._passed_on(other, hops - 1)
        return found


def project_files(directories: Iterable[str]) -> list[str]:
    """The absolute paths of the Python files of the projects in which directories lie, but for excluded ones.

    A project is a repository. Outside of one it is what lies below a directory, and the files of the directories above
    and beside it, as far as those above hold Python files.
    """
    from amplint.discover import discover
    from amplint.settings import SettingsResolver

    walked: set[str] = set()
    single: set[str] = set()
    for directory in directories:
        root = repository_root(directory)
        walked.add(root or directory)
        for _ in range(_ABOVE if root is None else 0):
            directory = os.path.dirname(directory)
            if not (found := _python_in(directory)):
                break
            single |= found
            single |= {path for beside in _directories_in(directory) for path in _python_in(beside)}
    return sorted({os.path.abspath(path) for path in discover(sorted(walked), SettingsResolver({})).files} | single)


def _python_in(directory: str) -> set[str]:
    return {entry.path for entry in _entries(directory) if entry.name.endswith(".py") and entry.is_file()}


def _directories_in(directory: str) -> list[str]:
    return [entry.path for entry in _entries(directory) if not entry.name.startswith(".") and entry.is_dir()]


def _entries(directory: str) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(directory) as entries:
            return list(entries)
    except OSError:
        return []
