"""AMP402: a loss scale for a dtype that has the range of float32."""

from __future__ import annotations

from typing import Any

from amplint import check_source, fix_source
from amplint.settings import Settings

from .helpers import cpu, problem, run, torch

ONLY = Settings(select=("AMP402",))
SNIPPET = """
import torch


def train(model, x, y, steps):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("cuda")
    for _ in range(steps):
        optimizer.zero_grad()
        with torch.autocast("cuda", dtype=torch.bfloat16):
            loss = (model(x) - y).pow(2).mean()
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
"""


def _weights(text: str) -> Any:
    model, x, y = problem()
    run(cpu(text))["train"](model, x, y, 50)
    return torch.cat([parameter.detach().reshape(-1) for parameter in model.parameters()])


def test_without_the_scaler_the_weights_are_bitwise_the_same() -> None:
    assert [d.location.row for d in check_source(SNIPPET, "t.py", ONLY)] == [7]
    after = fix_source(SNIPPET, "t.py", ONLY, unsafe=True).text
    assert "scaler" not in after
    assert torch.equal(_weights(SNIPPET), _weights(after))
