"""AMP113: the compiled backward of a float32 island runs under the outer autocast."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from amplint.facts.contexts import OFF
from amplint.facts.regions import Region
from amplint.facts.values import Function
from amplint.model import Finding, Label, Level
from amplint.rule import rule
from amplint.source import SourceFile

_COMPILE = "torch.compile"


@rule("AMP113", "compiled-backward-autocast", level=Level.INFO, default=False, triggers=("autocast",))
def compiled_backward_autocast(file: SourceFile) -> Iterator[Finding]:
    """
    The backward of a compiled function runs under the autocast that was active around its forward, also where an
    island inside switched it off: a gradient norm of 271064 in eager mode is inf when compiled. Autocast inside the
    compiled function is right in both.

    ```python bad
    import torch


    @torch.compile
    def block(x, w):
        with torch.autocast("cuda", enabled=False):
            return x.float() @ w


    def forward(x, w):
        with torch.autocast("cuda", dtype=torch.float16):
            return block(x, w)
    ```

    ```python good
    import torch


    @torch.compile
    def block(x, w):
        with torch.autocast("cuda", dtype=torch.float16):
            hidden = x @ w
            with torch.autocast("cuda", enabled=False):
                return hidden.float() @ w


    def forward(x, w):
        return block(x, w)
    ```

    Off by default: it matters only where the island's gradients leave the range of half precision.
    `torch._functorch.config.backward_pass_autocast = "off"` is the other way out.
    """
    islands: dict[Function, Region] = {}
    for region in file.regions.all:
        if region.enabled == OFF and region.function is not None:
            islands.setdefault(region.function, region)
    if not islands:
        return
    for call in file.names.calls:
        outer = next((region for region, _ in file.regions.active(call) if region.enabled != OFF), None)
        island = next((islands[f] for f in _compiled(file, call) if f in islands), None) if outer is not None else None
        if outer is not None and island is not None:
            yield Finding(
                "AMP113",
                file.span(call),
                "the compiled backward runs under the outer autocast, the float32 island inside as well",
                (
                    Label(file.span(outer.expression), "the outer region"),
                    Label(file.span(island.expression), "the island"),
                ),
            )


def _compiled(file: SourceFile, call: ast.Call) -> list[Function]:
    """The functions of this file that a call runs in compiled form, those of the same class included."""
    found = [f for f in file.values.functions(call) if any(_names_compile(file, d) for d in f.decorator_list)]
    for value in file.values.of(call.func):
        if isinstance(value, ast.Call) and _names_compile(file, value) and value.args:
            inner = file.values.of(value.args[0])
            found += [entry for entry in inner if isinstance(entry, (ast.FunctionDef, ast.AsyncFunctionDef))]
    made = file.values.constructed(call.func)
    if _COMPILE in made:
        for cls in made:
            if isinstance(cls, ast.ClassDef):
                found += [entry for entry in cls.body if isinstance(entry, (ast.FunctionDef, ast.AsyncFunctionDef))]
    return found


def _names_compile(file: SourceFile, node: ast.expr) -> bool:
    return _COMPILE in file.resolve(node.func if isinstance(node, ast.Call) else node)
