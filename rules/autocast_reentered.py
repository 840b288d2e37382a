"""AMP107: one autocast object is entered again while it is active."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from amplint.facts.contexts import OFF
from amplint.facts.regions import Region
from amplint.facts.values import is_self
from amplint.model import Applicability, Edit, Finding, Fix, Label, Level
from amplint.rule import rule
from amplint.source import SourceFile


@rule("AMP107", "autocast-reentered", level=Level.WARNING, fix=Applicability.SAFE, triggers=("autocast",))
def autocast_reentered(file: SourceFile) -> Iterator[Finding]:
    """
    An autocast object remembers one previous state. Entered again while it is active, it forgets the first one and
    leaves autocast on for the rest of the thread: a matmul far away becomes float16. That happens with a context in a
    variable or attribute, and with a decorated function that calls itself.

    ```python bad
    import torch

    ctx = torch.autocast("cuda", dtype=torch.float16)


    def step(model, x):
        with ctx:
            hidden = model(x)
            with ctx:
                return hidden @ hidden.T
    ```

    ```python good
    import torch

    ctx = torch.autocast("cuda", dtype=torch.float16)


    def step(model, x):
        with ctx:
            hidden = model(x)
            with torch.autocast("cuda", dtype=torch.float16):
                return hidden @ hidden.T
    ```

    Using one object several times in a row is fine. A module that is decorated on `forward` and holds a module of the
    same class re-enters too; write the region inside the function there.
    """
    for region in file.regions.all:
        if region.enabled == OFF or not region.certain:
            continue
        if isinstance(region.node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            yield from _decorated(file, region)
        elif isinstance(region.expression, (ast.Name, ast.Attribute)):
            yield from _held(file, region)


def _decorated(file: SourceFile, region: Region) -> Iterator[Finding]:
    assert region.function is not None
    for outer, call in file.regions.callers(region.function):
        if outer is region:
            yield Finding(
                "AMP107",
                file.span(region.expression),
                "this decorator holds one autocast object, and the function runs inside itself: autocast stays on "
                "afterwards",
                (Label(file.span(call), "called again here"),),
                help="enter a new torch.autocast(...) with `with` inside the function",
            )
            return


def _held(file: SourceFile, region: Region) -> Iterator[Finding]:
    around = region.outer
    while around is not None:
        if _same_object(around, region):
            yield _finding(file, region, (Label(file.span(around.expression), "entered first here"),))
            return
        around = around.outer
    if region.function is None or region.outer is not None:
        return
    for outer, call in file.regions.callers(region.function):
        own = isinstance(call.func, ast.Attribute) and is_self(call.func.value)
        if _same_object(outer, region) and (own or isinstance(region.expression, ast.Name)):
            labels = (
                Label(file.span(outer.expression), "entered first here"),
                Label(file.span(call), "called inside that region here"),
            )
            yield _finding(file, region, labels)
            return


def _same_object(first: Region, second: Region) -> bool:
    held = isinstance(first.expression, (ast.Name, ast.Attribute))
    return held and first.certain and first.autocasts[0].call is second.autocasts[0].call


def _finding(file: SourceFile, region: Region, labels: tuple[Label, ...]) -> Finding:
    return Finding(
        "AMP107",
        file.span(region.expression),
        "this autocast object is active already: entered twice it leaves autocast on for the rest of the thread",
        labels,
        _fix(file, region),
    )


def _fix(file: SourceFile, region: Region) -> Fix | None:
    """Make a new object in place; only where its arguments mean the same here."""
    call = region.autocasts[0].call
    given = [*call.args, *(keyword.value for keyword in call.keywords)]
    if not all(isinstance(value, ast.Constant) or _is_of_torch(file, value) for value in given):
        return None
    if not _is_of_torch(file, call.func):
        return None
    return Fix(
        "Enter a new autocast object", (Edit(file.span(region.expression), file.segment(call)),), Applicability.SAFE
    )


def _is_of_torch(file: SourceFile, node: ast.expr) -> bool:
    """Whether an expression is a name of torch that the whole module knows."""
    root = node
    while isinstance(root, ast.Attribute):
        root = root.value
    names = file.resolve(node)
    known = isinstance(root, ast.Name) and root.id in file.names.module.bindings
    return known and len(names) == 1 and names[0].startswith("torch.")
