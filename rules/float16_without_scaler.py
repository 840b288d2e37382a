"""AMP403: training under float16 autocast without a loss scale."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from amplint.facts.contexts import OFF
from amplint.facts.regions import Region
from amplint.facts.training import (
    backward_calls,
    is_optimizer_name,
    mentions_scaler,
    roots,
    scale_calls,
    scaler_constructors,
    scaler_origins,
    targets_of,
)
from amplint.facts.values import Function, inside, path_of, returns
from amplint.model import Applicability, Finding, Fix, Label, Level
from amplint.rewrite.scaler_insertion import insert_scaler
from amplint.rule import rule
from amplint.source import SourceFile


@rule("AMP403", "float16-without-scaler", level=Level.WARNING, fix=Applicability.UNSAFE, triggers=("autocast",))
def float16_without_scaler(file: SourceFile) -> Iterator[Finding]:
    """
    Gradients below 6e-8 are zero in float16, and without a loss scale training loses them silently: with targets around
    0.01, 66 percent of the gradients of a small net are exactly 0, and its loss ends 23 times as high. CUDA autocast
    runs in float16 unless it is told otherwise.

    ```python bad
    import torch


    def train(model, loader, optimizer):
        for x, y in loader:
            optimizer.zero_grad()
            with torch.autocast("cuda"):
                loss = (model(x) - y).pow(2).mean()
            loss.backward()
            optimizer.step()
    ```

    ```python good
    import torch


    def train(model, loader, optimizer):
        scaler = torch.amp.GradScaler("cuda")
        for x, y in loader:
            optimizer.zero_grad()
            with torch.autocast("cuda"):
                loss = (model(x) - y).pow(2).mean()
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
    ```

    On hardware that has it, `dtype=torch.bfloat16` needs no scaler. Silent where the region is off unless a caller asks
    for it, where the dtype can't be seen, and in functions and classes that scale (by hand too) or hand a scaler on.
    The fix is unsafe since it can't see where else the optimizer is stepped, nor who saves the scaler's state.
    """
    if not _steps_an_optimizer(file):
        return
    scaled = {_owner(file, call) for call in (*scale_calls(file), *_scaler_steps(file))}
    for region in file.regions.all:
        if not _is_float16(region) or file.regions.without_grad(region.body[0]):
            continue
        for backward in _backwards(file, region):
            owners = {_owner(file, backward), _owner(file, region.node)}
            if owners & scaled or any(_hands_a_scaler_on(file, owner) for owner in owners):
                break
            yield _finding(file, region, backward)
            break


def _steps_an_optimizer(file: SourceFile) -> bool:
    """Whether the file trains: gradients that go elsewhere (attacks, saliency) are not judged."""
    if file.names.attributes.get("zero_grad"):
        return True
    return any(is_optimizer_name(use.value) for use in file.names.attributes.get("step", ()))


def _owner(file: SourceFile, node: ast.AST) -> ast.AST | None:
    """The outermost function or class that holds a node, None for the module."""
    owner: ast.AST | None = None
    current: ast.AST | None = node
    while current is not None:
        if isinstance(current, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            owner = current
        current = file.parent(current)
    return owner


def _scaler_steps(file: SourceFile) -> Iterator[ast.Attribute]:
    """The uses of a scaler that take scaled gradients for granted: another rule judges an unscaled loss there."""
    for name in ("step", "unscale_", "update"):
        for use in file.names.attributes.get(name, ()):
            if mentions_scaler(use.value) or scaler_origins(file, use.value):
                yield use


def _is_float16(region: Region) -> bool:
    return region.enabled != OFF and region.on_by_default and "float16" in region.dtypes and region.devices != {"mps"}


def _hands_a_scaler_on(file: SourceFile, owner: ast.AST | None) -> bool:
    """Whether some call in a function or class is given something that is called a scaler."""
    for node in ast.walk(file.tree if owner is None else owner):
        if isinstance(node, ast.Call):
            if any(mentions_scaler(argument) for argument in node.args if _is_path(argument)):
                return True
            if any(mentions_scaler(keyword.value) for keyword in node.keywords if _is_path(keyword.value)):
                return True
            name = path_of(node.func).rsplit(".", 1)[-1].lower()
            if "scaler" in name and node.args and "grad" not in name:
                return True
    return False


def _is_path(node: ast.expr) -> bool:
    return isinstance(node, (ast.Name, ast.Attribute))


def _backwards(file: SourceFile, region: Region) -> Iterator[ast.Call]:
    """The plain backward calls on what a region computed, in its own function and in callers in the same file."""
    produced = _produced(file, region)
    yield from _backwards_on(file, region.function, produced, region)
    if region.function is None or not _is_returned(file, region, produced):
        return
    for call in file.values.calls(region.function):
        statement = file.statement(call)
        given = frozenset(path for target in targets_of(statement) if (path := path_of(target)))
        caller = file.values.enclosing_function(call)
        if given and not file.regions.without_grad(call):
            yield from _backwards_on(file, caller, _grown(file, caller, given), None)


def _is_returned(file: SourceFile, region: Region, produced: frozenset[str]) -> bool:
    """Whether the region's function returns what the region computed, perhaps from inside it."""
    assert region.function is not None
    return any(roots(value) & produced or file.regions.at(value) is region for value in returns(region.function))


def _produced(file: SourceFile, region: Region) -> frozenset[str]:
    """The names that depend on what a region assigns."""
    found: set[str] = set()
    for statement in region.body:
        for node in (statement, *inside(statement)):
            found.update(path for target in targets_of(node) if (path := path_of(target)))
    return _grown(file, region.function, frozenset(found))


def _grown(file: SourceFile, function: Function | None, names: frozenset[str]) -> frozenset[str]:
    found = set(names)
    for node in file.values.body(function):
        if not isinstance(node, (ast.Assign, ast.AnnAssign, ast.AugAssign)) or node.value is None:
            continue
        if roots(node.value) & found:
            found.update(path for target in targets_of(node) if (path := path_of(target)))
    return frozenset(found - {"self", ""})


def _backwards_on(
    file: SourceFile, function: Function | None, produced: frozenset[str], region: Region | None
) -> Iterator[ast.Call]:
    for call in backward_calls(file):
        if file.values.enclosing_function(call) is not function or not isinstance(call.func, ast.Attribute):
            continue
        if region is not None and (call.lineno, call.col_offset) < _start(region):
            continue
        loss = roots(call.func.value)
        scaled = any("scale" in path.lower() for path in loss) or _is_scaled_by_hand(file, function, call.func.value)
        if loss & produced and not scaled:
            yield call
    for node in file.values.body(function):
        if isinstance(node, ast.Call) and any(roots(argument) & produced for argument in node.args):
            for helper in file.values.functions(node):
                yield from _backwards_in(file, helper, node, produced)


def _is_scaled_by_hand(file: SourceFile, function: Function | None, loss: ast.expr) -> bool:
    """Whether a loss is multiplied before its backward and the function divides gradients: `p.grad.div_(S)`."""
    products = [node for node in (loss, *file.values.of(loss)) if isinstance(node, ast.BinOp)]
    if not any(isinstance(product.op, ast.Mult) for product in products):
        return False
    for node in file.values.body(function):
        place: ast.AST | None = None
        if isinstance(node, ast.AugAssign) and isinstance(node.op, (ast.Div, ast.Mult)):
            place = node.target
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in ("div_", "mul_"):
            place = node.func.value
        if isinstance(place, ast.expr) and path_of(place).endswith((".grad", ".grad.data")):
            return True
    return False


def _backwards_in(file: SourceFile, helper: Function, call: ast.Call, produced: frozenset[str]) -> Iterator[ast.Call]:
    """The backward calls of a helper on the parameter that gets the loss."""
    for backward in backward_calls(file):
        if file.values.enclosing_function(backward) is not helper or not isinstance(backward.func, ast.Attribute):
            continue
        given = file.values.argument(call, helper, path_of(backward.func.value))
        if given is not None and roots(given) & produced:
            yield backward


def _start(region: Region) -> tuple[int, int]:
    return region.body[0].lineno, region.body[0].col_offset


def _finding(file: SourceFile, region: Region, backward: ast.Call) -> Finding:
    autocast = next(entry for entry in region.autocasts if "float16" in entry.dtypes or not entry.dtypes)
    fix = insert_scaler(file, backward, autocast)
    message = "this region trains in float16 without a GradScaler: gradients below 6e-8 become zero"
    place: ast.Call = autocast.call
    label = Label(file.span(backward), "the loss goes backward unscaled here")
    owner = _owner(file, backward)
    unused = next((call for call in scaler_constructors(file) if _owner(file, call) is owner), None)
    if unused is not None:
        message = "a float16 loss goes backward unscaled, gradients below 6e-8 become zero: the scaler is never used"
        place, label = backward, Label(file.span(unused), "the scaler that is never used")
    return Finding(
        "AMP403",
        file.span(place),
        message,
        (label, Label(file.span(region.expression), "the region")),
        None if fix is None else Fix("Scale the loss with a GradScaler", fix, Applicability.UNSAFE),
        None,
        "" if fix else "scale the loss with torch.amp.GradScaler, or use dtype=torch.bfloat16",
    )
