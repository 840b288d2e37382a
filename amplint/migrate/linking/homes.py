"""Global names that a migration adds to one file and that others need: their definitions, and imports of them."""

from __future__ import annotations

import ast
import builtins
from collections.abc import Sequence
from difflib import SequenceMatcher

from amplint.edits import apply_fixes
from amplint.migrate.linking.modules import Modules
from amplint.migrate.model import RefusalError
from amplint.model import Applicability, Edit, Fix, Span
from amplint.names import Names
from amplint.settings import DEFAULT
from amplint.source import SourceFile

_DEFINITIONS = (ast.FunctionDef, ast.ClassDef, ast.Assign)


class Homes:
    """The files of a migration while what they need of one another is brought to them.

    `old` and `new` are the texts by path, in the order in which files import one another; `new` is changed. `moved`
    are the names whose definitions went to another file.
    """

    def __init__(self, paths: Sequence[str], old: dict[str, str], new: dict[str, str], modules: Modules) -> None:
        self.paths = paths
        self.old = old
        self.new = new
        self.modules = modules
        self.moved: set[str] = set()

    def settle(self) -> None:
        """Give each file the names that it needs; raises `RefusalError` where one can't have them."""
        for name, users in sorted(self._needed().items()):
            giver = next(
                (p for p in self.paths if name in _at_top(self.new[p]) and name not in defined(self.old[p])), ""
            )
            if not giver:
                raise self._refused(name, users[0])
            if not all(self._imports(user, giver) for user in users):
                giver = self._moved(name, giver, users)
            for user in users:
                if user != giver and name in unbound(self.new[user]):
                    self._import(name, giver, user)

    def _needed(self) -> dict[str, list[str]]:
        """The names that files use and have not, with those files; torch is not among them."""
        found: dict[str, list[str]] = {}
        for path in self.paths:
            for name in unbound(self.new[path]) - unbound(self.old[path]) - {"torch"}:
                found.setdefault(name, []).append(path)
        return found

    def _refused(self, name: str, path: str) -> RefusalError:
        return RefusalError(
            ast.Module([], []), f"`{name}` would be needed in {path.rpartition('/')[2]}, and comes from another file"
        )

    # -- definitions --------------------------------------------------------------------------------------------------

    def _moved(self, name: str, giver: str, users: list[str]) -> str:
        """Move what was added round a definition to the first file that needs it; returns that file."""
        home = users[0]
        block = self._added(name, giver)
        names = defined("".join(block)) if block else set()
        others = [user for user in (*users[1:], giver) if user != home]
        if not block or not all(self._imports(other, home) for other in others):
            raise self._refused(name, home)
        self.new[giver] = self.new[giver].replace("".join(block), "", 1)
        lines = self.new[home].splitlines(keepends=True)
        place = max((s.end_lineno or 0 for s in ast.parse(self.new[home]).body if _is_import(s)), default=0)
        if not place:
            raise self._refused(name, home)
        self.new[home] = "".join([*lines[:place], *block, *lines[place:]])
        self.moved |= names
        for inner in sorted(names):
            if inner in unbound(self.new[giver]):
                self._import(inner, home, giver)
        return home

    def _added(self, name: str, giver: str) -> list[str]:
        """The lines that were added round a definition, if they hold nothing else; empty where they do."""
        old, new = (text.splitlines(keepends=True) for text in (self.old[giver], self.new[giver]))
        for tag, _, _, start, end in SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
            block = new[start:end]
            if tag != "insert" or not any(name in line for line in block):
                continue
            try:
                body = ast.parse("".join(block)).body
            except SyntaxError:
                continue
            if name in defined("".join(block)) and all(isinstance(s, _DEFINITIONS) for s in body):
                return block
        return []

    # -- imports ------------------------------------------------------------------------------------------------------

    def _imports(self, user: str, giver: str) -> bool:
        return user == giver or bool(self._statements(user, giver))

    def _statements(self, user: str, giver: str) -> list[ast.Import | ast.ImportFrom]:
        """The import statements at the top of a file that name another file itself."""
        found: list[ast.Import | ast.ImportFrom] = []
        for statement in ast.parse(self.new[user]).body:
            if isinstance(statement, ast.ImportFrom):
                itself = any(self.modules.imported(user, statement, a) == [(giver, "")] for a in statement.names)
                if itself or self.modules.paths(_module(statement), user) == [giver]:
                    found.append(statement)
            elif isinstance(statement, ast.Import) and any(
                self.modules.paths(alias.name, user) == [giver] for alias in statement.names
            ):
                found.append(statement)
        return found

    def _import(self, name: str, giver: str, user: str) -> None:
        """Import a name: in an import of that file's names, or in a line behind that of the file."""
        file = SourceFile(self.new[user], user, DEFAULT)
        statements = self._statements(user, giver)
        for statement in statements:
            if not isinstance(statement, ast.ImportFrom) or self.modules.paths(_module(statement), user) != [giver]:
                continue
            if statement.names[0].name == "*" and "__all__" in defined(self.new[giver]):
                raise self._refused(name, user)
            if statement.names[0].name == "*":
                return
            end = file.span(statement.names[-1]).end
            self.new[user] = _edited(self.new[user], Edit(Span(end, end), f", {name}"))
            return
        statement = statements[0]
        module = next(
            f"{_module(statement)}{'' if _module(statement).endswith('.') else '.'}{alias.name}"
            if isinstance(statement, ast.ImportFrom)
            else alias.name
            for alias in statement.names
            if giver in [path for path, _ in self.modules.imported(user, statement, alias)]
        )
        lines = self.new[user].splitlines(keepends=True)
        place = statement.end_lineno or statement.lineno
        self.new[user] = "".join([*lines[:place], f"from {module} import {name}\n", *lines[place:]])


def _module(node: ast.Import | ast.ImportFrom) -> str:
    return "." * node.level + (node.module or "") if isinstance(node, ast.ImportFrom) else ""


def _is_import(node: ast.stmt) -> bool:
    return isinstance(node, (ast.Import, ast.ImportFrom))


def _edited(text: str, edit: Edit) -> str:
    return apply_fixes(text, [Fix("import", (edit,), Applicability.UNSAFE)]).text


def defined(text: str) -> set[str]:
    """The global names of a file."""
    return set(Names(ast.parse(text)).module.bindings)


def _at_top(text: str) -> set[str]:
    """The global names that statements of a file's outermost block define, which each import brings about."""
    return {
        name for statement in ast.parse(text).body if isinstance(statement, _DEFINITIONS) for name in _names(statement)
    }


def unbound(text: str) -> set[str]:
    """The names that a file uses and nothing in it binds."""
    names = Names(ast.parse(text))
    return {
        name
        for name, uses in names.loads.items()
        if not hasattr(builtins, name) and any(not names.lookup(use) for use in uses)
    }


def with_torch(text: str) -> str:
    """A text with an import of torch before its other imports."""
    lines = text.splitlines(keepends=True)
    tree = ast.parse(text)
    imports = [s for s in tree.body if _is_import(s)]
    plain = [s for s in imports if not (isinstance(s, ast.ImportFrom) and s.module == "__future__")]
    rest = [s for s in tree.body if s not in imports]
    place = plain[0].lineno - 1 if plain else imports[-1].end_lineno if imports else rest[0].lineno - 1
    return "".join([*lines[:place], "import torch\n", *lines[place:]])


def same_code(one: str, other: str, moved: set[str]) -> bool:
    """Whether two linked texts are the same but for imports, blank lines and where the definitions of names stand."""
    return _code(one, moved) == _code(other, moved)


def _code(text: str, moved: set[str]) -> str:
    tree = ast.parse(text)
    tree.body = [s for s in tree.body if not (isinstance(s, _DEFINITIONS) and moved.intersection(_names(s)))]
    for node in ast.walk(tree):
        for block in (getattr(node, field, None) for field in ("body", "orelse", "finalbody")):
            if isinstance(block, list):
                block[:] = [s for s in block if not isinstance(s, (ast.Import, ast.ImportFrom))]
    return ast.dump(tree)


def _names(statement: ast.FunctionDef | ast.ClassDef | ast.Assign) -> set[str]:
    if isinstance(statement, ast.Assign):
        return {target.id for target in statement.targets if isinstance(target, ast.Name)}
    return {statement.name}
