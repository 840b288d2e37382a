"""AMP105: a region that switches autocast off works on half-precision inputs."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from amplint.facts.contexts import OFF
from amplint.facts.precision import Lowered, LoweredByFunction
from amplint.facts.regions import Region
from amplint.facts.training import is_model_call, is_unknown_loss, losses
from amplint.facts.values import path_of
from amplint.model import Applicability, Edit, Finding, Fix, Label, Level, Span
from amplint.rule import rule
from amplint.source import SourceFile

_MATHS = frozenset(
    (
        "cumprod", "cumsum", "div", "exp", "expm1", "log", "log10", "log1p", "log2", "log_softmax", "logsumexp", "mean",
        "mul", "norm", "pow", "prod", "rsqrt", "softmax", "sqrt", "square", "std", "sum", "var", "matmul", "mm", "bmm",
        "einsum",
    )
)  # fmt: skip
"""Operations whose half-precision result is wrong where the float32 one isn't (they overflow or lose digits)."""


@rule("AMP105", "fp32-island-without-cast", level=Level.WARNING, fix=Applicability.UNSAFE, triggers=("autocast",))
def fp32_island_without_cast(file: SourceFile) -> Iterator[Finding]:
    """
    `autocast(enabled=False)` stops casting, but tensors from a region before or around it stay in half precision: the
    square of 300 is inf there instead of 90000, and a layer with float32 weights raises. The inputs must be cast with
    `.float()`.

    ```python bad
    import torch
    import torch.nn.functional as F


    def compute_loss(model, x, y):
        with torch.autocast("cuda", dtype=torch.float16):
            logits = model(x)
            with torch.autocast("cuda", enabled=False):
                loss = F.cross_entropy(logits, y)
        return loss
    ```

    ```python good
    import torch
    import torch.nn.functional as F


    def compute_loss(model, x, y):
        with torch.autocast("cuda", dtype=torch.float16):
            logits = model(x)
            with torch.autocast("cuda", enabled=False):
                loss = F.cross_entropy(logits.float(), y)
        return loss
    ```

    Only outputs of models are known to be half precision; what comes in through a parameter is not judged, nor is what
    goes to a function that may cast it itself. The fix is unsafe since it can't see the dtype that the model returns.
    """
    by_function = LoweredByFunction(file)
    seen: set[tuple[Region, str]] = set()
    for region in file.regions.all:
        if region.enabled != OFF:
            continue
        lowered = by_function[region.function]
        for node in lowered.nodes:
            for use in _inputs(file, node):
                if file.regions.at(use) is not region or (region, path_of(use)) in seen:
                    continue
                source = lowered.behind(use)
                if source is not None:
                    seen.add((region, path_of(use)))
                    yield _finding(file, use, source, region)


def _inputs(file: SourceFile, node: ast.AST) -> list[ast.expr]:
    """The operands of a node that computes with the dtype that they have."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Pow):
        return [node.left]
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult) and path_of(node.left) == path_of(node.right):
        return [node.left]
    if not isinstance(node, ast.Call):
        return []
    if losses(file, node) or is_unknown_loss(file, node) or is_model_call(file, node):
        return [argument for argument in node.args[:2] if not isinstance(argument, ast.Starred)]
    names = file.resolve(node.func)
    if names and all(name.startswith("torch.") and name.rsplit(".", 1)[-1] in _MATHS for name in names):
        return [argument for argument in node.args[:2] if not isinstance(argument, ast.Starred)]
    if isinstance(node.func, ast.Attribute) and node.func.attr in _MATHS and not names:
        return [node.func.value]
    return []


def _finding(file: SourceFile, use: ast.expr, source: Lowered, region: Region) -> Finding:
    end = file.span(use).end
    fix = Fix("Cast the input to float32", (Edit(Span(end, end), ".float()"),), Applicability.UNSAFE)
    return Finding(
        "AMP105",
        file.span(use),
        f"`{file.segment(use)}` is still half precision where autocast is switched off: 300 squared is inf there",
        (
            Label(file.span(source.call), "computed in half precision here"),
            Label(file.span(region.expression), "autocast is switched off here, inputs keep their dtype"),
        ),
        fix,
    )
