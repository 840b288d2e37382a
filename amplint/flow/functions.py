"""The functions and classes of a file, and where their names belong."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from amplint.flow.predicates import is_predicate
from amplint.flow.program import MODULE
from amplint.flow.vocabulary import SCALERS

if TYPE_CHECKING:
    from amplint.names import Scope
    from amplint.source import SourceFile

_SCHEDULES = ("torch.optim.lr_scheduler.", "torch.optim.swa_utils.")


class Function:
    """A function, method, lambda or the module's own code (`node` is then the module)."""

    __slots__ = ("name", "node", "outer", "owner", "scope")

    def __init__(self, name: str, node: ast.AST, scope: Scope, owner: str | None, outer: Function | None) -> None:
        self.name = name
        self.node = node
        self.scope = scope
        self.owner = owner
        self.outer = outer

    @property
    def receiver(self) -> str | None:
        """The name of a method's first parameter, None for anything else."""
        node = self.node
        if self.owner is None or self.outer is not None or isinstance(node, (ast.Module, ast.Lambda)):
            return None
        assert isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
        names = {getattr(d, "id", getattr(d, "attr", "")) for d in node.decorator_list}
        every = [*node.args.posonlyargs, *node.args.args]
        return every[0].arg if every and not names & {"staticmethod", "classmethod"} else None


class Functions:
    """All functions of a file by node and by name, and its classes by name."""

    def __init__(self, file: SourceFile, mark: str = "") -> None:
        self.file = file
        self.mark = mark
        """What the names of functions start with, to tell those of several files apart."""
        self.by_node: dict[ast.AST, Function] = {}
        self.by_name: dict[str, Function] = {}
        self.classes: dict[str, ast.ClassDef] = {}
        self.methods: dict[str, dict[str, str]] = {}
        self.bases: dict[str, tuple[str, ...]] = {}
        self.scaler_classes: set[str] = set()
        self.optimizer_classes: set[str] = set()
        self._predicates: dict[str, bool] = {}
        self.module = self._add(Function(mark + MODULE, file.tree, file.names.module, None, None))
        for node, scope in file.names.scopes.items():
            if scope.kind == "class":
                assert isinstance(node, ast.ClassDef)
                self.classes.setdefault(node.name, node)
            elif scope.kind in ("function", "lambda"):
                self._function(node, scope)
        for name, node in self.classes.items():
            self._class(name, node)

    def _function(self, node: ast.AST, scope: Scope) -> Function:
        known = self.by_node.get(node)
        if known is not None:
            return known
        owner, outer = None, None
        around = scope.parent
        while around is not None and around.kind == "comprehension":
            around = around.parent
        if around is not None and around.kind == "class" and isinstance(around.node, ast.ClassDef):
            owner = around.node.name
        elif around is not None and around.kind in ("function", "lambda"):
            outer = self._function(around.node, around)
            owner = outer.owner
        name = getattr(node, "name", "") or f"<lambda {getattr(node, 'lineno', 0)}:{getattr(node, 'col_offset', 0)}>"
        prefix = outer.name if outer is not None else owner
        full = f"{prefix}.{name}" if prefix else name
        full = full if full.startswith(self.mark) else self.mark + full
        if full in self.by_name:
            full = f"{full}@{getattr(node, 'lineno', 0)}"
        return self._add(Function(full, node, scope, owner, outer))

    def _add(self, function: Function) -> Function:
        self.by_node[function.node] = function
        self.by_name[function.name] = function
        return function

    def _class(self, name: str, node: ast.ClassDef, seen: tuple[str, ...] = ()) -> dict[str, str]:
        if name in self.methods:
            return self.methods[name]
        found: dict[str, str] = {}
        bases: list[str] = []
        for base in reversed(node.bases):
            names = set(self.file.resolve(base))
            if SCALERS & names:
                self.scaler_classes.add(name)
            if any(known.startswith("torch.optim.") and not known.startswith(_SCHEDULES) for known in names):
                self.optimizer_classes.add(name)
            if isinstance(base, ast.Name) and base.id in self.classes and base.id not in (*seen, name):
                found.update(self._class(base.id, self.classes[base.id], (*seen, name)))
                bases += [base.id, *self.bases.get(base.id, ())]
                for special in (self.scaler_classes, self.optimizer_classes):
                    if base.id in special:
                        special.add(name)
        for item in node.body:
            if item in self.by_node:
                found[item.name] = self.by_node[item].name  # type: ignore[attr-defined]
        self.methods[name] = found
        self.bases[name] = tuple(bases)
        return found

    def is_predicate(self, function: Function) -> bool:
        """Whether a function only answers a question."""
        known = self._predicates.get(function.name)
        if known is None:
            known = self._predicates[function.name] = is_predicate(function.node)
        return known

    def around(self, node: ast.AST) -> Function:
        """The function that evaluates a node."""
        scope = self.file.scope(node)
        while scope.kind in ("comprehension", "class") and scope.parent is not None:
            scope = scope.parent
        return self.by_node.get(scope.node, self.module)

    def home(self, name: str, function: Function) -> Function | None:
        """The function in which a name used in `function` is bound, None for a name that is bound nowhere in the
        file.
        """
        current: Function | None = function
        while current is not None:
            if name in current.scope.globals:
                return self.module
            if binds(current, name):
                return current
            current = (
                current.outer if current.outer is not None else (self.module if current is not self.module else None)
            )
        return None


def binds(function: Function, name: str) -> bool:
    """Whether a function binds a name, also in a comprehension of its own."""
    return name in function.scope.bindings and name not in function.scope.nonlocals
