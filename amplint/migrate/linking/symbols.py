"""What the global names of one file stand for, among the files that it is linked with."""

from __future__ import annotations

import ast
import builtins
from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from amplint.migrate.linking.modules import Entity, Modules
from amplint.migrate.model import RefusalError
from amplint.model import Span
from amplint.scopes import Binding, Scope

if TYPE_CHECKING:
    from amplint.source import SourceFile


class LinkError(RefusalError):
    """Files that can't be linked; `node` is of the file `path`."""

    def __init__(self, path: str, node: ast.AST, reason: str) -> None:
        super().__init__(node, reason)
        self.path = path


class Reference(NamedTuple):
    """A place in a file that names something of another linked file, as it is spelled there."""

    span: Span
    entity: Entity
    spelling: str


class Symbols:
    """The global names of one file: what it defines, imports, and takes from the files that it is linked with.

    Raises `LinkError` where a name may stand for something of a linked file and for something else too.
    """

    def __init__(self, file: SourceFile, path: str, linked: frozenset[str], modules: Modules) -> None:
        self.file = file
        self.path = path
        self._linked = linked
        self._modules = modules
        self.names = file.names
        self.free: set[str] = set()
        """Names that the file uses and nothing in it binds, those of builtins among them."""
        self.references = list(self._references())

    # -- what a file defines ------------------------------------------------------------------------------------------

    def meaning(self, name: str) -> tuple[str, ...]:
        """What a global name of the file means: equal in two files where both import the same; empty for none."""
        bindings = self.names.module.bindings.get(name, ())
        if not bindings:
            return ()
        if all(binding.kind == "import" for binding in bindings):
            if entities := self._linked_to(bindings):
                return ("linked", *entities[0])
            return ("import", *sorted({self._origin(binding) for binding in bindings}))
        return ("linked", self.path, name)

    def _origin(self, binding: Binding) -> str:
        """Where an import comes from, as every file of the project would say it."""
        assert binding.alias is not None
        found = self._modules.imported(self.path, binding.node, binding.alias)
        if isinstance(binding.node, ast.Import) and not binding.alias.asname:
            return binding.target  # `import a.b` binds `a`, whatever else is imported of it
        return "; ".join(":".join(entity) for entity in sorted(found)) or binding.target

    def definitions(self, name: str) -> list[Span]:
        """All places in the file that spell a global name of its own; `LinkError` where they can't be told."""
        found = [
            self.file.span(node)
            for node in ast.walk(self.file.tree)
            if isinstance(node, ast.Name) and node.id == name and self.owner(node) is self.names.module
        ]
        for binding in self.names.module.bindings.get(name, ()):
            if isinstance(binding.node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
                found.append(self._word(binding.node, name))
            elif isinstance(binding.node, (ast.ExceptHandler, ast.MatchAs, ast.MatchStar, ast.MatchMapping)):
                raise LinkError(self.path, binding.node, f"`{name}` is bound in a way that can't be linked")
        for node in ast.walk(self.file.tree):
            if isinstance(node, (ast.Global, ast.Nonlocal)) and name in node.names:
                if isinstance(node, ast.Nonlocal):
                    continue
                found.append(self._word(node, name))
        for span in found:
            if self.file.segment(span) != name:
                raise LinkError(self.path, self.file.tree, f"`{name}` stands where it can't be linked")
        return found

    def _word(self, node: ast.AST, name: str) -> Span:
        """A name behind the first word of a statement: `def name`, `global a, name`."""
        import re

        start = self.file.span(node).start
        found = re.compile(rb"\b%s\b" % name.encode()).search(self.file.encoded, start)
        if found is None:
            raise LinkError(self.path, node, f"`{name}` stands where it can't be linked")
        return Span(found.start(), found.end())

    # -- what it takes from others ------------------------------------------------------------------------------------

    def owner(self, node: ast.Name) -> Scope | None:
        """The scope that a name belongs to, read or written; None where nothing binds it."""
        scope: Scope | None = self.names.scope_of(node)
        first = True
        while scope is not None:
            if scope.kind == "class" and not first:
                scope = scope.parent
                continue
            if node.id in scope.globals:
                scope = self.names.module
            if node.id in scope.bindings:
                return scope
            first = first and scope.kind == "comprehension"
            scope = scope.parent
        return None

    def _linked_to(self, bindings: object) -> list[Entity]:
        """What of linked files a name's bindings stand for; `LinkError` where it may be something else too."""
        found: dict[Entity, None] = {}
        others = False
        node: ast.AST = self.file.tree
        for binding in bindings:  # type: ignore[attr-defined]
            entities = []
            if binding.kind == "import" and not (isinstance(binding.node, ast.Import) and not binding.alias.asname):
                entities = self._modules.imported(self.path, binding.node, binding.alias)
            elif binding.kind == "import" and "." not in binding.alias.name:
                entities = [(path, "") for path in self._modules.paths(binding.alias.name, self.path)]
            node = binding.node if entities else node
            found.update(dict.fromkeys(entities))
            others = others or not entities
        if not any(path in self._linked for path, _ in found):
            return []
        if others or len(found) != 1:
            name = bindings[0].name  # type: ignore[index]
            raise LinkError(self.path, node, f"what `{name}` stands for can't be told from here")
        return list(found)

    def _references(self) -> Iterator[Reference]:
        for node in ast.walk(self.file.tree):
            if isinstance(node, ast.Name):
                yield from self._reference(node)

    def _reference(self, node: ast.Name) -> Iterator[Reference]:
        scope = self.owner(node)
        if scope is None:
            if isinstance(node.ctx, ast.Load):
                yield from self._by_star(node)
            return
        bindings = scope.bindings[node.id]
        dotted = [b for b in bindings if isinstance(b.node, ast.Import) and b.alias and not b.alias.asname]
        if dotted and any("." in b.alias.name for b in dotted if b.alias):
            yield from self._by_path(node)
            return
        for path, name in self._linked_to(bindings):
            if name:
                yield self._made(node, (path, name))
            else:
                yield self._attribute(node, path)

    def _by_star(self, node: ast.Name) -> Iterator[Reference]:
        """A name that only a star import can bring."""
        found: dict[Entity, None] = {}
        for module in self._modules.stars(self.file):
            for path in self._modules.paths(module, self.path):
                found.update(dict.fromkeys(self._modules.exported(path, node.id)))
        if not any(path in self._linked for path, _ in found):
            self.free.add(node.id)
            return
        if len(found) != 1 or hasattr(builtins, node.id):
            raise LinkError(self.path, node, f"what `{node.id}` stands for can't be told from here")
        yield self._made(node, next(iter(found)))

    def _by_path(self, node: ast.Name) -> Iterator[Reference]:
        """`package.module.name` behind `import package.module`."""
        current: ast.expr = node
        dotted = node.id
        while True:
            paths = self._modules.paths(dotted, self.path)
            if any(path in self._linked for path in paths):
                if len(paths) != 1:
                    raise LinkError(self.path, node, f"what `{dotted}` stands for can't be told from here")
                if not paths[0].endswith("__init__.py"):
                    yield self._attribute(current, paths[0])
                    return
            parent = self.names.parents.get(current)
            if not isinstance(parent, ast.Attribute):
                return
            current, dotted = parent, f"{dotted}.{parent.attr}"

    def _attribute(self, node: ast.expr, path: str) -> Reference:
        """A name of a module that is spelled `module.name`."""
        parent = self.names.parents.get(node)
        if not isinstance(parent, ast.Attribute) or not isinstance(parent.ctx, ast.Load):
            raise LinkError(self.path, node, "a module is used here otherwise than for one of its names")
        entities = self._modules.exported(path, parent.attr)
        if len(entities) != 1:
            raise LinkError(self.path, node, f"what `{self.file.segment(parent)}` stands for can't be told from here")
        return self._made(parent, entities[0])

    def _made(self, node: ast.expr, entity: Entity) -> Reference:
        if not isinstance(node.ctx, ast.Load):  # type: ignore[attr-defined]
            raise LinkError(self.path, node, "a name of another file is given a value here")
        span = self.file.span(node)
        spelling = self.file.segment(span)
        if spelling != ast.unparse(node):
            raise LinkError(self.path, node, "a name of another file is spelled in a way that can't be linked")
        return Reference(span, entity, spelling)
