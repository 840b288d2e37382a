"""AMP503: the schedule goes on although the scaler may have skipped the step."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from amplint.facts.training import is_scaler
from amplint.facts.values import path_of
from amplint.model import Finding, Label, Level
from amplint.rule import rule
from amplint.source import SourceFile

_SCHEDULER = re.compile(r"sched|(?:^|[._])lr_?(?:$|s)|warmup", re.IGNORECASE)


@rule(
    "AMP503",
    "scheduler-on-skipped-step",
    level=Level.INFO,
    default=False,
    triggers=("GradScaler", "scaler"),
)
def scheduler_on_skipped_step(file: SourceFile) -> Iterator[Finding]:
    """
    `scaler.step` skips the optimizer's step when a gradient is infinite, and `scheduler.step()` in the same iteration
    advances all the same: the schedule runs ahead by the number of skipped steps. Harmless in most runs, so this rule
    is off by default; it matters for short warm-ups.

    ```python bad
    import torch


    def train(model, loader, optimizer, scheduler):
        scaler = torch.amp.GradScaler("cuda")
        for x in loader:
            optimizer.zero_grad()
            with torch.autocast("cuda", dtype=torch.float16):
                loss = model(x).mean()
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
            scheduler.step()
    ```

    ```python good
    import torch


    def train(model, loader, optimizer, scheduler):
        scaler = torch.amp.GradScaler("cuda")
        for x in loader:
            optimizer.zero_grad()
            with torch.autocast("cuda", dtype=torch.float16):
                loss = model(x).mean()
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scale = scaler.get_scale()
            scaler.update()
            if scale <= scaler.get_scale():
                scheduler.step()
    ```
    """
    steps = [call for use in file.names.attributes.get("step", ()) if isinstance(call := file.parent(use), ast.Call)]
    scaled = [call for call in steps if isinstance(call.func, ast.Attribute) and is_scaler(file, call.func.value)]
    for call in steps:
        if not isinstance(call.func, ast.Attribute) or not _SCHEDULER.search(path_of(call.func.value)):
            continue
        loop = file.enclosing(call, ast.For, ast.AsyncFor, ast.While)
        for step in scaled:
            same = file.enclosing(step, ast.For, ast.AsyncFor, ast.While) is loop
            if loop is not None and same and not _asks_for_the_scale(file, call, loop):
                label = Label(file.span(step), "this step may be skipped")
                message = "the schedule advances although the scaler may have skipped the step"
                yield Finding("AMP503", file.span(call), message, (label,))
                break


def _asks_for_the_scale(file: SourceFile, call: ast.Call, loop: ast.AST) -> bool:
    """Whether the call stands under a test, within the loop, in a function that reads the scale."""
    tested = False
    current = file.parent(call)
    while current is not None and current is not loop:
        tested = tested or isinstance(current, ast.If)
        current = file.parent(current)
    return tested and any(isinstance(n, ast.Attribute) and n.attr == "get_scale" for n in ast.walk(loop))
