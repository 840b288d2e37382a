"""AMP401: float16 parameters whose optimizer goes through a scaler."""

from __future__ import annotations

import pytest

from amplint import check_source, fix_source
from amplint.settings import Settings

from .helpers import cpu, problem, run, torch

ONLY = Settings(select=("AMP401",))
SNIPPET = """
import torch


def train(model, x, y):
    model = model.half()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("cuda")
    with torch.autocast("cuda", dtype=torch.float16):
        loss = (model(x).float() - y).pow(2).mean()
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
"""


def test_the_step_raises_and_the_fix_removes_that() -> None:
    assert [d.location.row for d in check_source(SNIPPET, "t.py", ONLY)] == [6]
    with pytest.raises(ValueError, match="Attempting to unscale FP16 gradients"):
        run(cpu(SNIPPET))["train"](*problem())
    run(cpu(fix_source(SNIPPET, "t.py", ONLY, unsafe=True).text))["train"](*problem())


def test_a_fused_optimizer_trains_in_float16() -> None:
    fused = cpu(SNIPPET).replace("SGD(model.parameters(), lr=0.1)", "AdamW(model.parameters(), fused=True)")
    model, x, y = problem()
    run(fused)["train"](model, x, y)
    assert model[0].weight.grad.dtype == torch.float16


def test_small_updates_are_lost_in_float16() -> None:
    half, full = torch.ones(1, dtype=torch.float16), torch.ones(1)
    for _ in range(1000):
        half -= 1e-4
        full -= 1e-4
    assert half.item() == 1.0
    assert full.item() == pytest.approx(0.9, abs=1e-3)
