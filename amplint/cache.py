"""What was found in each file, kept between runs.

One JSON file in `.amplint_cache/` holds, by path, what the check of a file said. An entry is valid while the file has
the same modification time and size, or else the same content, and while the context is the same: the version, the
rules, the version of Python and the settings. The file can always be deleted; a damaged one is ignored.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

from amplint._version import VERSION
from amplint.model import (
    Applicability,
    Diagnostic,
    FixInfo,
    Level,
    Location,
    RelatedPlace,
    TextEdit,
)
from amplint.modules import Answer

if TYPE_CHECKING:
    from amplint.modules import Project
    from amplint.settings import Settings

DIRECTORY = ".amplint_cache"
MOST_ENTRIES = 100_000
DAYS_KEPT = 30
"""Entries of files that no run met for so long are dropped."""

_FILE = "findings.json"
_CACHEDIR_TAG = "Signature: 8a477f597d28d172789f06886806bc55\n# Made by amplint; see https://bford.info/cachedir/\n"
_RACE_NS = 2_000_000_000
"""A file changed so shortly ago may change again without a new modification time: some clocks tick in seconds."""


class _Entry(NamedTuple):
    mtime_ns: int
    size: int
    context: int
    day: int
    digest: str
    found: list[Any]
    answers: Sequence[Any] = ()
    unfinished: Sequence[str] = ()


class Known(NamedTuple):
    """What was found in a file, and which functions were too much for the protocol engine."""

    found: Sequence[Diagnostic]
    unfinished: Sequence[str]


class Cache:
    """The results of earlier runs, read on creation; `save` writes them back with the new ones.

    `root` is the directory in which `.amplint_cache` stands and to which paths are relative. Nothing here raises for a
    cache that can't be read or written: the next run is slower, that is all.
    """

    def __init__(self, root: str) -> None:
        import time

        self._root = os.path.join(os.path.abspath(root), "")
        self._now_ns = time.time_ns()
        self._today = self._now_ns // (86_400 * 10**9)
        self._contexts: list[str] = []
        self._entries: dict[str, _Entry] = {}
        self._context_of: dict[Settings, int] = {}
        self._changed = False
        self._load()

    def find(
        self, path: str, status: os.stat_result, settings: Settings, project: Project | None = None
    ) -> Known | None:
        """What is known of an unchanged file by its modification time and size, None if it must be looked at.

        `project` answers what the entry depends on; without it, nothing is known of a file that looked into others.
        """
        key = self._key(path)
        entry = self._entries.get(key)
        if (
            entry is None
            or entry.mtime_ns != status.st_mtime_ns
            or entry.size != status.st_size
            or entry.context != self._context(settings)
        ):
            return None
        return self._recall(key, entry, path, project)

    def find_by_content(
        self, path: str, status: os.stat_result, digest: str, settings: Settings, project: Project | None = None
    ) -> Known | None:
        """What is known of a file that has the same content as when it was checked, None if it has not."""
        key = self._key(path)
        entry = self._entries.get(key)
        if entry is None or entry.digest != digest or entry.context != self._context(settings):
            return None
        entry = entry._replace(mtime_ns=self._trusted_mtime(status), size=status.st_size)
        self._entries[key] = entry
        self._changed = True
        return self._recall(key, entry, path, project)

    def store(
        self,
        path: str,
        status: os.stat_result,
        digest: str,
        settings: Settings,
        found: Sequence[Diagnostic],
        answers: Sequence[Answer] = (),
        unfinished: Sequence[str] = (),
    ) -> None:
        """Remember what was found in a file with this status and content; an empty `digest` matches no content.

        `answers` is what was looked up in other files: the entry is valid while they answer the same.
        """
        self._entries[self._key(path)] = _Entry(
            self._trusted_mtime(status),
            status.st_size,
            self._context(settings),
            self._today,
            digest,
            [_pack(diagnostic) for diagnostic in found],
            answers,
            unfinished,
        )
        self._changed = True

    def save(self) -> None:
        """Write the cache, without entries that no run has met for a month, if anything in it changed."""
        if not self._changed:
            return
        import json

        from amplint.files import FileError, write_atomically

        kept = [item for item in self._entries.items() if self._today - item[1].day <= DAYS_KEPT]
        kept.sort(key=lambda item: (-item[1].day, item[0]))
        used = sorted({entry.context for _, entry in kept[:MOST_ENTRIES]})
        renumbered = {old: new for new, old in enumerate(used)}
        data = {
            "contexts": [self._contexts[index] for index in used],
            "files": {key: entry._replace(context=renumbered[entry.context]) for key, entry in kept[:MOST_ENTRIES]},
        }
        try:
            directory = self._directory()
            path = os.path.join(directory, _FILE)
            if not os.path.exists(path):
                open(path, "xb").close()
            write_atomically(path, json.dumps(data, separators=(",", ":")).encode())
        except (OSError, FileError):
            return

    def _directory(self) -> str:
        """Make the directory, marked as one that neither git nor a backup needs."""
        directory = os.path.join(self._root, DIRECTORY)
        os.makedirs(directory, exist_ok=True)
        for name, content in ((".gitignore", "*\n"), ("CACHEDIR.TAG", _CACHEDIR_TAG)):
            path = os.path.join(directory, name)
            if not os.path.exists(path):
                with open(path, "w", encoding="ascii", newline="\n") as file:
                    file.write(content)
        return directory

    def _load(self) -> None:
        import json

        try:
            with open(os.path.join(self._root, DIRECTORY, _FILE), "rb") as file:
                data = json.loads(file.read())
            self._contexts = [str(context) for context in data["contexts"]]
            self._entries = {key: _checked_entry(fields, len(self._contexts)) for key, fields in data["files"].items()}
        except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError):
            self._contexts, self._entries = [], {}

    def _recall(self, key: str, entry: _Entry, path: str, project: Project | None) -> Known | None:
        try:
            if entry.answers and (project is None or not project.holds(Answer(*each) for each in entry.answers)):
                return None
            found = [_unpack(packed, path) for packed in entry.found]
        except (TypeError, ValueError):
            return None
        if entry.day != self._today:
            self._entries[key] = entry._replace(day=self._today)
            self._changed = True
        return Known(found, tuple(entry.unfinished))

    def _trusted_mtime(self, status: os.stat_result) -> int:
        return status.st_mtime_ns if status.st_mtime_ns < self._now_ns - _RACE_NS else -1

    def _key(self, path: str) -> str:
        absolute = os.path.abspath(path)
        return absolute[len(self._root) :] if absolute.startswith(self._root) else absolute

    def _context(self, settings: Settings) -> int:
        index = self._context_of.get(settings)
        if index is None:
            context = context_digest(settings, self._root)
            if context not in self._contexts:
                self._contexts.append(context)
            index = self._context_of[settings] = self._contexts.index(context)
        return index


def content_digest(data: bytes) -> str:
    """The name under which the cache knows a content."""
    from hashlib import blake2b

    return blake2b(data, digest_size=16).hexdigest()


def context_digest(settings: Settings, root: str) -> str:
    """The name of all that the findings in a file depend on besides its text and its path from `root`."""
    import sys

    values = settings._replace(
        root=os.path.relpath(settings.root or root, root),
        origins=(),
        exclude=(),
        extend_exclude=(),
        fail_level=Level.INFO,
    )
    return content_digest(repr((VERSION, sys.version_info[:2], _tool_files(), values)).encode("utf-8", "surrogatepass"))


@lru_cache(maxsize=1)
def _tool_files() -> list[tuple[str, int, int]]:
    """Name, modification time and size of our own modules, so that whoever writes a rule needs no new version."""
    from importlib import import_module

    own = os.path.dirname(os.path.abspath(__file__))
    found = []
    for top in (own, *import_module("amplint.rules").__path__):
        for directory, _, names in os.walk(top):
            for name in names:
                if name.endswith(".py"):
                    status = os.stat(os.path.join(directory, name))
                    found.append((name, status.st_mtime_ns, status.st_size))
    return sorted(found)


def _checked_entry(fields: Sequence[Any], contexts: int) -> _Entry:
    """An entry as read from the file; raises `TypeError` or `ValueError` where it is none."""
    entry = _Entry(*fields)
    numbers = (entry.mtime_ns, entry.size, entry.context, entry.day)
    names = all(type(name) is str for name in entry.unfinished)
    if not names or not all(type(number) is int for number in numbers) or not 0 <= entry.context < contexts:
        raise ValueError("not an entry of the cache")
    return entry


def _pack(diagnostic: Diagnostic) -> Diagnostic:
    """A diagnostic without the name of the file, which may be called by another path next time."""
    return diagnostic._replace(filename="")


def _unpack(fields: Sequence[Any], path: str) -> Diagnostic:
    code, name, level, message, _, start, end, related, fix, url, help_text = fields
    return Diagnostic(
        code,
        name,
        Level(level),
        message,
        path,
        Location(*start),
        Location(*end),
        tuple(RelatedPlace(text, Location(*first), Location(*last)) for text, first, last in related),
        None if fix is None else _unpack_fix(*fix),
        url,
        help_text,
    )


def _unpack_fix(applicability: int, message: str, edits: Sequence[Any]) -> FixInfo:
    return FixInfo(
        Applicability(applicability),
        message,
        tuple(TextEdit(Location(*start), Location(*end), content) for start, end, content in edits),
    )
