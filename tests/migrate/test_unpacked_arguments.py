"""Losses that get what the model returns by way of `*args`: half precision is followed through them."""

from __future__ import annotations

import pytest

from amplint.migrate import migrate_source

SCRIPT = """\
import torch
from torch import nn
import torch.nn.functional as F

device = torch.device("cuda" if torch.cuda.is_available() else "cpu")


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(4, 4)

    def forward(self, x):
        return [{output}, x]

    def loss_function(self, *args, **kwargs):
        out = args[0]
        loss = {loss}
        return {{"loss": loss, "weight": kwargs["weight"]}}


model = Net().to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x in batches:
    results = model(x)
    losses = model.loss_function(*results, weight=1.0)
    optimizer.zero_grad()
    losses["loss"].backward()
    optimizer.step()
"""


@pytest.mark.parametrize(
    ("loss", "after"),
    [
        ("F.mse_loss(out, args[1])", "F.mse_loss(out, args[1])"),
        ("(out * 1e6).pow(2).mean()", "(out.float() * 1e6).pow(2).mean()"),
    ],
)
def test_a_loss_of_unpacked_results(loss: str, after: str) -> None:
    text = migrate_source(SCRIPT.format(output="self.fc(x)", loss=loss), "train.py").text
    assert f"        loss = {after}\n" in text
    assert (
        "    with torch.autocast(device_type=device.type, dtype=torch.float16, enabled=scaler.is_enabled()):\n"
        "        results = model(x)\n"
        "        losses = model.loss_function(*results, weight=1.0)\n"
        "    optimizer.zero_grad()\n"
        '    scaler.scale(losses["loss"]).backward()\n'
    ) in text


@pytest.mark.parametrize(
    ("loss", "reason"),
    [
        ("-(args[1] * torch.log(out)).mean()", "line 18: a logarithm is taken by hand of a value that half precision"),
        ("F.binary_cross_entropy(out, args[1])", "line 18: BCELoss takes probabilities"),
        ("torch.linalg.inv(out).sum()", "line 18: linear algebra in half precision"),
    ],
)
def test_what_half_precision_breaks_there_is_refused(loss: str, reason: str) -> None:
    text = SCRIPT.format(output="torch.sigmoid(self.fc(x))", loss=loss)
    result = migrate_source(text, "train.py")
    assert result.text == text
    assert result.loops[0].reason.startswith(reason), result.loops[0].reason
