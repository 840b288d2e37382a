"""AMP106: the weight cache of a forward without gradients serves a forward with them."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from amplint.calls.call_edits import Arguments
from amplint.facts.contexts import OFF
from amplint.facts.regions import Region
from amplint.facts.training import in_other_arm, is_model_call
from amplint.facts.values import path_of
from amplint.model import Applicability, Finding, Fix, Label, Level
from amplint.rule import rule
from amplint.source import SourceFile

_FIXED_IN = (2, 11)


@rule("AMP106", "no-grad-weight-cache", level=Level.ERROR, fix=Applicability.UNSAFE, triggers=("autocast",))
def no_grad_weight_cache(file: SourceFile) -> Iterator[Finding]:
    """
    Up to torch 2.10 an autocast region keeps the half-precision copies of the weights that a forward under `no_grad`
    made, and serves them to a later forward with gradients: Linear and Conv weights get no gradient at all, or backward
    raises. Torch 2.11 keeps the two apart.

    ```python bad
    import torch


    def compute_loss(model, x, y):
        with torch.autocast("cuda", dtype=torch.float16):
            with torch.no_grad():
                teacher = model(x)
            student = model(x)
            return (student - teacher - y).pow(2).mean()
    ```

    ```python good
    import torch


    def compute_loss(model, x, y):
        with torch.autocast("cuda", dtype=torch.float16, cache_enabled=False):
            with torch.no_grad():
                teacher = model(x)
            student = model(x)
            return (student - teacher - y).pow(2).mean()
    ```

    Two regions, or `torch.clear_autocast_cache()` between the forwards, help as well and keep the cache. Silent where
    `target-torch` is 2.11 or newer; without a known floor it is a warning.
    """
    floor = file.settings.target_torch
    if floor is not None and floor >= _FIXED_IN:
        return
    for region in file.regions.all:
        if region.enabled == OFF or not all(entry.cached for entry in region.autocasts):
            continue
        pair = _pair(file, region)
        if pair is not None:
            yield _finding(file, region, *pair, Level.ERROR if floor is not None else Level.WARNING)


def _pair(file: SourceFile, region: Region) -> tuple[ast.Call, ast.Call] | None:
    """The first call with gradients of a model that ran without them before, in the same region."""
    cached: dict[str, ast.Call] = {}
    for node in file.values.body(region.function):
        if not isinstance(node, ast.Call) or file.regions.at(node) is not region:
            continue
        if "torch.clear_autocast_cache" in file.resolve(node.func):
            cached.clear()
        path = path_of(node.func)
        if not path or not is_model_call(file, node):
            continue
        if file.regions.without_grad(node):
            cached.setdefault(path, node)
        elif path in cached and not in_other_arm(file, cached[path], node):
            return cached[path], node
        else:
            cached.pop(path, None)
    return None


def _finding(file: SourceFile, region: Region, first: ast.Call, second: ast.Call, level: Level) -> Finding:
    autocast = region.autocasts[0]
    fix = None
    if len(region.autocasts) == 1 and region.inline and autocast.valid:
        edits = tuple(Arguments(file, autocast.call).append("cache_enabled=False"))
        fix = Fix("Switch the weight cache of this region off", edits, Applicability.UNSAFE)
    return Finding(
        "AMP106",
        file.span(second),
        f"`{path_of(second.func)}` ran without gradients in this region before: up to torch 2.10 its cached weights "
        "get no gradient here",
        (
            Label(file.span(region.expression), "one region holds both calls"),
            Label(file.span(first), "first called without gradients here"),
        ),
        fix,
        level,
    )
