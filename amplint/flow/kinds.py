"""Which paths of a file are scalers, optimizers or instances of its classes: by constructor, annotation, and use."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from amplint.flow.functions import Function, Functions
from amplint.flow.paths import element_targets, last_name, path_of, root_of
from amplint.flow.vocabulary import CALLED_SCALERS, OPTIMIZER_NAME, SCALER_NAME, SCALERS, SCHEDULER_NAME

if TYPE_CHECKING:
    from amplint.flow.imports import Imports
    from amplint.source import SourceFile

SCALER, OPTIMIZER = "scaler", "optimizer"
CALLED_SCALER = "called scaler"
_EVIDENCE = ("scale", "unscale_", "step", "update", "zero_grad")
_OF_SCALER = ("scale", "unscale_", "update")
"""A scaler without a telling name has one of these beside `step(optimizer)`: precisions and engines step too."""


def is_wrapper(file: SourceFile, call: ast.Call) -> bool:
    """Whether a call is of one of the project's own wrappers that the settings list, by its name or its full name."""
    wrappers = file.settings.wrappers
    return bool(wrappers) and not {last_name(call.func), *file.resolve(call.func)}.isdisjoint(wrappers)


class Kinds:
    """The kind of each path, in the function or class where its root belongs.

    A kind is `scaler`, `optimizer`, `called scaler` (an object that is called to back and step, as timm's) or
    `class:NAME` for an instance of a class of the file.
    """

    def __init__(self, functions: Functions, imports: Imports) -> None:
        self.functions = functions
        self._imports = imports
        self.file: SourceFile = functions.file
        self._table: dict[tuple[str, str], str] = {}
        self._foreign: set[tuple[str, str]] = set()
        self._annotations()
        self._constructors()
        calls = [
            (call, call.func.attr, call.func.value)
            for call in self.file.names.calls
            if isinstance(call.func, ast.Attribute) and call.func.attr in _EVIDENCE
        ]
        for _ in range(2):  # what a use says of one name helps with the next
            self._uses(calls)
            self._arguments()
            self._aliases()

    # -- asking ------------------------------------------------------------------------------------------------------

    def key(self, path: str, function: Function) -> tuple[str, str]:
        """Where a path belongs: a class for parts of a method's receiver, else the function that binds its root."""
        root = root_of(path)
        home = self.functions.home(root, function)
        if home is not None and home.receiver == root and home.owner is not None:
            return f"class {home.owner}", path[len(root) :]
        known = self._table.get((home.name if home else "", root))
        if known is not None and known.startswith("class:") and path != root:
            return f"class {known[6:]}", path[len(root) :]
        return (home.name if home else "", path)

    def of(self, path: str | None, function: Function) -> str:
        """The kind of a path, "" where none is known."""
        if path is None:
            return ""
        place, rest = self.key(path, function)
        found = self._lookup(place, rest)
        if found or not rest.endswith("]"):
            return found
        return self._lookup(place, f"{rest[: rest.rindex('[')]}[*]")

    def _lookup(self, place: str, rest: str) -> str:
        if place.startswith("class "):
            name = place[6:]
            for owner in (name, *self.functions.bases.get(name, ())):
                found = self._table.get((f"class {owner}", rest))
                if found:
                    return found
            return ""
        return self._table.get((place, rest), "")

    def instance(self, path: str | None, function: Function) -> str | None:
        """The class of the file that the object at a path is an instance of."""
        found = self.of(path, function)
        return found[6:] if found.startswith("class:") else None

    # -- collecting --------------------------------------------------------------------------------------------------

    def _say(self, path: str | None, function: Function, kind: str) -> None:
        if path is None or path in ("self", "cls"):
            return
        key = self.key(path, function)
        if key not in self._foreign:
            self._table.setdefault(key, kind)

    def _annotations(self) -> None:
        for function in self.functions.by_node.values():
            if not isinstance(function.node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                continue
            args = function.node.args
            for arg in (*args.posonlyargs, *args.args, *args.kwonlyargs):
                if arg.annotation is not None:
                    self._say(arg.arg, function, self._annotated(arg.annotation))
        for name, node in self.functions.classes.items():
            for item in node.body:
                if isinstance(item, ast.AnnAssign) and isinstance(item.target, ast.Name):
                    kind = self._annotated(item.annotation)
                    if kind:
                        self._table.setdefault((f"class {name}", f".{item.target.id}"), kind)

    def _annotated(self, annotation: ast.expr) -> str:
        text = ast.unparse(annotation)
        if "GradScaler" in text and "Type[" not in text and "type[" not in text:
            return SCALER
        if text.rstrip("]\"' ").endswith("Optimizer") and not text.startswith(
            ("List", "list", "Dict", "dict", "Tuple")
        ):
            return OPTIMIZER
        name = text.strip("\"'")
        return f"class:{name}" if name in self.functions.classes else ""

    def _constructors(self) -> None:
        for call in self.file.names.calls:
            kind = self.constructed(call)
            if not kind:
                continue
            for path, function in self._receivers(call):
                if kind == "foreign":
                    self._foreign.add(self.key(path, function))
                else:
                    self._say(path, function, kind)

    def constructed(self, call: ast.Call) -> str:
        """The kind of object that a call makes; `foreign` for a scaler class of the project's own."""
        if not isinstance(call.func, (ast.Name, ast.Attribute)):
            return ""
        name = last_name(call.func)
        names = self.file.resolve(call.func)
        if SCALERS & set(names):
            return SCALER
        if name in self.functions.classes and isinstance(call.func, ast.Name):
            if name in self.functions.optimizer_classes:
                return OPTIMIZER
            return "foreign" if name in self.functions.scaler_classes else f"class:{name}"
        if any(n.startswith("torch.optim.") and n.count(".") == 2 and name[:1].isupper() for n in names):
            return OPTIMIZER
        if CALLED_SCALERS & set(names) or (name[:1].isupper() and is_wrapper(self.file, call)):
            return CALLED_SCALER
        imported = self._imports.callable_class(call)
        return "" if imported is None else f"class:{imported}"

    def _receivers(self, call: ast.Call) -> list[tuple[str, Function]]:
        """The paths that an expression is assigned to, through `... if ... else`, `or`, literals and comprehensions."""
        suffix = ""
        node: ast.AST = call
        parent = self.file.parent(node)
        while parent is not None and not isinstance(parent, ast.stmt):
            if isinstance(parent, ast.Dict):
                index = parent.values.index(node) if node in parent.values else -1
                key = parent.keys[index] if index >= 0 else None
                suffix = f"[{key.value!r}]{suffix}" if isinstance(key, ast.Constant) else f"[*]{suffix}"
            elif isinstance(parent, (ast.List, ast.ListComp, ast.DictComp, ast.GeneratorExp)) or (
                isinstance(parent, ast.Tuple) and not self._unpacks(parent)
            ):
                suffix = f"[*]{suffix}"
            elif isinstance(parent, ast.Tuple):
                return self._unpacked(parent, node, suffix)
            elif not isinstance(parent, (ast.IfExp, ast.BoolOp, ast.NamedExpr)):
                return []
            if isinstance(parent, ast.NamedExpr) and (path := path_of(parent.target)):
                return [(path + suffix, self.functions.around(call))]
            node, parent = parent, self.file.parent(parent)
        function = self.functions.around(call)
        targets: list[ast.expr] = []
        if isinstance(parent, ast.Assign) and node is parent.value:
            targets = parent.targets
        elif isinstance(parent, ast.AnnAssign) and node is parent.value:
            targets = [parent.target]
        return [(path + suffix, function) for target in targets if (path := path_of(target))]

    def _unpacks(self, value: ast.Tuple) -> bool:
        parent = self.file.parent(value)
        return isinstance(parent, ast.Assign) and any(
            isinstance(t, (ast.Tuple, ast.List)) and len(t.elts) == len(value.elts) for t in parent.targets
        )

    def _unpacked(self, value: ast.Tuple, node: ast.AST, suffix: str) -> list[tuple[str, Function]]:
        parent = self.file.parent(value)
        index = next(i for i, item in enumerate(value.elts) if item is node)
        found: list[tuple[str, Function]] = []
        for target in parent.targets if isinstance(parent, ast.Assign) else ():
            if isinstance(target, (ast.Tuple, ast.List)) and (path := path_of(target.elts[index])):
                found.append((path + suffix, self.functions.around(value)))
        return found

    def _uses(self, calls: list[tuple[ast.Call, str, ast.expr]]) -> None:
        stepped: list[tuple[str, Function]] = []
        zeroed: set[tuple[str, str]] = set()
        kept = {
            self.key(path, self.functions.around(c)) for c, m, r in calls if m in _OF_SCALER and (path := path_of(r))
        }
        for call, method, receiver in calls:
            path = path_of(receiver)
            if path is None:
                continue
            function = self.functions.around(call)
            last = path.rpartition(".")[2]
            argument = path_of(call.args[0]) if call.args else None
            if method == "unscale_" and call.args:
                self._say(path, function, SCALER)
                self._say(argument, function, OPTIMIZER)
            elif method == "scale" and call.args:
                parent = self.file.parent(call)
                chained = isinstance(parent, ast.Attribute) and parent.attr == "backward"
                if chained or SCALER_NAME.search(last):
                    self._say(path, function, SCALER)
            elif method == "step" and argument is not None and not SCHEDULER_NAME.search(last):
                known = self.of(path, function)
                takes = self.key(path, function) in kept and self.of(argument, function) == OPTIMIZER
                if known == SCALER or (not known and (SCALER_NAME.search(last) or takes)):
                    self._say(path, function, SCALER)
                    self._say(argument, function, OPTIMIZER)
            elif method == "update" and SCALER_NAME.search(last):
                self._say(path, function, SCALER)
            elif method == "step" and not SCHEDULER_NAME.search(last):
                stepped.append((path, function))
            elif method == "zero_grad":
                zeroed.add(self.key(path, function))
        for path, function in stepped:
            if self.key(path, function) in zeroed or OPTIMIZER_NAME.search(path.rpartition(".")[2]):
                self._say(path, function, OPTIMIZER)

    def _arguments(self) -> None:
        """What a parameter is, the argument is too, and the other way round."""
        known: dict[str, list[Function]] = {}
        for function in self.functions.by_node.values():
            if isinstance(function.node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                known.setdefault(function.node.name, []).append(function)
        for call in self.file.names.calls:
            candidates = known.get(last_name(call.func), ())
            if len(candidates) != 1 or not (call.args or call.keywords):
                continue
            callee = candidates[0]
            caller = self.functions.around(call)
            if not self._calls(call.func, callee, caller) or any(isinstance(a, ast.Starred) for a in call.args):
                continue
            args = callee.node.args  # type: ignore[attr-defined]
            names = [arg.arg for arg in (*args.posonlyargs, *args.args, *args.kwonlyargs)]
            keywords = {keyword.arg: keyword.value for keyword in call.keywords}
            for index, name in enumerate(names):
                at = index - 1 if callee.receiver is not None else index
                argument = call.args[at] if 0 <= at < len(call.args) else keywords.get(name)
                path = path_of(argument)
                if path is None:
                    continue
                mine, given = self._table.get((callee.name, name), ""), self.of(path, caller)
                if mine in (SCALER, OPTIMIZER):
                    self._say(path, caller, mine)
                elif not mine and given in (SCALER, OPTIMIZER):
                    self._say(name, callee, given)

    def _calls(self, func: ast.expr, callee: Function, caller: Function) -> bool:
        """Whether a call by the name of a function of the file reaches that function."""
        if isinstance(func, ast.Name):
            home = self.functions.home(func.id, caller)
            return callee.owner is None and home is (callee.outer or self.functions.module)
        receiver = path_of(func.value) if isinstance(func, ast.Attribute) else None
        return callee.owner is not None and receiver is not None and receiver == caller.receiver

    def _aliases(self) -> None:
        """`opt = self.optimizer` (and what the name says of the attribute), and loops over collections."""
        for function in self.functions.by_node.values():
            for bindings in function.scope.bindings.values():
                for binding in bindings:
                    node = binding.node
                    if binding.kind == "assign" and binding.value is not None:
                        kind = self.of(path_of(binding.value), function)
                        if kind:
                            self._say(binding.name, function, kind)
                        elif (mine := self.of(binding.name, function)) in (SCALER, OPTIMIZER):
                            self._say(path_of(binding.value), function, mine)
                    elif isinstance(node, (ast.For, ast.AsyncFor)):
                        self._elements(node.target, node.iter, function)
        for node in self.file.names.scopes:
            for generator in getattr(node, "generators", ()):
                self._elements(generator.target, generator.iter, self.functions.around(node))

    def _elements(self, target: ast.expr, source: ast.expr, function: Function) -> None:
        if isinstance(source, (ast.Tuple, ast.List)):
            mine = self.of(path_of(target), function)
            names = [path_of(item) or "" for item in source.elts]
            if not mine and names and all(OPTIMIZER_NAME.search(name.rpartition(".")[2]) for name in names):
                mine = OPTIMIZER
                self._say(path_of(target), function, mine)
            for item in source.elts if mine in (SCALER, OPTIMIZER) else ():
                self._say(path_of(item), function, mine)
            return
        for variable, collection in element_targets(target, source):
            name, path = path_of(variable), path_of(collection)
            if name is None or path is None:
                continue
            inner = self.of(f"{path}[*]", function)
            mine = self.of(name, function)
            if inner:
                self._say(name, function, inner)
            elif mine in (SCALER, OPTIMIZER):
                self._say(f"{path}[*]", function, mine)
