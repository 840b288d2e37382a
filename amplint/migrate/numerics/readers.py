"""What reads a model's outputs and does not take half precision: NumPy, products with float32, writing by index."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from amplint.facts.training import losses, targets_of
from amplint.migrate.editor import Editor
from amplint.migrate.facts import Facts
from amplint.migrate.numerics.half import HalfValues
from amplint.migrate.regions.runs import Run
from amplint.migrate.tree import owner_of, walk

if TYPE_CHECKING:
    from amplint.source import SourceFile

_OTHER_NUMBERS = frozenset(
    (
        "argmax", "argmin", "max", "min", "topk", "sort", "argsort", "eq", "ne", "gt", "lt", "ge", "le", "long", "int",
        "bool", "item", "size", "shape", "float", "double", "type", "to", "isnan", "isfinite", "multinomial",
    )
)  # fmt: skip
_KEEPS_SHAPES = frozenset(("normalize", "relu", "softmax", "sigmoid", "tanh", "cat", "stack", "flatten", "dropout"))
_JOINS = frozenset(("cat", "concat", "stack", "vstack", "hstack", "pad_sequence"))
"""Functions that take a sequence of tensors."""
_WRITES = frozenset(
    (
        "index_copy_",
        "index_add_",
        "index_put_",
        "scatter_",
        "scatter_add_",
        "masked_scatter_",
        "index_copy",
        "index_add",
    )
)
"""Methods that write their last argument into a tensor of the same dtype."""
_PRODUCTS = frozenset(("mm", "matmul", "bmm", "mv", "einsum", "linear", "addmm", "baddbmm", "cdist", "dot", "bilinear"))


def cast_for_readers(facts: Facts, editor: Editor, runs: list[Run], half: HalfValues, cast: set[int]) -> None:
    """Write `outputs.float()` where what a model returned in one of the runs goes to NumPy, or outside of the runs into
    a product or into a tensor by index, which take no mixture of dtypes; what is computed of it becomes float32 right
    before it goes to NumPy, in helpers too. `cast` are the ends of what was cast for other runs, and grows."""
    file = facts.file

    def write(node: ast.expr) -> None:
        end = file.span(node).end
        if end not in cast:
            cast.add(end)
            editor.insert(end, ".float()")

    done: set[ast.Name] = set()
    inside = {id(node) for run in runs for statement in run.statements for node in walk(statement)}
    for run in runs:
        outputs = {
            target.id
            for statement in run.statements
            for node in walk(statement)
            if isinstance(node, ast.Assign)
            and (_holds_output(facts, node.value) or _is_of_output(file, node.value, half))
            for target in targets_of(node)
            if isinstance(target, ast.Name) and not _is_other_part(half, node.value, _place(node, target))
        }
        if not outputs:
            continue
        outputs |= _computed(file, owner_of(file, run.first), outputs)
        derived = _derived(file, owner_of(file, run.first), outputs)
        for node in walk(owner_of(file, run.first)):
            if not isinstance(node, ast.Name) or not isinstance(node.ctx, ast.Load):
                continue
            if node.id not in outputs | derived:
                continue
            if node in done or id(node) in inside:
                continue  # a product in the region would make half precision of it again
            if (node.id in outputs and _goes_to_numpy(file, node)) or _meets_float32(file, node):
                done.add(node)
                tensor = _tensor_of(file, node)
                place = _index(tensor)
                if not any(_is_other_part(half, value, place) for value in file.values.of(node)):
                    write(tensor)
    for use in file.names.attributes.get("numpy", ()):
        parts = [node for node in ast.walk(use.value) if isinstance(node, ast.expr)]
        if any(node in done or file.span(node).end in cast for node in parts):
            continue
        if half.is_computed(use.value, anywhere=True, sampled=False):
            write(use.value)


def _place(assign: ast.Assign, name: ast.Name) -> int | None:
    """The place of a name among those that a statement unpacks into."""
    target = assign.targets[0]
    return target.elts.index(name) if isinstance(target, ast.Tuple) and name in target.elts else None


def _is_other_part(half: HalfValues, value: ast.AST | None, place: int | None) -> bool:
    """Whether one part of what a model of the file returns surely is not of half precision, as the places of maxima."""
    parts = half.parts(value, place) if isinstance(value, ast.Call) and place is not None else []
    return bool(parts) and not any(half.may_be(part) for part in parts)


def _index(node: ast.expr) -> int | None:
    """The number of `x[1]` or `x[-1]`."""
    index = node.slice if isinstance(node, ast.Subscript) else node
    is_negative = isinstance(index, ast.UnaryOp) and isinstance(index.op, ast.USub)
    value = index.operand if isinstance(index, ast.UnaryOp) else index
    if not isinstance(value, ast.Constant) or not isinstance(value.value, int):
        return None
    return -value.value if is_negative else value.value


def _tensor_of(file: SourceFile, name: ast.Name) -> ast.expr:
    """What surely is a tensor of an output that may be a tuple, a dict or an object of tensors: `out[0]`, `out.logits`,
    `torch.cat(out)`."""
    found: ast.expr = name
    while True:
        parent = file.parent(found)
        is_item = isinstance(parent, ast.Subscript) and parent.value is found
        if is_item or (isinstance(parent, ast.Attribute) and parent.attr != "data" and not _is_called(file, parent)):
            found = parent  # type: ignore[assignment]
        elif isinstance(parent, ast.Attribute) and parent.attr in ("get", "pop"):
            found = file.parent(parent)  # type: ignore[assignment]
        elif (
            isinstance(parent, ast.Call)
            and parent.args[:1] == [found]
            and any(called.rsplit(".", 1)[-1] in _JOINS for called in file.resolve(parent.func))
        ):
            found = parent
        else:
            return found


def _is_called(file: SourceFile, attribute: ast.Attribute) -> bool:
    call = file.parent(attribute)
    return isinstance(call, ast.Call) and call.func is attribute


def _is_of_output(file: SourceFile, value: ast.expr, half: HalfValues) -> bool:
    """Whether a value is what a function of torch that keeps shapes makes of an output (`F.normalize(model(x))`)."""
    names = file.resolve(value.func) if isinstance(value, ast.Call) else ()
    return any(name.rsplit(".", 1)[-1] in _KEEPS_SHAPES for name in names) and half.is_computed(value, anywhere=True)


def _holds_output(facts: Facts, value: ast.expr) -> bool:
    """Whether a value is what a model returned, as it is or reshaped."""
    while isinstance(value, (ast.Call, ast.Attribute, ast.Subscript)):
        if isinstance(value, ast.Call) and facts.module_of(value) is not None:
            return True
        if isinstance(value, ast.Call):
            if not isinstance(value.func, ast.Attribute) or facts.file.resolve(value.func):
                return False
            value = value.func
        if isinstance(value, ast.Attribute) and value.attr in _OTHER_NUMBERS:
            return False
        value = value.value
    return False


def _computed(file: SourceFile, owner: ast.AST, outputs: set[str]) -> set[str]:
    """The names of sums and differences of outputs, such as the distance of two mean scores."""
    found: set[str] = set()
    for node in walk(owner):
        if isinstance(node, ast.Assign) and isinstance(node.value, (ast.BinOp, ast.UnaryOp)):
            parts = [
                n for n in ast.walk(node.value) if not isinstance(n, (ast.operator, ast.unaryop, ast.expr_context))
            ]
            plain = all(isinstance(n, (ast.BinOp, ast.UnaryOp, ast.Name, ast.Constant)) for n in parts)
            if plain and any(isinstance(n, ast.Name) and n.id in outputs | found for n in parts):
                found |= {target.id for target in targets_of(node) if isinstance(target, ast.Name)}
    return found


def _derived(file: SourceFile, owner: ast.AST, outputs: set[str]) -> set[str]:
    """The names of what is computed of outputs, such as their softmax or the distance of two mean scores."""
    found: set[str] = set()
    grown = True
    while grown:
        grown = False
        for node in walk(owner):
            if isinstance(node, ast.Assign) and _keeps_precision(file, node.value, outputs | found):
                names = {target.id for target in targets_of(node) if isinstance(target, ast.Name)}
                grown = grown or not names <= found
                found |= names
    return found


def _keeps_precision(file: SourceFile, node: ast.expr, names: set[str]) -> bool:
    """Whether a value may be of half precision since one of the names is."""
    if isinstance(node, ast.Name):
        return node.id in names
    if isinstance(node, ast.Attribute):
        return node.attr not in _OTHER_NUMBERS | {"numpy", "grad"} and _keeps_precision(file, node.value, names)
    if isinstance(node, ast.Subscript):
        return _keeps_precision(file, node.value, names)
    if isinstance(node, (ast.BinOp, ast.UnaryOp)):
        parts = [node.left, node.right] if isinstance(node, ast.BinOp) else [node.operand]
        return any(_keeps_precision(file, part, names) for part in parts)
    if not isinstance(node, ast.Call) or losses(file, node):
        return False
    called = file.resolve(node.func)
    if called:
        is_torch = all(n.startswith("torch.") and n.rsplit(".", 1)[-1] not in _OTHER_NUMBERS for n in called)
        return is_torch and any(_keeps_precision(file, argument, names) for argument in node.args)
    return isinstance(node.func, ast.Attribute) and _keeps_precision(file, node.func, names)


def _meets_float32(file: SourceFile, name: ast.Name) -> bool:
    """Whether a value goes into a matrix product, or by index into a tensor, without becoming another one first."""
    child: ast.AST = name
    parent = file.parent(name)
    while isinstance(parent, ast.expr):
        if isinstance(parent, ast.BinOp):
            return isinstance(parent.op, ast.MatMult)
        if isinstance(parent, ast.Call):
            called = file.resolve(parent.func) or (getattr(parent.func, "attr", ""),)
            last = {one.rsplit(".", 1)[-1] for one in called}
            if last & _PRODUCTS or (last & _WRITES and child in parent.args):
                return True
            if parent.func is not child:
                return False
        elif isinstance(parent, ast.Attribute):
            if parent.attr in _OTHER_NUMBERS:
                return False
        elif not (isinstance(parent, ast.Subscript) and parent.value is child):
            return False
        child, parent = parent, file.parent(parent)
    return (
        isinstance(parent, ast.Assign)
        and parent.value is child
        and any(isinstance(target, ast.Subscript) and _is_tensor_index(target.slice) for target in parent.targets)
    )


def _is_tensor_index(index: ast.expr) -> bool:
    """Whether an index may be a tensor or a list, for which values are put and not copied."""
    parts = index.elts if isinstance(index, ast.Tuple) else [index]
    return any(not isinstance(part, (ast.Constant, ast.Slice)) for part in parts)


def _goes_to_numpy(file: SourceFile, name: ast.Name) -> bool:
    """Whether an expression turns a value, or what torch computes of it, into an array of floats."""
    child: ast.AST = name
    parent = file.parent(name)
    while isinstance(parent, (ast.expr, ast.keyword)):
        if isinstance(parent, ast.Attribute) and parent.attr == "numpy":
            return True
        if isinstance(parent, ast.Attribute) and parent.attr in _OTHER_NUMBERS:
            return False
        if isinstance(parent, ast.Call) and parent.func is not child:
            names = file.resolve(parent.func)
            if not names or not all(
                n.startswith("torch.") and n.rsplit(".", 1)[-1] not in _OTHER_NUMBERS for n in names
            ):
                return False
            if losses(file, parent):
                return False
        if isinstance(parent, (ast.Compare, ast.BoolOp, ast.Lambda, ast.IfExp)):
            return False
        child, parent = parent, file.parent(parent)
    return False
