"""AMP106: the weight cache of a forward without gradients serves a forward with them."""

from __future__ import annotations

from amplint import check_source, fix_source
from amplint.settings import Settings

from .helpers import TORCH, cpu, run, torch

OLD = Settings(select=("AMP106",), target_torch=(2, 10))
SNIPPET = """
import torch


def compute_loss(model, x):
    with torch.autocast("cuda", dtype=torch.bfloat16):
        with torch.no_grad():
            target = model(x)
        return (model(x) - target - 1).float().pow(2).sum()
"""


def _without_gradient(text: str) -> list[str]:
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.LayerNorm(4), torch.nn.Linear(4, 4))
    run(cpu(text))["compute_loss"](model, torch.randn(8, 4)).backward()
    return [name for name, parameter in model.named_parameters() if parameter.grad is None]


def test_weights_lose_their_gradient_up_to_2_10_only() -> None:
    assert [d.location.row for d in check_source(SNIPPET, "t.py", OLD)] == [9]
    lost = _without_gradient(SNIPPET)
    assert ("0.weight" in lost) == (TORCH < (2, 11))
    assert _without_gradient(fix_source(SNIPPET, "t.py", OLD, unsafe=True).text) == []
