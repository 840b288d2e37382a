"""AMP401: the parameters themselves are float16 while the optimizer goes through a scaler."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from amplint.facts.training import roots, scaler_origins
from amplint.facts.values import path_of
from amplint.model import Applicability, Edit, Finding, Fix, Label, Level, Span
from amplint.rewrite import statements
from amplint.rule import rule
from amplint.source import SourceFile

_HALF = frozenset(("torch.float16", "torch.half"))


@rule("AMP401", "half-parameters-with-scaler", level=Level.ERROR, fix=Applicability.UNSAFE, triggers=("caler",))
def half_parameters_with_scaler(file: SourceFile) -> Iterator[Finding]:
    """
    A scaler refuses float16 gradients: `Attempting to unscale FP16 gradients` at the first step. Fused optimizers skip
    that check and train in pure float16, where 1000 updates of -1e-4 leave a weight of 1 at exactly 1. Autocast
    wants float32 parameters and casts them itself.

    ```python bad
    import torch


    def train(model, loader):
        model = model.half()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        scaler = torch.amp.GradScaler("cuda")
        for x, y in loader:
            optimizer.zero_grad()
            with torch.autocast("cuda"):
                loss = (model(x) - y).pow(2).mean()
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
    ```

    ```python good
    import torch


    def train(model, loader):
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        scaler = torch.amp.GradScaler("cuda")
        for x, y in loader:
            optimizer.zero_grad()
            with torch.autocast("cuda"):
                loss = (model(x) - y).pow(2).mean()
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
    ```

    Found where the model, its optimizer and `scaler.step(optimizer)` are in view together. bfloat16 parameters are not
    refused. The fix is unsafe since inputs that are cast to half too may reach layers that autocast leaves alone.
    """
    for halved in _halvings(file):
        step = _scaled_step(file, halved)
        if step is not None:
            yield _finding(file, halved, step)


def _halvings(file: SourceFile) -> list[ast.Call]:
    """The calls `x.half()`, `x.to(torch.float16)` and `x.type(torch.float16)`."""
    found = []
    for name in ("half", "to", "type"):
        for use in file.names.attributes.get(name, ()):
            call = file.parent(use)
            if not isinstance(call, ast.Call) or call.func is not use:
                continue
            given = [*call.args, *(keyword.value for keyword in call.keywords)]
            if name == "half" if not given else any(file.resolve(a) and set(file.resolve(a)) <= _HALF for a in given):
                found.append(call)
    return sorted(found, key=lambda call: (call.lineno, call.col_offset))


def _scaled_step(file: SourceFile, halved: ast.Call) -> ast.Call | None:
    """The `scaler.step(optimizer)` through which the halved module's parameters go."""
    paths = _paths(file, halved)
    for use in file.names.attributes.get("step", ()):
        call = file.parent(use)
        if not isinstance(call, ast.Call) or call.func is not use or len(call.args) != 1:
            continue
        if not _is_enabled_scaler(file, use.value) or not _runs_before(file, halved, call):
            continue
        for optimizer in file.values.of(call.args[0]):
            if isinstance(optimizer, ast.Call) and _holds_parameters(file, optimizer, paths, halved):
                return call
    return None


def _paths(file: SourceFile, halved: ast.Call) -> frozenset[str]:
    """The names of the module that a call halves: what it is called on, and what the result is assigned to."""
    assert isinstance(halved.func, ast.Attribute)
    result, method = halved, file.parent(halved)
    while isinstance(method, ast.Attribute) and isinstance(call := file.parent(method), ast.Call):
        if method.attr in ("float", "bfloat16"):
            return frozenset()
        result, method = call, file.parent(call)
    found = {path_of(halved.func.value)}
    if isinstance(method, ast.Assign) and method.value is result:
        found = {path_of(target) for target in method.targets}
    return frozenset(found - {"", "self"})


def _is_enabled_scaler(file: SourceFile, receiver: ast.expr) -> bool:
    made = scaler_origins(file, receiver)
    return bool(made) and not any(
        keyword.arg in ("enabled", None)
        and not (isinstance(keyword.value, ast.Constant) and keyword.value.value is True)
        for constructor in made
        for keyword in constructor.keywords
    )


def _holds_parameters(file: SourceFile, optimizer: ast.Call, paths: frozenset[str], halved: ast.Call) -> bool:
    """Whether an optimizer is made of the parameters of one of the modules, in the same function or class."""
    if file.values.enclosing_function(optimizer) is not file.values.enclosing_function(halved):
        return False
    for node in ast.walk(optimizer):
        if isinstance(node, ast.Attribute) and node.attr in ("parameters", "named_parameters"):
            return bool(roots(node.value) & paths)
    return False


def _runs_before(file: SourceFile, halved: ast.Call, step: ast.Call) -> bool:
    """Whether the halving runs whenever the step does: in no branch that the step isn't in, nor after it."""
    around = set()
    current: ast.AST | None = step
    while current is not None:
        around.add(current)
        current = file.parent(current)
    current = file.parent(halved)
    while current is not None and not isinstance(current, (ast.FunctionDef, ast.AsyncFunctionDef)):
        if isinstance(current, (ast.If, ast.IfExp, ast.Try, ast.Match)) and current not in around:
            return False
        current = file.parent(current)
    same = file.values.enclosing_function(halved) is file.values.enclosing_function(step)
    return not same or halved.lineno <= step.lineno


def _finding(file: SourceFile, halved: ast.Call, step: ast.Call) -> Finding:
    return Finding(
        "AMP401",
        file.span(halved),
        "float16 parameters make the scaler raise `Attempting to unscale FP16 gradients`; autocast wants float32",
        (Label(file.span(step), "their optimizer steps through the scaler here"),),
        Fix("Keep the parameters in float32", (_removal(file, halved),), Applicability.UNSAFE),
    )


def _removal(file: SourceFile, halved: ast.Call) -> Edit:
    assert isinstance(halved.func, ast.Attribute)
    module = halved.func.value
    statement = file.statement(halved)
    whole = isinstance(statement, (ast.Expr, ast.Assign)) and statement.value is halved
    same = isinstance(statement, ast.Assign) and [path_of(t) for t in statement.targets] == [path_of(module)]
    others = [*halved.args, *halved.keywords]
    if len(others) > 1:
        return _without_dtype(file, halved)
    if whole and path_of(module) and (same or isinstance(statement, ast.Expr)):
        return statements.delete_statement(file, statement)
    return Edit(Span(file.span(module).end, file.span(halved).end), "")


def _without_dtype(file: SourceFile, halved: ast.Call) -> Edit:
    """`x.to(device, torch.float16)` becomes `x.to(device)`."""
    kept: list[ast.expr | ast.keyword] = [a for a in halved.args if not set(file.resolve(a)) & _HALF]
    kept += [keyword for keyword in halved.keywords if not set(file.resolve(keyword.value)) & _HALF]
    assert isinstance(halved.func, ast.Attribute)
    start = file.span(halved.func).end
    return Edit(Span(start, file.span(halved).end), f"({', '.join(file.segment(argument) for argument in kept)})")
