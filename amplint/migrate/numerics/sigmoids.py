"""Follows a value back to the sigmoids that it surely comes from: calls of `torch.sigmoid` and layers in models."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from amplint.facts.training import targets_of
from amplint.facts.values import Function, is_self, path_of, returns
from amplint.migrate.facts import Facts
from amplint.migrate.regions.sinks import Sinks
from amplint.migrate.tree import FUNCTIONS, chain, owner_of, position, walk
from amplint.rewrite.statements import siblings

if TYPE_CHECKING:
    from amplint.source import SourceFile

LAYER = "torch.nn.Sigmoid"
_SIGMOIDS = frozenset(("torch.sigmoid", "torch.nn.functional.sigmoid", "torch.special.expit"))
_FLOAT32 = frozenset(("torch.softmax", "torch.nn.functional.softmax", "torch.nn.Softmax"))
"""What CUDA autocast computes in float32 itself, whatever it is given."""
_SAME_DTYPE = frozenset(
    (
        "view", "squeeze", "reshape", "flatten", "contiguous", "unsqueeze", "float", "view_as", "to", "cuda", "cpu",
        "clone", "detach", "permute", "transpose", "expand", "expand_as", "repeat", "clamp", "mean", "t",
    )
)  # fmt: skip
_SAME_DTYPE_TORCH = frozenset(
    f"torch.{name}" for name in ("squeeze", "flatten", "reshape", "unsqueeze", "clamp", "transpose", "mean")
)
_SAME_DTYPE_LAYERS = frozenset(
    f"torch.nn.{name}" for name in ("Flatten", "Unflatten", "Identity", "Dropout", "Dropout2d", "AdaptiveAvgPool2d")
)
_WRAPPERS = frozenset(
    (
        "torch.compile",
        "torch.nn.DataParallel",
        "torch.nn.parallel.DataParallel",
        "torch.nn.parallel.DistributedDataParallel",
    )
)
_SAME_MODULE = frozenset(("to", "cuda", "cpu", "train", "eval", "apply", "float", "requires_grad_"))
_DEPTH = 40

Index = int | str | None
"""The place of a value in what a model returns, in a tuple or a dict."""
Found = list[ast.Call] | None
"""Sigmoids; none where a circle was met, which adds nothing; None where a value may come from something else."""


class Sigmoids:
    """Answers where probabilities are made in one file.

    A sigmoid is given as its call (`torch.sigmoid(x)`, `x.sigmoid()`, `self.sigmoid(x)` for such a layer) or, where the
    layer runs inside a container, as the call that makes it (`nn.Sigmoid()`). A softmax, which needs no repair, is
    among them as its call.
    """

    def __init__(self, facts: Facts, sinks: Sinks) -> None:
        self.facts = facts
        self.file: SourceFile = facts.file
        self.sinks = sinks
        self._active: set[tuple[ast.AST, Index]] = set()

    def behind(self, node: ast.expr, index: Index = None) -> Found:
        """The sigmoids behind a value, or behind one element of a tuple; see the class for what they are."""
        if (node, index) in self._active:
            return []
        if len(self._active) > _DEPTH:
            return None
        self._active.add((node, index))
        try:
            return self._value(node, index)
        finally:
            self._active.discard((node, index))

    def _value(self, node: ast.expr, index: Index) -> Found:
        if isinstance(node, ast.Tuple):
            return self.behind(node.elts[index]) if isinstance(index, int) and index < len(node.elts) else None
        if isinstance(node, ast.Dict):
            given = [
                v
                for k, v in zip(node.keys, node.values, strict=True)
                if isinstance(k, ast.Constant) and k.value == index
            ]
            return self.behind(given[0]) if len(given) == 1 else None
        if isinstance(node, ast.Call):
            return self._call(node, index)
        if isinstance(node, ast.Subscript):
            place = node.slice.value if isinstance(node.slice, ast.Constant) else None
            return self.behind(node.value, place if isinstance(place, (int, str)) else None)
        if isinstance(node, ast.IfExp):
            return self._all([(node.body, index), (node.orelse, index)])
        if isinstance(node, ast.Name):
            return self._name(node, index)
        if isinstance(node, ast.Attribute) and is_self(node.value):
            owner = self.file.values.enclosing_class(node)
            assigned = self.file.values.assigned(owner, node.attr) if owner is not None else []
            return self._all([(value, index) for value in assigned]) if assigned else None
        if isinstance(node, ast.Attribute) and node.attr == "data":
            return self.behind(node.value, index)
        if isinstance(node, ast.BinOp) and not isinstance(node.op, ast.MatMult):
            return self._arithmetic(node)
        return None

    def _all(self, sources: list[tuple[ast.expr | None, Index]]) -> Found:
        result: list[ast.Call] = []
        for source, index in sources:
            part = self.behind(source, index) if source is not None else None
            if part is None:
                return None
            result += part
        return result

    def _arithmetic(self, node: ast.BinOp) -> Found:
        """Arithmetic of float32 and data is float32."""
        graph = self.sinks.graph(owner_of(self.file, node))
        sides = [side for side in (node.left, node.right) if graph.is_graph(side)]
        return self._all([(side, None) for side in sides]) if sides else None

    # -- calls --------------------------------------------------------------------------------------------------------

    def _call(self, call: ast.Call, index: Index) -> Found:
        names = self.file.resolve(call.func)
        if names:
            if names[0] in _SIGMOIDS | _FLOAT32:
                return [call]
            if names[0] in _SAME_DTYPE_TORCH and call.args:
                return self.behind(call.args[0])
            if names[0].endswith(".data_parallel") and call.args:
                return self._module(call.args[0], index)
            return None
        if isinstance(call.func, ast.Attribute):
            if call.func.attr == "sigmoid" and not call.args:
                return [call]
            if call.func.attr == "softmax":
                return [call]
            if call.func.attr in _SAME_DTYPE and not self.facts.is_module(call.func.value):
                return self.behind(call.func.value, index)
            if call.func.attr == "forward" and self.facts.is_module(call.func.value):
                return self._module(call.func.value, index)
        if self._is_layer(call.func):
            return [call]
        own = is_self(call.func) or (isinstance(call.func, ast.Attribute) and is_self(call.func.value))
        functions = list(self.file.values.functions(call))
        if not own:  # a module's, which is also looked for where the module is made
            functions = [f for f in functions if f.name not in ("forward", "__call__")]
        elif not functions and is_self(call.func) and (cls := self.file.values.enclosing_class(call)) is not None:
            forward = self.file.values.method(cls, "forward")
            functions = [forward] if forward is not None else []
        if functions:
            return self._returned([value for function in functions for value in returns(function)], index)
        return self._module(call.func, index)

    def _is_layer(self, func: ast.expr) -> bool:
        """Whether what is called is a sigmoid kept as an attribute or name, the layer or the function."""
        made = self.file.values.of(func)
        if made and all(isinstance(v, ast.Call) and LAYER in self.file.resolve(v.func) for v in made):
            return True
        given = [self.file.resolve(v) for v in made if isinstance(v, (ast.Name, ast.Attribute))]
        return len(given) == len(made) > 0 and all(_SIGMOIDS.intersection(names) for names in given)

    def _returned(self, values: list[ast.expr], index: Index) -> Found:
        """The sigmoids behind what a function returns; a return of the very value that goes into the sigmoid on another
        way is for other losses."""
        parts = [self.behind(value, index) for value in values]
        found = [sigmoid for part in parts for sigmoid in part or ()]
        raw = {path_of(s.args[0]) for s in found if s.args}
        if any(part is None and path_of(value) not in raw - {""} for value, part in zip(values, parts, strict=True)):
            return None
        return found

    # -- modules ------------------------------------------------------------------------------------------------------

    def _module(self, node: ast.expr, index: Index = None) -> Found:
        """The sigmoids that a module ends in."""
        if (node, -1) in self._active:
            return []
        self._active.add((node, -1))
        try:
            result: list[ast.Call] = []
            for value in self.file.values.of(node):
                if isinstance(value, ast.Constant) and value.value is None:
                    continue
                part = self._made(value, index) if isinstance(value, ast.Call) else None
                if part is None:
                    return None
                result += part
            return result
        finally:
            self._active.discard((node, -1))

    def _made(self, call: ast.Call, index: Index) -> Found:
        names = self.file.resolve(call.func)
        if names:
            if names[0] == LAYER or names[0] in _FLOAT32:
                return [call]
            if names[0] in _WRAPPERS and call.args:
                return self._module(call.args[0], index)
            if names[0] == "torch.nn.Sequential":
                return self._sequential(call)
            return None
        if isinstance(call.func, ast.Attribute) and call.func.attr in _SAME_MODULE:
            return self._module(call.func.value, index)
        result: list[ast.Call] = []
        for value in self.file.values.of(call.func):
            part: Found = None
            if isinstance(value, ast.ClassDef):
                forward = self.file.values.method(value, "forward")
                part = self._returned(returns(forward), index) if forward is not None else None
                if forward is None and any("torch.nn.Sequential" in self.file.resolve(b) for b in value.bases):
                    part = self._super_sequential(value)
            elif isinstance(value, FUNCTIONS):
                parts = [self._module(r, index) for r in returns(value)]
                part = None if any(p is None for p in parts) else [c for p in parts for c in p or ()]
            if part is None:
                return None
            result += part
        return result

    def _super_sequential(self, cls: ast.ClassDef) -> Found:
        """The end of a class that is a Sequential and gives its layers to `super().__init__`."""
        init = self.file.values.method(cls, "__init__")
        for node in walk(init) if init is not None else ():
            if isinstance(node, ast.Call) and self.file.segment(node.func).endswith(").__init__"):
                return self._sequential(node)
        return None

    def _sequential(self, call: ast.Call) -> Found:
        if not call.args:
            return self._added(call)
        last = call.args[-1]
        for layer in reversed(call.args):
            last = layer
            names = self.file.resolve(layer.func) if isinstance(layer, ast.Call) else ()
            if not _SAME_DTYPE_LAYERS.intersection(names):
                break
        if isinstance(last, ast.Call) and any(n.endswith("OrderedDict") for n in self.file.resolve(last.func)):
            pairs = last.args[0].elts if last.args and isinstance(last.args[0], (ast.List, ast.Tuple)) else []
            end = pairs[-1] if pairs else None
            return self._module(end.elts[1]) if isinstance(end, ast.Tuple) and len(end.elts) == 2 else None
        return self._list_end(last.value) if isinstance(last, ast.Starred) else self._module(last)

    def _added(self, call: ast.Call) -> Found:
        """The last layer that `add_module` puts into a Sequential which was made empty."""
        statement = self.file.statement(call)
        paths = {path_of(target) for target in targets_of(statement)}
        added = [
            node
            for node in walk(owner_of(self.file, call))
            if isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and node.func.attr in ("add_module", "append")
            and path_of(node.func.value) in paths
            and node.args
        ]
        return self._module(max(added, key=position).args[-1]) if added else None

    def _list_end(self, node: ast.expr, depth: int = 0) -> Found:
        """The sigmoids that a list of layers ends in."""
        if depth > 6:
            return None
        if isinstance(node, (ast.List, ast.Tuple)):
            last = node.elts[-1] if node.elts else None
            if last is None:
                return None
            return self._list_end(last.value, depth + 1) if isinstance(last, ast.Starred) else self._module(last)
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
            return self._list_end(node.right, depth + 1)
        if isinstance(node, ast.Call) and (functions := self.file.values.functions(node)):
            parts = [self._list_end(r, depth + 1) for f in functions for r in returns(f)]
            return None if any(p is None for p in parts) else [c for p in parts for c in p or ()]
        return self._filled(node, depth) if isinstance(node, ast.Name) else None

    def _filled(self, node: ast.Name, depth: int) -> Found:
        """The end of a list that statements before have filled; under a condition the sigmoid may be left out, and then
        the script computes no loss of probabilities."""
        use = self.file.statement(node)
        graph = self.sinks.graph(owner_of(self.file, node))
        filled: list[tuple[ast.stmt, ast.expr, bool]] = []
        for statement in graph.statements:
            if position(statement) >= position(use):
                continue
            if isinstance(statement, (ast.Assign, ast.AugAssign)):
                if any(path_of(t) == node.id for t in targets_of(statement)):
                    filled.append((statement, statement.value, True))
            elif isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call) and statement.value.args:
                func = statement.value.func
                if isinstance(func, ast.Attribute) and path_of(func.value) == node.id:
                    if func.attr not in ("append", "extend"):
                        return None
                    filled.append((statement, statement.value.args[0], func.attr == "extend"))
        found: list[ast.Call] = []
        around = {id(s) for s in chain(self.file, use)}
        for statement, value, is_list in reversed(filled):
            sure = any(id(member) in around for member in siblings(self.file, statement))
            part = self._list_end(value, depth + 1) if is_list else self._module(value)
            found += part or []
            if sure:
                break
        return found or None

    # -- names --------------------------------------------------------------------------------------------------------

    def _name(self, node: ast.Name, index: Index) -> Found:
        owner = owner_of(self.file, node)
        graph = self.sinks.graph(owner)
        reaching = {statement for statement, _ in graph.reaching(node.id, self.file.statement(node))}
        found: list[tuple[ast.expr | None, Index]] = []
        if not reaching:
            return self._outside(node, index)
        optional = self._optional(node, reaching)
        for statement in [optional] if optional is not None else sorted(reaching, key=position):
            if not isinstance(statement, ast.Assign):
                return None
            for target in statement.targets:
                if isinstance(target, (ast.Tuple, ast.List)):
                    places = [i for i, t in enumerate(target.elts) if isinstance(t, ast.Name) and t.id == node.id]
                    if not places or any(isinstance(t, ast.Starred) for t in target.elts):
                        return None
                    found += [(statement.value, place) for place in places]
                elif isinstance(target, ast.Name):
                    found.append((statement.value, index))
                else:
                    return None
        return self._all(found)

    def _optional(self, node: ast.Name, reaching: set[ast.stmt]) -> ast.stmt | None:
        """The `out = torch.sigmoid(out)` under a condition that comes last; without it there are no probabilities."""
        last = max(reaching, key=position)
        if len(reaching) < 2 or not isinstance(last, ast.Assign) or not isinstance(last.value, ast.Call):
            return None
        given = [*last.value.args, getattr(last.value.func, "value", None)]
        if not isinstance(self.file.parent(last), ast.If) or not any(
            isinstance(g, ast.Name) and g.id == node.id for g in given
        ):
            return None
        return last if self.behind(last.value) == [last.value] else None

    def _outside(self, node: ast.Name, index: Index) -> Found:
        """What a parameter is given by all calls, or what the module assigns to a name."""
        found: list[tuple[ast.expr | None, Index]] = []
        for binding in self.file.names.lookup(node):
            if binding.kind == "assign" and isinstance(binding.node, ast.Assign) and binding.value is not None:
                found.append((binding.value, index))
                continue
            arguments = self.file.parent(binding.node)
            function = self.file.parent(arguments) if arguments is not None else None
            if binding.kind != "param" or not isinstance(binding.node, ast.arg) or not isinstance(function, FUNCTIONS):
                return None
            found += [(given, index) for given in self._given(function, node.id)]
        return self._all(found) if found else None

    def _given(self, function: Function, parameter: str) -> list[ast.expr | None]:
        return [self.file.values.argument(c, function, parameter) for c in self.file.values.calls(function)]
