"""On which releases of torch a test holds: an evaluator for the expressions with which projects ask for the version.

A test is computed once for each release with `torch.__version__` set to it, in three values: true, false, unknown. So
any mixture of parsing, splitting, slicing and comparing is understood without a list of spellings.
"""

from __future__ import annotations

import ast
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from amplint.names import Binding, Scope
from amplint.versions.guard_steps import last_name
from amplint.versions.releases import ALL, RELEASES, Release
from amplint.versions.torch_values import attribute_of, contains, known_value, value_by_name
from amplint.versions.version_calls import evaluate_call
from amplint.versions.version_values import (
    UNKNOWN,
    Environment,
    NotComparableError,
    Qualified,
    Text,
    Version,
    compare,
    same,
    text_of,
    truth_value,
)

if TYPE_CHECKING:
    from amplint.source import SourceFile


class Truth(NamedTuple):
    """The releases on which a test may hold, and those on which it may fail; both where it is unknown."""

    true: int
    false: int

    def __invert__(self) -> Truth:
        return Truth(self.false, self.true)

    @property
    def known(self) -> bool:
        """Whether the test says anything of the version."""
        return self != MAYBE


MAYBE = Truth(ALL, ALL)

_SYMBOLS: dict[type[ast.cmpop], str] = {
    ast.Lt: "<",
    ast.LtE: "<=",
    ast.Eq: "==",
    ast.NotEq: "!=",
    ast.GtE: ">=",
    ast.Gt: ">",
}
_DEPTH = 24
_SAMPLE: tuple[Release, ...] = ((1, 5, 0), (1, 12, 0), (2, 3, 0), RELEASES[-1])


class VersionTests:
    """The tests of one file.

    `versions_of` gives the releases on which a node may run and those on which it surely runs, as its guards say.
    """

    def __init__(self, file: SourceFile, versions_of: Callable[[ast.AST], Truth]) -> None:
        self._file = file
        self.names = file.names
        self._versions_of = versions_of
        self._truths: dict[tuple[ast.expr, bool], Truth] = {}
        self._memo: dict[tuple[ast.expr, Release, bool], Any] = {}
        self._running: set[ast.expr] = set()
        self.intended = True
        self._depth = 0

    def truth(self, test: ast.expr, intended: bool = True) -> Truth:
        """The releases on which a test holds and fails; with `intended`, texts compare as the versions they mean."""
        key = (test, intended)
        if key not in self._truths:
            if test in self._running or self._depth > _DEPTH:
                return MAYBE
            before, self.intended = self.intended, intended
            self._running.add(test)
            self._depth += 1
            self._truths[key] = self._truth(test)
            self._depth -= 1
            self._running.discard(test)
            self.intended = before
        return self._truths[key]

    def _truth(self, test: ast.expr) -> Truth:
        if isinstance(test, ast.BoolOp):
            parts = [self.truth(value, self.intended) for value in test.values]
            if isinstance(test.op, ast.And):
                return ~_any_of([~part for part in parts])
            return _any_of(parts)
        if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
            return ~self.truth(test.operand, self.intended)
        if isinstance(test, ast.NamedExpr):
            return self.truth(test.value, self.intended)
        if all(self.evaluate(test, release, {}) is UNKNOWN for release in _SAMPLE):
            return MAYBE
        true = false = 0
        for index, release in enumerate(RELEASES):
            value = self.evaluate(test, release, {})
            holds = UNKNOWN if value is UNKNOWN else truth_value(value)
            if holds is not False:
                true |= 1 << index
            if holds is not True:
                false |= 1 << index
        return Truth(true, false)

    def definition(self, test: ast.expr) -> ast.expr:
        """The expression behind a negation or a flag that has one value; the test itself where there is none."""
        seen: set[ast.expr] = set()
        while test not in seen:
            seen.add(test)
            if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
                test = test.operand
            elif isinstance(test, (ast.Name, ast.Attribute)):
                bindings = self.names.lookup(test) if isinstance(test, ast.Name) else self.members(test)
                if len(bindings) == 1 and bindings[0].value is not None:
                    test = bindings[0].value
        return test

    # -- values -------------------------------------------------------------------------------------------------------

    def evaluate(self, node: ast.expr, release: Release, env: Environment) -> Any:
        """The value of an expression on a release, with the names in `env` bound; `UNKNOWN` where it can't be told."""
        method = _EVALUATORS.get(node.__class__)
        if method is None or self._depth > _DEPTH:
            return UNKNOWN
        key = (node, release, self.intended)
        if not env and key in self._memo:
            return self._memo[key]
        self._depth += 1
        try:
            value = method(self, node, release, env)
        except (NotComparableError, TypeError, ValueError, LookupError, AttributeError, ArithmeticError):
            value = UNKNOWN
        self._depth -= 1
        if not env:
            self._memo[key] = value
        return value

    def values(self, nodes: list[ast.expr], release: Release, env: Environment) -> list[Any] | None:
        """The values of several expressions, None if one is unknown."""
        values = [self.evaluate(node, release, env) for node in nodes]
        return None if any(value is UNKNOWN for value in values) else values

    def _constant(self, node: ast.Constant, release: Release, env: Environment) -> Any:
        return node.value

    def _sequence(self, node: ast.Tuple | ast.List, release: Release, env: Environment) -> Any:
        values = self.values(node.elts, release, env)
        if values is None:
            return UNKNOWN
        return tuple(values) if isinstance(node, ast.Tuple) else values

    def _joined(self, node: ast.JoinedStr, release: Release, env: Environment) -> Any:
        values = self.values(node.values, release, env)
        if values is None:
            return UNKNOWN
        text = "".join(map(str, values))
        return Text(text) if any(isinstance(value, (Version, Text, int)) for value in values) else text

    def _formatted(self, node: ast.FormattedValue, release: Release, env: Environment) -> Any:
        return UNKNOWN if node.format_spec else self.evaluate(node.value, release, env)

    def _operation(self, node: ast.BinOp, release: Release, env: Environment) -> Any:
        values = self.values([node.left, node.right], release, env)
        if values is None or not isinstance(node.op, ast.Add):
            return UNKNOWN
        left, right = (str(value) if isinstance(value, Version) else value for value in values)
        return text_of(left + right, values) if isinstance(left, str) else left + right

    def _boolean(self, node: ast.BoolOp | ast.UnaryOp, release: Release, env: Environment) -> Any:
        if isinstance(node, ast.UnaryOp):
            value = self.evaluate(node.operand, release, env)
            if value is UNKNOWN or isinstance(node.op, ast.Not):
                return UNKNOWN if value is UNKNOWN else not truth_value(value)
            return -value if isinstance(node.op, ast.USub) else UNKNOWN
        decisive = isinstance(node.op, ast.Or)
        values = [self.evaluate(value, release, env) for value in node.values]
        truths = [UNKNOWN if value is UNKNOWN else truth_value(value) for value in values]
        if decisive in truths:
            return decisive
        return UNKNOWN if UNKNOWN in truths else not decisive

    def _conditional(self, node: ast.IfExp, release: Release, env: Environment) -> Any:
        test = self.evaluate(node.test, release, env)
        if test is UNKNOWN:
            return same([self.evaluate(arm, release, env) for arm in (node.body, node.orelse)])
        return self.evaluate(node.body if truth_value(test) else node.orelse, release, env)

    def _named(self, node: ast.NamedExpr, release: Release, env: Environment) -> Any:
        return self.evaluate(node.value, release, env)

    def _comparison(self, node: ast.Compare, release: Release, env: Environment) -> Any:
        left = self.evaluate(node.left, release, env)
        for operation, right_node in zip(node.ops, node.comparators, strict=True):
            right = self.evaluate(right_node, release, env)
            if left is UNKNOWN or right is UNKNOWN:
                return UNKNOWN
            if isinstance(operation, (ast.Is, ast.IsNot)):
                holds = (left is right) == isinstance(operation, ast.Is)
            elif isinstance(operation, (ast.In, ast.NotIn)):
                holds = contains(right, left, release) == isinstance(operation, ast.In)
            else:
                holds = compare(_SYMBOLS[type(operation)], left, right, self.intended)
            if not holds:
                return False
            left = right
        return True

    def _subscript(self, node: ast.Subscript, release: Release, env: Environment) -> Any:
        if last_name(node.value) == "modules" and isinstance(node.slice, ast.Constant) and node.slice.value == "torch":
            return Qualified("torch")  # sys.modules["torch"]
        value = self.evaluate(node.value, release, env)
        if value is UNKNOWN:
            return UNKNOWN
        if isinstance(node.slice, ast.Slice):
            bounds = [
                None if bound is None else self.evaluate(bound, release, env)
                for bound in (node.slice.lower, node.slice.upper, node.slice.step)
            ]
            if UNKNOWN in bounds:
                return UNKNOWN
            place: Any = slice(*bounds)
        else:
            place = self.evaluate(node.slice, release, env)
            if place is UNKNOWN:
                return UNKNOWN
        if isinstance(value, (Version, Text)):
            return self._cut(str(value), place)
        return value[place]

    def _cut(self, text: str, place: Any) -> Any:
        """A slice or a letter of a version; what is meant is as many numbers as "2.4.0" has up to there."""
        if self.intended and isinstance(place, slice) and not place.start and place.step is None and place.stop:
            if place.stop in (3, 4):
                return Text(".".join(text.split(".")[:2]))
            if place.stop >= 5:
                return Text(text)
        if self.intended and place in (0, 2) and text.count(".") == 2:
            return Text(text.split(".")[place // 2])
        return Text(text[place])

    def _comprehension(self, node: ast.ListComp | ast.GeneratorExp, release: Release, env: Environment) -> Any:
        generator = node.generators[0]
        if len(node.generators) > 1 or not isinstance(generator.target, ast.Name):
            return UNKNOWN
        items = self.evaluate(generator.iter, release, env)
        if items is UNKNOWN:
            return UNKNOWN
        values = []
        for item in items:
            inner = {**env, generator.target.id: item}
            conditions = self.values(generator.ifs, release, inner)
            if conditions is None:
                return UNKNOWN
            if all(conditions):
                values.append(self.evaluate(node.elt, release, inner))
        return UNKNOWN if any(value is UNKNOWN for value in values) else values

    # -- names --------------------------------------------------------------------------------------------------------

    def _name(self, node: ast.Name, release: Release, env: Environment) -> Any:
        if node.id in env:
            return env[node.id]
        value = self._bound_value(list(self.names.lookup(node)), node.id, release)
        return value if value is not UNKNOWN else value_by_name(node.id, release)

    def _attribute(self, node: ast.Attribute, release: Release, env: Environment) -> Any:
        for qualified in self.names.resolve(node):
            value = known_value(qualified, release)
            if value is not UNKNOWN:
                return value
        if isinstance(node.value, ast.Name) and (bindings := self.members(node)):
            value = self._bound_value(bindings, node.attr, release)
            return value if value is not UNKNOWN else value_by_name(node.attr, release)
        base = self.evaluate(node.value, release, env)
        if base is UNKNOWN:
            return value_by_name(node.attr, release)
        return attribute_of(base, node.attr, release)

    def members(self, node: ast.Attribute) -> list[Binding]:
        """The assignments to an attribute of `self`, of `cls` or of a class, in the order of the text."""
        if not isinstance(node.value, ast.Name):
            return []
        found: list[Binding] = []
        for scope in self.names.scopes.values():
            if scope.kind == "class" and (node.value.id in ("self", "cls") or _is_named(scope, node.value.id)):
                found.extend(scope.bindings.get(node.attr, ()))
        for target in self.names.attributes.get(node.attr, ()):
            statement = self.names.parents.get(target)
            if (
                isinstance(target.ctx, ast.Store)
                and isinstance(target.value, ast.Name)
                and target.value.id in ("self", "cls", node.value.id)
                and isinstance(statement, (ast.Assign, ast.AnnAssign))
            ):
                found.append(Binding(node.attr, "assign", statement, "", statement.value))
        return sorted(found, key=lambda binding: getattr(binding.node, "lineno", 0))

    def _bound_value(self, bindings: list[Binding], name: str, release: Release) -> Any:
        """The value that the last of several bindings gives a name in a release."""
        if len(bindings) == 1:
            return self._binding_value(bindings[0], name, release)
        possible: list[Any] = []
        for binding in reversed(bindings):
            runs = self.may_run(binding.node, release)
            if runs is False:
                continue
            possible.append(self._binding_value(binding, name, release))
            if runs is True or possible[-1] is UNKNOWN:
                break
        return same(possible)

    def may_run(self, node: ast.AST, release: Release) -> bool | None:
        """Whether a node runs on a release, as its guards say; None where they don't say."""
        runs = self._versions_of(node)
        bit = 1 << RELEASES.index(release)
        return None if runs.true & runs.false & bit else bool(runs.true & bit)

    def _binding_value(self, binding: Binding, name: str, release: Release) -> Any:
        if binding.kind in ("import", "star"):
            return known_value(binding.target, release)
        unpacked = binding.value is None and isinstance(binding.node, ast.Assign)
        value = binding.node.value if unpacked and isinstance(binding.node, ast.Assign) else binding.value
        if value is None or value in self._running:
            return UNKNOWN
        self._running.add(value)
        try:
            if unpacked:
                return self._unpacked(binding.node, name, release)
            return self.evaluate(value, release, {})
        finally:
            self._running.discard(value)

    def _unpacked(self, node: ast.AST, name: str, release: Release) -> Any:
        """What one name of `major, minor = map(int, ...)` gets."""
        assert isinstance(node, ast.Assign)
        for target in node.targets:
            if isinstance(target, (ast.Tuple, ast.List)):
                for index, item in enumerate(target.elts):
                    if isinstance(item, ast.Starred):
                        break
                    if isinstance(item, ast.Name) and item.id == name:
                        values = self.evaluate(node.value, release, {})
                        return UNKNOWN if values is UNKNOWN else list(values)[index]
        return UNKNOWN


_EVALUATORS: dict[type[ast.expr], Callable[..., Any]] = {
    ast.Constant: VersionTests._constant,
    ast.Tuple: VersionTests._sequence,
    ast.List: VersionTests._sequence,
    ast.JoinedStr: VersionTests._joined,
    ast.FormattedValue: VersionTests._formatted,
    ast.BinOp: VersionTests._operation,
    ast.BoolOp: VersionTests._boolean,
    ast.UnaryOp: VersionTests._boolean,
    ast.IfExp: VersionTests._conditional,
    ast.NamedExpr: VersionTests._named,
    ast.Compare: VersionTests._comparison,
    ast.Subscript: VersionTests._subscript,
    ast.ListComp: VersionTests._comprehension,
    ast.GeneratorExp: VersionTests._comprehension,
    ast.Name: VersionTests._name,
    ast.Attribute: VersionTests._attribute,
    ast.Call: evaluate_call,
}


def _any_of(parts: list[Truth]) -> Truth:
    true, false = 0, ALL
    for part in parts:
        true |= part.true
        false &= part.false
    return Truth(true, false)


def _is_named(scope: Scope, name: str) -> bool:
    return isinstance(scope.node, ast.ClassDef) and scope.node.name == name
