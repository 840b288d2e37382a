"""What the code around a node says of the torch version that it runs on.

Conditions, early exits, assertions and `try` blocks are read as sets of releases (see
`amplint.versions.version_tests`). On top of that stands the question that rules ask: is this use of an old name a
fallback that must be left alone?
"""

from __future__ import annotations

import ast
import re
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

from amplint.names import Binding, Scope, getattr_constant
from amplint.torch_api import APIS, DEPRECATED_MODULES, OLDEST, STATE_QUERIES, STATE_QUERIES_SINCE, Version
from amplint.versions.guard_steps import (
    Arm,
    Attempt,
    Guard,
    Place,
    Step,
    Steps,
    catches_missing,
    last_name,
    limits,
    start_of,
    within,
)
from amplint.versions.releases import ALL, FUTURE, TorchRange, at_least, range_of, since
from amplint.versions.version_tests import Truth, VersionTests
from amplint.versions.version_words import is_version_literal

if TYPE_CHECKING:
    from amplint.source import Ref, SourceFile

_OTHER_MATTERS = re.compile(
    r"devices?|cuda|cpu|gpus?|xpu|npu|mlu|musa|mps|hpu|tpu|xla|ipu|b?f(?:p|loat)?(?:16|32)|half|precision|mixed|dtype"
    r"|amp|apex|autocast|scaler|gradscaler|enabled|args|distributed|ddp|fsdp|deepspeed|rank|world|train(?:ing)?|eval"
    r"|debug|fused|platform"
)
_NOT_SURELY_RUN = (
    ast.If,
    ast.IfExp,
    ast.While,
    ast.For,
    ast.BoolOp,
    ast.Try,
    ast.FunctionDef,
    ast.Lambda,
    ast.ClassDef,
)
_DEPTH = 40
_SHORT = 3
_VERSION_MATTERS = re.compile(r"version|new(?:er)?|old(?:er)?|legacy|compat|modern|deprecated|api")


class Offer(NamedTuple):
    """A kind of thing of the current API, for a device or, with "", for any."""

    kind: str
    device: str


class Guards:
    """The guards of one file."""

    def __init__(self, file: SourceFile) -> None:
        self._file = file
        self.tests = VersionTests(file, self.versions)
        self._steps = Steps(file.parent, self.truth_is_known)
        self._newer: dict[tuple[Scope, str], list[Binding]] = {}
        self._offers: dict[tuple[Place, Place], frozenset[Offer]] = {}
        self._versions: dict[ast.AST, Truth] = {}
        self._needed: dict[ast.Try, Version | None] = {}
        self._open: set[ast.AST] = set()

    # -- versions -----------------------------------------------------------------------------------------------------

    def range_at(self, node: ast.AST) -> TorchRange:
        """The torch versions on which a node can run, as far as the code around it says."""
        return range_of(self.versions(node).true)

    def versions(self, node: ast.AST) -> Truth:
        """The releases on which a node can run, and those on which it may not run, as masks."""
        if node in self._versions:
            return self._versions[node]
        if node in self._open or len(self._open) > _DEPTH:
            return Truth(ALL, ALL)
        self._open.add(node)
        true, false = ALL, 0
        for step in self.steps(node):
            truth = self.truth(step)
            if truth.true in (0, ALL) and truth.false in (0, ALL):
                false = ALL
            else:
                true &= truth.true
                false |= truth.false
        for function in self._private_functions(node):
            called = 0
            for use in self._file.names.loads[function.name]:
                called |= self.versions(use).true
            true &= called
        self._open.discard(node)
        self._versions[node] = Truth(true, false)
        return self._versions[node]

    def truth(self, step: Step) -> Truth:
        """The releases on which one guard lets its node run, and those on which it does not."""
        if isinstance(step, Guard):
            truth = self.tests.truth(step.test)
            return truth if step.holds else ~truth
        needed = self.needed_by(step.node)
        if needed is None:
            return Truth(ALL, ALL)
        there = at_least(needed)
        return Truth(there, ALL ^ there) if step.handler is None else Truth(ALL ^ there, there)

    def needed_by(self, node: ast.Try) -> Version | None:
        """The first torch that has all new names that the body of a `try` uses, None if it uses none."""
        if node not in self._needed:
            known = [
                needed
                for ref in self.refs_in(node.body)
                if (needed := self.needs(ref)) is not None and needed >= OLDEST
                if self._is_tried(ref, node)
            ]
            self._needed[node] = max(known, default=None)
        return self._needed[node]

    def _is_tried(self, ref: Ref, node: ast.Try) -> bool:
        """Whether the body of a `try` surely reaches a reference, and a handler catches it if torch is too old."""
        takes_device = ref.candidates[0].endswith("_enabled")
        if not any(catches_missing(handler, parameter=takes_device) for handler in node.handlers):
            return False
        current = self._file.parent(ref.node)
        while current is not node:
            if isinstance(current, _NOT_SURELY_RUN):
                return False
            current = self._file.parent(current) if current is not None else node
        return True

    def refs_in(self, arm: Arm) -> tuple[Ref, ...]:
        """The references in an arm, in the order of the text."""
        if not arm:
            return ()
        first, last = (bisect_left(self._starts, place) for place in limits(arm))
        return self._file.refs[first:last]

    @cached_property
    def _starts(self) -> list[tuple[int, int]]:
        return [start_of(ref.node) for ref in self._file.refs]

    def needs(self, ref: Ref) -> Version | None:
        """The first torch on which a reference to a current name of the AMP layer works, None for any other name."""
        if len(ref.candidates) != 1 or is_old(ref.candidates[0]):
            return None
        name = ref.candidates[0]
        if name in ("torch.is_autocast_enabled", "torch.set_autocast_enabled") and ref.call is not None:
            given = len(ref.call.args) + len(ref.call.keywords)
            return STATE_QUERIES_SINCE if given == 1 + name.startswith("torch.set") else None
        return since(name)

    # -- the old API --------------------------------------------------------------------------------------------------

    def silences(self, ref: Ref) -> bool:
        """Whether a reference to an old name is a fallback for an old torch that must be left alone."""
        return self.silence(ref) != ""

    def silence(self, ref: Ref) -> str:
        """Why a reference to an old name must be left alone, "" if it need not be.

        `shim`: the name stands for the old or the new API, or comes from a fallback import. `version`: it runs on an
        old torch only. `arm`: the other arm of a condition, on the version or on something that can't be read, uses
        the new API. `handler`: it runs after something failed that can't be seen. `default`: the name that it binds is
        bound again to the new API under a condition.
        """
        old = [name for name in ref.candidates if is_old(name)]
        if not old:
            return ""
        kinds = {kind_of(name) for name in old}
        if any(kind_of(name) in kinds for name in ref.candidates if is_new(name)):
            return "shim"
        if self._comes_from_a_fallback(ref):
            return "shim"
        if not self.versions(ref.node).true & FUTURE:
            return "version"
        for step in self.steps(ref.node):
            if isinstance(step, Attempt):
                if step.handler is not None and catches_missing(step.handler) and self._may_miss_torch(step.node):
                    return "handler"
            elif any(self._replaced_in(arm, ref) for arm in step.arms) and (
                self.truth_is_known(step) or self.speaks_of_versions(step.test) or _is_short_choice(step)
            ):
                return "arm"
        if self._is_beside_the_new_one(ref) or self._is_in_a_table(ref):
            return "arm"
        return "default" if self._is_default(ref) else ""

    def _comes_from_a_fallback(self, ref: Ref) -> bool:
        """Whether fallback imports bind the name of a reference, and elsewhere something that can't be read."""
        root = ref.chain[0] if ref.chain else None
        if not isinstance(root, ast.Name):
            return False
        bindings = self._file.names.lookup(root)
        old = [binding.alias for binding in bindings if binding.kind == "import" and is_old(binding.target)]
        return 0 < len(old) < len(bindings) and all(self.silences(self._imports[alias]) for alias in old if alias)

    @cached_property
    def _imports(self) -> dict[ast.alias, Ref]:
        return {ref.node: ref for ref in self._file.refs if isinstance(ref.node, ast.alias)}

    def _is_beside_the_new_one(self, ref: Ref) -> bool:
        """Whether a type stands next to its replacement, as in `Old | New` or `isinstance(x, (Old, New))`."""
        node: ast.AST = ref.node
        parent = self._file.parent(node)
        while isinstance(parent, ast.Tuple) or (isinstance(parent, ast.BinOp) and isinstance(parent.op, ast.BitOr)):
            node, parent = parent, self._file.parent(parent)
        return node is not ref.node and any(self.replaces(other, ref) for other in self.refs_in([node]))

    def _is_in_a_table(self, ref: Ref) -> bool:
        """Whether a flag chooses between a name and its replacement in `{True: new, False: old}[flag]`.

        Both are evaluated, so the table protects nothing from a name that is missing, unless they stand in lambdas.
        """
        node: ast.AST = ref.node
        parent = self._file.parent(node)
        while isinstance(parent, (ast.Call, ast.Lambda)):
            node, parent = parent, self._file.parent(parent)
        table = self._file.parent(parent) if isinstance(parent, ast.Dict) else None
        if not isinstance(parent, ast.Dict) or not isinstance(table, ast.Subscript) or table.value is not parent:
            return False
        if not all(isinstance(key, ast.Constant) and isinstance(key.value, bool) for key in parent.keys):
            return False
        chosen = Guard(table.slice, True, "branch")
        if not (self.truth_is_known(chosen) or self.speaks_of_versions(table.slice) or _is_flag(table.slice)):
            return False
        return any(self._replaced_in([other], ref) for other in parent.values if other is not node)

    def truth_is_known(self, step: Step) -> bool:
        """Whether a guard says anything of the version."""
        truth = self.truth(step)
        return truth.true not in (0, ALL) or truth.false not in (0, ALL)

    @staticmethod
    def speaks_of_versions(test: ast.expr) -> bool:
        """Whether the words or numbers of a test say that it asks for a version or for a newer API."""
        return any(map(_VERSION_MATTERS.fullmatch, _words(test))) or any(map(is_version_literal, ast.walk(test)))

    def is_protected(self, node: ast.AST, parameter: bool = False) -> bool:
        """Whether a missing name (or parameter) at a node is caught by a `try` or by `contextlib.suppress`."""
        child, parent = node, self._file.parent(node)
        while parent is not None and not isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
            if isinstance(parent, ast.Try) and child in parent.body:
                if any(catches_missing(handler, parameter) for handler in parent.handlers):
                    return True
            elif isinstance(parent, (ast.With, ast.AsyncWith)) and child in parent.body:
                for item in parent.items:
                    call = item.context_expr
                    if isinstance(call, ast.Call) and last_name(call.func) == "suppress":
                        return True
            child, parent = parent, self._file.parent(parent)
        return False

    def _may_miss_torch(self, node: ast.Try) -> bool:
        """Whether what fails in a `try` may be something of torch and not only the import of another library."""
        imports = any(isinstance(inner, (ast.Import, ast.ImportFrom)) for inner in node.body)
        return not imports or any(ref.candidates[0].startswith("torch") for ref in self.refs_in(node.body))

    def replaces(self, new: Ref, old: Ref) -> bool:
        """Whether one reference is the current form of another: the same kind of thing for the same device."""
        return _is_wanted(_offers(new), old)

    def _replaced_in(self, arm: Arm, old: Ref) -> bool:
        """Whether an arm has the current form of a reference."""
        if not arm:
            return False
        place = limits(arm)
        if place not in self._offers:
            self._offers[place] = frozenset(offer for ref in self.refs_in(arm) for offer in _offers(ref))
        return _is_wanted(self._offers[place], old)

    def _is_default(self, ref: Ref) -> bool:
        """Whether a reference only gives a name its value where no newer API is found by a later statement."""
        if _is_getattr_default(ref.node, self._file.parent(ref.node)):
            return True
        kinds = {kind_of(name) for name in ref.candidates if is_old(name)}
        names = _names_bound_to(ref)
        later = self._steps.later(ref.statement) if names else []
        scope = self._file.scope(ref.statement)
        for name in names:
            for other in self._newer_bindings(scope, name):
                if later and within(other.node, later) and any(kind_of(n) in kinds for n in self._bound(other)):
                    return self._is_conditional(other.node)
        return False

    def _newer_bindings(self, scope: Scope, name: str) -> list[Binding]:
        """The bindings of a name that may give it something of the current API."""
        key = (scope, name)
        if key not in self._newer:
            bindings = scope.bindings.get(name, ())
            self._newer[key] = [binding for binding in bindings if any(map(is_new, self._bound(binding)))]
        return self._newer[key]

    def _bound(self, binding: Binding) -> tuple[str, ...]:
        if binding.kind == "import":
            return (binding.target,)
        return () if binding.value is None else self._file.resolve(binding.value)

    def _is_conditional(self, node: ast.AST) -> bool:
        """Whether a node runs only if the torch in use has what it needs, as far as its guards can be read."""
        if self.is_protected(node):
            return True
        return any(
            isinstance(step, Attempt) or self.truth_is_known(step) or _is_flag(step.test) for step in self.steps(node)
        )

    # -- the way up ---------------------------------------------------------------------------------------------------

    def steps(self, node: ast.AST) -> Iterator[Step]:
        """The guards of a node, from the innermost outwards."""
        return self._steps.of(node)

    def _private_functions(self, node: ast.AST) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
        """The functions around a node that only this file can call, and that it calls by their name only."""
        names = self._file.names
        current = self._file.parent(node)
        while current is not None:
            if isinstance(current, (ast.FunctionDef, ast.AsyncFunctionDef)) and not current.decorator_list:
                scope = names.scope_of(current)
                hidden = scope.kind == "function" or (scope.kind == "module" and current.name.startswith("_"))
                bound = scope.bindings.get(current.name, [])
                if hidden and len(bound) == 1 and names.loads.get(current.name):
                    yield current
            current = self._file.parent(current)


def is_old(name: str) -> bool:
    """Whether a qualified name is deprecated, or a module whose contents are."""
    return name in STATE_QUERIES or name in DEPRECATED_MODULES or (name in APIS and bool(APIS[name].deprecated_since))


def is_new(name: str) -> bool:
    """Whether a qualified name is a current part of the AMP layer that took the place of an old one."""
    return not is_old(name) and kind_of(name) != ""


def kind_of(name: str) -> str:
    """What a qualified name of the AMP layer is (see `amplint.torch_api.Api`), also `module` or `state`; else ""."""
    if name in APIS:
        return "" if name.endswith("ShardedGradScaler") else APIS[name].kind
    if name in DEPRECATED_MODULES or name in ("torch.amp", "torch.amp.autocast_mode", "torch.amp.grad_scaler"):
        return "module"
    if name in STATE_QUERIES or name in {query.new for query in STATE_QUERIES.values()}:
        return "state"
    return ""


def _offers(ref: Ref) -> set[Offer]:
    """The kinds of current things that a reference may stand for, with the device that a call names."""
    device = _device_of(ref).split(":")[0]
    return {Offer(kind_of(name), device) for name in ref.candidates if is_new(name)}


def _is_wanted(offers: Iterable[Offer], old: Ref) -> bool:
    """Whether one of several things takes the place of an old one."""
    for name in filter(is_old, old.candidates):
        device = APIS[name].device if name in APIS else ""
        if any(offer.kind == kind_of(name) and (not device or offer.device in ("", device)) for offer in offers):
            return True
    return False


def _names_bound_to(ref: Ref) -> list[str]:
    """The names that get the value that a reference stands for."""
    if isinstance(ref.node, ast.alias):
        return [ref.node.asname or ref.node.name.split(".", 1)[0]]
    statement = ref.statement
    if isinstance(statement, ast.Assign) and statement.value is ref.node:
        return [target.id for target in statement.targets if isinstance(target, ast.Name)]
    return []


def _is_getattr_default(node: ast.AST, parent: ast.AST | None) -> bool:
    """Whether a node is the default of `getattr(torch.amp, "custom_fwd", default)`."""
    return isinstance(parent, ast.Call) and getattr_constant(parent) is not None and node in parent.args[2:]


def _device_of(ref: Ref) -> str:
    """The device that a call names as a literal, "" if it names none."""
    if ref.call is None:
        return ""
    given = [k.value for k in ref.call.keywords if k.arg in ("device", "device_type")] or ref.call.args[:1]
    value = given[0].value if given and isinstance(given[0], ast.Constant) else None
    return value if isinstance(value, str) else ""


def _is_short_choice(guard: Guard) -> bool:
    """Whether a test chooses by a flag, in a few lines, between two ways to do one thing."""
    return _is_flag(guard.test) and all(len(arm) <= _SHORT for arm in guard.arms)


def _is_flag(test: ast.expr) -> bool:
    """Whether a test that can't be read may be a flag for a version, and not for a device, a precision or an option."""
    if isinstance(test, ast.UnaryOp):
        test = test.operand
    words = _words(test)
    if any(map(_VERSION_MATTERS.fullmatch, words)):
        return True
    return isinstance(test, (ast.Name, ast.Attribute, ast.Call)) and not any(map(_OTHER_MATTERS.fullmatch, words))


def _words(test: ast.expr) -> list[str]:
    """The words of the names and texts in an expression, in lower case."""
    parts = []
    for node in ast.walk(test):
        value = node.value if isinstance(node, ast.Constant) else None
        parts.append(getattr(node, "id", getattr(node, "attr", value if isinstance(value, str) else "")))
    spaced = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", " ".join(parts))
    return re.split(r"[^a-z0-9]+|_", spaced.lower())
