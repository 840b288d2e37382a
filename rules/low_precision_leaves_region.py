"""AMP406: a half-precision output meets something that rejects it."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from amplint.facts.precision import Lowered, LoweredByFunction
from amplint.facts.training import source_of
from amplint.facts.values import path_of
from amplint.model import Applicability, Edit, Finding, Fix, Label, Level, Span
from amplint.rule import rule
from amplint.source import SourceFile

_ACCUMULATE = {"index_add_": 2, "scatter_add_": 2, "index_copy_": 2, "scatter_": 2}
_WEIGHTED = frozenset(
    f"torch.nn.{name}" for name in ("Linear", "Bilinear", "Conv1d", "Conv2d", "Conv3d", "LSTM", "GRU", "LayerNorm")
)
_ELEMENTWISE = frozenset(f"torch.{name}" for name in ("sigmoid", "softmax", "tanh", "relu", "exp", "clamp", "abs"))
"""Operations that keep the dtype of their input outside every region."""

_MAKERS = frozenset(f"torch.{name}" for name in ("zeros", "ones", "empty", "full"))


@rule("AMP406", "low-precision-leaves-region", level=Level.WARNING, fix=Applicability.SAFE, triggers=("autocast",))
def low_precision_leaves_region(file: SourceFile) -> Iterator[Finding]:
    """
    What leaves a region is half precision, and not everything takes it: `.numpy()` on bfloat16 raises `Got unsupported
    ScalarType BFloat16`, a layer with float32 weights raises outside the region, and so do the in-place additions into
    a float32 buffer.

    ```python bad
    import torch


    @torch.no_grad()
    def predict(model, x):
        with torch.autocast("cuda", dtype=torch.bfloat16):
            out = model(x)
        return out.cpu().numpy()
    ```

    ```python good
    import torch


    @torch.no_grad()
    def predict(model, x):
        with torch.autocast("cuda", dtype=torch.bfloat16):
            out = model(x)
        return out.float().cpu().numpy()
    ```

    NumPy has float16, so only bfloat16 is reported there. Arithmetic with float32 tensors is promoted and silent.
    """
    by_function = LoweredByFunction(file)
    for call in file.names.calls:
        use = _numpy(file, call) or _accumulated(file, call) or _layer_input(file, call)
        if use is None:
            continue
        function = file.values.enclosing_function(call)
        lowered = by_function[function]
        source = lowered.behind(use)
        if source is None or (_numpy(file, call) is not None and source.region.dtypes != {"bfloat16"}):
            continue
        yield _finding(file, call, use, source)


def _numpy(file: SourceFile, call: ast.Call) -> ast.expr | None:
    """The tensor of `x.numpy()`, `x.detach().cpu().numpy()` and `torch.sigmoid(x).numpy()`."""
    if not isinstance(call.func, ast.Attribute) or call.func.attr != "numpy" or call.args:
        return None
    node = source_of(call.func.value)
    while isinstance(node, ast.Call) and not file.regions.active(node):
        names = file.resolve(node.func)
        if names and names[0] in _ELEMENTWISE and node.args:
            node = source_of(node.args[0])
        elif not names and isinstance(node.func, ast.Attribute) and f"torch.{node.func.attr}" in _ELEMENTWISE:
            node = source_of(node.func.value)
        else:
            break
    return node


def _accumulated(file: SourceFile, call: ast.Call) -> ast.expr | None:
    """The source of `buffer.index_add_(dim, index, source)` on a buffer that is made as float32 in view."""
    if not isinstance(call.func, ast.Attribute) or call.func.attr not in _ACCUMULATE:
        return None
    position = _ACCUMULATE[call.func.attr]
    for value in file.values.of(call.func.value):
        if not isinstance(value, ast.Call) or not set(file.resolve(value.func)) & _MAKERS:
            return None
        if any(keyword.arg in ("dtype", None) for keyword in value.keywords):
            return None
    return call.args[position] if len(call.args) > position else None


def _layer_input(file: SourceFile, call: ast.Call) -> ast.expr | None:
    """The input of a layer of torch that runs outside every region."""
    if len(call.args) != 1 or isinstance(call.args[0], ast.Starred) or file.resolve(call.func):
        return None
    made = file.values.constructed(call.func)
    if not made or not all(isinstance(name, str) and name in _WEIGHTED for name in made):
        return None
    return call.args[0] if not file.regions.active(call) else None


def _finding(file: SourceFile, call: ast.Call, use: ast.expr, source: Lowered) -> Finding:
    dtypes = sorted(source.region.dtypes)
    dtype = dtypes[0] if len(dtypes) == 1 else "half precision"
    reason = "NumPy has no bfloat16" if _numpy(file, call) is not None else "this operation wants float32"
    place = source.call if source_of(use) is source.call else _root(use)
    end = file.span(place).end
    return Finding(
        "AMP406",
        file.span(call),
        f"`{file.segment(place)}` left the region as {dtype}: {reason}",
        (
            Label(file.span(source.call), f"computed in {dtype} here"),
            Label(file.span(source.region.expression), "in this region"),
        ),
        Fix("Cast it to float32", (Edit(Span(end, end), ".float()"),), Applicability.SAFE),
    )


def _root(node: ast.expr) -> ast.expr:
    """The name at the start of a chain, where the cast goes."""
    while not path_of(node) and isinstance(node, (ast.Call, ast.Attribute, ast.Subscript)):
        node = node.func if isinstance(node, ast.Call) else node.value
        if isinstance(node, ast.Attribute):
            node = node.value
    return node
