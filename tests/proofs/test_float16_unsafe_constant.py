"""AMP405: constants that float16 can't hold."""

from __future__ import annotations

import pytest

from amplint import check_source, fix_source
from amplint.settings import Settings

from .helpers import cpu, region, run, torch

ONLY = Settings(select=("AMP405",))
SNIPPET = """
import torch


def attention(q, k, mask):
    with torch.autocast("cuda", dtype=torch.float16):
        scores = q @ k.t()
        return scores.masked_fill(mask, -1e9).softmax(-1)
"""


def test_the_fill_raises_and_the_fix_removes_that() -> None:
    q, mask = torch.randn(4, 4), torch.ones(4, 4).triu(1).bool()
    assert [d.location.row for d in check_source(SNIPPET, "t.py", ONLY)] == [8]
    with pytest.raises(RuntimeError, match="without overflow"):
        run(cpu(SNIPPET))["attention"](q, q, mask)
    weights = run(cpu(fix_source(SNIPPET, "t.py", ONLY, unsafe=True).text))["attention"](q, q, mask)
    assert weights[mask].abs().max().item() == 0.0
    assert bool(torch.isfinite(weights).all())


def test_where_and_a_small_constant_are_silent() -> None:
    with region():
        half = torch.ones(2, 2) @ torch.zeros(2, 2)
        assert torch.where(torch.zeros(2, 2).bool(), half, -1e9).min().item() == float("-inf")
        assert torch.log(half + 1e-8).min().item() == float("-inf")
        assert torch.log(half + 1e-6).min().item() > -14


def test_bfloat16_holds_it() -> None:
    with region(torch.bfloat16):
        scores = torch.ones(2, 2) @ torch.ones(2, 2)
        assert scores.masked_fill(torch.ones(2, 2).bool(), -1e9).max().item() < -9e8
