"""Follows a value back to the last products: which functions between the two must be computed of float32, so that the
value is float32 and nothing on its way was rounded."""

from __future__ import annotations

import ast
from collections.abc import Set as AbstractSet

from amplint.facts.values import path_of
from amplint.migrate.facts import Facts
from amplint.migrate.numerics import lambdas
from amplint.migrate.numerics.half import HalfValues
from amplint.migrate.numerics.sigmoids import Found, Index, Sigmoids
from amplint.migrate.regions.sinks import Sinks
from amplint.migrate.tree import chain, owner_of, position

SQUASHING = frozenset(("softmax", "sigmoid", "expit", "tanh", "exp", "softplus", "cosh"))
"""Functions of which the result is exact where what they are given is float32."""
_ELEMENTWISE = frozenset(
    ("squeeze", "unsqueeze", "view", "reshape", "flatten", "contiguous", "expand", "expand_as", "view_as", "repeat",
     "t", "transpose", "permute", "clone", "detach", "float", "to", "cuda", "cpu", "gather", "index_select",
     "masked_select", "take", "select", "narrow", "sum", "mean", "prod", "cumsum", "cumprod", "clamp", "clip", "neg",
     "clamp_min", "clamp_max", "abs", "relu", "square", "sqrt", "pow", "masked_fill", "add", "sub", "mul", "div",
     "nan_to_num", "diag", "diagonal", "roll", "flip", "amax", "amin", "maximum", "minimum", "log", "log1p", "max",
     "min", "chunk", "split", "unbind", "topk")
)  # fmt: skip
"""Functions that compute float32 of float32: of their first argument, or of all that are tensors."""
_OF_ALL = frozenset(("add", "sub", "mul", "div", "maximum", "minimum", "pow", "max", "min"))
_ALWAYS_FLOAT32 = frozenset(("sum", "prod", "pow", "cumsum", "cumprod"))
_SAME_ELEMENTS = frozenset(("reversed", "list", "tuple", "iter"))
_LISTS = frozenset(("torch.nn.ModuleList", "torch.nn.Sequential"))
_PRODUCTS = frozenset(("matmul", "mm", "bmm", "einsum", "linear", "baddbmm", "addmm", "mv"))
_GROWS = frozenset(("append", "extend", "insert", "add_module", "__setitem__"))


class Origins(Sigmoids):
    """Answers which functions must be given float32 for a value to be exact; None where that can't be seen.

    A list, tuple or dict stands for all of its elements where it is not known which one is meant.
    """

    def __init__(self, facts: Facts, sinks: Sinks, half: HalfValues, exact: AbstractSet[ast.Call]) -> None:
        super().__init__(facts, sinks)
        self.half = half
        self._exact = exact
        self.passed: set[ast.expr] = set()
        self.on_cuda = False
        self.products: list[ast.expr] = []
        self.outputs: list[ast.expr] = []
        self._follows = ""
        self._differences = 0

    def all_of(self, node: ast.expr, is_difference: bool = False) -> Found:
        """The functions behind a value, of which a difference is taken or not; `passed` holds all that lies between,
        and `on_cuda` is whether the value is float32 on CUDA only."""
        self.passed, self.on_cuda = set(), False
        return self._difference([node]) if is_difference else self.behind(node)

    def all_with_products(self, node: ast.expr, *, with_outputs: bool = False) -> Found:
        """The functions behind a value that products may make too, of unit vectors or of what models gave: `products`
        holds those, and `outputs` what models gave itself, where that may be behind the value."""
        self.products, self.outputs = [], []
        self._follows = "outputs" if with_outputs else "products"
        try:
            return self.all_of(node, is_difference=True)
        finally:
            self._follows = ""

    def behind(self, node: ast.expr, index: Index = None) -> Found:
        """The functions behind a value; none where it is data."""
        if node in self._exact or not self.half.may_be_rounded(node):
            return []
        passed = set(self.passed)
        found = super().behind(node, index)
        if found is None:
            self.passed = passed
        elif index is None:
            self.passed.add(node)
        return found

    # -- expressions --------------------------------------------------------------------------------------------------

    def _value(self, node: ast.expr, index: Index) -> Found:
        if isinstance(node, ast.UnaryOp):
            return self._difference([node.operand])
        if self._collects and isinstance(node, ast.BinOp) and isinstance(node.op, ast.MatMult):
            return self._product(node, [node.left, node.right])
        if self._follows and isinstance(node, ast.Attribute) and node.attr in ("T", "mT"):
            return self.behind(node.value)
        if isinstance(node, ast.Subscript) and not isinstance(node.slice, ast.Constant):
            return self.behind(node.value)
        if isinstance(node, ast.List) or (isinstance(node, ast.Tuple) and index is None):
            return self._all([(element, None) for element in node.elts])
        if isinstance(node, ast.Dict) and index is None:
            return self._all([(value, None) for value in node.values])
        if isinstance(node, (ast.ListComp, ast.GeneratorExp)):
            return self.behind(node.elt)
        return super()._value(node, index)

    def _arithmetic(self, node: ast.BinOp) -> Found:
        if isinstance(node.op, ast.Pow):
            return self._float32([node.left, node.right])
        if isinstance(node.op, (ast.Add, ast.Mult, ast.Div)):
            return self._all([(node.left, None), (node.right, None)])
        return self._difference([node.left, node.right]) if isinstance(node.op, ast.Sub) else None

    def _difference(self, sides: list[ast.expr]) -> Found:
        """What a difference is taken of must be exact, for it may be small."""
        self._differences += 1
        try:
            return self._all([(side, None) for side in sides])
        finally:
            self._differences -= 1

    def _float32(self, given: list[ast.expr]) -> Found:
        """What is behind a value that CUDA computes in float32, which is enough where no difference is taken of it."""
        found = self._all([(value, None) for value in given])
        if found is None and not self._differences:
            self.on_cuda = True
            return []
        return found

    # -- calls --------------------------------------------------------------------------------------------------------

    def _call(self, call: ast.Call, index: Index) -> Found:
        names = self.file.resolve(call.func)
        is_method = isinstance(call.func, ast.Attribute) and not names
        if names and not names[0].startswith("torch."):
            return None
        if called := lambdas.of_call(self.file, call):
            return self._all([(value.body, index) for value in called])
        if not names and (not isinstance(call.func, ast.Attribute) or self.facts.module_of(call) is not None):
            return self._of_model(call, index)
        if not names and self.file.values.functions(call):
            return super()._call(call, index)
        name = names[0].rsplit(".", 1)[-1] if names else call.func.attr  # type: ignore[attr-defined]
        tensors = [*([call.func.value] if is_method else []), *call.args]  # type: ignore[attr-defined]
        if not tensors:
            return None
        if self._collects and name in _PRODUCTS:
            return self._product(call, tensors)
        if self._follows and name in ("normalize", "cosine_similarity"):
            return [call]
        if name in SQUASHING:
            return None if name == "exp" and self._differences else [call]  # 1 - exp(x) is as small as x
        if name == "where" and len(tensors) == 3:
            chosen = [tensors[0], tensors[2]] if is_method else tensors[1:]
            return self._all([(tensor, None) for tensor in chosen])
        if name in ("cat", "stack") and names:
            return self.behind(tensors[0])
        if name in ("values", "items") and is_method:
            return self.behind(tensors[0])
        if name in _ELEMENTWISE and (is_method or names[0].rsplit(".", 1)[0] in ("torch", "torch.nn.functional")):
            given = tensors if name in _OF_ALL else tensors[:1]
            if name in _ALWAYS_FLOAT32:
                return self._float32(given)
            return self._difference(given) if name == "sub" else self._all([(tensor, None) for tensor in given])
        return super()._call(call, index)

    @property
    def _collects(self) -> bool:
        """Whether products may be behind a value."""
        return self._follows in ("products", "outputs")

    def _of_model(self, call: ast.Call, index: Index) -> Found:
        """The end of a model, or what it gives as a whole."""
        outer = self._follows
        self._follows = "products" if outer == "outputs" else outer
        try:
            found = super()._call(call, index)
        finally:
            self._follows = outer
        if found is None and index is None and outer == "outputs" and self.facts.module_of(call) is not None:
            self.outputs.append(call)
            return []
        return found

    def _product(self, node: ast.expr, factors: list[ast.expr]) -> Found:
        """A product, with the functions behind its factors where those are in view."""
        self.products.append(node)
        outer, self._follows = self._follows, "units"
        found: list[ast.Call] = []
        for factor in factors:
            found += self.behind(factor) or []  # where that is not in view, it is cast where the product stands
        self._follows = outer
        return found

    def _is_layer(self, func: ast.expr) -> bool:
        made = self.file.values.of(func)
        softmax = all(isinstance(v, ast.Call) and "torch.nn.Softmax" in self.file.resolve(v.func) for v in made)
        return (bool(made) and softmax) or super()._is_layer(func)

    def _made(self, call: ast.Call, index: Index) -> Found:
        if "torch.nn.Softplus" in self.file.resolve(call.func) and not self._differences:
            self.on_cuda = True
            return []
        return super()._made(call, index)

    def _module(self, node: ast.expr, index: Index = None) -> Found:
        passed = set(self.passed)
        found = super()._module(node, index)
        if found is None:
            self.passed = passed
        members = self._members(node) if found is None else None
        if not members or (node, -2) in self._active:
            return found
        self._active.add((node, -2))
        try:
            parts = [self._module(member, index) for member in members]
        finally:
            self._active.discard((node, -2))
        return None if any(part is None for part in parts) else [call for part in parts for call in part or ()]

    # -- names --------------------------------------------------------------------------------------------------------

    def _name(self, node: ast.Name, index: Index) -> Found:
        if (scope := lambdas.scope_of(self.file, node)) is not None:
            if isinstance(scope.node, ast.Lambda):
                given = lambdas.sources(self.file, scope, node.id)
                return self._all([(value, index) for value in given]) if given else None
            source = self._source(node)
            return self.behind(source) if source is not None else None
        passed = set(self.passed)
        found = super()._name(node, index)
        if found is None:
            self.passed = passed
            found = self._gathered(node, index)
        return found

    def _gathered(self, node: ast.Name, index: Index) -> Found:
        """What a name holds that is filled step by step, runs over something or goes through a list of layers."""
        at = self.file.statement(node)
        reaching = self.sinks.graph(owner_of(self.file, node)).reaching(node.id, at)
        if not reaching:
            return None
        last = max((statement for statement, _ in reaching), key=position)
        if (layers := self._layers_of(last, node.id, at)) is not None:
            end = self._end_of(layers)
            return self._module(end) if end is not None else None
        found: list[tuple[ast.expr | None, Index]] = []
        for statement, value in reaching:
            if isinstance(statement, ast.Assign):
                for target in statement.targets:
                    if isinstance(target, (ast.Tuple, ast.List)):
                        places = [i for i, t in enumerate(target.elts) if isinstance(t, ast.Name) and t.id == node.id]
                        if not places or any(isinstance(t, ast.Starred) for t in target.elts):
                            return None
                        found += [(statement.value, place) for place in places]
                    elif isinstance(target, ast.Name):
                        found.append((value, index))
                    elif isinstance(target, ast.Subscript):
                        found.append((value, None))
                    else:
                        return None
            elif isinstance(statement, ast.AugAssign) and isinstance(statement.op, (ast.Add, ast.Mult, ast.Div)):
                found.append((value, None))
            elif isinstance(statement, ast.For):
                found.append((self._element(statement.target, statement.iter, node.id), None))
            elif isinstance(statement, ast.Expr) and self._grows(statement.value, node.id):
                found.append((value, None))
            else:
                return None
        return self._all(found)

    @staticmethod
    def _grows(node: ast.expr, name: str) -> bool:
        return (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and node.func.attr in _GROWS
            and path_of(node.func.value) == name
        )

    def _source(self, name: ast.Name) -> ast.expr | None:
        """What the name of a comprehension or of a loop runs over, None where that can't be told."""
        scope = lambdas.scope_of(self.file, name)
        if scope is not None:
            for generator in getattr(scope.node, "generators", ()):
                if (found := self._element(generator.target, generator.iter, name.id)) is not None:
                    return found
            return None
        loops = [s for s in chain(self.file, self.file.statement(name))[1:] if isinstance(s, ast.For)]
        for loop in loops:
            if (found := self._element(loop.target, loop.iter, name.id)) is not None:
                return found
        return None

    def _element(self, target: ast.expr, over: ast.expr, name: str) -> ast.expr | None:
        """What a name of a target runs over: of `for i, x in enumerate(xs)` it is `xs` for `x`."""
        called = path_of(over.func).rsplit(".", 1)[-1] if isinstance(over, ast.Call) else ""
        if isinstance(target, ast.Name):
            if target.id != name:
                return None
            return over.args[0] if isinstance(over, ast.Call) and called in _SAME_ELEMENTS and over.args else over
        if not isinstance(target, (ast.Tuple, ast.List)) or not isinstance(over, ast.Call):
            return None
        given: list[ast.expr] = []
        if called == "enumerate" and len(target.elts) == 2 and over.args:
            given = [ast.Constant(0), over.args[0]]
        elif called == "items" and len(target.elts) == 2 and isinstance(over.func, ast.Attribute):
            given = [ast.Constant(0), over.func.value]
        elif called == "zip" and len(over.args) == len(target.elts):
            given = over.args
        found = [self._element(t, g, name) for t, g in zip(target.elts, given, strict=False)]
        return next((f for f in found if f is not None), None)

    # -- lists of modules ---------------------------------------------------------------------------------------------

    def _members(self, node: ast.expr) -> list[ast.expr] | None:
        """The modules that an item of a list, or a name that runs over one, may be."""
        if isinstance(node, ast.Subscript):
            return self._listed(node.value)
        source = self._source(node) if isinstance(node, ast.Name) else None
        return self._listed(source) if source is not None else None

    def _listed(self, node: ast.expr) -> list[ast.expr] | None:
        """The modules of a list, in their order; None where one can't be seen."""
        found: list[ast.expr] = []
        for value in self.file.values.of(node):
            if isinstance(value, (ast.List, ast.Tuple)):
                part: list[ast.expr] | None = list(value.elts)
            elif isinstance(value, ast.ListComp):
                part = [value.elt]
            elif isinstance(value, ast.Call) and _LISTS.intersection(self.file.resolve(value.func)):
                is_list = "torch.nn.ModuleList" in self.file.resolve(value.func)
                part = (self._listed(value.args[0]) if value.args else []) if is_list else list(value.args)
            else:
                return None
            if part is None or any(isinstance(element, ast.Starred) for element in part):
                return None
            added = self._appended(node, value)
            if added is None:
                return None
            found += [*part, *added]
        return found

    def _appended(self, node: ast.expr, made: ast.expr) -> list[ast.expr] | None:
        """What the function that makes a list appends to it; None where it is filled in another way."""
        paths = {path_of(node), *(path_of(t) for t in getattr(self.file.statement(made), "targets", ()))} - {""}
        names = {path.rsplit(".", 1)[-1] for path in paths}
        found = []
        for call in self.file.names.calls:
            if not isinstance(call.func, ast.Attribute) or call.func.attr not in _GROWS:
                continue
            path = path_of(call.func.value)
            if path.rsplit(".", 1)[-1] not in names:
                continue
            here = path in paths and owner_of(self.file, call) is owner_of(self.file, made)
            if not here or call.func.attr != "append" or len(call.args) != 1:
                return None
            found.append(call.args[0])
        return sorted(found, key=position)

    def _layers_of(self, last: ast.stmt, name: str, at: ast.stmt) -> ast.expr | None:
        """The list of layers that a value went through before, as of `for layer in layers: x = layer(x)`."""
        loop = self.file.parent(last)
        if not isinstance(loop, ast.For) or loop.body != [last] or loop in chain(self.file, at) or loop.orelse:
            return None
        if not isinstance(last, ast.Assign) or not isinstance(last.value, ast.Call) or len(last.value.args) != 1:
            return None
        if not path_of(loop.iter) and path_of(getattr(loop.iter, "func", loop.iter)) != "enumerate":
            return None
        given, func = last.value.args[0], last.value.func
        is_through = isinstance(given, ast.Name) and given.id == name and isinstance(func, ast.Name)
        return self._element(loop.target, loop.iter, func.id) if is_through and isinstance(func, ast.Name) else None

    def _end_of(self, layers: ast.expr) -> ast.expr | None:
        """The last module of a list; none where a condition or a loop may put another one there."""
        listed = self._listed(layers)
        if not listed:
            return None
        last = max(listed, key=position)
        block = self.file.parent(self.file.statement(last))
        return last if not isinstance(block, (ast.If, ast.For, ast.While)) and last is listed[-1] else None
