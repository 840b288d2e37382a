"""Conditions that stay what they are while a script trains: what stands under the same one runs together, or never."""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping
from itertools import product
from typing import TYPE_CHECKING

from amplint.facts.values import Function, default_of, path_of
from amplint.migrate.tree import FUNCTIONS, is_none, loops_of, owner_of, position, statements_in, walk

if TYPE_CHECKING:
    from amplint.migrate.facts import Facts
    from amplint.migrate.gradients.ownership import Names
    from amplint.names import Binding
    from amplint.source import SourceFile

Key = tuple[ast.AST, str]
"""A condition: the function or module in which it is asked, and its text."""

_MOST = 3
"""How many conditions are told apart; each doubles the ways that are followed."""
_DEPTH = 4
_OPTIONS = re.compile(
    r"(?:\w+_)?(?:args?|opts?|options|cfg|conf|config\w*|hparams?|hps?|hyp|flags|params|settings)$", re.I
)
_PLAIN_RESULTS = frozenset(
    ("bool", "int", "float", "str", "len", "is_available", "exists", "isfile", "strtobool", "max", "min")
)
_PURE = (
    ast.Constant, ast.UnaryOp, ast.unaryop, ast.BoolOp, ast.boolop, ast.Compare, ast.cmpop, ast.expr_context,
)  # fmt: skip


def plain(facts: Facts, test: ast.expr) -> tuple[str, bool]:
    """The text of a condition, and whether the condition holds where the text does.

    `x is None`, `not x is not None` and, of an optimizer, `not x` are all `x is not None` that does not hold.
    """
    holds = True
    while isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        test, holds = test.operand, not holds
    if isinstance(test, ast.Compare) and len(test.ops) == 1 and is_none(test.comparators[0]):
        if isinstance(test.ops[0], (ast.Is, ast.Eq)):
            return f"{ast.unparse(test.left)} is not None", not holds
        return f"{ast.unparse(test.left)} is not None", holds
    if path_of(test) and facts.is_optimizer(test):
        return f"{path_of(test)} is not None", holds
    return ast.unparse(test), holds


class Conditions:
    """Answers which conditions of a file are fixed, and in which ways they may hold together."""

    def __init__(self, facts: Facts) -> None:
        self.facts = facts
        self.file: SourceFile = facts.file

    def worlds(self, asked: list[ast.If]) -> list[dict[Key, bool]]:
        """All ways in which those conditions may hold that are fixed and asked several times."""
        counted: dict[Key, int] = {}
        for statement in asked:
            counted[self.key(statement)] = counted.get(self.key(statement), 0) + 1
        changing = {self.key(statement) for statement in asked if not self.is_fixed(statement.test, statement)}
        often = [key for key, count in counted.items() if count > 1 and key not in changing]
        often = sorted(often, key=lambda key: -counted[key])[:_MOST]
        return [dict(zip(often, held, strict=True)) for held in product((True, False), repeat=len(often))]

    def key(self, statement: ast.If) -> Key:
        """The condition of a statement."""
        return owner_of(self.file, statement), plain(self.facts, statement.test)[0]

    def only_arm(self, statement: ast.If, world: dict[Key, bool], names: Names) -> list[ast.stmt] | None:
        """The arm of a condition that runs where a call got no optimizer or a constant, and conditions hold as in a
        world. None where both may run."""
        arm = self._without_optimizer(statement, names)
        if arm is not None:
            return arm
        known = self._value(statement.test, names.constants)
        if known is None and world and (held := world.get(self.key(statement))) is not None:
            known = held == plain(self.facts, statement.test)[1]
        return None if known is None else statement.body if known else statement.orelse

    def constants(self, function: Function, call: ast.Call, names: Names) -> dict[str, object]:
        """The parameters of a function for which a call passes constants, or leaves defaults that are constants."""
        found: dict[str, object] = {}
        hidden = any(isinstance(a, ast.Starred) for a in call.args) or any(k.arg is None for k in call.keywords)
        for arg in (*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs):
            value = self.file.values.argument(call, function, arg.arg)
            given = default_of(function.args, arg) if value is None and not hidden else value
            if isinstance(given, ast.Constant):
                found[arg.arg] = given.value
            elif isinstance(given, ast.Name) and given.id in names.constants and not self._is_rebound(given):
                found[arg.arg] = names.constants[given.id]
        return found

    def _value(self, test: ast.expr, constants: Mapping[str, object]) -> bool | None:
        """Whether a condition holds where parameters are constants; None where that can't be told."""
        if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
            inner = self._value(test.operand, constants)
            return None if inner is None else not inner
        if isinstance(test, ast.BoolOp):
            values = [self._value(value, constants) for value in test.values]
            decides = isinstance(test.op, ast.Or)
            return decides if decides in values else None if None in values else not decides
        if isinstance(test, ast.Compare) and len(test.ops) == 1 and constants:
            left, right = self._literal(test.left, constants), self._literal(test.comparators[0], constants)
            if left is None or right is None:
                return None
            if isinstance(test.ops[0], (ast.Eq, ast.Is)):
                return left == right
            return left != right if isinstance(test.ops[0], (ast.NotEq, ast.IsNot)) else None
        literal = self._literal(test, constants) if isinstance(test, ast.Name) else None
        return None if literal is None else bool(literal[0])

    def _literal(self, node: ast.expr, constants: Mapping[str, object]) -> tuple[object] | None:
        """The value of a constant, or of a parameter that is one, in a tuple; None where it is no constant."""
        if isinstance(node, ast.Constant):
            return (node.value,)
        if isinstance(node, ast.Name) and node.id in constants and not self._is_rebound(node):
            return (constants[node.id],)
        return None

    def _without_optimizer(self, statement: ast.If, names: Names) -> list[ast.stmt] | None:
        """The arm of a condition that runs where a call got no optimizer: the one that asks for it does not, nor does
        one that steps it without asking. None where both may run."""
        test, holds = statement.test, False
        while isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
            test, holds = test.operand, not holds
        if isinstance(test, ast.Compare) and len(test.ops) == 1 and is_none(test.comparators[0]):
            holds ^= isinstance(test.ops[0], ast.Is)
            test = test.left
        if self._is_missing(test, names):
            return statement.body if holds else statement.orelse
        inside = [n for member in statement.body for n in walk(member)]
        asks = any(
            self._is_missing(n, names) for inner in inside if isinstance(inner, ast.If) for n in walk(inner.test)
        )
        steps = any(n in self.facts.steps and self._is_missing(n.func.value, names) for n in inside)  # type: ignore[attr-defined]
        return statement.orelse if steps and not asks else None

    def _is_missing(self, node: ast.AST, names: Names) -> bool:
        """Whether a parameter is an optimizer that the call did not pass."""
        return isinstance(node, ast.Name) and names.optimizers.get(node.id) == () and not self._is_rebound(node)

    def _is_rebound(self, node: ast.Name) -> bool:
        return any(binding.kind != "param" for binding in self.file.names.lookup(node))

    def is_fixed(self, expression: ast.expr, statement: ast.stmt, depth: int = 0) -> bool:
        """Whether an expression of a statement is made of constants, and of names and attributes that are given their
        values once and for all before anything trains."""
        if depth > _DEPTH:
            return False
        return all(self._is_fixed(node, statement, depth) for node in ast.walk(expression))

    def _is_fixed(self, node: ast.AST, statement: ast.stmt, depth: int) -> bool:
        if isinstance(node, ast.Name):
            return self._is_fixed_name(node, statement, depth)
        if isinstance(node, ast.Attribute):
            return bool(path_of(node)) and self._is_fixed_attribute(node)
        return isinstance(node, _PURE)

    def _is_fixed_attribute(self, node: ast.Attribute) -> bool:
        """Whether an attribute is one of options or of a module, or is given a value in constructors; others, such as
        `model.training` and properties, may change by themselves."""
        uses = self.file.names.attributes.get(node.attr, ())
        stores = [use for use in uses if not isinstance(use.ctx, ast.Load)]
        if any(function.name == node.attr for function in self.facts.functions):
            return False
        if not all(self._is_first(self.file.statement(use), constructor=True) for use in stores):
            return False
        if not self._is_identity(node) and any(
            _may_grow(getattr(self.file.statement(u), "value", None)) for u in stores
        ):
            return False
        holder = path_of(node.value).rsplit(".", 1)[-1]
        return bool(stores or _OPTIONS.match(holder) or self.file.resolve(node))

    def _is_fixed_name(self, node: ast.Name, statement: ast.stmt, depth: int) -> bool:
        if any(node.id in scope.globals or node.id in scope.nonlocals for scope in self.file.names.scopes.values()):
            return False
        bindings = self.file.names.lookup(node)
        if not self._is_identity(node) and any(_may_grow(binding.value) for binding in bindings):
            return False
        return bool(bindings) and all(self._is_fixed_binding(b, node, statement, depth) for b in bindings)

    def _is_identity(self, node: ast.expr) -> bool:
        """Whether a condition asks which object a name or attribute is, and not for what that holds: it is compared
        with None, is an optimizer, or has the attribute that is asked for."""
        parent = self.file.parent(node)
        compared = isinstance(parent, ast.Compare) and any(is_none(other) for other in parent.comparators)
        return compared or isinstance(parent, ast.Attribute) or self.facts.is_optimizer(node)

    def _is_fixed_binding(self, binding: Binding, node: ast.Name, statement: ast.stmt, depth: int) -> bool:
        owner = owner_of(self.file, statement)
        if binding.kind == "param":
            return isinstance(owner, FUNCTIONS) and self._is_same_in_calls(owner, node.id, depth)
        made = binding.node
        if not isinstance(made, ast.stmt) or binding.kind == "delete" or not self._is_first(made):
            return False
        if isinstance(made, (ast.For, ast.AsyncFor)) or (
            owner_of(self.file, made) is owner and position(made) > position(statement)
        ):
            return False
        runs_once = self._runs_once(owner_of(self.file, made), depth)
        return runs_once or (binding.value is not None and self.is_fixed(binding.value, made, depth + 1))

    def _is_first(self, statement: ast.stmt, *, constructor: bool = False) -> bool:
        """Whether a statement is in no loop, and nothing trains before it in its function; of attributes, that they get
        their values in a constructor or in the module."""
        owner = owner_of(self.file, statement)
        if constructor and isinstance(owner, FUNCTIONS) and owner.name != "__init__":
            return False
        defined = (*FUNCTIONS, ast.ClassDef)
        before = (s for s in statements_in(owner) if position(s) < position(statement) and not isinstance(s, defined))
        return not loops_of(self.file, statement) and not any(
            self.facts.trains(node) for s in before for node in walk(s)
        )

    def _runs_once(self, owner: ast.AST, depth: int) -> bool:
        """Whether a function is called in one place at most, in no loop, by one that runs once."""
        if not isinstance(owner, FUNCTIONS):
            return True
        if depth > _DEPTH or isinstance(self.file.parent(owner), ast.ClassDef):
            return False
        sites = [self.file.statement(call) for call in self.file.values.calls(owner)]
        if len(sites) > 1 or any(loops_of(self.file, site) for site in sites):
            return False
        return all(self._runs_once(owner_of(self.file, site), depth + 1) for site in sites)

    def _is_same_in_calls(self, function: Function, parameter: str, depth: int) -> bool:
        """Whether all calls pass the same, and that fixed, for a parameter."""
        if isinstance(self.file.parent(function), ast.ClassDef) and parameter in ("self", "cls"):
            return True
        calls = self.file.values.calls(function)
        given = {call: self.file.values.argument(call, function, parameter) for call in calls}
        if len({ast.dump(value) if value is not None else "" for value in given.values()}) != 1:
            return False
        return all(
            value is None or self.is_fixed(value, self.file.statement(call), depth + 1) for call, value in given.items()
        )


def _may_grow(value: ast.AST | None) -> bool:
    """Whether a value may become another one while it stays the same object, as lists and tensors do."""
    if isinstance(value, ast.Call):
        return path_of(value.func).rsplit(".", 1)[-1] not in _PLAIN_RESULTS
    kinds = (ast.List, ast.Dict, ast.Set, ast.ListComp, ast.DictComp, ast.SetComp, ast.GeneratorExp, ast.BinOp)
    return isinstance(value, kinds)
