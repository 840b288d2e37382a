"""What an expression may stand for inside one file: the values behind names, attributes, parameters and calls.

Lexical and without paths: every assignment to a name counts, also one on another branch. `None` among the values says
that there may be others that can't be seen from here, so a rule that needs certainty asks for its absence.
"""

from __future__ import annotations

import ast
from functools import cached_property
from typing import TYPE_CHECKING

from amplint.facts.overrides import Overrides

if TYPE_CHECKING:
    from amplint.names import Binding
    from amplint.source import SourceFile

Function = ast.FunctionDef | ast.AsyncFunctionDef

_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_DEPTH = 6
_BUDGET = 200
"""How many names one question may look at; beyond it the answer is `None`."""
_SAME_OBJECT = frozenset(
    ("to", "cuda", "cpu", "half", "float", "double", "bfloat16", "train", "eval", "requires_grad_", "to_empty", "xpu")
)
_WRAPPERS = frozenset(
    (
        "copy.deepcopy",
        "torch.compile",
        "torch.jit.script",
        "torch.nn.DataParallel",
        "torch.nn.parallel.DataParallel",
        "torch.nn.parallel.DistributedDataParallel",
        "torch.nn.parallel.distributed.DistributedDataParallel",
        "torch.distributed.fsdp.FullyShardedDataParallel",
        "torch.nn.SyncBatchNorm.convert_sync_batchnorm",
    )
)
"""Callables that return their first argument in another guise, or a copy of it."""


class Values:
    """Answers questions about values in one file; see `SourceFile.values`."""

    def __init__(self, file: SourceFile) -> None:
        self._file = file
        self._active: set[ast.AST] = set()
        self._known: dict[ast.expr, tuple[ast.AST | None, ...]] = {}
        self._made: dict[ast.expr, tuple[ast.ClassDef | str | None, ...]] = {}
        self._bodies: dict[Function | None, list[ast.AST]] = {}
        self._steps = 0
        self._overrides = Overrides(file, self)

    # -- values -------------------------------------------------------------------------------------------------------

    def of(self, node: ast.expr) -> tuple[ast.AST | None, ...]:
        """The expressions, functions and classes that `node` may stand for; `None` stands for what can't be seen.

        Names and `self.` attributes are followed to what is assigned, parameters to their default and to what the
        calls of this file pass, conditional expressions into both arms, constant keys into literal dicts. Anything else
        stands for itself, imported names too.
        """
        if isinstance(node, ast.IfExp):
            return _union(self.of(node.body), self.of(node.orelse))
        if isinstance(node, ast.NamedExpr):
            return self.of(node.value)
        if isinstance(node, ast.Subscript):
            return self._item(node)
        if isinstance(node, ast.BoolOp) and isinstance(node.op, ast.Or):
            return _union(*(self.of(value) for value in node.values))
        if not isinstance(node, (ast.Name, ast.Attribute)) or (
            isinstance(node, ast.Attribute) and not is_self(node.value)
        ):
            return (node,)
        if node in self._known:
            return self._known[node]
        if not self._enter(node):
            return (None,)
        try:
            if isinstance(node, ast.Name):
                parts = [self._bound(binding, node) for binding in self._file.names.lookup(node)]
                found = _union(*parts) if parts else (None,)
            else:
                found = self._attribute(node)
        finally:
            self._active.discard(node)
        if not self._active:
            self._known[node] = found
        return found

    def elements(self, node: ast.expr) -> list[ast.expr]:
        """The expressions of the elements of a list or tuple, literal or by comprehension; none where one can't be
        seen."""
        found: list[ast.expr] = []
        for value in self.of(node):
            if isinstance(value, (ast.List, ast.Tuple)):
                found += value.elts
            elif isinstance(value, ast.ListComp):
                found.append(value.elt)
            else:
                return []
        return found

    def _item(self, node: ast.Subscript) -> tuple[ast.AST | None, ...]:
        """What `holder["key"]` stands for where the holder is a literal dict with that key; else the node itself."""
        if not isinstance(node.slice, ast.Constant) or not self._enter(node):
            return (node,)
        try:
            found: tuple[ast.AST | None, ...] = ()
            for holder in self.of(node.value):
                if isinstance(holder, ast.Call) and "torch.nn.ModuleDict" in self._file.resolve(holder.func):
                    holder = holder.args[0] if holder.args else None
                items = zip(holder.keys, holder.values, strict=True) if isinstance(holder, ast.Dict) else ()
                given = [v for k, v in items if isinstance(k, ast.Constant) and k.value == node.slice.value]
                if not given:
                    return (node,)
                found = _union(found, self.of(given[-1]))
            return found or (node,)
        finally:
            self._active.discard(node)

    def _enter(self, node: ast.AST) -> bool:
        """Begin to look at a node; False in a circle, too deep, or when the question has cost too much."""
        if not self._active:
            self._steps = 0
        self._steps += 1
        if node in self._active or len(self._active) > _DEPTH or self._steps > _BUDGET:
            return False
        self._active.add(node)
        return True

    def _bound(self, binding: Binding, use: ast.Name) -> tuple[ast.AST | None, ...]:
        if binding.kind == "assign" and binding.value is not None:
            return self.of(binding.value)
        if binding.kind in ("def", "class"):
            return (binding.node,)
        if binding.kind == "param" and isinstance(binding.node, ast.arg):
            return self._parameter(binding.node)
        return (use,) if binding.kind in ("import", "star") else (None,)

    def _parameter(self, arg: ast.arg) -> tuple[ast.AST | None, ...]:
        arguments = self._file.parent(arg)
        function = self._file.parent(arguments) if arguments is not None else None
        if not isinstance(arguments, ast.arguments) or not isinstance(function, _FUNCTIONS):
            return (None,)
        default = default_of(arguments, arg)
        found: tuple[ast.AST | None, ...] = () if default is None else self.of(default)
        for call in self.calls_of(function):
            given = self.argument(call, function, arg.arg)
            if given is not None:
                found = _union(found, self.of(given))
        return found or (None,)

    def _attribute(self, node: ast.Attribute) -> tuple[ast.AST | None, ...]:
        owner = self.enclosing_class(node)
        if owner is None:
            return (None,)
        found: list[tuple[ast.AST | None, ...]] = []
        for cls in self.lineage(owner):
            method = member(cls, node.attr)
            if method is not None:
                return (method,)
            found += [self.of(v) if v is not None else (None,) for v in self.assigned(cls, node.attr)]
        for cls in self._overrides.subclasses(owner) if not found else ():
            found += [self.of(v) if v is not None else (None,) for v in self.assigned(cls, node.attr)]
        return _union(*found) if found else (None,)

    def assigned(self, cls: ast.ClassDef, attribute: str) -> list[ast.expr | None]:
        """What the methods of a class assign to `self.<attribute>`; `None` for a value that can't be told."""
        found = [self._assigned_value(use) for use in self._stores.get((cls, attribute), ())]
        for statement in cls.body:
            targets = statement.targets if isinstance(statement, ast.Assign) else []
            if any(isinstance(target, ast.Name) and target.id == attribute for target in targets):
                found.append(statement.value)  # type: ignore[attr-defined]
        return found

    @cached_property
    def _stores(self) -> dict[tuple[ast.ClassDef, str], list[ast.Attribute]]:
        """Where `self.<attribute>` is given a value, by class and attribute."""
        found: dict[tuple[ast.ClassDef, str], list[ast.Attribute]] = {}
        for attribute, uses in self._file.names.attributes.items():
            for use in uses:
                if isinstance(use.ctx, ast.Store) and is_self(use.value) and (cls := self.enclosing_class(use)):
                    found.setdefault((cls, attribute), []).append(use)
        return found

    def _assigned_value(self, target: ast.expr) -> ast.expr | None:
        parent = self._file.parent(target)
        if isinstance(parent, (ast.Assign, ast.AnnAssign)):
            return parent.value
        assign = self._file.parent(parent) if isinstance(parent, ast.Tuple) else None
        if isinstance(parent, ast.Tuple) and isinstance(assign, ast.Assign) and isinstance(assign.value, ast.Tuple):
            items = assign.value.elts
            starred = any(isinstance(item, ast.Starred) for item in [*items, *parent.elts])
            if len(items) == len(parent.elts) and not starred:
                return items[parent.elts.index(target)]
        return None

    def is_open(self, node: ast.expr, depth: int = 0) -> bool:
        """Whether a value may come from a caller or from outside the file, so that `of` does not know all of them."""
        if depth > _DEPTH:
            return True
        if isinstance(node, ast.Name):
            bindings = self._file.names.lookup(node)
            return not bindings or any(
                self.is_open(b.value, depth + 1) if b.kind == "assign" and b.value is not None else b.kind != "import"
                for b in bindings
            )
        if isinstance(node, ast.Attribute) and is_self(node.value):
            cls = self.enclosing_class(node)
            assigned = [v for c in self.lineage(cls) for v in self.assigned(c, node.attr)] if cls is not None else []
            return not assigned or any(v is None or self.is_open(v, depth + 1) for v in assigned)
        if isinstance(node, ast.Attribute):
            return not self._file.resolve(node) and self.is_open(node.value, depth + 1)
        if isinstance(node, ast.IfExp):
            return self.is_open(node.body, depth + 1) or self.is_open(node.orelse, depth + 1)
        if isinstance(node, ast.Call):
            return any(self.is_open(argument, depth + 1) for argument in node.args)
        return not isinstance(node, ast.Constant)

    # -- classes and functions ----------------------------------------------------------------------------------------

    def enclosing_class(self, node: ast.AST) -> ast.ClassDef | None:
        """The class in one of whose methods a node stands."""
        function = self.enclosing_function(node)
        while function is not None:
            parent = self._file.parent(function)
            if isinstance(parent, ast.ClassDef):
                return parent
            function = self.enclosing_function(function)
        return None

    def enclosing_function(self, node: ast.AST) -> Function | None:
        """The innermost function whose body holds a node."""
        child, parent = node, self._file.parent(node)
        while parent is not None:
            if isinstance(parent, _FUNCTIONS) and isinstance(child, ast.stmt):
                return parent
            child, parent = parent, self._file.parent(parent)
        return None

    def lineage(self, cls: ast.ClassDef) -> tuple[ast.ClassDef, ...]:
        """A class and its bases, as far as they stand in the file, nearly in Python's order of lookup."""
        found = [cls]
        for entry in found:
            for base in entry.bases:
                found += [v for v in self.of(base) if isinstance(v, ast.ClassDef) and v not in found]
        return tuple(found)

    def method(self, cls: ast.ClassDef, name: str) -> Function | None:
        """A method of a class or of its bases in the file."""
        for entry in self.lineage(cls):
            found = member(entry, name)
            if found is not None:
                return found
        return None

    def constructed(self, node: ast.expr) -> tuple[ast.ClassDef | str | None, ...]:
        """The classes that made the object behind an expression: a class of the file or a qualified name.

        Wrappers such as `DataParallel(net)` and chains such as `.to(device)` are looked through; the wrapper's own
        name is among the answers. `None` stands for what can't be seen.
        """
        if node in self._made:
            return self._made[node]
        found: tuple[ast.ClassDef | str | None, ...] = ()
        for value in self.of(node):
            found = _union(found, self._constructed(value) if isinstance(value, ast.Call) else (None,))
        if not self._active:
            self._made[node] = found
        return found

    def _constructed(self, call: ast.Call) -> tuple[ast.ClassDef | str | None, ...]:
        if not self._enter(call):
            return (None,)
        try:
            names = self._file.resolve(call.func)
            if names:
                wraps = call.args and any(name in _WRAPPERS for name in names)
                return _union(names, self.constructed(call.args[0])) if wraps else names
            if isinstance(call.func, ast.Attribute) and call.func.attr in _SAME_OBJECT:
                return self.constructed(call.func.value)
            found: tuple[ast.ClassDef | str | None, ...] = ()
            for value in self.of(call.func):
                if isinstance(value, ast.ClassDef):
                    found = _union(found, (value,))
                elif isinstance(value, _FUNCTIONS):
                    returned = [self.constructed(result) for result in returns(value)]
                    found = _union(found, *returned)
            return found or (None,)
        finally:
            self._active.discard(call)

    def body(self, function: Function | None) -> list[ast.AST]:
        """The nodes that run with a function, or with the module, in the order of the text."""
        if function not in self._bodies:
            nodes = inside(self._file.tree if function is None else function)
            placed = (node for node in nodes if hasattr(node, "lineno"))
            self._bodies[function] = sorted(placed, key=lambda node: (node.lineno, node.col_offset))  # type: ignore[attr-defined]
        return self._bodies[function]

    # -- calls --------------------------------------------------------------------------------------------------------

    @cached_property
    def _targets(self) -> dict[ast.Call, tuple[Function, ...]]:
        return {call: self._called(call) for call in self._file.names.calls}

    @cached_property
    def _sites(self) -> dict[Function, list[ast.Call]]:
        sites: dict[Function, list[ast.Call]] = {}
        for call, functions in self._targets.items():
            for function in functions:
                sites.setdefault(function, []).append(call)
        return sites

    def functions(self, call: ast.Call) -> tuple[Function, ...]:
        """The functions of this file that a call runs: by name, as a method, or as the `forward` of a module."""
        return self._targets.get(call, ())

    def calls(self, function: Function) -> tuple[ast.Call, ...]:
        """The calls of this file that run a function."""
        return tuple(self._sites.get(function, ()))

    def _called(self, call: ast.Call) -> tuple[Function, ...]:
        func = call.func
        if self._file.resolve(func):
            return ()
        if isinstance(func, ast.Attribute) and not is_self(func.value):
            if isinstance(func.value, ast.Call) and path_of(func.value.func) == "super" and func.attr != "__init__":
                cls = self.enclosing_class(call)
                above = self.lineage(cls)[1:] if cls is not None else ()
                return tuple(m for entry in above if (m := member(entry, func.attr)) is not None)[:1]
            return self._methods_of(func.value, (func.attr,)) if func.attr in self._method_names else ()
        found = tuple(value for value in self.of(func) if isinstance(value, _FUNCTIONS))
        if isinstance(func, ast.Attribute) and func.attr in self._method_names:
            cls = self.enclosing_class(func)
            found = self._overrides.of(cls, func.attr, found) if cls is not None else found
        if found or not {"forward", "__call__"} & self._method_names:
            return found
        return self._methods_of(func, ("forward", "__call__"))

    @cached_property
    def _method_names(self) -> frozenset[str]:
        classes = [scope for scope in self._file.names.scopes.values() if scope.kind == "class"]
        return frozenset(name for scope in classes for name in scope.bindings)

    def _methods_of(self, receiver: ast.expr, names: tuple[str, ...]) -> tuple[Function, ...]:
        found: tuple[Function, ...] = ()
        for cls in self.constructed(receiver):
            if isinstance(cls, ast.ClassDef):
                methods = (self.method(cls, name) for name in names)
                found = _union(found, tuple(m for m in methods if m is not None)[:1])
        return found

    def calls_of(self, function: Function) -> tuple[ast.Call, ...]:
        """The calls that name a function directly: by its name, or by `self.` where it is a method.

        An `__init__` is called where its class is named. Cheaper than `calls`, and used while values are looked up.
        """
        owner = self._file.parent(function)
        if isinstance(owner, ast.ClassDef) and function.name != "__init__":
            uses: list[ast.expr] = [
                use for use in self._file.names.attributes.get(function.name, ()) if is_self(use.value)
            ]
        else:
            uses = list(
                self._file.names.loads.get(owner.name if isinstance(owner, ast.ClassDef) else function.name, ())
            )
        parents = ((use, self._file.parent(use)) for use in uses)
        return tuple(parent for use, parent in parents if isinstance(parent, ast.Call) and parent.func is use)

    def argument(self, call: ast.Call, function: Function, parameter: str) -> ast.expr | None:
        """What a call passes for a parameter of a function, None where it passes nothing or unpacks arguments."""
        for keyword in call.keywords:
            if keyword.arg == parameter:
                return keyword.value
        names = [arg.arg for arg in (*function.args.posonlyargs, *function.args.args)]
        if isinstance(self._file.parent(function), ast.ClassDef) and not is_static(function):
            names = names[1:]
        if parameter not in names:
            return None
        index = names.index(parameter)
        head = call.args[: index + 1]
        if len(head) <= index or any(isinstance(arg, ast.Starred) for arg in head):
            return None
        return head[index]


def is_self(node: ast.expr) -> bool:
    """Whether an expression is the object that a method works on, by its usual names."""
    return isinstance(node, ast.Name) and node.id in ("self", "cls")


def is_static(function: Function) -> bool:
    """Whether a method is declared as `@staticmethod`."""
    return any(isinstance(d, ast.Name) and d.id == "staticmethod" for d in function.decorator_list)


def default_of(arguments: ast.arguments, arg: ast.arg) -> ast.expr | None:
    """The default of a parameter."""
    positional = [*arguments.posonlyargs, *arguments.args]
    if arg in positional:
        index = positional.index(arg) - (len(positional) - len(arguments.defaults))
        return arguments.defaults[index] if index >= 0 else None
    if arg in arguments.kwonlyargs:
        return arguments.kw_defaults[arguments.kwonlyargs.index(arg)]
    return None


def inside(node: ast.AST) -> list[ast.AST]:
    """The nodes that run with a statement or function body: nested functions, lambdas and classes are left out."""
    found: list[ast.AST] = []
    stack = list(ast.iter_child_nodes(node))
    while stack:
        current = stack.pop()
        if isinstance(current, (*_FUNCTIONS, ast.Lambda, ast.ClassDef)):
            continue
        found.append(current)
        stack.extend(ast.iter_child_nodes(current))
    return found


def returns(function: Function) -> list[ast.expr]:
    """The values that a function returns."""
    return [node.value for node in inside(function) if isinstance(node, ast.Return) and node.value is not None]


def path_of(node: ast.expr) -> str:
    """The text of a name or a chain of attributes (`self.net.head`), empty for any other expression."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        base = path_of(node.value)
        return f"{base}.{node.attr}" if base else ""
    return ""


def member(cls: ast.ClassDef, name: str) -> Function | None:
    """The method that a class itself defines under a name."""
    for statement in cls.body:
        if isinstance(statement, _FUNCTIONS) and statement.name == name:
            return statement
    return None


def _union(*parts: tuple) -> tuple:  # type: ignore[type-arg]
    """The parts in their order, each entry once."""
    return tuple(dict.fromkeys(entry for part in parts for entry in part))
