"""Calls that run a model by another name: what wraps its function, a lambda, a part of it that a helper got."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final

from amplint.facts.values import Function, path_of
from amplint.migrate.model import RefusalError
from amplint.migrate.tree import FUNCTIONS

if TYPE_CHECKING:
    from amplint.migrate.facts import Facts

_CALLERS: Final = frozenset(
    (
        "torch.utils.checkpoint.checkpoint",
        "torch.utils.checkpoint.checkpoint_sequential",
        "torch.nn.parallel.data_parallel",
        "torch.nn.parallel.replicate.data_parallel",
        "functools.reduce",
    )
)
"""Functions that call what they are given."""
_WRAPPERS: Final = frozenset(("functools.partial", "torch.vmap"))
"""Functions whose result calls what they were given."""
_NOT_RUN: Final = frozenset(
    ("parameters", "named_parameters", "state_dict", "load_state_dict", "train", "eval", "zero_grad", "modules", "to")
)


_OF_SHAPE: Final = frozenset(
    ("t", "view", "reshape", "squeeze", "unsqueeze", "transpose", "permute", "flatten", "contiguous", "detach", "chunk",
     "split")
)  # fmt: skip


def runs_model(
    facts: Facts,
    call: ast.Call,
    is_source: Callable[[ast.Call], bool],
    holds_source: Callable[[Function], bool],
    active: set[ast.AST],
) -> bool:
    """Whether a call runs a model that it does not name: `checkpoint(model.body, x)`, `f(x)` of a lambda that runs one,
    `encode(x)` where a function got `model.encoder` under that name.

    `is_source` and `holds_source` say whether a call, or a function of the file, runs a model; `active` holds what is
    being looked at, for recursions.
    """
    file = facts.file

    def runs(node: ast.AST | None) -> bool:
        """Whether what a node stands for runs a model when it is called."""
        if isinstance(node, FUNCTIONS):
            return holds_source(node)
        if isinstance(node, ast.Lambda):
            if node in active:
                return False
            active.add(node)
            try:
                return any(isinstance(inner, ast.Call) and is_source(inner) for inner in ast.walk(node.body))
            finally:
                active.discard(node)
        if isinstance(node, ast.Call):
            return _is_wrapper(node) and any(given(argument) for argument in node.args)
        return isinstance(node, (ast.Name, ast.Attribute)) and _is_part(facts, node)

    def given(argument: ast.expr) -> bool:
        return any(runs(value) for value in (argument, *file.values.of(argument), *file.values.elements(argument)))

    def _is_wrapper(node: ast.Call) -> bool:
        names = file.resolve(node.func)
        return bool(_WRAPPERS.intersection(names)) or (path_of(node.func) == "getattr" and not names)

    names = file.resolve(call.func)
    if _CALLERS.intersection(names) or (path_of(call.func) == "map"):
        return any(given(argument) for argument in call.args)
    if isinstance(call.func, ast.Call):
        return runs(call.func)
    return not names and any(value is not call.func and runs(value) for value in file.values.of(call.func))


def check_lambdas(facts: Facts, nodes: Iterable[ast.AST]) -> None:
    """Raise `RefusalError` where one of the nodes calls a lambda that runs a model and computes something else too,
    since nothing can be written into it."""
    for call in nodes:
        for value in facts.file.values.of(call.func) if isinstance(call, ast.Call) else ():
            calls = (
                [n for n in ast.walk(value.body) if isinstance(n, ast.Call)] if isinstance(value, ast.Lambda) else []
            )
            if not any(facts.module_of(inner) is not None for inner in calls):
                continue
            calls = [inner for inner in calls if not _keeps_numbers(facts, inner)]
            if len(calls) > 1 or any(isinstance(n, (ast.BinOp, ast.UnaryOp)) for n in ast.walk(value)):  # type: ignore[arg-type]
                raise RefusalError(
                    value,  # type: ignore[arg-type]
                    "this lambda runs a model and computes more; make it a function, which can be adapted",
                )


def _keeps_numbers(facts: Facts, call: ast.Call) -> bool:
    """Whether a call changes no more than the shape of a tensor, as `model(x).t()` does."""
    return isinstance(call.func, ast.Attribute) and call.func.attr in _OF_SHAPE and not facts.file.resolve(call.func)


def _is_part(facts: Facts, node: ast.expr) -> bool:
    """Whether an expression is a model, or a part or method of one."""
    if facts.is_module(node):
        return not facts.is_loss(node)
    return isinstance(node, ast.Attribute) and node.attr not in _NOT_RUN and facts.is_module(node.value)
