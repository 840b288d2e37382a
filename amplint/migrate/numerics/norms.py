"""Batch normalization with weights that another model computes, as in adaptive instance normalization: autocast leaves
it alone, and it takes a weight of half precision only where its running statistics are of half precision too."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from amplint.facts.values import is_self, path_of
from amplint.migrate.numerics.half import HalfValues

if TYPE_CHECKING:
    from amplint.source import SourceFile

_NORMS = frozenset(("torch.nn.functional.batch_norm", "torch.nn.functional.instance_norm", "torch.batch_norm"))
_WEIGHTS = {"weight": 3, "bias": 4}


def half_arguments(file: SourceFile, half: HalfValues, call: ast.Call) -> list[ast.expr]:
    """What must become float32 in a call of such a function: its weights where they are computed, and then its input
    too."""
    if not _NORMS.intersection(file.resolve(call.func)):
        return []
    named = {keyword.arg: keyword.value for keyword in call.keywords}
    at = {name: call.args[index] for name, index in _WEIGHTS.items() if len(call.args) > index}
    if "torch.batch_norm" in file.resolve(call.func):
        at = {name: call.args[index - 2] for name, index in _WEIGHTS.items() if len(call.args) > index - 2}
    given = [at.get(name, named.get(name)) for name in _WEIGHTS]
    weights = [value for value in given if value is not None and not isinstance(value, ast.Constant)]
    computed = [w for w in weights if half.is_computed(w, anywhere=True) or _is_set_from_outside(file, w)]
    source = call.args[0] if call.args else named.get("input")
    return [*([source] if computed and source is not None else []), *computed]


def _is_set_from_outside(file: SourceFile, node: ast.expr) -> bool:
    """Whether an attribute has no value in its class but None, and gets one by way of an object: `m.weight = w`."""
    if not isinstance(node, ast.Attribute) or not is_self(node.value):
        return False
    own = file.values.of(node)
    if not all(isinstance(value, ast.Constant) and value.value is None for value in own):
        return False
    uses = file.names.attributes.get(node.attr, ())
    return any(isinstance(use.ctx, ast.Store) and path_of(use.value) != "self" for use in uses)
