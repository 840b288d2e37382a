"""What the autograd graph tells: whether a loss was scaled, and in which precision its matrix products ran."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    import torch

MARK = "amplint.scaler"
"""The key under which `scale()`'s result carries its scaler, in the metadata of its node (torch 1.6 and newer)."""

_NEAR = 1000
"""How many nodes are looked at for a scaled part of a loss that is not scaled itself."""
_FAR = 20000

_PRODUCTS = (
    *("AddmmBackward", "MmBackward", "MvBackward", "BmmBackward", "BaddbmmBackward", "LinearBackward"),
    *("ConvolutionBackward", "MkldnnConvolutionBackward", "CudnnConvolutionBackward", "ThnnConv2DBackward"),
    *("ScaledDotProduct", "MkldnnRnnLayerBackward", "CudnnRnnBackward"),
)
_LOW = ("torch.float16", "torch.bfloat16")


class Root(NamedTuple):
    """What a backward starts from: `scaled` by `scaler`, `plain`, `mixed` or `unknown`."""

    kind: str
    scaler: Any


def mark(outputs: Any, scaler: object) -> None:
    """Note on the results of `scale()` which scaler made them."""
    grad_fn = getattr(outputs, "grad_fn", None)
    if grad_fn is not None:
        grad_fn.metadata[MARK] = scaler
    elif isinstance(outputs, (list, tuple)):
        for output in outputs:
            mark(output, scaler)


def classify(roots: list[torch.Tensor], scales: Callable[[], list[float]], explicit: bool) -> Root:
    """Whether the tensors that a backward starts from were scaled.

    `scales` gives the scales of all scalers: a loss multiplied by one of them by hand is not plain but unknown.
    `explicit`: gradients came with the tensors, which may carry a scale themselves.
    """
    nodes: list[Any] = [root.grad_fn for root in roots]
    first = [node.metadata.get(MARK) for node in nodes if node is not None]
    if first and all(scaler is not None and scaler is first[0] for scaler in first):
        return Root("scaled", first[0])
    scaler, plain, by_hand = _search([node for node in nodes if node is not None], scales())
    if by_hand or (explicit and scaler is None):
        return Root("unknown", scaler)
    if scaler is None:
        return Root("plain", None)
    return Root("mixed" if plain else "scaled", scaler)


def _search(nodes: list[Any], scales: list[float]) -> tuple[Any, bool, bool]:
    """The scaler of a scaled part, whether a part is plain, whether one is scaled by hand."""
    todo = deque(nodes)
    seen = set(nodes)
    scaler = None
    plain = False
    while todo and len(seen) < (_NEAR if scaler is None else _FAR) and not (plain and scaler is not None):
        node = todo.popleft()
        found = node.metadata.get(MARK)
        if found is not None:
            scaler = found
            continue
        if "AccumulateGrad" in node.name():
            plain = True
        elif node.name() == "MulBackward0" and scales and _multiplies_by(node, scales):
            return scaler, plain, True
        for following, _ in node.next_functions:
            if following is not None and following not in seen:
                seen.add(following)
                todo.append(following)
    return scaler, plain, False


def _multiplies_by(node: Any, scales: list[float]) -> bool:
    for name in ("_saved_other", "_saved_self"):
        try:
            factor = getattr(node, name, None)
        except RuntimeError:  # freed by an earlier backward; torch will say so
            return False
        if factor is not None and factor.dim() == 0 and not factor.requires_grad and float(factor) in scales:
            return True
    return False


def low_precision_product(roots: Iterable[torch.Tensor]) -> bool | None:
    """Whether gradients flow through a matrix product in float16 or bfloat16; None if there is no product."""
    todo = [root.grad_fn for root in roots if root.grad_fn is not None]
    seen: set[Any] = set(todo)
    found: bool | None = None
    while todo and len(seen) < _FAR:
        node = todo.pop()
        if node.name().startswith(_PRODUCTS):
            metadata = getattr(node, "_input_metadata", None)  # torch 2.1
            if metadata:
                if str(metadata[0].dtype) in _LOW:
                    return True
                found = False
        for following, _ in node.next_functions:
            if following is not None and following not in seen:
                seen.add(following)
                todo.append(following)
    return found
