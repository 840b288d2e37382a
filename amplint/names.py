"""Which qualified name an expression stands for: imports, aliases, scopes.

A name resolves to a tuple of candidates, since `try: from torch.amp import GradScaler / except ImportError: from
torch.cuda.amp import GradScaler` is everywhere in this field: a rule matches any candidate, a fix needs exactly one.
`UNKNOWN` among them means that the name may also be something that can't be seen from here.
"""

from __future__ import annotations

import ast
from functools import cached_property

from amplint.scopes import STAR_EXPORTS as STAR_EXPORTS
from amplint.scopes import Binding as Binding
from amplint.scopes import Scope as Scope

UNKNOWN = "?"

_DEPTH = 50
"""How many names may stand for one another in a row before a chain of assignments is given up."""

_CHILDLESS_FIELDS = frozenset(("ctx", "op", "ops", "id", "attr", "arg", "kind", "level", "module", "type_comment"))
"""Fields that hold no expression or statement; operators and contexts are shared by all nodes of a tree."""

_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
_BIND_AT_THE_END = (
    ast.Assign,
    ast.AnnAssign,
    ast.AugAssign,
    ast.NamedExpr,
    ast.FunctionDef,
    ast.AsyncFunctionDef,
    ast.ClassDef,
)
_COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)


class Names:
    """The names of one module: a walk over the tree collects parents, scopes and bindings; resolution is on demand."""

    def __init__(self, tree: ast.Module) -> None:
        self.parents: dict[ast.AST, ast.AST] = {}
        self.loads: dict[str, list[ast.Name]] = {}
        self.calls: list[ast.Call] = []
        self.attributes: dict[str, list[ast.Attribute]] = {}
        self.imports: list[ast.Import | ast.ImportFrom] = []
        self.strings: list[ast.Constant] = []
        self.scopes: dict[ast.AST, Scope] = {}
        self.module = Scope("module", tree, None)
        self.scopes[tree] = self.module
        self._resolving: set[ast.AST] = set()
        self._resolved: dict[ast.Name, tuple[str, ...]] = {}
        self._cut_short = False
        self._collect(tree)

    # -- collecting ---------------------------------------------------------------------------------------------------

    def _collect(self, tree: ast.Module) -> None:
        parents, loads, calls = self.parents, self.loads, self.calls
        ast_class = ast.AST
        child_fields: dict[type[ast.AST], tuple[str, ...]] = {}
        stack: list[tuple[ast.AST, Scope]] = [(tree, self.module)]
        while stack:
            node, scope = stack.pop()
            inner = scope
            cls = node.__class__
            if cls is ast.Name:
                assert isinstance(node, ast.Name)
                if node.ctx.__class__ is ast.Load:
                    loads.setdefault(node.id, []).append(node)
                continue
            if cls is ast.Constant:
                assert isinstance(node, ast.Constant)
                if node.value.__class__ is str:
                    self.strings.append(node)
                continue
            if cls is ast.Call:
                calls.append(node)  # type: ignore[arg-type]
            elif cls is ast.Attribute:
                self.attributes.setdefault(node.attr, []).append(node)  # type: ignore[attr-defined, arg-type]
            elif cls in _BINDERS:
                inner = self._bind(node, scope)
                if isinstance(node, _FUNCTIONS):
                    self._push_function(node, scope, inner, stack)
                    continue
                if isinstance(node, ast.ClassDef):
                    type_params = getattr(node, "type_params", [])
                    for field in (node.body, node.keywords, node.bases, type_params, node.decorator_list):
                        at = inner if field is node.body else scope
                        for child in reversed(field):
                            parents[child] = node
                            stack.append((child, at))
                    continue
            fields = child_fields.get(cls)
            if fields is None:
                fields = child_fields[cls] = tuple(name for name in node._fields if name not in _CHILDLESS_FIELDS)
            first = len(stack)
            for name in fields:
                value = getattr(node, name, None)
                if value.__class__ is list:
                    for child in value:
                        if isinstance(child, ast_class):
                            parents[child] = node
                            stack.append((child, inner))
                elif isinstance(value, ast_class):
                    parents[value] = node
                    stack.append((value, inner))
            if len(stack) - first > 1:
                stack[first:] = stack[: first - 1 if first else None : -1]

    def _push_function(self, node: ast.AST, outer: Scope, inner: Scope, stack: list[tuple[ast.AST, Scope]]) -> None:
        """Queue a function's parts: defaults, decorators and annotations belong to the scope around it."""
        pending: list[tuple[ast.AST, Scope]] = []
        if isinstance(node, ast.Lambda):
            pending = [(node.args, outer), (node.body, inner)]
        elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            pending = [(child, outer) for child in [*node.decorator_list, *getattr(node, "type_params", ())]]
            pending.append((node.args, outer))
            if node.returns is not None:
                pending.append((node.returns, outer))
            pending.extend((child, inner) for child in node.body)
        for child, _ in pending:
            self.parents[child] = node
        stack.extend(reversed(pending))

    def _bind(self, node: ast.AST, scope: Scope) -> Scope:
        """Record what a statement binds; returns the scope of its children."""
        if isinstance(node, ast.Import):
            self.imports.append(node)
            for alias in node.names:
                if alias.asname:
                    self._add(scope, Binding(alias.asname, "import", node, alias.name, None, alias))
                else:
                    root = alias.name.split(".", 1)[0]
                    self._add(scope, Binding(root, "import", node, root, None, alias))
        elif isinstance(node, ast.ImportFrom):
            self.imports.append(node)
            module = "." * node.level + (node.module or "")
            for alias in node.names:
                if alias.name == "*":
                    scope.module.stars.append(Binding("*", "star", node, module, None, alias))
                    continue
                qualified = f"{module}.{alias.name}" if not module.endswith(".") else module + alias.name
                self._add(scope, Binding(alias.asname or alias.name, "import", node, qualified, None, alias))
        elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            self._add(scope, Binding(node.name, "def", node))
            return self._open(node, "function", scope, node.args)
        elif isinstance(node, ast.Lambda):
            return self._open(node, "lambda", scope, node.args)
        elif isinstance(node, ast.ClassDef):
            self._add(scope, Binding(node.name, "class", node))
            return self._open(node, "class", scope, None)
        elif isinstance(node, _COMPREHENSIONS):
            inner = self._open(node, "comprehension", scope, None)
            for generator in node.generators:
                self._target(inner, generator.target, node, None)
            return inner
        elif isinstance(node, ast.Assign):
            for target in node.targets:
                self._target(scope, target, node, node.value)
        elif isinstance(node, ast.AnnAssign):
            if node.value is not None:
                self._target(scope, node.target, node, node.value)
        elif isinstance(node, ast.NamedExpr):
            holder = scope
            while holder.kind == "comprehension" and holder.parent is not None:
                holder = holder.parent
            self._target(holder, node.target, node, node.value)
        elif isinstance(node, (ast.AugAssign, ast.For, ast.AsyncFor)):
            self._target(scope, node.target, node, None)
        elif isinstance(node, (ast.With, ast.AsyncWith)):
            for item in node.items:
                if item.optional_vars is not None:
                    self._target(scope, item.optional_vars, node, None)
        elif isinstance(node, ast.ExceptHandler):
            if node.name:
                self._add(scope, Binding(node.name, "other", node))
        elif isinstance(node, ast.Delete):
            for deleted in node.targets:
                if isinstance(deleted, ast.Name):
                    self._add(scope, Binding(deleted.id, "delete", node))
        elif isinstance(node, ast.Global):
            scope.globals.update(node.names)
        elif isinstance(node, ast.Nonlocal):
            scope.nonlocals.update(node.names)
        elif isinstance(node, (ast.MatchAs, ast.MatchStar)):
            if node.name:
                self._add(scope, Binding(node.name, "other", node))
        elif isinstance(node, ast.MatchMapping) and node.rest:
            self._add(scope, Binding(node.rest, "other", node))
        return scope

    def _open(self, node: ast.AST, kind: str, parent: Scope, args: ast.arguments | None) -> Scope:
        scope = Scope(kind, node, parent)
        self.scopes[node] = scope
        if args is not None:
            every = [*args.posonlyargs, *args.args, *args.kwonlyargs]
            every += [arg for arg in (args.vararg, args.kwarg) if arg is not None]
            for arg in every:
                self._add(scope, Binding(arg.arg, "param", arg))
        return scope

    def _target(self, scope: Scope, target: ast.expr, node: ast.AST, value: ast.expr | None) -> None:
        if isinstance(target, ast.Name):
            kind = "assign" if value is not None else "other"
            self._add(scope, Binding(target.id, kind, node, "", value))
        elif isinstance(target, ast.Starred):
            self._target(scope, target.value, node, None)
        elif isinstance(target, (ast.Tuple, ast.List)):
            for item, part in zip(target.elts, _unpacked(target.elts, value), strict=True):
                self._target(scope, item, node, part)

    @staticmethod
    def _add(scope: Scope, binding: Binding) -> None:
        name = binding.name
        if name in scope.globals:
            scope = scope.module
        elif name in scope.nonlocals:
            outer = scope.parent
            while outer is not None and (outer.kind == "class" or name not in outer.bindings):
                outer = outer.parent
            scope = outer or scope
        scope.bindings.setdefault(name, []).append(binding)

    @cached_property
    def imported(self) -> dict[str, tuple[str, ...]]:
        """The names that imports bind to a qualified name, anywhere in the file."""
        found: dict[str, dict[str, None]] = {}
        for scope in self.scopes.values():
            for name, bindings in scope.bindings.items():
                for binding in bindings:
                    if binding.kind == "import":
                        found.setdefault(binding.target, {})[name] = None
        return {target: tuple(names) for target, names in found.items()}

    # -- looking up ---------------------------------------------------------------------------------------------------

    def scope_of(self, node: ast.AST) -> Scope:
        """The scope in which a node's names are looked up."""
        child = node
        parent = self.parents.get(node)
        while parent is not None:
            scope = self.scopes.get(parent)
            if scope is not None and self._is_inside(child, parent):
                return scope
            child, parent = parent, self.parents.get(parent)
        return self.module

    @staticmethod
    def _is_inside(child: ast.AST, owner: ast.AST) -> bool:
        """Whether a direct child of a scope's node is evaluated in that scope and not in the one around it."""
        if isinstance(owner, (ast.FunctionDef, ast.AsyncFunctionDef)):
            return child is not owner.args and child is not owner.returns and child not in owner.decorator_list
        if isinstance(owner, ast.Lambda):
            return child is not owner.args
        if isinstance(owner, ast.ClassDef):
            return child not in owner.bases and child not in owner.keywords and child not in owner.decorator_list
        return True

    def lookup(self, name: ast.Name) -> tuple[Binding, ...]:
        """The bindings that a use of a name may see, those that are surely overwritten before the use left out."""
        scope: Scope | None = self.scope_of(name)
        first = True
        while scope is not None:
            if scope.kind == "class" and not first:
                scope = scope.parent
                continue
            if name.id in scope.globals:
                scope = scope.module
            found = scope.bindings.get(name.id)
            if found:
                return self._visible(found, name, scope)
            first = first and scope.kind == "comprehension"
            scope = scope.parent
        found_stars: list[Binding] = []
        for star in reversed(self.module.stars):
            if name.id in STAR_EXPORTS.get(star.target, ()):
                found_stars.insert(0, star._replace(name=name.id, target=f"{star.target}.{name.id}"))
                if self.parents.get(star.node) is self.module.node:
                    break
        return tuple(found_stars)

    def _visible(self, found: list[Binding], use: ast.AST, scope: Scope) -> tuple[Binding, ...]:
        if len(found) == 1:
            return tuple(found)
        here = self.scope_of(use) is scope
        position = (getattr(use, "lineno", 0), getattr(use, "col_offset", 0))
        before = [b for b in found if not here or _takes_effect(b.node) <= position] or found
        # An unconditional binding overwrites all that came before it in the same scope; a loop's next round can bring
        # a later one back, but rebinding an imported name in a loop isn't worth the silence.
        for index in range(len(before) - 1, 0, -1):
            owner = before[index].node
            if before[index].kind != "param" and self._unconditional(owner, use, scope):
                before = before[index:]
                break
        return tuple(b for b in before if b.kind != "delete") or tuple(before)

    def _unconditional(self, node: ast.AST, use: ast.AST, scope: Scope) -> bool:
        """Whether a binding statement always runs before a use: its block is the scope's body or one around the use."""
        parent = self.parents.get(node)
        if parent is scope.node:
            return True
        block = _block_of(parent, node)
        child: ast.AST | None = use
        while child is not None and child is not scope.node:
            above = self.parents.get(child)
            if above is parent and block is not None and _block_of(parent, child) == block:
                return True
            child = above
        return False

    def resolve(self, node: ast.expr) -> tuple[str, ...]:
        """The qualified names that an expression may stand for, `()` where none is known."""
        if isinstance(node, ast.Name):
            return self._resolve_once(node)
        if isinstance(node, ast.Attribute):
            path = ""
            while isinstance(node, ast.Attribute):
                path = f".{node.attr}{path}"
                node = node.value
            return tuple(base if base == UNKNOWN else base + path for base in self.resolve(node))
        if isinstance(node, ast.IfExp):
            return _union(self.resolve(node.body) or (UNKNOWN,), self.resolve(node.orelse) or (UNKNOWN,))
        if isinstance(node, ast.NamedExpr):
            return self.resolve(node.value)
        if isinstance(node, ast.Call) and (attribute := getattr_constant(node)) is not None:
            return tuple(base if base == UNKNOWN else f"{base}.{attribute}" for base in self.resolve(node.args[0]))
        return ()

    def _resolve_once(self, node: ast.Name) -> tuple[str, ...]:
        """The names that a use stands for; what was found is kept, unless it was cut short by a circle of names."""
        if node in self._resolved:
            return self._resolved[node]
        if node in self._resolving or len(self._resolving) > _DEPTH:
            self._cut_short = True
            return ()
        outermost = not self._resolving
        if outermost:
            self._cut_short = False
        self._resolving.add(node)
        found = self._resolve_name(node)
        self._resolving.discard(node)
        if outermost or not self._cut_short:
            self._resolved[node] = found
        return found

    def _resolve_name(self, node: ast.Name) -> tuple[str, ...]:
        candidates: tuple[str, ...] = ()
        bindings = self.lookup(node)
        if not bindings and node.id == "torch":
            return ("torch",)  # a notebook cell, or a star import of the project brings it: nothing else has this name
        for binding in bindings:
            if binding.kind in ("import", "star"):
                candidates = _union(candidates, (binding.target,))
            elif binding.kind == "assign" and binding.value is not None:
                candidates = _union(candidates, self.resolve(binding.value) or (UNKNOWN,))
            else:
                candidates = _union(candidates, (UNKNOWN,))
        return () if candidates == (UNKNOWN,) else candidates


def getattr_constant(node: ast.Call) -> str | None:
    """The attribute that `getattr(x, "name")` reads, None for any other call."""
    if isinstance(node.func, ast.Name) and node.func.id == "getattr" and len(node.args) >= 2:
        second = node.args[1]
        if isinstance(second, ast.Constant) and isinstance(second.value, str):
            return second.value
    return None


def _unpacked(targets: list[ast.expr], value: ast.expr | None) -> list[ast.expr | None]:
    """What each target of `a, b = x, y` gets, None where that can't be told."""
    if not isinstance(value, (ast.Tuple, ast.List)) or len(value.elts) != len(targets):
        return [None] * len(targets)
    if not any(isinstance(item, ast.Starred) for item in [*targets, *value.elts]):
        return list(value.elts)
    return [None] * len(targets)


def _union(first: tuple[str, ...], second: tuple[str, ...]) -> tuple[str, ...]:
    return first + tuple(item for item in second if item not in first)


def _takes_effect(node: ast.AST) -> tuple[int, int]:
    """Where in the text a statement has bound its names: an assignment or a definition only at its end, a loop behind
    what it runs over."""
    if isinstance(node, _BIND_AT_THE_END):
        return node.end_lineno or 0, node.end_col_offset or 0
    if isinstance(node, (ast.For, ast.AsyncFor)):
        return node.iter.end_lineno or 0, node.iter.end_col_offset or 0
    return getattr(node, "lineno", 0), getattr(node, "col_offset", 0) + 1


def _block_of(parent: ast.AST | None, child: ast.AST) -> str | None:
    """The name of the field of `parent` that lists `child`, None where it isn't a list of statements."""
    for field in ("body", "orelse", "finalbody", "handlers"):
        block = getattr(parent, field, None)
        if isinstance(block, list) and child in block:
            return field
    return None


_BINDERS = frozenset(
    (
        ast.Import,
        ast.ImportFrom,
        ast.FunctionDef,
        ast.AsyncFunctionDef,
        ast.Lambda,
        ast.ClassDef,
        *_COMPREHENSIONS,
        ast.Assign,
        ast.AnnAssign,
        ast.NamedExpr,
        ast.AugAssign,
        ast.For,
        ast.AsyncFor,
        ast.With,
        ast.AsyncWith,
        ast.ExceptHandler,
        ast.Delete,
        ast.Global,
        ast.Nonlocal,
        ast.MatchAs,
        ast.MatchStar,
        ast.MatchMapping,
    )
)
