"""AMP104: binary cross entropy on probabilities under autocast."""

from __future__ import annotations

import pytest

from amplint import check_source, fix_source
from amplint.settings import Settings

from .helpers import cpu, run, torch

ONLY = Settings(select=("AMP104",))
SNIPPET = """
import torch
import torch.nn.functional as F


def compute_loss(logits, y):
    with torch.autocast("cuda", dtype=torch.float16):
        return F.binary_cross_entropy(torch.sigmoid(logits), y)
"""


def _loss_and_gradient(text: str) -> tuple[float, float]:
    logits = torch.tensor([12.0, -12.0, 1.0]).half().requires_grad_()
    loss = run(cpu(text))["compute_loss"](logits, torch.tensor([0.0, 1.0, 1.0]))
    loss.backward()
    return loss.item(), logits.grad[0].item()


def test_on_the_cpu_the_loss_is_wrong_and_the_fix_rights_it() -> None:
    assert [d.location.row for d in check_source(SNIPPET, "t.py", ONLY)] == [8]
    loss, gradient = _loss_and_gradient(SNIPPET)
    assert loss > 37
    assert gradient != gradient
    after = fix_source(SNIPPET, "t.py", ONLY, unsafe=True).text
    loss, gradient = _loss_and_gradient(after)
    assert loss == pytest.approx(8.1044, abs=1e-3)
    assert gradient == pytest.approx(1 / 3, abs=1e-3)


def test_on_cuda_it_raises_even_for_float32() -> None:
    from torch._subclasses.fake_tensor import FakeTensorMode

    functional = torch.nn.functional
    with FakeTensorMode():
        probabilities, target = torch.rand(4, device="cuda"), torch.ones(4, device="cuda")
        torch.set_autocast_enabled("cuda", True)
        try:
            with pytest.raises(RuntimeError, match="unsafe to autocast"):
                functional.binary_cross_entropy(probabilities, target)
            assert functional.binary_cross_entropy_with_logits(probabilities, target).dtype == torch.float32
        finally:
            torch.set_autocast_enabled("cuda", False)
