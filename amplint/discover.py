"""From the paths that a user names to the files that are checked.

A file that is named is always checked; a directory that is named is always walked. Below it .gitignore files, virtual
environments, the usual directories of tools and the `exclude` settings are respected. Directories behind symbolic links
are not entered, files behind them are checked once.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from stat import S_ISDIR, S_ISREG
from typing import NamedTuple

from amplint.patterns import Patterns
from amplint.project import repository_root
from amplint.settings import DEFAULT_EXCLUDE, Settings, SettingsResolver

SUFFIXES = (".py", ".pyi", ".pyw")

_ENVIRONMENT_MARKS = frozenset(["pyvenv.cfg", "conda-meta"])
"""The entries of a directory that show it to be a virtual environment of venv or conda."""

_OUTPUT_NAMES = frozenset(["build", "dist"])
"""Names in `DEFAULT_EXCLUDE` that packages also have: a directory of Python modules with such a name is walked."""

_NOTEBOOK = "notebooks are not checked; convert it first (jupyter nbconvert --to script)"

_SETTINGS_FILES = frozenset(["amplint.toml", "pyproject.toml"])


class Problem(NamedTuple):
    """A path that could not be looked into, and why; `named` is true for one that the user gave."""

    path: str
    message: str
    named: bool = False


class Discovery(NamedTuple):
    """The files to check, sorted, as the user would write them; and what could not be reached."""

    files: list[str]
    problems: list[Problem]


class _Scope(NamedTuple):
    """Patterns and how to make a path relative to where they stand: `prefix + path[skip:]`."""

    patterns: Patterns
    prefix: str
    skip: int

    def decide(self, path: str, is_directory: bool) -> bool | None:
        return self.patterns.decide(self.prefix + path[self.skip :], is_directory)


class _Excluded(NamedTuple):
    """What the settings of a directory exclude; `output` says whether `build` and `dist` are left out by default."""

    settings: Settings
    scope: _Scope
    output: bool


def discover(paths: Iterable[str], resolver: SettingsResolver | None = None) -> Discovery:
    """Find the files to check below paths, which may be files and directories.

    Files have the path that their argument has, relative or absolute; each is there once, however it is reached. Raises
    `SettingsError` for settings that cannot be used; everything else that goes wrong is a `Problem`.
    """
    walk = _Walk(resolver or SettingsResolver())
    for path in paths:
        walk.add(path)
    return walk.result()


class _Walk:
    def __init__(self, resolver: SettingsResolver) -> None:
        self._resolver = resolver
        self._shown_by_identity: dict[str, str] = {}
        self._links: list[tuple[str, str]] = []
        self._problems: list[Problem] = []

    def add(self, path: str) -> None:
        """Take in one path that the user named."""
        shown = os.path.normpath(path)
        try:
            mode = os.stat(path).st_mode
        except OSError as error:
            self._problems.append(Problem(path, _reason(path, error), True))
            return
        if S_ISDIR(mode):
            self._walk(shown)
        elif path.endswith(".ipynb"):
            # Most notebooks parse as a Python literal, so a check would call them clean.
            self._problems.append(Problem(path, _NOTEBOOK, True))
        else:
            self._shown_by_identity.setdefault(os.path.realpath(shown), shown)

    def result(self) -> Discovery:
        """All files and problems; links come last, so that a file is shown by its own name where it was found."""
        for shown, identity in sorted(self._links):
            self._shown_by_identity.setdefault(identity, shown)
        files = (path.replace("/", os.sep) for path in self._shown_by_identity.values())
        return Discovery(sorted(files), sorted(set(self._problems)))

    def _walk(self, root: str) -> None:
        absolute = os.path.abspath(root)
        real = os.path.join(os.path.realpath(root), "")
        shown = "" if root == os.curdir else os.path.join(root, "")
        pending = [("", self._excluded(absolute, ""), tuple(_gitignores_above(absolute)))]
        while pending:
            below, excluded, ignores = pending.pop()
            try:
                with os.scandir(shown + below or os.curdir) as entries:
                    found = {entry.name: entry for entry in entries}
            except OSError as error:
                directory = (shown + below).rstrip("/" + os.sep) or root
                self._problems.append(Problem(directory, _reason(directory, error)))
                continue
            names = found.keys()
            if below and not names.isdisjoint(_ENVIRONMENT_MARKS):
                continue
            if not names.isdisjoint(_SETTINGS_FILES):
                excluded = self._excluded(absolute, below, excluded)
            if ".git" in names and below:
                ignores = ()
            ignores += tuple(_gitignores_in(shown + below, names, "", len(below)))
            for name, entry in found.items():
                path = below + name
                if entry.is_dir(follow_symlinks=False):
                    if not self._leaves_out(path, name, True, excluded, ignores, shown):
                        pending.append((path + "/", excluded, ignores))
                elif name.endswith(SUFFIXES) and not self._leaves_out(path, name, False, excluded, ignores, shown):
                    if entry.is_symlink():
                        self._add_link(shown + path)
                    elif entry.is_file(follow_symlinks=False):
                        self._shown_by_identity.setdefault(real + path, shown + path)

    def _leaves_out(
        self, path: str, name: str, is_directory: bool, excluded: _Excluded, ignores: tuple[_Scope, ...], shown: str
    ) -> bool:
        """Whether settings or a .gitignore keep an entry from being checked or entered."""
        verdict = excluded.scope.decide(path, is_directory)
        if verdict:
            return True
        may_be_output = verdict is None and is_directory and excluded.output and name in _OUTPUT_NAMES
        if may_be_output and not os.path.exists(f"{shown}{path}/__init__.py"):
            return True
        for scope in reversed(ignores):
            ignored = scope.decide(path, is_directory)
            if ignored is not None:
                return ignored
        return False

    def _excluded(self, root: str, below: str, outer: _Excluded | None = None) -> _Excluded:
        """What is excluded in the directory `below` the root of a walk, which is an absolute path."""
        settings = self._resolver.config(os.path.join(root, below))
        if outer is not None and outer.settings is settings:
            return outer
        output = settings.exclude == DEFAULT_EXCLUDE
        usual = [name for name in settings.exclude if not (output and name in _OUTPUT_NAMES)]
        prefix, skip = "", 0
        if settings.root:
            inside = os.path.relpath(root, settings.root).replace(os.sep, "/")
            if inside == ".." or inside.startswith("../"):
                skip = len(os.path.relpath(settings.root, root)) + 1
            elif inside != ".":
                prefix = inside + "/"
        return _Excluded(settings, _Scope(Patterns([*usual, *settings.extend_exclude]), prefix, skip), output)

    def _add_link(self, path: str) -> None:
        # Emacs marks the files that it edits by links to nowhere named `.#file`.
        if os.path.basename(path).startswith(".#"):
            return
        try:
            mode = os.stat(path).st_mode
        except OSError as error:
            self._problems.append(Problem(path, _reason(path, error)))
            return
        if S_ISREG(mode):
            self._links.append((path, os.path.realpath(path)))


def _gitignores_above(directory: str) -> Iterator[_Scope]:
    """What git ignores in a directory because of files that stand above it in its repository, the weakest first."""
    root = repository_root(directory)
    if root is None:
        return
    inside = os.path.relpath(directory, root)
    parts = [] if inside == os.curdir else inside.split(os.sep)
    for depth in range(len(parts)):
        above = os.path.join(root, *parts[:depth], "")
        prefix = "".join(part + "/" for part in parts[depth:])
        yield from _gitignores_in(above, (".git", ".gitignore"), prefix, 0)


def _gitignores_in(directory: str, names: Iterable[str], prefix: str, skip: int) -> Iterator[_Scope]:
    """The patterns that stand in a directory, given with its separator, of those files that are among its names."""
    for mark, name in ((".git", ".git/info/exclude"), (".gitignore", ".gitignore")):
        if mark in names:
            try:
                with open(directory + name, encoding="utf-8-sig", errors="surrogateescape") as stream:
                    patterns = Patterns(stream)
            except OSError:
                continue
            if patterns:
                yield _Scope(patterns, prefix, skip)


def _reason(path: str, error: OSError) -> str:
    if os.path.islink(path) and not os.path.exists(path):
        return "broken symbolic link"
    return (error.strerror or str(error)).lower()
