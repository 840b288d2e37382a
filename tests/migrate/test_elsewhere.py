"""Files that train without a backward of their own are refused with the reason; files that do not train have none."""

from __future__ import annotations

import textwrap

import pytest

from amplint.migrate import migrate_source

AWAY = (
    "an optimizer is {} here and nothing goes backward in this file; migrate the file that holds the training loop, "
    "and make the scaler there or beside this optimizer"
)
MODEL = "import torch\nmodel = torch.nn.Linear(2, 2)\n"
CASES = {
    "lightning": (
        "import pytorch_lightning as pl\nclass Net(pl.LightningModule):\n    def training_step(self, batch, i):\n"
        "        return self(batch).mean()\n",
        1,
        "the code is built on Lightning: give its Trainer `precision=`",
    ),
    "transformers": (
        "from transformers import Trainer\ntrainer = Trainer(model=None)\ntrainer.train()\n",
        1,
        "the code is built on the Trainer of transformers: give its TrainingArguments `fp16=` or `bf16=`",
    ),
    "fastai": (
        "from fastai.vision.all import *\nlearn = vision_learner(data, resnet18)\nlearn.fine_tune(1)\n",
        1,
        "the code is built on fastai: call `to_fp16()` on its Learner",
    ),
    "loop in another file": (
        MODEL
        + "from engine import train\noptimizer = torch.optim.SGD(model.parameters(), 0.1)\ntrain(model, optimizer)\n",
        4,
        AWAY.format("made"),
    ),
    "backward in another file": (
        "import torch\ndef move(model, optimizer):\n    optimizer.step()\n    optimizer.zero_grad()\n",
        3,
        AWAY.format("stepped"),
    ),
    "distributed autograd": (
        "import torch.distributed.autograd as dist_autograd\nwith dist_autograd.context() as context:\n"
        "    dist_autograd.backward(context, [loss])\n    optimizer.step(context)\n",
        1,
        "distributed autograd has its own way of going backward",
    ),
    "parameters by autograd.grad": (
        MODEL + "for x, y in batches:\n    grads = torch.autograd.grad(loss(model(x), y), model.parameters())\n"
        "    for p, g in zip(model.parameters(), grads):\n        p.data -= 0.1 * g\n",
        4,
        "gradients of parameters are taken with autograd.grad and applied by hand; a GradScaler needs an optimizer and "
        "`loss.backward()`",
    ),
    "torch.func": (
        "import torch\nfrom torch.func import grad\nparams = [torch.zeros(2)]\nfor x in batches:\n"
        "    params = [p - g for p, g in zip(params, grad(loss)(params, x))]\n",
        5,
        "gradients are taken by torch.func, which do not pass through a scaler",
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_it_is_refused_with_the_reason(name: str) -> None:
    text, line, reason = CASES[name]
    result = migrate_source(text, "train.py")
    assert (result.text, result.edits) == (text, ())
    assert [(r.line, r.status, r.reason) for r in result.loops] == [(line, "refused", f"line {line}: {reason}")]


@pytest.mark.parametrize(
    "text",
    [
        MODEL + "with torch.no_grad():\n    print(model(torch.zeros(1, 2)))\n",
        "import torch\ndef make(model):\n    opt = torch.optim.SGD(model.parameters(), 0.1)\n    return opt\n",
        "import torch\ndef penalty(net, x):\n    g = torch.autograd.grad(net(x).sum(), x, create_graph=True)[0]\n"
        "    return g.norm()\n",
        "from pytorch_lightning import seed_everything\nseed_everything(0)\n",
        "from sklearn.svm import SVC\nSVC().fit(x, y)\n",
    ],
    ids=["inference", "factory", "penalty", "seed", "another library"],
)
def test_what_does_not_train_has_no_report(text: str) -> None:
    assert migrate_source(text, "train.py").loops == []


HEAD = """\
import torch
from torch import nn
import torch.nn.functional as F
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
model = nn.Linear(4, 2).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
"""


def test_an_inner_loop_is_named() -> None:
    text = HEAD + textwrap.dedent(
        """
        for x, y in batches:
            grads = torch.autograd.grad(F.mse_loss(model(x), y), model.parameters(), create_graph=True)
            fast = [p - 0.1 * g for p, g in zip(model.parameters(), grads)]
            loss = F.mse_loss(F.linear(x, *fast), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        """
    )
    assert migrate_source(text, "train.py").loops[0].reason == (
        "line 9: gradients of parameters are taken with autograd.grad here, in an inner loop or for a second "
        "derivative; they do not pass through the scaler, so that this loop stays in float32"
    )


def test_gradients_of_inputs_outside_of_the_region_stay_as_they_are() -> None:
    text = HEAD + textwrap.dedent(
        """
        def attack(x, y):
            x = x.detach().requires_grad_()
            grad = torch.autograd.grad(F.mse_loss(model(x), y), x)[0]
            return (x + 0.1 * grad.sign()).detach()

        for x, y in batches:
            x = attack(x, y)
            optimizer.zero_grad()
            loss = F.mse_loss(model(x), y)
            loss.backward()
            optimizer.step()
        """
    )
    new = migrate_source(text, "train.py").text
    assert "    x = attack(x, y)\n    optimizer.zero_grad()\n    with torch.autocast(" in new
    assert "        loss = F.mse_loss(model(x), y)\n    scaler.scale(loss).backward()\n" in new
    assert "enabled=False" not in new


def test_a_model_that_takes_gradients_of_its_inputs_is_refused() -> None:
    text = HEAD + textwrap.dedent(
        """
        class Energy(nn.Module):
            def forward(self, x):
                return torch.autograd.grad(model(x).sum(), x, create_graph=True)[0]

        energy = Energy()
        for x, y in batches:
            optimizer.zero_grad()
            loss = F.mse_loss(energy(x), y)
            loss.backward()
            optimizer.step()
        """
    )
    assert migrate_source(text, "train.py").loops[0].reason == (
        "line 10: a model takes gradients of its inputs here, which stays in float32, so that nothing is gained"
    )
