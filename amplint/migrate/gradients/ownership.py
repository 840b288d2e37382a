"""Who owns which parameters: optimizers by the calls that make them, models by theirs, and what is shared."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from functools import cached_property
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, NamedTuple

from amplint.facts.values import is_self, path_of, returns
from amplint.migrate.facts import Facts
from amplint.migrate.gradients.traces import Trace
from amplint.migrate.tree import FUNCTIONS, base_path, chain, is_false, owner_of

if TYPE_CHECKING:
    from amplint.migrate.regions.sinks import Sinks
    from amplint.source import SourceFile

PARAMETERS = frozenset(("parameters", "named_parameters", "trainable_parameters"))
_SAME = frozenset(("to", "cuda", "cpu", "train", "eval", "float", "requires_grad_"))
_COLLECTIONS = (ast.Call, ast.BinOp, ast.List, ast.ListComp, ast.Tuple)
_CONTAINERS = frozenset(
    ("Sequential", "ModuleList", "ModuleDict", "DataParallel", "DistributedDataParallel", "compile")
)
_VIEWS = frozenset(("values", "items"))
_DEPTH = 6


class Optimizer(NamedTuple):
    """An optimizer: the calls that may have made it, or the path by which an unknown one goes in a function."""

    makers: tuple[ast.AST, ...]
    path: str = ""


class Model(NamedTuple):
    """A model, or a part of one: the call that makes it and the attributes behind (`.encoder.conv`)."""

    maker: ast.AST
    part: str = ""


class Reach(NamedTuple):
    """The models that a backward gives gradients to: all that it may reach, those it surely reaches.

    None stands for a graph that can't be told.
    """

    may: frozenset[Model] | None
    sure: frozenset[Model] | None


class Names(NamedTuple):
    """What parameters of a function stand for in one call."""

    optimizers: Mapping[str, tuple[Optimizer, ...]]
    models: Mapping[str, frozenset[Model] | None]
    constants: Mapping[str, object] = MappingProxyType({})


NO_NAMES = Names({}, {})
SELF: Final = "self"
"""The name under which a method of an object around an optimizer knows that."""


class Ownership:
    """Answers which optimizers and models an expression stands for, in one file."""

    def __init__(self, facts: Facts, sinks: Sinks) -> None:
        self.facts = facts
        self.file: SourceFile = facts.file
        self.sinks = sinks
        self._roots: dict[Optimizer, frozenset[Model] | None] = {}

    # -- optimizers ---------------------------------------------------------------------------------------------------

    def optimizers(self, node: ast.expr, names: Names, depth: int = 0) -> tuple[Optimizer, ...]:
        """The optimizers that an expression stands for; each of them where it is the variable of a loop."""
        iterated = self.facts.iterated(node)
        if iterated is not None:
            return self._elements(iterated, names, depth)
        wrappers = self.facts.wrappers
        if wrappers.is_own(node) and SELF in names.optimizers:
            return names.optimizers[SELF]
        if wrappers.is_inner(node):
            return self.optimizers(node.value, names, depth + 1)  # type: ignore[attr-defined]
        if isinstance(node, ast.Name) and self._is_parameter(node) and node.id in names.optimizers:
            return names.optimizers[node.id]
        if made := wrappers.made(node):
            return (self._merged(tuple(Optimizer(self._inside(call)) for call in made)),)
        if isinstance(node, ast.Subscript):
            values = self.file.values.of(node)
            if values == (node,):
                within = self._elements(node.value, names, depth)
                if isinstance(node.slice, ast.Constant) and isinstance(node.slice.value, int) and len(within) > 1:
                    return (within[node.slice.value],) if -len(within) <= node.slice.value < len(within) else within
                return (self._merged(within),) if within else (Optimizer((), base_path(node)),)
        else:
            values = self.file.values.of(node)
        if any(isinstance(value, (ast.List, ast.Tuple, ast.Dict, ast.ListComp, ast.DictComp)) for value in values):
            return self._elements(node, names, depth)
        makers = tuple(v for v in values if isinstance(v, ast.Call))
        if makers and all(isinstance(v, ast.Call) or is_none(v) for v in values):
            return (Optimizer(makers),)
        return (Optimizer((), f"{id(owner_of(self.file, node))}:{path_of(node) or base_path(node)}"),)

    def _inside(self, wrapper: ast.Call) -> tuple[ast.AST, ...]:
        """The calls that make the optimizer in an object around it; that of the object where it is made within."""
        given = self.facts.wrappers.given(wrapper)
        values = self.file.values.of(given) if given is not None else ()
        makers = tuple(v for v in values if isinstance(v, ast.Call) and not self.facts.wrappers.made(v))
        return makers or (wrapper,)

    def _elements(self, node: ast.expr, names: Names, depth: int) -> tuple[Optimizer, ...]:
        """The optimizers in a collection."""
        while isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _VIEWS:
            node = node.func.value
        if isinstance(node, ast.Call) and path_of(node.func) in ("zip", "enumerate", "reversed", "list", "tuple"):
            given = [argument for argument in node.args if self.facts.holds_optimizers(argument)]
            found = tuple(o for argument in given for o in self._elements(argument, names, depth))
            return found or (Optimizer((), base_path(node)),)
        if isinstance(node, ast.Name) and self._is_parameter(node) and node.id in names.optimizers:
            return names.optimizers[node.id]
        found = ()
        for value in self.file.values.of(node) if depth < _DEPTH else ():
            if isinstance(value, (ast.List, ast.Tuple, ast.Set)):
                found += tuple(o for e in value.elts for o in self.optimizers(e, names, depth + 1))
            elif isinstance(value, ast.Dict):
                found += tuple(o for e in value.values for o in self.optimizers(e, names, depth + 1))
            elif isinstance(value, (ast.ListComp, ast.DictComp)):
                result = value.elt if isinstance(value, ast.ListComp) else value.value
                found += (Optimizer((result,)),)
        return tuple(dict.fromkeys(found)) or (Optimizer((), f"{id(owner_of(self.file, node))}:{base_path(node)}"),)

    @staticmethod
    def _merged(optimizers: tuple[Optimizer, ...]) -> Optimizer:
        """One optimizer that stands for any of several."""
        makers = tuple(dict.fromkeys(maker for o in optimizers for maker in o.makers))
        return Optimizer(makers, optimizers[0].path if not makers else "")

    def _is_parameter(self, node: ast.Name) -> bool:
        bindings = self.file.names.lookup(node)
        return bool(bindings) and all(binding.kind == "param" for binding in bindings)

    def roots(self, optimizer: Optimizer) -> frozenset[Model] | None:
        """The models whose parameters an optimizer has, None where not all are known."""
        if optimizer not in self._roots:
            found: set[Model] = set()
            known = bool(optimizer.makers)
            for maker in optimizer.makers:
                models = self._given(maker, 0)
                known &= models is not None
                found |= models or set()
            self._roots[optimizer] = frozenset(found) if known and found else None
        return self._roots[optimizer]

    def _given(self, root: ast.AST, depth: int) -> set[Model] | None:
        """The models whose parameters an expression names; None where it names others too."""
        found: set[Model] = set()
        if any(is_filtered(node) for node in ast.walk(root)):
            return None
        targets = [g.target for node in ast.walk(root) for g in getattr(node, "generators", ())]
        own = {name.id for target in targets for name in ast.walk(target) if isinstance(name, ast.Name)}
        stack: list[ast.AST] = [*root.args, *root.keywords] if isinstance(root, ast.Call) and depth == 0 else [root]
        while stack:
            node = stack.pop()
            if isinstance(node, ast.Lambda):
                continue
            if isinstance(node, ast.Call) and not isinstance(node.func, ast.Attribute):
                stack += [*node.args, *node.keywords]
                continue
            if isinstance(node, ast.comprehension) and isinstance(node.iter, (ast.List, ast.Tuple)):
                continue  # models in turn, known by their variable
            if isinstance(node, ast.Attribute) and node.attr in PARAMETERS:
                models = self.models(node.value, NO_NAMES)
                if models is None:
                    return None
                found |= models
                continue
            if isinstance(node, ast.Name) and node.id not in own and not self.file.resolve(node) and depth < 3:
                for value in self.file.values.of(node):
                    if isinstance(value, (ast.Constant, *FUNCTIONS)) or value is node:
                        continue
                    inner = self._given(value, depth + 1) if isinstance(value, _COLLECTIONS) else None
                    if inner is None:
                        return None
                    found |= inner or set()
                continue
            if isinstance(node, ast.Attribute) and not self.file.resolve(node):
                values = [v for v in self.file.values.of(node) if v is not node]
                if not values or not all(isinstance(v, ast.Constant) for v in values):
                    if self.facts.is_module(node) or not path_of(node):
                        return None
                    continue
            stack.extend(ast.iter_child_nodes(node))
        return found

    # -- models -------------------------------------------------------------------------------------------------------

    def models(self, node: ast.expr, names: Names, depth: int = 0) -> frozenset[Model] | None:
        """The models that an expression stands for, None where they can't be told."""
        part = ""
        while isinstance(node, ast.Subscript) or (isinstance(node, ast.Attribute) and not is_self(node.value)):
            if isinstance(node, ast.Subscript):
                part = f".{node.slice.value!r}{part}" if isinstance(node.slice, ast.Constant) else ""
            elif node.attr != "module":
                part = f".{node.attr}{part}"
            node = node.value
        if isinstance(node, ast.Name) and self._is_parameter(node) and node.id in names.models:
            known = names.models[node.id]
            return None if known is None else frozenset(Model(m.maker, m.part + part) for m in known)
        if not isinstance(node, (ast.Name, ast.Attribute)) or depth > _DEPTH or is_self(node):
            return None
        if isinstance(node, ast.Attribute):
            owner = self.file.values.enclosing_class(node)
            if owner is None or self.facts.is_module_class(owner):
                return None
        found: set[Model] = set()
        if (iterated := self.facts.iterated(node)) is not None:
            for element in iterated.elts if isinstance(iterated, (ast.List, ast.Tuple)) else ():
                inner = self.models(element, names, depth + 1)
                if inner is None:
                    return None
                found |= inner
            return frozenset(Model(m.maker, m.part + part) for m in found) or None
        for value in self.file.values.of(node):
            models = self._made(value, depth)
            if models is None:
                return None
            found |= models
        return frozenset(Model(m.maker, m.part + part) for m in found) or None

    def _made(self, value: ast.AST | None, depth: int) -> frozenset[Model] | None:
        """The model that a call makes; moving and wrapping leave it what it is."""
        if not isinstance(value, ast.Call):
            return None
        if isinstance(value.func, ast.Attribute) and value.func.attr in _SAME:
            inner = value.func.value
            if isinstance(inner, ast.Call):
                return self._made(inner, depth + 1)
            return self.models(inner, NO_NAMES, depth + 1)
        return frozenset((Model(value),))

    def overlap(self, one: frozenset[Model], other: frozenset[Model], depth: int = 0) -> bool:
        """Whether two sets of models share parameters; a model has those of the models that it was made with."""
        for mine in one:
            for theirs in other:
                if mine.maker is theirs.maker and related(mine.part, theirs.part):
                    return True
        if depth > 3:
            return False
        return any(self.overlap(p, other, depth + 1) for m in one if (p := self.parts(m))) or any(
            self.overlap(one, p, depth + 1) for m in other if (p := self.parts(m))
        )

    def parts(self, model: Model) -> frozenset[Model]:
        """The models that a model was made with."""
        if not isinstance(model.maker, ast.Call):
            return frozenset()
        found: set[Model] = set()
        for argument in [*model.maker.args, *(keyword.value for keyword in model.maker.keywords)]:
            for node in ast.walk(argument):
                if isinstance(node, (ast.Name, ast.Attribute)) and self.facts.is_module(node):
                    found |= self.models(node, NO_NAMES) or set()
                elif isinstance(node, ast.Call) and self.facts.is_module_name(self.file.resolve(node.func)):
                    found.add(Model(node))
        return frozenset(found - {model})

    def is_closed(self, maker: ast.AST, depth: int = 0) -> bool:
        """Whether a model surely has no parameters of models but those that its making names."""
        if not isinstance(maker, ast.Call) or depth > _DEPTH:
            return False
        if any(isinstance(node, ast.Starred) for node in ast.walk(maker)):
            return False
        if any(path_of(use.value) != "self" for use in self.file.names.attributes.get("add_module", ())):
            return False
        names = self.file.resolve(maker.func)
        if names:
            is_container = any(name.rsplit(".", 1)[-1] in _CONTAINERS for name in names)
            return not is_container or all(self._is_closed_part(argument, depth) for argument in maker.args)
        made = self.file.values.of(maker.func)
        return bool(made) and all(self._is_closed_definition(value, depth) for value in made)

    def _is_closed_part(self, node: ast.expr, depth: int) -> bool:
        values = self.file.values.of(node) if isinstance(node, (ast.Name, ast.Attribute)) else (node,)
        return all(value is not None and self.is_closed(value, depth + 1) for value in values)

    def _is_closed_definition(self, node: ast.AST | None, depth: int) -> bool:
        """Whether a class, or what a function returns, has no parameters of models outside."""
        if not isinstance(node, (ast.ClassDef, *FUNCTIONS)):
            return False
        for name in ast.walk(node):
            if isinstance(name, ast.Name) and isinstance(name.ctx, ast.Load) and self.facts.is_module(name):
                bindings = self.file.names.lookup(name)
                if not all(any(inner is b.node for inner in ast.walk(node)) for b in bindings):
                    return False
        if isinstance(node, ast.ClassDef):
            return True
        results = returns(node)
        return bool(results) and all(self._is_closed_part(_moved(result), depth) for result in results)

    def contains(self, whole: AbstractSet[Model], part: AbstractSet[Model]) -> bool:
        """Whether all parameters of some models are among those of others."""
        return all(
            any(m.maker is p.maker and (m.part == p.part or p.part.startswith(m.part + ".")) for m in whole)
            for p in part
        )

    # -- graphs -------------------------------------------------------------------------------------------------------

    def reach(self, call: ast.Call, expression: ast.expr, names: Names) -> Reach:
        """The models that are in the graph of what goes backward."""
        owner = owner_of(self.file, call)
        statement = self.file.statement(call)
        trace = Trace(self, self.sinks.graph(owner), set(chain(self.file, statement)), names)
        trace.expression(expression, statement, True)
        if trace.unknown:
            return Reach(None, None)
        # A backward needs some graph: where there is one model that can give it, that has.
        found = trace.sure or (trace.may if len(trace.may) == 1 and not trace.forks else set())
        sure = frozenset(m for m in found if m.maker in self._renewed or not self.contains(self.frozen, {m}))
        return Reach(frozenset(trace.may), sure)

    @cached_property
    def frozen(self) -> frozenset[Model]:
        """The models that are frozen and never thawed."""
        found: set[Model] = set()
        for use in self.file.names.attributes.get("requires_grad", ()):
            assign = self.file.parent(use)
            if not isinstance(use.ctx, ast.Store) or not isinstance(assign, ast.Assign):
                continue
            if not is_false(assign.value):
                return frozenset()
            loop = next((s for s in chain(self.file, assign)[1:] if isinstance(s, ast.For)), None)
            for node in ast.walk(loop.iter) if loop is not None else ():
                if isinstance(node, ast.Attribute) and node.attr in PARAMETERS:
                    found |= self.models(node.value, NO_NAMES) or set()
        for use in self.file.names.attributes.get("requires_grad_", ()):
            call = self.file.parent(use)
            if not isinstance(call, ast.Call) or not call.args or not is_false(call.args[0]):
                return frozenset()
            found |= self.models(use.value, NO_NAMES) or set()
        return frozenset(found)

    @cached_property
    def _renewed(self) -> frozenset[ast.AST]:
        """The models that get a new part, such as a head (`model.fc = nn.Linear(...)`), which is not frozen."""
        found: set[ast.AST] = set()
        for statement in ast.walk(self.file.tree) if self.frozen else ():
            for target in statement.targets if isinstance(statement, ast.Assign) else ():
                while isinstance(target, (ast.Attribute, ast.Subscript)):
                    target = target.value
                    if self.facts.is_module(target):
                        found |= {model.maker for model in self.models(target, NO_NAMES) or ()}
        return frozenset(found)


def _moved(node: ast.expr) -> ast.expr:
    """A model without the calls that move it."""
    while isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _SAME:
        node = node.func.value
    return node


def is_none(node: ast.AST | None) -> bool:
    """Whether an expression is written `None`."""
    return isinstance(node, ast.Constant) and node.value is None


def is_filtered(node: ast.AST) -> bool:
    """Whether only some of several parameters are taken, by something else than that they need gradients."""
    if isinstance(node, (ast.ListComp, ast.GeneratorExp, ast.SetComp)):
        return any("requires_grad" not in ast.unparse(test) for g in node.generators for test in g.ifs)
    is_filter = isinstance(node, ast.Call) and path_of(node.func) == "filter" and node.args
    return bool(is_filter) and "requires_grad" not in ast.unparse(node.args[0])  # type: ignore[attr-defined]


def related(one: str, other: str) -> bool:
    return one == other or one.startswith(other + ".") or other.startswith(one + ".")
