"""AMP113: the compiled backward of a float32 island runs under the outer autocast."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .helpers import region, torch


def _island(h: Any, w: Any) -> Any:
    with torch.autocast("cpu", enabled=False):
        return (h.float() @ w) * 300.0


def _gradient_norm(function: Callable[[Any, Any], Any]) -> float:
    torch.manual_seed(0)
    w, h = torch.nn.Parameter(torch.randn(8, 8)), torch.randn(4, 8)
    with region():
        out = function(h, w)
    (out**2).mean().backward()
    assert w.grad is not None
    norm: float = w.grad.norm().item()
    return norm


def test_the_gradient_overflows_only_when_compiled() -> None:
    torch._dynamo.reset()
    assert 1e5 < _gradient_norm(_island) < 1e6
    assert _gradient_norm(torch.compile(_island, backend="aot_eager")) == float("inf")
