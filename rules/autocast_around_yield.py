"""AMP109: a generator is suspended inside an autocast region."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from amplint.facts.contexts import ON, is_context_manager
from amplint.facts.regions import Region
from amplint.facts.values import Function, inside
from amplint.model import Finding, Label, Level
from amplint.rule import rule
from amplint.source import SourceFile


@rule("AMP109", "autocast-around-yield", level=Level.WARNING, triggers=("autocast",))
def autocast_around_yield(file: SourceFile) -> Iterator[Finding]:
    """
    Autocast belongs to the thread, not to the function: while a generator is suspended inside its region, the code that
    consumes it runs under autocast, and two such generators that are closed in the order in which they were opened
    leave it on. `@torch.autocast(...)` on a generator function does nothing: its body runs in float32.

    ```python bad
    import torch


    def predictions(model, loader):
        with torch.autocast("cuda", dtype=torch.float16):
            for x in loader:
                yield model(x)
    ```

    ```python good
    import torch


    def predictions(model, loader):
        for x in loader:
            with torch.autocast("cuda", dtype=torch.float16):
                out = model(x)
            yield out
    ```

    Context managers made with `contextlib.contextmanager` and fixtures are meant to work like that and stay silent, and
    so do regions with a flag.
    """
    for region in file.regions.all:
        if region.function is None or not all(entry.enabled == ON for entry in region.autocasts):
            continue
        if not region.certain or is_context_manager(file, region.function):
            continue
        finding = _finding(file, region, region.function)
        if finding is not None:
            yield finding


def _finding(file: SourceFile, region: Region, function: Function) -> Finding | None:
    yields = sorted(
        (node for node in inside(function) if isinstance(node, (ast.Yield, ast.YieldFrom))),
        key=lambda node: (node.lineno, node.col_offset),
    )
    if region.node is function:
        if not yields:
            return None
        message = "autocast on a generator function has no effect: its body runs later, in float32"
        return Finding("AMP109", file.span(region.expression), message, (Label(file.span(yields[0]), "yields here"),))
    for node in yields:
        if file.regions.at(node) is region:
            message = "the generator is suspended inside the region, so autocast stays on in the code that consumes it"
            return Finding("AMP109", file.span(node), message, (Label(file.span(region.expression), "the region"),))
    return None
