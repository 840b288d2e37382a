"""AMP111: TorchScript drops the autocast decorator."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from amplint.facts.regions import Region
from amplint.facts.values import Function
from amplint.model import Finding, Label, Level
from amplint.rule import rule
from amplint.source import SourceFile

_SCRIPT = ("torch.jit.script", "torch.jit.script_method")


@rule("AMP111", "scripted-autocast", level=Level.WARNING, triggers=("autocast",))
def scripted_autocast(file: SourceFile) -> Iterator[Finding]:
    """
    `torch.jit.script` compiles the body of a function and drops its autocast decorator without a word: the eager
    function gives bfloat16, the scripted one float32. A `with` block inside the function is kept.

    ```python bad
    import torch


    class Net(torch.nn.Module):
        @torch.cuda.amp.autocast(dtype=torch.bfloat16)
        def forward(self, x):
            return x @ x


    scripted = torch.jit.script(Net())
    ```

    ```python good
    import torch


    class Net(torch.nn.Module):
        def forward(self, x):
            with torch.autocast("cuda", dtype=torch.bfloat16):
                return x @ x


    scripted = torch.jit.script(Net())
    ```
    """
    decorated = {region.node: region for region in file.regions.all if region.node is region.function}
    if not decorated:
        return
    for ref in file.refs:
        if not set(ref.candidates) & set(_SCRIPT) or not isinstance(ref.node, ast.expr):
            continue
        for function in _scripted(file, ref.node, ref.call):
            region = decorated.get(function)
            if region is not None:
                yield _finding(file, ref.call or ref.node, region)
                break


def _scripted(file: SourceFile, node: ast.expr, call: ast.Call | None) -> list[Function]:
    """The functions that a use of `torch.jit.script` compiles."""
    parent = file.parent(node)
    if isinstance(parent, (ast.FunctionDef, ast.AsyncFunctionDef)) and node in parent.decorator_list:
        return [parent]
    if call is None or not call.args:
        return []
    argument = call.args[0]
    found = [v for v in file.values.of(argument) if isinstance(v, (ast.FunctionDef, ast.AsyncFunctionDef))]
    for cls in file.values.constructed(argument):
        forward = file.values.method(cls, "forward") if isinstance(cls, ast.ClassDef) else None
        found += [forward] if forward is not None else []
    return found


def _finding(file: SourceFile, place: ast.expr, region: Region) -> Finding:
    return Finding(
        "AMP111",
        file.span(place),
        "scripting drops the autocast decorator: the scripted function runs in float32",
        (Label(file.span(region.expression), "this decorator is dropped"),),
        help="enter autocast with `with` inside the function",
    )
