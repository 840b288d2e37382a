"""What is computed of gradients, anywhere in a file: the names that may hold it, the functions that may return it."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from amplint.facts.values import Function, is_self, path_of, returns
from amplint.migrate.facts import Facts
from amplint.migrate.tree import FUNCTIONS, assigned_paths, base_path, blocks, is_none, owner_of, statements_in

if TYPE_CHECKING:
    from amplint.source import SourceFile

Owner = Function | ast.Module
_ROUNDS = 8
_PLAIN = frozenset(("shape", "dtype", "device", "ndim", "size", "numel", "dim", "requires_grad"))
_COUNTS = frozenset(("len", "isinstance", "type", "id", "hasattr"))


class Derived:
    """Follows values through assignments, loops, calls and returns; order and paths are not looked at.

    They begin with gradients, or with the `given` paths of some owners alone.
    """

    def __init__(self, facts: Facts, given: dict[Owner, set[str]] | None = None) -> None:
        self.facts = facts
        self.file: SourceFile = facts.file
        self._from_gradients = given is None
        self.names: dict[Owner, set[str]] = {owner: set(found) for owner, found in (given or {}).items()}
        self._returning: set[Function] = set()
        self._owners: list[Owner] = [
            facts.file.tree,
            *(f for f in facts.functions if not facts.is_step_of_optimizer(f)),
        ]
        for _ in range(_ROUNDS):
            if not self._grow():
                break

    def _grow(self) -> bool:
        before = sum(map(len, self.names.values())) + len(self._returning)
        for owner in self._owners:
            for statement in statements_in(owner):
                for path, value in given_values(statement):
                    if self.has(value, owner):
                        self._add(owner, path)
                if isinstance(statement, ast.If) and self.has(statement.test, owner):
                    self._flags(statement, owner)
            if isinstance(owner, FUNCTIONS):
                if any(self.has(value, owner) for value in returns(owner)):
                    self._returning.add(owner)
                self._parameters(owner)
        return sum(map(len, self.names.values())) + len(self._returning) > before

    def _add(self, owner: Owner, path: str) -> None:
        self.names.setdefault(self._home(path, owner), set()).add(path)

    def _home(self, path: str, owner: Owner) -> Owner:
        """Where a path lives: attributes of `self` belong to the file, names to the function that binds them."""
        root = path.split(".", 1)[0]
        scope = self.file.names.scopes.get(owner)
        if root == "self" or (scope is not None and root in scope.globals):
            return self.file.tree
        return owner

    def _flags(self, statement: ast.If, owner: Owner) -> None:
        """What is set to True or False on a condition says what the condition did, and so does what is returned."""
        for member in (m for block in blocks(statement) for m in block):
            for path, value in given_values(member):
                if isinstance(value, ast.Constant) and isinstance(value.value, bool):
                    self._add(owner, path)
            if isinstance(member, ast.Return) and isinstance(owner, FUNCTIONS) and owner not in self.facts.trainers:
                self._returning.add(owner)

    def _parameters(self, function: Function) -> None:
        for call in self.file.values.calls(function):
            caller = owner_of(self.file, call)
            for arg in (*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs):
                value = self.file.values.argument(call, function, arg.arg)
                if value is not None and self.has(value, caller):
                    self._add(function, arg.arg)

    def has(self, root: ast.AST, owner: Owner) -> bool:
        """Whether an expression may hold something that is computed of gradients."""
        stack = [root]
        while stack:
            node = stack.pop()
            if isinstance(node, (ast.Lambda, ast.Constant)):
                continue
            if isinstance(node, ast.Compare) and any(is_none(other) for other in node.comparators):
                continue
            if isinstance(node, ast.Call) and path_of(node.func) in _COUNTS:
                continue
            if isinstance(node, ast.Attribute) and node.attr in _PLAIN:
                continue
            if isinstance(node, (ast.Name, ast.Attribute)) and self._is_one(node, owner):
                return True
            if isinstance(node, ast.Call) and self._call_gives(node):
                return True
            stack.extend(ast.iter_child_nodes(node))
        return False

    def _is_one(self, node: ast.Name | ast.Attribute, owner: Owner) -> bool:
        if self._from_gradients and isinstance(node, ast.Attribute) and node.attr == "grad":
            return not self.file.resolve(node)
        path = path_of(node)
        if not path:
            return False
        root = path.split(".", 1)[0]
        scope = self.file.names.scopes.get(owner)
        inside = scope is not None and root in scope.bindings and root not in scope.globals
        homes = [owner] if inside else [owner, self.file.tree]
        if is_self(ast.Name(id=root)):
            homes = [self.file.tree]
        return any(path in self.names.get(home, ()) for home in homes)

    def _call_gives(self, call: ast.Call) -> bool:
        if any(function in self._returning for function in self.file.values.functions(call)):
            return True
        return self._from_gradients and self.facts.reads_gradient(call)


def given_values(statement: ast.stmt) -> Iterator[tuple[str, ast.expr]]:
    """The paths to which a statement gives values, with what each gets; loops over `zip` give each name its own."""
    if isinstance(statement, (ast.For, ast.AsyncFor)):
        yield from _loop_values(statement.target, statement.iter)
        return
    for path, value, _ in assigned_paths(statement):
        yield path, value
    yield from changed_in_place(statement)


def changed_in_place(statement: ast.stmt) -> Iterator[tuple[str, ast.expr]]:
    """The paths whose values a statement changes by methods such as `a[i].mul_(0.9).add_(b)`, with each argument."""
    node = statement.value if isinstance(statement, ast.Expr) else None
    given: list[ast.expr] = []
    while isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        if re.fullmatch(r"[a-z]\w*[a-z]_", node.func.attr):
            given += [*node.args, *(keyword.value for keyword in node.keywords)]
        node = node.func.value
    if node is not None and (path := base_path(node)):
        for argument in given:
            yield path, argument


def _loop_values(target: ast.expr, source: ast.expr) -> Iterator[tuple[str, ast.expr]]:
    name = path_of(source.func) if isinstance(source, ast.Call) else ""
    if isinstance(target, ast.Tuple) and isinstance(source, ast.Call):
        if name == "zip" and len(target.elts) == len(source.args):
            for element, argument in zip(target.elts, source.args, strict=True):
                yield from _loop_values(element, argument)
            return
        if name == "enumerate" and len(target.elts) == 2 and source.args:
            yield from _loop_values(target.elts[1], source.args[0])
            return
    for node in ast.walk(target):
        if isinstance(node, ast.Name):
            yield node.id, source
