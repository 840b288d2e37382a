"""Which of the given files have to be migrated together."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable

from amplint.migrate.linking.modules import Modules


class Imports:
    """The given files, by absolute path, and which of them import one another."""

    def __init__(self, paths: Iterable[str], modules: Modules) -> None:
        self.paths = sorted(paths)
        self._known = set(self.paths)
        self._modules = modules
        self._of: dict[str, set[str]] = {}

    def of(self, path: str) -> set[str]:
        """The given files that a file imports."""
        if path not in self._of:
            self._of[path] = self._modules.neighbours(path) & self._known
        return self._of[path]

    def around(self, paths: Iterable[str], among: Collection[str]) -> set[str]:
        """Files with all that import them, directly or not, and what those import `among` some files."""
        found = self._closed(set(paths), self._importers)
        return self._closed(found, lambda member: self.of(member).intersection(among))

    def _importers(self, path: str) -> set[str]:
        return {
            other
            for other in self.paths
            if other != path and self._modules.may_import(other, path) and path in self.of(other)
        }

    @staticmethod
    def _closed(found: set[str], more: Callable[[str], set[str]]) -> set[str]:
        pending = list(found)
        found = set(found)
        while pending:
            new = more(pending.pop()) - found
            found |= new
            pending += new
        return found

    def ordered(self, group: Iterable[str]) -> list[str]:
        """Files, each behind those that it imports."""
        found: list[str] = []
        waiting: set[str] = set()

        def visit(path: str) -> None:
            if path in found or path in waiting:
                return
            waiting.add(path)
            for other in sorted(self.of(path) & members):
                visit(other)
            found.append(path)

        members = set(group)
        for path in sorted(members):
            visit(path)
        return found


def united(groups: Iterable[set[str]]) -> list[set[str]]:
    """Groups, those that share files made one."""
    found: list[set[str]] = []
    for group in groups:
        whole = set(group)
        apart = []
        for other in found:
            if other & whole:
                whole |= other
            else:
                apart.append(other)
        found = [*apart, whole]
    return found
