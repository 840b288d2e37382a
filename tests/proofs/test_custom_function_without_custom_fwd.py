"""AMP108: an autograd.Function that autocast does not know of."""

from __future__ import annotations

import pytest

from amplint import check_source, fix_source
from amplint.settings import Settings

from .helpers import cpu, run, torch

ONLY = Settings(select=("AMP108",))
SNIPPET = """
import torch


class Project(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, w):
        ctx.save_for_backward(x, w)
        return x.mm(w)

    @staticmethod
    def backward(ctx, grad):
        x, w = ctx.saved_tensors
        return grad.mm(w.t()), x.t().mm(grad)


def compute(x, w):
    with torch.autocast("cuda", dtype=torch.float16):
        return Project.apply(x, w)
"""


def _backward(text: str) -> None:
    x, w = torch.randn(4, 4, requires_grad=True), torch.randn(4, 4, requires_grad=True)
    run(cpu(text))["compute"](x, w).float().sum().backward()
    assert x.grad is not None
    assert x.grad.dtype == torch.float32


def test_the_backward_raises_and_the_fix_removes_that() -> None:
    assert [d.location.row for d in check_source(SNIPPET, "t.py", ONLY)] == [19]
    with pytest.raises(RuntimeError, match="same dtype"):
        _backward(SNIPPET)
    _backward(fix_source(SNIPPET, "t.py", ONLY, unsafe=True).text)


def test_custom_bwd_alone_raises() -> None:
    alone = SNIPPET.replace("    def backward", '    @torch.amp.custom_bwd(device_type="cuda")\n    def backward')
    with pytest.raises(AttributeError, match="_fwd_used_autocast"):
        _backward(alone)
    _backward(fix_source(alone, "t.py", ONLY, unsafe=True).text)
