"""AMP308: the scaled loss is used as if it were the loss."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from amplint.facts.training import in_other_arm, scale_calls, targets_of
from amplint.facts.values import path_of
from amplint.model import Applicability, Edit, Finding, Fix, Label, Level
from amplint.rewrite import statements
from amplint.rule import rule
from amplint.source import SourceFile

_READS = ("item", "tolist", "cpu", "numpy", "detach")
_TAKES_THE_NUMBER = frozenset(("item", "tolist", "numpy"))
_LOGS = ("append", "add_scalar", "add_scalars", "log", "log_dict", "log_metrics", "update")
_CONVERSIONS = ("float", "str", "round", "print", "format", "repr")
Functions = (ast.FunctionDef, ast.AsyncFunctionDef)


@rule(
    "AMP308",
    "scaled-loss-used",
    level=Level.WARNING,
    fix=Applicability.UNSAFE,
    triggers=(".scale(",),
)
def scaled_loss_used(file: SourceFile) -> Iterator[Finding]:
    """
    What `scaler.scale` returns is the loss times the scale: a loss of 0.649 is logged as 42561, and the curve jumps
    whenever the scale changes. Only `backward()` should see it.

    ```python bad
    import torch


    def train(model, loader, optimizer, scaler: torch.amp.GradScaler):
        total = 0.0
        for x in loader:
            optimizer.zero_grad()
            with torch.autocast("cuda", dtype=torch.float16):
                loss = model(x).mean()
            loss = scaler.scale(loss)
            loss.backward()
            scaler.step(optimizer)
            scaler.update()
            total += loss.item()
        return total
    ```

    ```python good
    import torch


    def train(model, loader, optimizer, scaler: torch.amp.GradScaler):
        total = 0.0
        for x in loader:
            optimizer.zero_grad()
            with torch.autocast("cuda", dtype=torch.float16):
                loss = model(x).mean()
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
            total += loss.item()
        return total
    ```

    Silent where the value is divided by the scale again, and for tests such as `torch.isfinite(scaled)`.
    """
    for call in scale_calls(file):
        assignment = file.parent(call)
        if not isinstance(assignment, ast.Assign) or assignment.value is not call or len(assignment.targets) != 1:
            continue
        name = assignment.targets[0]
        if not isinstance(name, (ast.Name, ast.Attribute)) or not path_of(name):
            continue
        for use in _uses(file, assignment, name):
            message = f"`{path_of(name)}` is the loss times the loss scale (65536 at first), not the loss"
            label = Label(file.span(call), "scaled here")
            yield Finding("AMP308", file.span(use), message, (label,), _fix(file, assignment, name, call, use))
            break


def _uses(file: SourceFile, assignment: ast.Assign, name: ast.Name | ast.Attribute) -> Iterator[ast.expr]:
    """The uses of the scaled value as a number, after its backward, before the name gets another value."""
    function = file.enclosing(assignment, *Functions) or file.tree
    start = (assignment.end_lineno or 0, assignment.end_col_offset or 0)
    end = min((_place(n) for n in _rebinding(function, path_of(name), assignment)), default=(1 << 30, 0))
    loads = [use for use in _loads(file, name) if start < _place(use) < end]
    loads = [use for use in loads if (file.enclosing(use, *Functions) or file.tree) is function]
    backward = next((_place(use) for use in loads if _method(file, use) == "backward"), None)
    if backward is None:
        return
    for use in sorted(loads, key=_place):
        if _is_number(file, use, after_backward=_place(use) > backward) and not in_other_arm(file, assignment, use):
            yield use


def _loads(file: SourceFile, name: ast.Name | ast.Attribute) -> list[ast.expr]:
    """The places at which a name or attribute is read."""
    if isinstance(name, ast.Name):
        return list(file.names.loads.get(name.id, ()))
    uses = file.names.attributes.get(name.attr, ())
    return [use for use in uses if isinstance(use.ctx, ast.Load) and path_of(use) == path_of(name)]


def _is_number(file: SourceFile, use: ast.expr, *, after_backward: bool) -> bool:
    """Whether a use reads the value: `.item()`, an f-string, `total += x`, and after the backward a return as well."""
    whole: ast.AST = use
    methods: list[str] = []
    if method := _method(file, use):
        if method not in _READS:
            return False
        while isinstance(above := file.parent(whole), (ast.Attribute, ast.Call)) and whole in (
            getattr(above, "value", None),
            getattr(above, "func", None),
        ):
            whole = above
            if isinstance(above, ast.Attribute):
                methods.append(above.attr)
    parent = file.parent(whole)
    if _is_unscaled(file, whole) or _is_unscaled_later(file, whole):
        return False
    if not _TAKES_THE_NUMBER.isdisjoint(methods):
        return True
    if isinstance(parent, ast.FormattedValue):
        return True
    if isinstance(parent, ast.AugAssign) and parent.value is whole:
        return after_backward
    if isinstance(parent, ast.Call) and whole in parent.args:
        called = path_of(parent.func).rsplit(".", 1)[-1]
        return called in _CONVERSIONS or (after_backward and called in _LOGS)
    if isinstance(parent, ast.Compare):
        return after_backward and _compares_sizes(file, parent)
    if isinstance(parent, (ast.Dict, ast.Tuple)) and not isinstance(file.parent(parent), ast.Subscript):
        holder = file.parent(parent)
        logged = isinstance(holder, ast.Call) and path_of(holder.func).rsplit(".", 1)[-1] in _LOGS
        return after_backward and (logged or isinstance(holder, ast.Return))
    return after_backward and isinstance(parent, ast.Return)


def _compares_sizes(file: SourceFile, test: ast.Compare) -> bool:
    """Whether a comparison asks which value is larger; one with infinity asks whether the value is finite."""
    ordering = all(isinstance(op, (ast.Lt, ast.LtE, ast.Gt, ast.GtE)) for op in test.ops)
    return ordering and "inf" not in file.segment(test)


def _is_unscaled(file: SourceFile, node: ast.AST) -> bool:
    """Whether an expression around a node takes the scale out again."""
    current: ast.AST | None = node
    while isinstance(current, ast.expr):
        if isinstance(current, ast.BinOp) and isinstance(current.op, (ast.Div, ast.Mult)):
            return True
        current = file.parent(current)
    return False


def _is_unscaled_later(file: SourceFile, node: ast.AST) -> bool:
    """Whether a value goes into a name that the same function divides or multiplies after that."""
    assignment = file.parent(node)
    if not isinstance(assignment, ast.Assign):
        return False
    function = file.enclosing(assignment, *Functions) or file.tree
    for target in assignment.targets:
        for use in _loads(file, target) if isinstance(target, (ast.Name, ast.Attribute)) else ():
            inside = (file.enclosing(use, *Functions) or file.tree) is function
            if inside and _place(use) > _place(assignment) and _is_unscaled(file, use):
                return True
    return False


def _method(file: SourceFile, use: ast.AST) -> str:
    parent = file.parent(use)
    return parent.attr if isinstance(parent, ast.Attribute) else ""


def _rebinding(function: ast.AST, name: str, assignment: ast.Assign) -> Iterator[ast.AST]:
    """What gives the name another value after the assignment."""
    for node in ast.walk(function):
        later = node is not assignment and hasattr(node, "lineno") and _place(node) > _place(assignment)
        if later and not isinstance(node, ast.AugAssign) and name in map(path_of, targets_of(node)):
            yield node


def _fix(
    file: SourceFile, assignment: ast.Assign, name: ast.Name | ast.Attribute, call: ast.Call, use: ast.expr
) -> Fix | None:
    """Scale in the backward only, or read the loss where the scaled one has a name of its own."""
    scaled = call.args[0] if len(call.args) == 1 else None
    if not isinstance(scaled, (ast.Name, ast.Attribute)) or not path_of(scaled):
        return None
    if path_of(scaled) != path_of(name):
        edit = Edit(file.span(use), path_of(scaled))
        return Fix(f"Use `{path_of(scaled)}`", (edit,), Applicability.UNSAFE)
    block = statements.siblings(file, assignment)
    following = block[block.index(assignment) + 1 :]
    if not following or file.segment(following[0]) != f"{path_of(name)}.backward()":
        return None
    backward = following[0]
    assert isinstance(backward, ast.Expr)
    assert isinstance(backward.value, ast.Call)
    assert isinstance(backward.value.func, ast.Attribute)
    edits = (
        statements.delete_statement(file, assignment),
        Edit(file.span(backward.value.func.value), file.segment(call)),
    )
    return Fix("Scale in the backward only", edits, Applicability.UNSAFE)


def _place(node: ast.AST) -> tuple[int, int]:
    return node.lineno, node.col_offset  # type: ignore[attr-defined]
