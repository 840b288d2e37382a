"""Other precisions, scripted code, complex numbers, debugging: refused where they may meet training, else left."""

from __future__ import annotations

import textwrap

import pytest

from amplint.migrate import migrate_source
from tests.migrate.test_refusals import HEAD

LOOP = """
for x, y in batches:
    out = model(x)
    loss = F.mse_loss(out, y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""
AFTER = LOOP + "    {}\n"
DOUBLE = "double precision is used, which autocast leaves alone"
HALF = "half precision is used by hand"
COMPLEX = "complex numbers have no half precision"
FOURIER = "Fourier transforms in half precision take only sizes that are powers of two"
LINALG = "linear algebra in half precision is not implemented on CUDA"
SCRIPTED = "scripted code does not see autocast that is switched at run time"
DEFAULT = "the default type is changed, and autocast leaves double precision alone"
ANOMALY = "anomaly detection stops at the first overflow, which a scaler meets as a matter of course"


def reason(body: str) -> str:
    """The reason of a refusal without its line; empty where all is migrated."""
    text = HEAD + textwrap.dedent(body)
    result = migrate_source(text, "train.py")
    if result.text == text:
        return result.loops[0].reason.split(": ", 1)[1]
    assert not any(loop.status == "refused" for loop in result.loops)
    return ""


@pytest.mark.parametrize(
    "body",
    [
        # metrics
        LOOP.replace("    loss = ", "    right = (out > 0).sum()\n    loss = ")
        + "acc = right.double() / 10\nprint('acc', acc)\nbest = max(acc, 0.5)\n",
        AFTER.format("total = loss.detach().double(); print(float(total))").replace("; ", "\n    "),
        "history = []\n" + AFTER.format("history.append(out.argmax(1).double().mean())") + "print(history[-1])\n",
        "def accuracy(out, y):\n    return (out.argmax(1) == y).double().mean()\n"
        + AFTER.format("acc = accuracy(out, y)")
        + "print(acc)\n",
        "def train():\n" + textwrap.indent(LOOP, "    ") + "    return model, (out > 0).double().mean()\n\n"
        "model, acc = train()\nmodel(torch.ones(1, 4))\nprint(acc)\n",
        # data that becomes float32 before it is used
        "data = torch.ones(8, 4).double().float()\n" + LOOP.replace("model(x)", "model(data)"),
        "data = torch.ones(8, 4, dtype=torch.float64).to(torch.float32)\n" + LOOP.replace("model(x)", "model(data)"),
        "import numpy as np\ntable = np.zeros((8, 4), dtype='float64')\n" + LOOP,
        # defaults that stay float32
        "torch.set_default_tensor_type(torch.FloatTensor)\n" + LOOP,
        "torch.set_default_tensor_type('torch.cuda.FloatTensor')\n" + LOOP,
        "torch.set_default_dtype(torch.float32)\n" + LOOP,
        # scripted for export, when all is done
        LOOP + "torch.jit.script(model).save('model.pt')\n",
        LOOP + "traced = torch.jit.trace(model, torch.ones(1, 4))\ntraced.save('model.pt')\n",
        # on demand
        "torch.autograd.set_detect_anomaly(False)\n" + LOOP,
        "import argparse\nparser = argparse.ArgumentParser()\nparser.add_argument('--debug', action='store_true')\n"
        "args = parser.parse_args()\nif args.debug:\n    torch.autograd.set_detect_anomaly(True)\n" + LOOP,
        # complex numbers and linear algebra in the preparation of data, and on weights
        "wave = torch.stft(torch.ones(64), 16, return_complex=True).abs()\n" + LOOP.replace("model(x)", "model(wave)"),
        "def power(x):\n    return torch.view_as_real(torch.fft.fft(x))\n\n"
        + LOOP.replace("model(x)", "model(power(x))").replace(
            "    out = model(power(x))", "    x = power(x)\n    out = model(x)"
        ),
        "class Spectra:\n    def __getitem__(self, i):\n        wave = self.waves[i]\n"
        "        return torch.stft(wave, 16, return_complex=True).abs()\n\n"
        "class Net(nn.Module):\n    def __init__(self):\n        super().__init__()\n"
        "        self.layer = nn.Linear(4, 2)\n        self.body = nn.Sequential(*[self.layer])\n\n"
        "    def forward(self, x):\n        x = self.body(x)\n        return self.layer(x)\n\nmodel = Net()\n"
        "optimizer = torch.optim.SGD(model.parameters(), lr=0.1)\n" + LOOP,
        AFTER.format("print(torch.linalg.svdvals(model.weight))"),
        AFTER.format("print(torch.linalg.svdvals(out.float()))"),
        LOOP.replace("    loss = ", "    size = torch.linalg.norm(out)\n    loss = size + "),
    ],
)
def test_is_left(body: str) -> None:
    assert reason(body) == ""


@pytest.mark.parametrize(
    ("body", "why"),
    [
        ("model.double()\n" + LOOP, DOUBLE),
        ("model = model.to(torch.float64)\n" + LOOP, DOUBLE),
        ("model.to(torch.float64)\n" + LOOP, DOUBLE),
        (LOOP.replace("model(x)", "model(x.double())"), DOUBLE),
        (LOOP.replace("model(x)", "model(x.type(torch.cuda.DoubleTensor))"), DOUBLE),
        (LOOP.replace("model(x)", "model(x.type('torch.DoubleTensor'))"), DOUBLE),
        ("data = torch.ones(8, 4, dtype=torch.double)\n" + LOOP.replace("model(x)", "model(data)"), DOUBLE),
        ("data = torch.ones(8, 4, dtype='float64')\n" + LOOP.replace("model(x)", "model(data)"), DOUBLE),
        ("kind = torch.double\ndata = [torch.ones(8, 4, dtype=kind)]\n" + LOOP.replace("batches", "data"), DOUBLE),
        ("net = nn.Linear(2, 2, dtype=torch.double)\n" + LOOP.replace("model(x)", "net(model(x).double())"), DOUBLE),
        (LOOP.replace("mse_loss(out, y)", "mse_loss(out, y) * y.double().mean()"), DOUBLE),
        (
            "def load():\n    return torch.ones(8, 4).double(), 1\n\ndata, n = load()\n"
            + LOOP.replace("model(x)", "model(data)"),
            DOUBLE,
        ),
        (
            "def fill(rows):\n    rows.append(torch.ones(8, 4).double())\n\ndata = []\nfill(data)\n"
            + LOOP.replace("model(x)", "model(data[0])"),
            DOUBLE,
        ),
        (
            "class Data(torch.utils.data.Dataset):\n"
            "    def __getitem__(self, i):\n        return self.x[i].double()\n" + LOOP,
            DOUBLE,
        ),
        ("weight = torch.ones(2).double()\nother = torch.optim.SGD([weight], lr=0.1)\n" + LOOP, DOUBLE),
        ("cast = lambda t: t.double()\n" + LOOP, DOUBLE),
        ("def show(t):\n    return model(t)\n\nlist(map(show, torch.ones(8, 4).double()))\n" + LOOP, DOUBLE),
        ("for p in model.parameters():\n    p.data = p.data.double()\n" + LOOP, DOUBLE),
        ("model.weight = nn.Parameter(torch.ones(2, 4).double())\n" + LOOP, DOUBLE),
        (
            "class Net(nn.Module):\n    def __init__(self):\n        super().__init__()\n"
            "        self.register_buffer('w', torch.ones(4).double())\n\n"
            "    def forward(self, x):\n        return model(x) * self.w\n\n"
            "net = Net()\n" + LOOP.replace("model(x)", "net(x)"),
            DOUBLE,
        ),
        ("torch.set_default_dtype(torch.float64)\n" + LOOP, DEFAULT),
        ("torch.set_default_tensor_type('torch.DoubleTensor')\n" + LOOP, DEFAULT),
        ("torch.set_default_tensor_type(torch.DoubleTensor)\n" + LOOP, DEFAULT),
        ("if torch.cuda.is_available():\n    model.half()\n" + LOOP, HALF),
        (LOOP.replace("model(x)", "model(x.to(torch.bfloat16))"), "bfloat16 is used by hand"),
        ("net = torch.jit.script(model)\n" + LOOP.replace("model(x)", "net(x)"), SCRIPTED),
        ("model = torch.jit.trace(model, torch.ones(1, 4))\n" + LOOP, SCRIPTED),
        ("@torch.jit.script\ndef act(x):\n    return x * 2\n" + LOOP.replace("model(x)", "act(model(x))"), SCRIPTED),
        ("torch.autograd.set_detect_anomaly(True)\n" + LOOP, ANOMALY),
        (
            "import argparse\nparser = argparse.ArgumentParser()\n"
            "parser.add_argument('--debug', action='store_true', default=True)\n"
            "args = parser.parse_args()\nif args.debug:\n    torch.autograd.set_detect_anomaly(True)\n" + LOOP,
            ANOMALY,
        ),
        ("DEBUG = True\nif DEBUG:\n    torch.autograd.set_detect_anomaly(True)\n" + LOOP, ANOMALY),
        (LOOP.replace("F.mse_loss(out, y)", "torch.fft.fft(out).abs().mean()"), FOURIER),
        (LOOP.replace("F.mse_loss(out, y)", "torch.linalg.eig(out)[0].abs().sum()"), LINALG),
        (AFTER.format("print(torch.linalg.svdvals(out))"), LINALG),
        (
            "class Net(nn.Module):\n    def forward(self, x):\n        self.seen = model(x)\n        return x\n\n"
            "net = Net()\n" + LOOP.replace("model(x)", "net(x)") + "    print(torch.linalg.svdvals(net.seen))\n",
            LINALG,
        ),
        ("def rank(m):\n    return torch.linalg.matrix_rank(m)\n" + AFTER.format("print(rank(out))"), LINALG),
        ("x = torch.fft.fft(torch.ones(8, 4))\n" + LOOP.replace("in batches", "in [(x, 1)]"), FOURIER),
        (
            "class Net(nn.Module):\n"
            "    def forward(self, x):\n        return torch.stft(x, 16, return_complex=True)\n\n"
            "model = Net()\n" + LOOP,
            COMPLEX,
        ),
    ],
)
def test_is_refused(body: str, why: str) -> None:
    assert reason(body) == why


def test_a_default_on_the_gpu_says_where_it_trains() -> None:
    text = """\
import torch
from torch import nn
import torch.nn.functional as F

if torch.cuda.is_available():
    torch.set_default_tensor_type("torch.cuda.FloatTensor")
model = nn.Linear(4, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
"""
    new = migrate_source(text + LOOP, "train.py").text
    assert 'scaler = torch.amp.GradScaler("cuda", enabled=torch.cuda.is_available())\n' in new
    hard = text.replace("if torch.cuda.is_available():\n    ", "")
    assert 'scaler = torch.amp.GradScaler("cuda")\n' in migrate_source(hard + LOOP, "train.py").text
