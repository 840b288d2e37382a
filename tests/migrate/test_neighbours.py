"""Modules and losses in files beside a script are read: what must be adapted there refuses the script."""

from __future__ import annotations

from pathlib import Path

import pytest

from amplint.migrate import migrate_source

NETS = """\
import torch
import torch.nn.functional as F
from torch import nn


class Power(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.exp()

    @staticmethod
    def backward(ctx, g):
        return g


class Binary(nn.Linear):
    def forward(self, x):
        return Power.apply(super().forward(x))


class Plain(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 2)

    def forward(self, x):
        return F.relu(self.layer(x))


class Masked(Plain):
    def forward(self, x):
        scores = self.layer(x)
        return scores.masked_fill(x[:, :2] > 0, -1e9)


class Graph(Plain):
    def forward(self, x):
        return torch.spmm(torch.eye(4), self.layer(x))


class Deep(nn.Module):
    def __init__(self):
        super().__init__()
        self.graph = Graph()

    def forward(self, x):
        return self.graph(x)


def deep():
    return Deep()
"""
LOSSES = """\
import torch


def dice(p, t):
    p = torch.sigmoid(p)
    return 1 - 2 * (p * t).sum() / (p.sum() + t.sum() + 1)


def entropy(p):
    p = torch.sigmoid(p)
    return -(p * torch.log(p + 1e-12)).mean()
"""
SCRIPT = """\
import torch
from torch import nn
{}

device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
net = {}.to(device)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for x, y in batches:
    optimizer.zero_grad()
    out = net(x)
    loss = {}
    loss.backward()
    optimizer.step()
"""
MSE = "nn.functional.mse_loss(out, y)"
ADAPT = "line 6: this runs `zoo.py`, whose line {} must be adapted first: {}"
SPARSE = "sparse products have no half-precision kernel on CUDA"


@pytest.fixture
def script(tmp_path: Path) -> Path:
    package = tmp_path / "nets"
    package.mkdir()
    (package / "__init__.py").write_text("from .zoo import *\nfrom .zoo import Masked as Attention\n", encoding="utf-8")
    (package / "zoo.py").write_text(NETS, encoding="utf-8")
    (tmp_path / "losses.py").write_text(LOSSES, encoding="utf-8")
    return tmp_path / "train.py"


def reasons(script: Path, imports: str, net: str, loss: str = MSE) -> list[str]:
    text = SCRIPT.format(imports, net, loss)
    script.write_text(text, encoding="utf-8")
    result = migrate_source(text, str(script))
    assert (result.text == text) == any(loop.status == "refused" for loop in result.loops)
    return [loop.reason for loop in result.loops]


@pytest.mark.parametrize(
    ("imports", "net", "loss", "reason"),
    [
        (
            "from nets import *", "Binary(4, 2)", MSE,
            "line 6: this runs `zoo.py`, whose line 18 must compute in float32 first, with `.float()`",
        ),
        (
            "from nets import Attention", "Attention()", MSE,
            "line 6: this runs `zoo.py`, whose line 33 must compute in float32 first, with `.float()`",
        ),
        ("from nets.zoo import Deep", "Deep()", MSE, ADAPT.format(38, SPARSE)),
        ("import nets.zoo", "nets.zoo.deep()", MSE, ADAPT.format(38, SPARSE)),
        (
            "from nets import Plain\nfrom losses import entropy", "Plain()", f"{MSE} + entropy(out)",
            "line 12: this runs `losses.py`, whose line 10 must compute in float32 first, with `.float()`",
        ),
    ],
)  # fmt: skip
def test_what_must_be_adapted_there_refuses(script: Path, imports: str, net: str, loss: str, reason: str) -> None:
    assert reasons(script, imports, net, loss) == [reason]


@pytest.mark.parametrize(
    ("imports", "net", "loss"),
    [
        ("from nets import *", "Plain()", MSE),
        ("from nets import zoo", "zoo.Plain()", MSE),
        ("from nets.zoo import Plain, Graph", "Plain()", MSE),
        ("from nets import Plain\nfrom losses import dice, entropy", "Plain()", "dice(out, y)"),
        ("from unknown import Plain", "Plain()", MSE),
    ],
)
def test_what_is_not_run_does_not(script: Path, imports: str, net: str, loss: str) -> None:
    assert reasons(script, imports, net, loss) == [""]


def test_a_file_that_does_not_parse_is_left_out(script: Path) -> None:
    (script.parent / "broken.py").write_text("class Net(:\n", encoding="utf-8")
    assert reasons(script, "from broken import Net", "Net()") == [""]


def test_a_text_without_a_file_reads_nothing() -> None:
    text = SCRIPT.format("from nets import *", "Binary()", MSE)
    assert [loop.status for loop in migrate_source(text, "nowhere/train.py").loops] == ["migrated"]
