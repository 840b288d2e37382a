"""Gradients that `unscale_` does not make right: those of tensors that no optimizer steps, and those that processes
exchange by hand."""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING

from amplint.facts.values import path_of
from amplint.migrate.facts import Facts
from amplint.migrate.model import RefusalError
from amplint.migrate.tree import is_false

if TYPE_CHECKING:
    from amplint.source import SourceFile

_EXCHANGES = frozenset(("all_reduce", "reduce", "broadcast", "all_gather", "all_gather_into_tensor", "reduce_scatter"))
_EXCHANGE_NAME = re.compile(
    r"(?:average|avg|reduce|sync|mean)\w*grad|grad\w*(?:average|avg|reduce|sync)|allreduce_params", re.I
)
_BY_MPI = re.compile(r"^mpi_|^all_?reduce", re.I)
_INPUT = (
    "the gradient of a tensor that no optimizer steps is used here, which `unscale_` does not reach; take it with "
    "autograd.grad in a function of its own, in float32"
)
_EXCHANGED = (
    "gradients are exchanged between processes by hand; unscaled before, one process could skip a step that another "
    "takes. Wrap the model in DistributedDataParallel instead"
)


def check(facts: Facts) -> None:
    """Raise `RefusalError` where such gradients are used."""
    file = facts.file
    exchanging = _exchanges(file)
    for call in file.names.calls:
        if _EXCHANGE_NAME.search(path_of(call.func).rsplit(".", 1)[-1]) and not file.values.functions(call):
            raise RefusalError(call, _EXCHANGED)
    for use in file.names.attributes.get("grad", ()):
        if not facts.reads_gradient(use):
            continue
        if file.values.enclosing_function(use) in exchanging:
            raise RefusalError(use, _EXCHANGED)
        if _asks_for_gradients(facts, use.value) and not _is_given_to_an_optimizer(facts, use.value):
            raise RefusalError(use, _INPUT)


def _exchanges(file: SourceFile) -> set[ast.AST | None]:
    """The functions, None for the module, in which processes exchange tensors."""
    found: set[ast.AST | None] = set()
    for call in file.names.calls:
        names = file.resolve(call.func) or (path_of(call.func),)
        if any(
            (n.rsplit(".", 1)[-1] in _EXCHANGES and n.startswith(("torch.distributed.", "dist.")))
            or _BY_MPI.match(n.rsplit(".", 1)[-1])
            for n in names
        ):
            found.add(file.values.enclosing_function(call))
    return found


def _asks_for_gradients(facts: Facts, node: ast.expr) -> bool:
    """Whether a name is that of a tensor which the script makes a leaf: `x.requires_grad = True` and the like."""
    file = facts.file
    path = path_of(node)
    if not path or "." in path.removeprefix("self."):
        return False
    for name in ("requires_grad", "requires_grad_"):
        for use in file.names.attributes.get(name, ()):
            if path_of(use.value) != path or file.values.enclosing_function(use) is not _scope_of(file, node):
                continue
            parent = file.parent(use)
            sets = isinstance(use.ctx, ast.Store) and isinstance(parent, ast.Assign)
            if (sets and _is_true(parent.value)) or (  # type: ignore[union-attr]
                name == "requires_grad_" and isinstance(parent, ast.Call) and not any(map(is_false, parent.args))
            ):
                return True
    return any(
        isinstance(value, ast.Call)
        and (
            any(k.arg == "requires_grad" and _is_true(k.value) for k in value.keywords)
            or (isinstance(value.func, ast.Attribute) and value.func.attr == "requires_grad_")
        )
        for value in file.values.of(node)
    )


def _scope_of(file: SourceFile, node: ast.expr) -> ast.AST | None:
    """The function in which the requests for a tensor's gradient are looked for: that of its use, or where it is
    bound."""
    function = file.values.enclosing_function(node)
    if function is None or not isinstance(node, ast.Name) or node.id in file.names.scopes[function].bindings:
        return function
    bindings = file.names.lookup(node)
    return file.values.enclosing_function(bindings[0].node) if bindings else function


def _is_given_to_an_optimizer(facts: Facts, node: ast.expr) -> bool:
    """Whether an optimizer of the file is made with a value of this name, directly or in a list."""
    file = facts.file
    last = path_of(node).rsplit(".", 1)[-1]
    pending: list[tuple[ast.AST, int]] = [
        (argument, 0)
        for call in file.names.calls
        if any(name.startswith("torch.optim.") for name in file.resolve(call.func))
        or facts.own_optimizers.intersection(file.values.of(call.func))
        for argument in [*call.args, *(keyword.value for keyword in call.keywords)]
    ]
    while pending:
        root, depth = pending.pop()
        for inner in ast.walk(root):
            if isinstance(inner, (ast.Name, ast.Attribute)) and path_of(inner).rsplit(".", 1)[-1] == last:
                return True
            if isinstance(inner, ast.Name) and depth < 2:
                pending += [(value, depth + 1) for value in file.values.of(inner) if isinstance(value, ast.expr)]
    return False


def _is_true(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is True
