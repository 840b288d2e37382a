"""AMP403: training under float16 autocast without a loss scale."""

from __future__ import annotations

from typing import Any

from amplint import check_source, fix_source
from amplint.settings import Settings

from .helpers import cpu, run, torch

ONLY = Settings(select=("AMP403",))
SNIPPET = """
import torch


def train(model, x, y, optimizer, steps):
    for _ in range(steps):
        optimizer.zero_grad()
        with torch.autocast("cuda", dtype=torch.float16):
            loss = (model(x) - y).pow(2).mean()
        loss.backward()
        optimizer.step()
    return loss.item()
"""
TARGETS = 1e-2


def _model() -> Any:
    torch.manual_seed(0)
    layers: list[Any] = []
    for _ in range(5):
        layers += [torch.nn.Linear(32, 32), torch.nn.Tanh()]
    model = torch.nn.Sequential(*layers, torch.nn.Linear(32, 1))
    with torch.no_grad():
        model[-1].weight.mul_(TARGETS)
        model[-1].bias.zero_()
    return model


def _train(text: str, steps: int) -> tuple[float, float]:
    """The share of gradients that are zero after the last step, and the loss relative to the targets."""
    model = _model()
    x = torch.randn(256, 32)
    y = torch.tanh(x[:, :1]) * TARGETS
    optimizer = torch.optim.Adam(
        [
            {"params": list(model[:-1].parameters()), "lr": 1e-3},
            {"params": list(model[-1].parameters()), "lr": 1e-3 * TARGETS},
        ],
        eps=1e-16,
    )
    loss = run(cpu(text))["train"](model, x, y, optimizer, steps)
    gradients = torch.cat([parameter.grad.reshape(-1) for parameter in model.parameters()])
    return (gradients == 0).float().mean().item(), loss / TARGETS**2


def test_gradients_vanish_and_the_fix_removes_that() -> None:
    assert [d.location.row for d in check_source(SNIPPET, "t.py", ONLY)] == [8]
    after = fix_source(SNIPPET, "t.py", ONLY, unsafe=True).text
    assert _train(SNIPPET, 1)[0] > 0.5
    assert _train(after, 1)[0] < 0.01
    assert _train(SNIPPET, 150)[1] > 3 * _train(after, 150)[1]
