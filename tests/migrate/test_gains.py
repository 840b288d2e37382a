"""Loops that have no product to gain from are refused."""

from __future__ import annotations

import pytest

from tests.migrate.test_hazards import migrated, refusal

HEAD_WITHOUT_LAYERS = """\
import torch
from torch import nn
import torch.nn.functional as F

device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
"""
LOOP = """
for x, y in batches:
    loss = {loss}
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""
NO_MODEL = """
w = torch.zeros(2, requires_grad=True, device=device)
model = nn.Embedding(4, 2).to(device)
optimizer = torch.optim.SGD([w, *model.parameters()], lr=0.1)
"""
NOTHING = (
    "nothing that this loss is computed with is a matrix product or a convolution, so that mixed precision would gain "
    "nothing here"
)


@pytest.mark.parametrize("loss", ["((w * x - y) ** 2).mean()", "(model(x) * w).sum(1).mean()"])
def test_loops_without_products_are_refused(loss: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.migrate.test_hazards.HEAD", HEAD_WITHOUT_LAYERS)
    assert refusal(NO_MODEL + LOOP.format(loss=loss)) == f"line 12: {NOTHING}"


@pytest.mark.parametrize("loss", ["((model(x) @ w - y) ** 2).mean()", "torch.matmul(model(x), w).mean()"])
def test_a_product_is_enough(loss: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.migrate.test_hazards.HEAD", HEAD_WITHOUT_LAYERS)
    assert f"        loss = {loss}\n" in migrated(NO_MODEL + LOOP.format(loss=loss))
