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


HELPERS = """\
import torch
import torch.nn.functional as F


def distances(x, y):
    d = x.pow(2).sum(1, keepdim=True) + y.pow(2).sum(1, keepdim=True).t()
    d.addmm_(x, y.t(), beta=1, alpha=-2)
    return d


class Triplet:
    def __call__(self, x):
        return distances(x, x).mean()


class Helper:
    def compute(self, x):
        return distances(x, x).mean()

    def unused(self, x):
        return distances(x, x)


class Plain:
    def compute(self, x):
        return x.mean()

    def other(self, x):
        return distances(x, x)


def make_loss(weight):
    triplet = Triplet()

    def loss(x):
        return weight * triplet(x)

    return loss, triplet


def pick(weight):
    return lambda x: weight * distances(x, x).mean()


def make_object():
    return Triplet()


def distance_loss(x):
    return distances(x, x).mean()


def collate(x):
    return distances(x, x)
"""
REASON = "this runs `losses.py`, whose line 6 must compute in float32 first, with `.float()`"


@pytest.mark.parametrize(
    ("made", "used", "refused"),
    [
        ("criterion = Triplet()", "criterion(out)", True),
        ("criterion = Helper()", "criterion.compute(out)", True),
        ("criterion = Plain()", "criterion.compute(out)", False),
        ("criterion, _ = make_loss(2)", "criterion(out)", True),
        ("criterion = pick(2)", "criterion(out)", True),
        ("criterion = make_object()", "criterion(out)", True),
        ("criterion = (lambda f, *_: f)(distance_loss)", "criterion(out)", True),
        ("criterion = F.mse_loss\ndata = list(map(lambda x: x, [collate]))", "criterion(out, y)", False),
    ],
)
def test_losses_that_objects_and_functions_of_another_file_bring(
    tmp_path: Path, made: str, used: str, refused: bool
) -> None:
    (tmp_path / "losses.py").write_text(HELPERS, encoding="utf-8")
    script = f"""\
import torch
import torch.nn.functional as F
from losses import *
from losses import Helper, Plain, Triplet, collate, distance_loss, make_loss, make_object, pick

device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
model = torch.nn.Linear(4, 2).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
{made}
for x, y in batches:
    out = model(x.to(device))
    loss = {used}
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""
    (tmp_path / "train.py").write_text(script, encoding="utf-8")
    loops = migrate_source(script, str(tmp_path / "train.py")).loops
    assert [REASON in loop.reason for loop in loops] == [refused]
    assert [loop.status for loop in loops] == ["refused" if refused else "migrated"]


GRADIENTS = """\
import torch
from torch import nn


class Spike(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return (x > 0).float()

    @staticmethod
    def backward(ctx, g):
        return g * 2


class Smooth(nn.Module):
    def forward(self, model, x):
        d = torch.randn_like(x).requires_grad_()
        model(x + d).mean().backward()
        return d.grad.mean()

    def unused(self, x):
        return x


class Watched(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 2)

    def forward(self, x):
        out = self.layer(x)
        out.register_hook(lambda g: g.clamp(-1, 1))
        return out

    def saliency(self, x):
        return torch.autograd.grad(self(x).sum(), x)


class Quiet(nn.Module):
    def forward(self, x):
        return x.mean()

    def saliency(self, x):
        return torch.autograd.grad(self(x).sum(), x)


def smoothness(x, model):
    return torch.autograd.grad(model(x).sum(), x, create_graph=True)[0].square().mean()


def shrink(model, rate):
    with torch.no_grad():
        for p in model.parameters():
            p -= rate * p.grad
"""
TAKEN = "gradients are taken there under the region, unscaled; give `amplint migrate` that file too"


@pytest.mark.parametrize(
    ("before", "loss", "after", "reason"),
    [
        ("spike = Spike.apply", "spike(out).mean()", "", "5 must be adapted first: a custom autograd function"),
        ("smooth = Smooth()", "smooth(model, x)", "", f"18 must be adapted first: {TAKEN}"),
        ("", "out.mean() + smoothness(x, model)", "", f"48 must be adapted first: {TAKEN}"),
        ("head = Watched().to(device)", "head(out).mean()", "", "32 must be adapted first: a hook sees gradients"),
        ("quiet = Quiet()", "quiet(out)", "", ""),
        (
            "", "F.mse_loss(out, y)", "    shrink(model, 0.1)\n",
            "54 must be adapted first: parameters are changed by their gradients here",
        ),
    ],
)  # fmt: skip
def test_gradients_in_another_file(tmp_path: Path, before: str, loss: str, after: str, reason: str) -> None:
    (tmp_path / "parts.py").write_text(GRADIENTS, encoding="utf-8")
    script = f"""\
import torch
import torch.nn.functional as F
from parts import Quiet, Smooth, Spike, Watched, shrink, smoothness

device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
model = torch.nn.Linear(4, 4).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
{before}
for x, y in batches:
    out = model(x.to(device))
    loss = {loss}
    optimizer.zero_grad()
    loss.backward()
{after}    optimizer.step()
"""
    (tmp_path / "train.py").write_text(script, encoding="utf-8")
    (loop,) = migrate_source(script, str(tmp_path / "train.py")).loops
    assert f"whose line {reason}" in loop.reason if reason else loop.status == "migrated", loop


@pytest.mark.parametrize(
    ("made", "refused"),
    [
        ("torch.sparse.FloatTensor(i, v, (9, 9))", True),
        ("torch.sparse_coo_tensor(i, v)", True),
        ("v.to_sparse()", True),
        ("v.to_dense()", False),
    ],
)
def test_data_of_another_file_that_is_sparse(tmp_path: Path, made: str, refused: bool) -> None:
    data = (
        f"import torch\n\n\ndef adjacency(i, v):\n    return {made}\n\n\ndef load(path):\n    return adjacency(*path)\n"
    )
    (tmp_path / "data.py").write_text(data, encoding="utf-8")
    script = """\
import torch
from data import load

device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
model = torch.nn.Linear(4, 2).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
adj = load("cora").to(device)
for x, y in batches:
    loss = torch.matmul(adj, model(x)).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""
    (tmp_path / "train.py").write_text(script, encoding="utf-8")
    (loop,) = migrate_source(script, str(tmp_path / "train.py")).loops
    reason = (
        "line 7: this runs `data.py`, whose line 5 must be adapted first: sparse products have no half-precision kernel"
    )
    assert loop.reason.startswith(reason) if refused else loop.status == "migrated", loop
