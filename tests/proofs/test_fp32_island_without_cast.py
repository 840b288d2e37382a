"""AMP105: a region that switches autocast off works on half-precision inputs."""

from __future__ import annotations

import pytest

from amplint import check_source, fix_source
from amplint.settings import Settings

from .helpers import cpu, region, run, torch

ONLY = Settings(select=("AMP105",))
SNIPPET = """
import torch


def energy(model, x):
    with torch.autocast("cuda", dtype=torch.float16):
        h = model(x)
        with torch.autocast("cuda", enabled=False):
            return (h ** 2).max()
"""


def _energy(text: str) -> float:
    model = torch.nn.Linear(1, 1, bias=False)
    model.weight.data.fill_(300.0)
    with torch.no_grad():
        value: float = run(cpu(text))["energy"](model, torch.ones(1, 1)).item()
    return value


def test_the_square_overflows_and_the_fix_removes_that() -> None:
    assert [d.location.row for d in check_source(SNIPPET, "t.py", ONLY)] == [9]
    assert _energy(SNIPPET) == float("inf")
    assert _energy(fix_source(SNIPPET, "t.py", ONLY, unsafe=True).text) == 90000.0


def test_a_layer_with_weights_raises() -> None:
    layer = torch.nn.Linear(8, 8)
    with region():
        h = layer(torch.ones(2, 8))
        with torch.autocast("cpu", enabled=False), pytest.raises(RuntimeError, match="same dtype"):
            layer(h)
        with torch.autocast("cpu", enabled=False):
            assert layer(h.float()).dtype == torch.float32
