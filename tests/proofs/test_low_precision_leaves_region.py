"""AMP406: a half-precision output meets something that rejects it."""

from __future__ import annotations

import pytest

from amplint import check_source, fix_source
from amplint.settings import Settings

from .helpers import cpu, region, run, torch

ONLY = Settings(select=("AMP406",))
SNIPPET = """
import torch


@torch.no_grad()
def predict(model, x):
    with torch.autocast("cuda", dtype=torch.bfloat16):
        out = model(x)
    return out.cpu().numpy()
"""


def test_numpy_rejects_bfloat16_and_the_fix_removes_that() -> None:
    model, x = torch.nn.Linear(4, 4), torch.ones(2, 4)
    assert [d.location.row for d in check_source(SNIPPET, "t.py", ONLY)] == [9]
    with pytest.raises(TypeError, match="BFloat16"):
        run(cpu(SNIPPET))["predict"](model, x)
    assert run(cpu(fix_source(SNIPPET, "t.py", ONLY).text))["predict"](model, x).dtype.name == "float32"


def test_layers_and_buffers_reject_half() -> None:
    layer = torch.nn.Linear(4, 4)
    with torch.no_grad(), region():
        out = layer(torch.ones(4, 4))
    with pytest.raises(RuntimeError, match="same dtype"):
        layer(out)
    buffer, index = torch.zeros(4, 4), torch.arange(4)
    with pytest.raises(RuntimeError, match="same scalar type"):
        buffer.index_add_(0, index, out)
    assert layer(out.float()).dtype == buffer.index_add_(0, index, out.float()).dtype == torch.float32


def test_numpy_has_float16() -> None:
    with torch.no_grad(), region():
        out = torch.nn.Linear(4, 4)(torch.ones(4, 4))
    assert out.numpy().dtype.name == "float16"
