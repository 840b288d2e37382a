"""Gradients that are used although no optimizer holds their parameters: nothing unscales those."""

from __future__ import annotations

import ast
from collections.abc import Iterable

from amplint.facts.values import is_self
from amplint.migrate.gradients.ownership import NO_NAMES, PARAMETERS, Model, Optimizer, Ownership
from amplint.migrate.model import RefusalError

_REASON = (
    "gradients of parameters that no optimizer holds are used here, and nothing unscales those; "
    "use the optimizer's parameters, or freeze the others"
)


def check(ownership: Ownership, frozen: frozenset[Model], optimizers: Iterable[Optimizer]) -> None:
    """Raise `RefusalError` where a clip, a norm or a loop uses gradients of a model of which an optimizer surely holds
    a part only, or nothing. Nothing is said where the parameters of some optimizer are not known."""
    held: set[Model] = set()
    for optimizer in optimizers:
        roots = ownership.roots(optimizer)
        if roots is None or not all(ownership.is_closed(model.maker) for model in roots):
            return
        held |= roots
    file, facts = ownership.file, ownership.facts
    for name in PARAMETERS:
        for use in file.names.attributes.get(name, ()):
            statement = file.statement(use)
            if not any(facts.uses_gradient(node) for node in ast.walk(statement)):
                continue
            models = ownership.models(use.value, NO_NAMES) or frozenset()
            for model in models:
                one = frozenset((model,))
                if ownership.contains(frozen, one) or ownership.contains(frozenset(held), one):
                    continue
                if not _may_be_all(ownership, model, held):
                    raise RefusalError(use, _REASON)


def _may_be_all(ownership: Ownership, model: Model, held: set[Model]) -> bool:
    """Whether the parts of a model that are held may be all of it."""
    parts = {m.part.removeprefix(model.part).split(".")[1] for m in held if _is_part(m, model)}
    if not parts:
        return ownership.overlap(frozenset(held), frozenset((model,))) or not ownership.is_closed(model.maker)
    if model.part or not isinstance(model.maker, ast.Call):
        return True
    classes = ownership.file.values.of(model.maker.func)
    own = [cls for cls in classes if isinstance(cls, ast.ClassDef)]
    if not own:
        return len(parts) > 1
    return all(_children(ownership, cls) <= parts for cls in own)


def _is_part(one: Model, whole: Model) -> bool:
    return one.maker is whole.maker and one.part.startswith(f"{whole.part}.")


def _children(ownership: Ownership, cls: ast.ClassDef) -> set[str]:
    """The attributes of a module that are modules of torch or of the file."""
    file = ownership.file
    found = set()
    for node in ast.walk(cls):
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call):
            made = file.values.of(node.value.func)
            is_module = ownership.facts.is_module_name(file.resolve(node.value.func)) or any(
                isinstance(value, ast.ClassDef) and ownership.facts.is_module_class(value) for value in made
            )
            has_weights = not file.resolve(node.value.func) or bool(node.value.args)
            for target in node.targets if is_module and has_weights else ():
                if isinstance(target, ast.Attribute) and is_self(target.value):
                    found.add(target.attr)
    return found
