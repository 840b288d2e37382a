"""Whether a region runs one model with and without gradients, which its cache of weights does not keep apart."""

from __future__ import annotations

import ast
import re

from amplint.facts.values import is_self, path_of
from amplint.migrate.facts import Facts
from amplint.migrate.regions.runs import Run
from amplint.migrate.tree import base_path, chain, overlaps, walk

_DEPTH = 4
_KEEPS_VALUES = frozenset(("requires_grad_", "detach_", "squeeze_", "unsqueeze_"))
_MAKES_NEW = frozenset(("matmul", "bmm", "mm", "einsum", "softmax", "tanh"))
_WEIGHTS = re.compile(r"param|weight|bias|\.data$|state_dict|buffers", re.I)


def mixes_gradients(facts: Facts, run: Run) -> bool:
    """Whether a model may run both under `no_grad` and with gradients inside one region.

    Until torch 2.10 the weights that were cast without gradients are taken again by the forward that needs them, and
    the model does not learn; fixed in 2.11. The names of a helper are compared with each other, not with those of its
    callers.
    """
    calls: list[tuple[str, bool, ast.Call | None]] = []
    roots: list[ast.AST] = list(run.statements)
    if run.bind is not None:
        roots.append(run.bind.expression)
    for root in roots:
        _collect(facts, root, False, None, calls)
    if any(_changes_weights(facts, node) for root in roots for node in walk(root)):
        return True
    with_grad = [(path, helper) for path, without, helper in calls if not without]
    return any(
        helper is not other_helper or overlaps(path, other)
        for path, without, helper in calls
        if without
        for other, other_helper in with_grad
    )


def _changes_weights(facts: Facts, node: ast.AST, depth: int = 0) -> bool:
    """Whether a node changes weights in place, whose casts in the cache would then be stale."""
    if isinstance(node, ast.AugAssign):
        return _is_weight(facts, node.target)
    if not isinstance(node, ast.Call):
        return False
    if isinstance(node.func, ast.Attribute) and node.func.attr.endswith("_") and not node.func.attr.endswith("__"):
        kept = node.func.attr in _KEEPS_VALUES or not base_path(node.func.value)
        return not kept and _is_weight(facts, node.func.value)
    return depth < _DEPTH and any(
        _changes_weights(facts, inner, depth + 1)
        for function in facts.file.values.functions(node)
        if function not in facts.trainers
        for statement in function.body
        for inner in walk(statement)
    )


def _is_weight(facts: Facts, node: ast.expr) -> bool:
    """Whether what is changed without gradients is a weight: by its own name, or as the variable of a loop on them."""
    file = facts.file
    text = file.segment(node)
    if isinstance(node, ast.Attribute) and node.attr == "data" and _is_computed(facts, node.value, set()):
        return False
    if not (file.regions.without_grad(node) or text.endswith(".data")):
        return False
    loops = [s for s in chain(file, file.statement(node)) if isinstance(s, ast.For)]
    return bool(_WEIGHTS.search(text)) or any(_WEIGHTS.search(file.segment(loop.iter)) for loop in loops)


def _is_computed(facts: Facts, node: ast.expr, seen: set[str]) -> bool:
    """Whether a name, or a member of it, is what calls in the same function made, such as scores of an attention."""
    while isinstance(node, ast.Subscript):
        node = node.value
    values = facts.file.values.of(node) if isinstance(node, ast.Name) else ()
    if isinstance(node, ast.Name):
        seen.add(node.id)
    return bool(values) and all(isinstance(v, (ast.BinOp, ast.List)) or _is_product(facts, v, seen) for v in values)


def _is_product(facts: Facts, value: ast.AST | None, seen: set[str]) -> bool:
    """Whether a value is what a module or a product made, reshaped."""
    while isinstance(value, ast.Call):
        names = facts.file.resolve(value.func)
        if names:
            return names[0].rsplit(".", 1)[-1] in _MAKES_NEW
        if isinstance(value.func, ast.Attribute) and is_self(value.func.value):
            return True
        if facts.module_of(value) is not None:
            return True
        value = value.func.value if isinstance(value.func, ast.Attribute) else None
    return isinstance(value, ast.Name) and (value.id in seen or _is_computed(facts, value, seen))


def _collect(
    facts: Facts,
    root: ast.AST,
    without: bool,
    helper: ast.Call | None,
    calls: list[tuple[str, bool, ast.Call | None]],
    same_self: bool = True,
    depth: int = 0,
) -> None:
    """Add the calls of models in a statement or a helper: path, whether without gradients, and the call of the helper
    in which the path stands, None where it means the same as in the region's own text, as `self.net` does in a method
    of the same object."""
    for node in walk(root):
        if not isinstance(node, ast.Call):
            continue
        bare = without or facts.file.regions.without_grad(node)
        module = facts.module_of(node)
        if module is not None:
            path = base_path(module)
            calls.append((path, bare, None if same_self and path.startswith("self.") else helper))
        elif depth < _DEPTH:
            for function in facts.file.values.functions(node):
                if function not in facts.trainers:
                    is_model = function.name in ("forward", "__call__") and path_of(node.func).startswith("self.")
                    if is_model:  # a module of the object, known by its path
                        calls.append((path_of(node.func), bare, None if same_self else helper))
                        continue
                    own = isinstance(node.func, ast.Attribute) and is_self(node.func.value)
                    for statement in function.body:
                        _collect(facts, statement, bare, node, calls, same_self and own, depth + 1)
