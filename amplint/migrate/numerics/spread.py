"""Where a value may go: names, attributes, containers, arguments and returns of one file, without regard to order.

Every assignment is taken to reach every use of its name, so that what is not reached is surely not reached. Where a
value gets out of sight (a lambda, a generator, a function that is handed on) the place is kept as `lost`.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable
from typing import TYPE_CHECKING

from amplint.facts.training import targets_of
from amplint.facts.values import Function, path_of
from amplint.migrate.facts import Facts
from amplint.migrate.tree import FUNCTIONS, assigned_paths

if TYPE_CHECKING:
    from amplint.source import SourceFile

_LIMIT = 3000
"""How many places one value may come to before it counts as lost."""
_PLAIN_ATTRIBUTES = frozenset(("shape", "dtype", "device", "ndim", "is_cuda", "requires_grad"))
_OTHER_NUMBERS = frozenset(
    (
        "item", "tolist", "size", "dim", "numel", "long", "int", "bool", "byte", "short", "argmax", "argmin", "argsort",
        "eq", "ne", "gt", "lt", "ge", "le", "nonzero", "isnan", "isfinite", "isinf", "any", "all", "get_device",
        "format", "nelement", "stride", "is_contiguous",
    )
)  # fmt: skip
_PLAIN_FUNCTIONS = frozenset(
    ("len", "int", "float", "str", "bool", "print", "range", "isinstance", "format", "round", "type", "repr", "hasattr",
     "id", "callable")
)  # fmt: skip
_PLAIN_TORCH = frozenset(
    f"torch.{name}"
    for name in ("argmax", "argmin", "argsort", "eq", "isnan", "isfinite", "isinf", "numel", "save", "finfo", "iinfo",
                 "is_tensor", "nonzero", "is_complex")
)  # fmt: skip
_OF_TRAINING = frozenset(
    ("backward", "parameters", "named_parameters", "step", "zero_grad", "train", "eval", "state_dict",
     "load_state_dict", "forward")
)  # fmt: skip
_SETS = frozenset(("setattr", "register_buffer", "register_parameter", "__setattr__"))
_BLOCKS = (ast.Lambda, ast.Yield, ast.YieldFrom, ast.arguments, ast.ClassDef, *FUNCTIONS)
_COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.GeneratorExp, ast.DictComp)

Place = tuple[ast.expr, int | None]
"""An expression that holds the value, with the position in it where it is a tuple."""


class Spread:
    """All expressions that a value may come to; `ends` are the methods and functions whose results no longer are it."""

    def __init__(self, facts: Facts, ends: frozenset[str] = frozenset()) -> None:
        self.facts = facts
        self.file: SourceFile = facts.file
        self.ends = ends
        self.reached: dict[Place, None] = {}
        self.lost: ast.AST | None = None
        self._pending: list[Place] = []

    def of(self, starts: Iterable[ast.expr]) -> Spread:
        """Follow the values of expressions."""
        for start in starts:
            self._add(start)
        self._run()
        return self

    def of_assigned(self, statements: Iterable[ast.stmt]) -> Spread:
        """Follow all that statements give a value."""
        for statement in statements:
            for target in targets_of(statement) or _targets(statement):
                self._target(target, statement, None)
            for path, value, _ in assigned_paths(statement) if isinstance(statement, ast.Expr) else ():
                call = self.file.parent(value)
                if path and isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute):
                    self._mutated(call.func.value, 0)
        self._run()
        return self

    def expressions(self) -> set[ast.expr]:
        """The expressions that hold the value, or a container of it."""
        return {node for node, _ in self.reached}

    def meets_training(self) -> ast.AST | None:
        """Where the value may come to a model, its parameters, an optimizer or a backward; None where it surely never
        does."""
        if self.lost is not None:
            return self.lost
        held = self.expressions()
        return next((node for node in held if self._is_met(node, held)), None)

    def _is_met(self, node: ast.expr, held: set[ast.expr]) -> bool:
        call = self.file.parent(node)
        if isinstance(call, (ast.keyword, ast.Starred)):
            call = self.file.parent(call)
        if not isinstance(call, ast.Call):
            return False
        if node is call.func:
            return not isinstance(node, ast.Attribute) or node.value not in held or node.attr in _OF_TRAINING
        if self.facts.module_of(call) is not None:
            return True
        names = self.file.resolve(call.func)
        if any(name.startswith("torch.optim.") for name in names):
            return True
        if any(isinstance(value, ast.ClassDef) for value in self.file.values.of(call.func)):
            return True
        others = [*call.args, *(keyword.value for keyword in call.keywords)]
        if isinstance(call.func, ast.Attribute) and not names:
            others.append(call.func.value)
        return not self.file.values.functions(call) and any(
            other is not node
            and isinstance(other, (ast.Name, ast.Attribute))
            and (self.facts.is_module(other) or self.facts.is_optimizer(other))
            for other in others
        )

    def _run(self) -> None:
        while self._pending and self.lost is None:
            if len(self.reached) > _LIMIT:
                self.lost = self._pending[-1][0]
            self._climb(*self._pending.pop())

    def _add(self, node: ast.expr, index: int | None = None) -> None:
        if (node, index) not in self.reached:
            self.reached[node, index] = None
            self._pending.append((node, index))

    # -- upwards ------------------------------------------------------------------------------------------------------

    def _climb(self, node: ast.expr, index: int | None) -> None:
        parent = self.file.parent(node)
        if isinstance(parent, ast.keyword):
            parent = self.file.parent(parent)
        if isinstance(parent, ast.Call):
            self._call(parent, node)
        elif isinstance(parent, ast.Attribute):
            if parent.attr not in _PLAIN_ATTRIBUTES and parent.attr not in self.ends:
                self._add(parent)
        elif isinstance(parent, ast.Subscript):
            self._subscript(parent, node, index)
        elif isinstance(parent, (ast.Tuple, ast.List)):
            if isinstance(parent.ctx, ast.Load):
                self._add(parent, parent.elts.index(node) if isinstance(parent, ast.Tuple) and index is None else None)
        elif isinstance(parent, (ast.Assign, ast.AnnAssign, ast.AugAssign, ast.NamedExpr)):
            self._assignment(parent, node, index)
        elif isinstance(parent, (ast.For, ast.AsyncFor)):
            if node is parent.iter:
                self._target(parent.target, parent, None)
        elif isinstance(parent, ast.comprehension):
            above = self.file.parent(parent)
            if node is parent.iter and isinstance(above, _COMPREHENSIONS):
                self._target(parent.target, above, None)
        elif isinstance(parent, ast.withitem):
            above = self.file.parent(parent)
            if parent.optional_vars is not None and isinstance(above, ast.stmt):
                self._target(parent.optional_vars, above, None)
        elif isinstance(parent, ast.Return):
            self._returned(parent, index)
        elif isinstance(parent, ast.UnaryOp):
            if not isinstance(parent.op, ast.Not):
                self._add(parent)
        elif isinstance(parent, ast.IfExp):
            if node is not parent.test:
                self._add(parent, index)
        elif isinstance(parent, _BLOCKS) or parent is None:
            self.lost = node
        elif isinstance(parent, ast.expr) and not isinstance(parent, (ast.Compare, ast.FormattedValue, ast.Slice)):
            self._add(parent)

    def _subscript(self, parent: ast.Subscript, node: ast.expr, index: int | None) -> None:
        if node is not parent.value or not isinstance(parent.ctx, ast.Load):
            return
        place = parent.slice.value if isinstance(parent.slice, ast.Constant) else None
        if index is None or not isinstance(place, int) or place == index:
            self._add(parent)

    def _call(self, call: ast.Call, node: ast.expr) -> None:
        names = self.file.resolve(call.func)
        if node is call.func:
            if isinstance(node, ast.Attribute) and (node.attr in _OTHER_NUMBERS or node.attr in self.ends):
                return
            if not (isinstance(node, ast.Attribute) and node.attr in ("to", "type", "astype") and self._casts(call)):
                self._add(call)
            return
        if isinstance(call.func, ast.Name) and call.func.id in _PLAIN_FUNCTIONS and not names:
            return
        if any(name in _PLAIN_TORCH or name.rsplit(".", 1)[-1] in self.ends for name in names):
            return
        functions = self.file.values.functions(call)
        for function in functions:
            self._parameters(function, call, node)
        if functions:
            return
        given = [*call.args, *(keyword.value for keyword in call.keywords)]
        if path_of(call.func).rsplit(".", 1)[-1] in _SETS or any(self._is_function(g) for g in given if g is not node):
            self.lost = call  # a name that a string says, or what `map` calls
            return
        self._add(call)
        if isinstance(call.func, ast.Attribute) and not names and not self._is_layer(call.func):
            self._mutated(call.func.value, 0)

    def _is_layer(self, node: ast.expr) -> bool:
        """Whether a name surely stands for layers of torch, which keep nothing of what they are given."""
        made = self.file.values.constructed(node)
        return bool(made) and all(isinstance(cls, str) and cls.startswith("torch.nn.") for cls in made)

    def _is_function(self, node: ast.expr) -> bool:
        return isinstance(node, (ast.Name, ast.Attribute)) and any(
            isinstance(value, (ast.Lambda, *FUNCTIONS)) for value in self.file.values.of(node)
        )

    def _casts(self, call: ast.Call) -> bool:
        """Whether `x.to(...)` surely makes a float32 of any number."""
        given = [*call.args, *(keyword.value for keyword in call.keywords)]
        names = {name for argument in given for name in self.file.resolve(argument)}
        texts = {a.value for a in given if isinstance(a, ast.Constant)}
        return "float" in self.ends and bool(names & _FLOATS or texts & {"float32", "torch.FloatTensor"})

    def _parameters(self, function: Function, call: ast.Call, node: ast.expr) -> None:
        arguments = function.args
        found = False
        for arg in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs):
            if self.file.values.argument(call, function, arg.arg) is node:
                found = True
                self._name_uses(arg.arg, arg)
        if not found:
            self.lost = call  # by way of `*args`

    # -- downwards ----------------------------------------------------------------------------------------------------

    def _assignment(self, parent: ast.AST, node: ast.expr, index: int | None) -> None:
        if isinstance(parent, ast.Assign) and node is parent.value:
            for target in parent.targets:
                self._target(target, parent, index)
        elif isinstance(parent, (ast.AnnAssign, ast.AugAssign, ast.NamedExpr)) and node is parent.value:
            self._target(parent.target, parent, index)
            if isinstance(parent, ast.NamedExpr):
                self._add(parent, index)

    def _target(self, target: ast.expr, statement: ast.AST, index: int | None) -> None:
        if isinstance(target, (ast.Tuple, ast.List)):
            starred = any(isinstance(element, ast.Starred) for element in target.elts)
            for position, element in enumerate(target.elts):
                if index is None or starred or position == index:
                    self._target(element, statement, None)
        elif isinstance(target, ast.Starred):
            self._target(target.value, statement, None)
        elif isinstance(target, ast.Name):
            self._name_uses(target.id, statement, index)
        elif isinstance(target, ast.Attribute):
            if target.attr == "data" or self.facts.is_module(target.value):
                self.lost = target  # the tensor or the module is another one now
            self._attribute_uses(target.attr)
        elif isinstance(target, ast.Subscript):
            self._mutated(target.value, 0)

    def _name_uses(self, name: str, node: ast.AST, index: int | None = None) -> None:
        """The uses of a name that see what `node`, a statement or a parameter, gives it."""
        for use in self.file.names.loads.get(name, ()):
            if any(binding.node is node for binding in self.file.names.lookup(use)):
                self._add(use, index)
        if isinstance(self.file.parent(node), ast.ClassDef):
            self._attribute_uses(name)

    def _attribute_uses(self, attribute: str) -> None:
        for use in self.file.names.attributes.get(attribute, ()):
            if isinstance(use.ctx, ast.Load):
                self._add(use)

    def _mutated(self, holder: ast.expr, depth: int) -> None:
        """What holds the value now, by way of an index or a method such as `append`, under all its names."""
        while isinstance(holder, (ast.Subscript, ast.Call)):
            if isinstance(holder, ast.Call):
                if not isinstance(holder.func, ast.Attribute):
                    return
                holder = holder.func
            holder = holder.value
        if depth > 8:
            self.lost = holder
        elif isinstance(holder, ast.Attribute):
            if path_of(holder) and not self.file.resolve(holder):
                self._attribute_uses(holder.attr)
        elif isinstance(holder, ast.Name) and holder.id == "self":
            self.lost = holder
        elif isinstance(holder, ast.Name) and not self.file.resolve(holder):
            bindings = self.file.names.lookup(holder)
            for binding in bindings:
                self._name_uses(holder.id, binding.node)
                if binding.kind == "param" and isinstance(binding.node, ast.arg):
                    self._mutated_by_callers(binding.node, depth)
                elif isinstance(binding.value, (ast.Name, ast.Attribute, ast.Subscript)):
                    self._mutated(binding.value, depth + 1)

    def _mutated_by_callers(self, arg: ast.arg, depth: int) -> None:
        arguments = self.file.parent(arg)
        function = self.file.parent(arguments) if arguments is not None else None
        if isinstance(function, FUNCTIONS):
            for call in self.file.values.calls(function):
                given = self.file.values.argument(call, function, arg.arg)
                if given is not None:
                    self._mutated(given, depth + 1)

    def _returned(self, statement: ast.Return, index: int | None) -> None:
        function = self.file.values.enclosing_function(statement)
        if function is None or function in self.facts.module_inits or function.name.startswith("__"):
            self.lost = statement
            return
        uses: list[ast.expr] = [*self.file.names.attributes.get(function.name, ())]
        if not isinstance(self.file.parent(function), ast.ClassDef):
            uses = [
                use
                for use in self.file.names.loads.get(function.name, ())
                if any(binding.node is function for binding in self.file.names.lookup(use))
            ]
        for use in uses:
            call = self.file.parent(use)
            if isinstance(call, ast.Call) and call.func is use:
                self._add(call, index)
            elif isinstance(use.ctx, ast.Load):  # type: ignore[attr-defined]
                self.lost = use


_FLOATS = frozenset(("torch.float32", "torch.float", "torch.FloatTensor", "torch.cuda.FloatTensor", "numpy.float32"))


def _targets(statement: ast.stmt) -> list[ast.expr]:
    return [statement.target] if isinstance(statement, (ast.For, ast.AsyncFor)) else []
