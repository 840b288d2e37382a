"""The other files of a run, found by the names under which modules import one another."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from amplint.source import SourceFile

_SOURCE_DIRECTORIES = ("", "src")


class Answer(NamedTuple):
    """Which file (path and content digest) a module was found in, for an import in the file `asker`; "" for none."""

    module: str
    asker: str
    path: str
    digest: str


class Project:
    """The files of a run by module.

    An absolute import is looked for beside the importing file and in all directories above it that hold files of the
    run; the nearest wins. Files are read when they are asked for and kept, for many files ask for the same ones.
    """

    def __init__(self, files: Iterable[str]) -> None:
        self._files = {os.path.abspath(path): path for path in files}
        try:
            self._top = os.path.commonpath([os.path.dirname(path) for path in self._files])
        except ValueError:  # no files, or several drives of Windows
            self._top = ""
        self._sources: dict[str, SourceFile | None] = {}
        self._digests: dict[str, str] = {}

    def find(self, module: str, filename: str) -> str | None:
        """The path of a module that `filename` imports (`a.b`, or `..a.b` relative to it), None if none of the run."""
        directory = os.path.dirname(os.path.abspath(filename))
        bare = module.lstrip(".")
        parts = bare.split(".") if bare else []
        for _ in range(len(module) - len(bare) - 1):
            directory = os.path.dirname(directory)
        if module.startswith("."):
            return self._in(directory, parts)
        while directory.startswith(self._top):
            for inner in _SOURCE_DIRECTORIES:
                found = self._in(os.path.join(directory, inner) if inner else directory, parts)
                if found is not None:
                    return found
            above = os.path.dirname(directory)
            if above == directory:
                break
            directory = above
        return None

    def _in(self, directory: str, parts: list[str]) -> str | None:
        base = os.path.join(directory, *parts)
        for path in (f"{base}.py", os.path.join(base, "__init__.py")):
            if path in self._files:
                return self._files[path]
        return None

    def source(self, module: str, filename: str) -> SourceFile | None:
        """A module that `filename` imports, None if it is not in the run or can't be read."""
        path = self.find(module, filename)
        if path is None:
            return None
        if path not in self._sources:
            self._sources[path] = self._read(path)
        return self._sources[path]

    def answers(self, file: SourceFile) -> list[Answer]:
        """What was asked for the sake of a file that was checked, for `holds`."""
        return [
            Answer(module, asker, path, self.digest(path) if path else "")
            for (module, asker), path in file.lookups.items()
        ]

    def holds(self, answers: Iterable[Answer]) -> bool:
        """Whether the same questions have the same answers, from files with the same content."""
        return all(
            (self.find(answer.module, answer.asker) or "") == answer.path
            and (not answer.path or self.digest(answer.path) == answer.digest)
            for answer in answers
        )

    def digest(self, path: str) -> str:
        """The name of a file's content, "" if it can't be read."""
        from amplint.cache import content_digest
        from amplint.files import FileError, read

        if path not in self._digests:
            try:
                self._digests[path] = content_digest(read(path))
            except (OSError, FileError):
                self._digests[path] = ""
        return self._digests[path]

    def _read(self, path: str) -> SourceFile | None:
        from amplint.cache import content_digest
        from amplint.files import FileError, UndecodableError, decode, read
        from amplint.settings import DEFAULT
        from amplint.source import SourceFile

        try:
            data = read(path)
            text = decode(data).text
        except (OSError, FileError, UndecodableError):
            return None
        self._digests[path] = content_digest(data)
        return SourceFile(text, path, DEFAULT, self)
