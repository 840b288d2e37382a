"""Which optimizers a loss surely reaches: losses of two branches, and new heads of frozen models."""

from __future__ import annotations

import textwrap

import pytest

from amplint.migrate import migrate_source
from tests.migrate.test_refusals import HEAD

NO_GRADIENTS = (
    "this optimizer may step without gradients, which is an error under a scaler; step it where they are made"
)
LOOP = """
for x, y in batches:
    optimizer.zero_grad()
{loss}
    loss.backward()
    optimizer.step()
"""


def reason(body: str, head: str = HEAD) -> str:
    result = migrate_source(head + body, "train.py")
    return result.loops[0].reason.split(": ", 1)[1] if result.text == head + body else ""


@pytest.mark.parametrize(
    ("loss", "why"),
    [
        ("if y.sum() > 0:\n    loss = F.mse_loss(model(x), y)\nelse:\n    loss = model(x).mean()", ""),
        (
            "out = model(x)\nif y.sum() > 0:\n    loss = F.mse_loss(out, y)\nelif y.sum() < 0:\n    loss = out.mean()\n"
            "else:\n    loss = out.sum()",
            "",
        ),
        ("loss = model(x).mean()\nif y.sum() > 0:\n    loss = F.mse_loss(model(x), y)", ""),
        (
            "if y.sum() > 0:\n    with torch.no_grad():\n        out = model(x)\nelse:\n    out = model(x)\n"
            "loss = F.mse_loss(out, y)",
            "",
        ),
        ("loss = 0\nfor part in x:\n    loss += model(part).mean()", ""),
        ("if y.sum() > 0:\n    loss = F.mse_loss(model(x), y)\nelse:\n    loss = other(x).mean()", NO_GRADIENTS),
        ("loss = other(x).mean()\nif y.sum() > 0:\n    loss = F.mse_loss(model(x), y)", NO_GRADIENTS),
        ("loss = other(x).mean()\nif y.sum() > 0:\n    loss = loss + F.mse_loss(model(x), y)", NO_GRADIENTS),
    ],
)
def test_of_branches(loss: str, why: str) -> None:
    other = "other = nn.Linear(4, 2).to(device)\n"
    assert reason(other + LOOP.format(loss=textwrap.indent(loss, "    "))) == why


FROZEN = """\
import torch
from torch import nn
import torch.nn.functional as F
from models import resnet

device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
model = resnet()
for p in model.parameters():
    p.requires_grad = False
{head}model = model.to(device)
optimizer = torch.optim.SGD(model.fc.parameters(), lr=0.1)
"""


@pytest.mark.parametrize(
    ("head", "why"),
    [
        ("model.fc = nn.Linear(4, 2)\n", ""),
        ("model.fc[1] = nn.Linear(4, 2)\n", ""),
        ("", NO_GRADIENTS),
    ],
)
def test_of_frozen_models(head: str, why: str) -> None:
    loop = LOOP.format(loss="    loss = F.mse_loss(model(x), y)")
    assert reason(loop, FROZEN.format(head=head)) == why
