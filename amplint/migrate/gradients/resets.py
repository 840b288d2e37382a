"""Gradients that are reset without `zero_grad`: set to None or to zeros, which may take their shape from old ones."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from amplint.facts.values import path_of
from amplint.migrate.tree import FUNCTIONS, is_none, walk

if TYPE_CHECKING:
    from amplint.migrate.gradients.ownership import Names, Optimizer, Ownership
    from amplint.source import SourceFile

_ZEROS = frozenset(("torch.zeros", "torch.zeros_like"))
_ZERO_METHODS = frozenset(("zero_", "new_zeros"))
_PARAMETERS = frozenset(("parameters", "named_parameters", "trainable_parameters"))
_VARIABLE = "torch.autograd.Variable"


def is_reset(file: SourceFile, node: ast.Attribute) -> bool:
    """Whether a node is the `p.grad` of `p.grad = None`, of `p.grad = zeros`, or of `p.grad.zero_()`."""
    if node.attr != "grad" or file.resolve(node):
        return False
    parent = file.parent(node)
    if isinstance(node.ctx, ast.Store):
        return isinstance(parent, ast.Assign) and (
            isinstance(parent.value, ast.Constant) or is_zeros(file, parent.value)
        )
    while isinstance(parent, ast.Attribute):
        if parent.attr == "zero_":
            return True
        parent = file.parent(parent)
    return False


def asks_for_gradient(statement: ast.If) -> bool:
    """Whether a statement is `if p.grad is not None:` round a reset, without which there is nothing to reset."""
    test = statement.test
    if isinstance(test, ast.Compare) and len(test.ops) == 1 and isinstance(test.ops[0], ast.IsNot):
        test = test.left if is_none(test.comparators[0]) else test
    if statement.orelse or not (isinstance(test, ast.Attribute) and test.attr == "grad"):
        return False
    asked = ast.dump(test.value)
    return any(
        isinstance(node, ast.Attribute) and node.attr == "grad" and ast.dump(node.value) == asked
        for member in statement.body
        for node in walk(member)
    )


def is_zeros(file: SourceFile, value: ast.AST | None) -> bool:
    """Whether an expression is a tensor of zeros: `torch.zeros_like(p)`, `Variable(data.new(2).zero_())`."""
    if not isinstance(value, ast.Call):
        return False
    names = file.resolve(value.func)
    if _VARIABLE in names and value.args:
        return is_zeros(file, value.args[0])
    if _ZEROS.intersection(names):
        return True
    return not names and isinstance(value.func, ast.Attribute) and value.func.attr in _ZERO_METHODS


def is_model_of_zeros(file: SourceFile, node: ast.Attribute) -> bool:
    """Whether a gradient is read only for the shape of zeros: within them, or under a name that stands nowhere else."""
    statement = file.statement(node)
    if _within_zeros(file, node):
        return True
    if not isinstance(statement, ast.Assign) or len(statement.targets) != 1:
        return False
    target, value = statement.targets[0], statement.value
    if not isinstance(target, ast.Name) or (value is not node and not _is_data_of(value, node)):
        return False
    uses = [
        use
        for use in file.names.loads.get(target.id, ())
        if any(binding.node is statement for binding in file.names.lookup(use))
    ]
    return bool(uses) and all(_within_zeros(file, use) for use in uses)


def _is_data_of(value: ast.expr, node: ast.Attribute) -> bool:
    return isinstance(value, ast.Attribute) and value.attr == "data" and value.value is node


def _within_zeros(file: SourceFile, node: ast.AST) -> bool:
    """Whether a node stands in an expression that gives zeros whatever the node is."""
    current: ast.AST | None = node
    while current is not None and not isinstance(current, (ast.stmt, ast.Lambda, *FUNCTIONS)):
        if isinstance(current, ast.Call) and is_zeros(file, current) and not _changes(current, node):
            return True
        current = file.parent(current)
    return False


def _changes(call: ast.Call, node: ast.AST) -> bool:
    """Whether `x.zero_()` sets the node itself to zeros, rather than a new tensor of its shape."""
    inner = call.func
    while isinstance(inner, ast.Attribute):
        inner = inner.value
    return inner is node


def covers(
    ownership: Ownership, receiver: ast.expr, optimizer: Optimizer, every: list[Optimizer], names: Names
) -> bool:
    """Whether resetting the `grad` of a receiver, in the loop that it is the variable of, resets all parameters of an
    optimizer; `every` are those of the file. What a file with one optimizer runs over is taken to be all of it."""
    iterated = ownership.facts.iterated(receiver)
    if iterated is None:
        return any(_holds_only(argument, path_of(receiver)) for argument in _given(optimizer))
    if (groups := _groups(ownership, iterated)) is not None:
        return optimizer in ownership.optimizers(groups, names)
    if (
        isinstance(iterated, ast.Call)
        and isinstance(iterated.func, ast.Attribute)
        and iterated.func.attr in _PARAMETERS
    ):
        models, roots = ownership.models(iterated.func.value, names), ownership.roots(optimizer)
        if models is not None and roots is not None:
            return ownership.contains(models, roots)
        return len(every) == 1
    return len(every) == 1 or any(_holds(ownership, iterated, argument) for argument in _given(optimizer))


def _given(optimizer: Optimizer) -> list[ast.expr]:
    """The parameters that the calls that make an optimizer get."""
    made = [call for call in optimizer.makers if isinstance(call, ast.Call)]
    named = [k.value for call in made for k in call.keywords if k.arg == "params"]
    return [*(call.args[0] for call in made if call.args), *named]


def _holds_only(argument: ast.expr, path: str) -> bool:
    return isinstance(argument, (ast.List, ast.Tuple)) and [path_of(e) for e in argument.elts] == [path]


def _groups(ownership: Ownership, iterated: ast.expr) -> ast.expr | None:
    """The optimizer in `for group in optimizer.param_groups: for p in group["params"]`."""
    inner: ast.expr | None = iterated
    while isinstance(inner, ast.Subscript):
        inner = inner.value
    if isinstance(inner, ast.Name):
        inner = ownership.facts.iterated(inner)
    return inner.value if isinstance(inner, ast.Attribute) and inner.attr == "param_groups" else None


def _holds(ownership: Ownership, collection: ast.expr, argument: ast.expr, depth: int = 0) -> bool:
    """Whether a collection of parameters is that of an optimizer, or a sum that has it as a part."""
    if path_of(collection) and path_of(collection) == path_of(argument):
        lookup = ownership.file.names.lookup
        pair = (collection, argument)
        return not all(isinstance(n, ast.Name) for n in pair) or lookup(collection) == lookup(argument)  # type: ignore[arg-type]
    if isinstance(collection, ast.BinOp) and isinstance(collection.op, ast.Add):
        return any(_holds(ownership, part, argument, depth) for part in (collection.left, collection.right))
    values = ownership.file.values.of(collection)
    return depth < 3 and any(
        isinstance(value, ast.expr) and value is not collection and _holds(ownership, value, argument, depth + 1)
        for value in values
    )
