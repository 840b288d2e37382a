"""Gradients that overflow are skipped by the scaler alone: what else keeps them is refused."""

from __future__ import annotations

import pytest

from amplint.migrate import migrate_source
from amplint.migrate.model import Options
from tests.migrate.test_hazards import migrated, refusal
from tests.migrate.test_refusals import HEAD

LOOP = """
average = {{}}
for x, y in batches:
    optimizer.zero_grad()
    loss = F.mse_loss(model(x), y)
    loss.backward()
    {use}
    optimizer.step()
"""
PARAMETERS = "for p in model.parameters():\n        "
NAMED = "for n, p in model.named_parameters():\n        "


@pytest.mark.parametrize(
    "use",
    [
        PARAMETERS + "p.data.add_(p.grad, alpha=-0.1)",
        PARAMETERS + "p.data -= 0.1 * p.grad",
        PARAMETERS + "p.data = p.data - 0.1 * p.grad",
        "for p in optimizer.param_groups[0]['params']:\n        p.data.add_(p.grad, alpha=-0.1)",
        PARAMETERS + "g = p.grad * 2\n        p.data.mul_(0.9).sub_(g)",
    ],
)
def test_gradients_in_parameters(use: str) -> None:
    assert "parameters are changed by their gradients here" in refusal(LOOP.format(use=use))


@pytest.mark.parametrize(
    "average",
    ["average[n] = 0.9 * average.get(n, 0) + p.grad", "average[n] += p.grad", "average[n].mul_(0.9).add_(p.grad)"],
)
@pytest.mark.parametrize("back", ["p.grad = p.grad + average[n]", "p.grad += average[n]", "p.grad.add_(average[n])"])
def test_gradients_in_an_average_that_comes_back(average: str, back: str) -> None:
    text = LOOP.format(use=f"{NAMED}{average}\n        {back}")
    assert "a running average of gradients is added to gradients here" in refusal(text)


@pytest.mark.parametrize(
    "use",
    [
        PARAMETERS + "p.grad.add_(p.data, alpha=0.1)",
        PARAMETERS + "p.grad = p.grad - p.grad.mean()",
        PARAMETERS + "p.data.add_(0.1 * torch.randn(1))",
        NAMED + "average[n] = 0.9 * average.get(n, 0) + p.grad.norm().item()",
        "for q, p in zip(old, model.parameters()):\n        q.mul_(0.9).add_(p.data, alpha=0.1)",
    ],
)
def test_gradients_that_are_changed_or_logged_are_migrated(use: str) -> None:
    assert "scaler.step(optimizer)" in migrated(LOOP.format(use=use))


def test_gradients_that_must_be_finite() -> None:
    text = LOOP.format(use=PARAMETERS + "assert torch.isfinite(p.grad).all()")
    assert "infinite gradients stop the script here" in refusal(text)


def test_bfloat16_skips_no_steps() -> None:
    text = HEAD + LOOP.format(use=PARAMETERS + "p.data.add_(p.grad, alpha=-0.1)")
    assert migrate_source(text, "train.py", options=Options(dtype="bfloat16")).text != text
