"""Parameters that one optimizer gets twice: torch only warns of it, and `unscale_` divides their gradients twice.

Across groups torch refuses them itself, so that each group is looked at alone.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from itertools import combinations
from typing import TYPE_CHECKING

from amplint.facts.values import path_of
from amplint.migrate.facts import Facts
from amplint.migrate.gradients.ownership import NO_NAMES, PARAMETERS, Model, Ownership, is_filtered, related
from amplint.migrate.model import RefusalError
from amplint.migrate.regions.sinks import Sinks
from amplint.migrate.tree import owner_of

if TYPE_CHECKING:
    from amplint.source import SourceFile

_REASON = (
    "this optimizer gets parameters of models that share them twice, and would have their gradients unscaled twice; "
    "give each parameter once"
)
_JOINS = frozenset(("list", "tuple", "iter", "chain", "from_iterable", "filter", "sum"))
"""Functions whose result holds all that they are given; others, such as `set`, may take out what is double."""
_DEPTH = 4


def check(facts: Facts, sinks: Sinks, makes_module: Callable[[ast.Call], bool]) -> None:
    """Raise `RefusalError` where an optimizer of torch is made with parameters that stand twice in one group.

    `makes_module` tells of a call of a class from another file whether it makes a module.
    """
    ownership, file = Ownership(facts, sinks), facts.file
    for call in file.names.calls:
        names = file.resolve(call.func)
        if not any(n.startswith("torch.optim.") and "lr_scheduler" not in n and "swa_utils" not in n for n in names):
            continue
        given = [*call.args[:1], *(keyword.value for keyword in call.keywords if keyword.arg == "params")]
        for group in (group for value in given for group in _groups(file, value)):
            held = [_whole(ownership, models, makes_module) for models in _models(ownership, group, 0) if models]
            if any(_overlap(one, other) for one, other in combinations(held, 2)):
                raise RefusalError(call, _REASON)


def _groups(file: SourceFile, given: ast.expr) -> list[ast.expr]:
    """The expressions of the parameters of each group."""
    values = [value for value in file.values.of(given) if isinstance(value, (ast.List, ast.Tuple))]
    dicts = [element for value in values for element in value.elts if isinstance(element, ast.Dict)]
    if not dicts:
        return [given]
    return [
        value
        for group in dicts
        for key, value in zip(group.keys, group.values, strict=True)
        if isinstance(key, ast.Constant) and key.value == "params"
    ]


def _models(ownership: Ownership, node: ast.expr, depth: int) -> Iterator[frozenset[Model]]:
    """The models whose parameters an expression takes, each time that it takes them."""
    file = ownership.file
    if depth > _DEPTH or is_filtered(node):
        return
    if isinstance(node, ast.Call):
        if isinstance(node.func, ast.Attribute) and node.func.attr in PARAMETERS:
            elements = _elements(ownership, node.func.value)
            yield from (ownership.models(element, NO_NAMES) or frozenset() for element in elements)
        elif path_of(node.func).rsplit(".", 1)[-1] in _JOINS:
            for argument in node.args:
                inner = argument.value if isinstance(argument, ast.Starred) else argument
                yield from _models(ownership, inner, depth + 1)
    elif isinstance(node, (ast.List, ast.Tuple)):
        for element in node.elts:
            inner = element.value if isinstance(element, ast.Starred) else element
            yield from _models(ownership, inner, depth + 1)
    elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        yield from _models(ownership, node.left, depth)
        yield from _models(ownership, node.right, depth)
    elif isinstance(node, (ast.ListComp, ast.GeneratorExp)):
        for generator in node.generators:
            yield from _models(ownership, generator.iter, depth + 1)
    elif isinstance(node, (ast.Name, ast.Attribute)):
        for value in _collected(file, node):
            yield from _models(ownership, value, depth + 1)


def _elements(ownership: Ownership, node: ast.expr) -> list[ast.expr]:
    """Each of several models in turn, where an expression is the variable of a loop over them."""
    iterated = ownership.facts.iterated(node)
    return iterated.elts if isinstance(iterated, (ast.List, ast.Tuple)) else [node]


def _collected(file: SourceFile, node: ast.Name | ast.Attribute) -> list[ast.expr]:
    """What a name holds that is given a value once: that value, and what is added to it."""
    path = path_of(node)
    scope = owner_of(file, node) if isinstance(node, ast.Name) else file.tree
    values: list[ast.expr] = []
    added: list[ast.expr] = []
    for inner in ast.walk(scope):
        if isinstance(inner, ast.Assign) and any(path_of(target) == path for target in inner.targets):
            values.append(inner.value)
        elif isinstance(inner, ast.AugAssign) and path_of(inner.target) == path:
            added.append(inner.value)
        elif isinstance(inner, ast.Call) and path_of(inner.func) == f"{path}.extend":
            added += inner.args
    return [*values, *added] if len(values) == 1 else []


def _whole(
    ownership: Ownership, models: frozenset[Model], makes_module: Callable[[ast.Call], bool]
) -> frozenset[Model]:
    """Models, those that they were made with, and those whose parts were set into them, but for what is frozen."""
    found = set(models)
    pending = list(models)
    tied = list(_tied(ownership))
    while pending:
        model = pending.pop()
        others = set()
        if not model.part:
            others = set(ownership.parts(model)) | _from_elsewhere(ownership, model, makes_module)
        others |= {part for holder, part in tied if _overlap(frozenset((model,)), frozenset((holder,)))}
        pending += others - found
        found |= others
    return frozenset(model for model in found if not ownership.contains(ownership.frozen, {model}))


def _from_elsewhere(ownership: Ownership, model: Model, makes_module: Callable[[ast.Call], bool]) -> frozenset[Model]:
    """The modules of other files that a model was made with."""
    if not isinstance(model.maker, ast.Call):
        return frozenset()
    given = [*model.maker.args, *(keyword.value for keyword in model.maker.keywords)]
    made = [value for argument in given for value in ownership.file.values.of(argument)]
    return frozenset(Model(value) for value in made if isinstance(value, ast.Call) and makes_module(value))


def _tied(ownership: Ownership) -> Iterator[tuple[Model, Model]]:
    """The parts of models that others got: `decoder.embedding = encoder.embedding`."""
    for statement in ast.walk(ownership.file.tree):
        if isinstance(statement, ast.Assign) and isinstance(statement.value, ast.Attribute):
            for target in (t for t in statement.targets if isinstance(t, ast.Attribute)):
                holders = ownership.models(target, NO_NAMES) or ()
                parts = ownership.models(statement.value, NO_NAMES) or ()
                yield from ((h, p) for h in holders for p in parts if h.part and p.part)


def _overlap(one: frozenset[Model], other: frozenset[Model]) -> bool:
    return any(m.maker is o.maker and related(m.part, o.part) for m in one for o in other)
