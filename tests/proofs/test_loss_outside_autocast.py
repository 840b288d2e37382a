"""AMP103: losses on half-precision outputs."""

from __future__ import annotations

from amplint import check_source, fix_source
from amplint.settings import Settings

from .helpers import cpu, problem, region, run, scaler, torch

ONLY = Settings(select=("AMP103",))
SNIPPET = """
import torch
import torch.nn.functional as F


def compute_loss(model, x, y):
    with torch.autocast("cuda", dtype=torch.float16):
        logits = model(x)
    return F.cross_entropy(logits, y)
"""


def _error(text: str) -> float:
    torch.manual_seed(0)
    logits, y = torch.randn(512, 10) * 3, torch.randint(0, 10, (512,))
    model = torch.nn.Linear(10, 10, bias=False)
    model.weight.data = torch.eye(10)
    right = torch.nn.functional.cross_entropy(logits.half().double(), y).item()
    with torch.no_grad():
        loss = run(cpu(text))["compute_loss"](model, logits, y)
    error: float = abs(loss.item() - right) / right
    return error


def test_the_fix_removes_the_error() -> None:
    assert [d.location.row for d in check_source(SNIPPET, "t.py", ONLY)] == [9]
    after = fix_source(SNIPPET, "t.py", ONLY, unsafe=True).text
    assert _error(SNIPPET) > 5e-4
    assert _error(after) < 1e-6


def test_a_confident_row_gives_zero() -> None:
    row, target = torch.tensor([[12.0, 0.0, 0.0]]), torch.tensor([0])
    assert torch.nn.functional.cross_entropy(row.half(), target).item() == 0.0
    assert torch.nn.functional.cross_entropy(row.half().float(), target).item() > 1e-5


def test_two_half_tensors_overflow_and_a_float32_target_promotes() -> None:
    out, zero = torch.full((4, 1), 300.0).half(), torch.zeros(4, 1)
    assert torch.nn.functional.mse_loss(out, zero.half()).item() == float("inf")
    assert torch.nn.functional.mse_loss(out, zero).item() == 90000.0


def test_a_half_loss_wastes_the_first_step() -> None:
    model, x, y = problem()
    optimizer, amp = torch.optim.SGD(model.parameters(), lr=0.01), scaler()
    with region():
        out = model(x)
    amp.scale(torch.nn.functional.mse_loss(out, y.half())).backward()
    amp.step(optimizer)
    amp.update()
    assert amp.get_scale() == 32768.0
