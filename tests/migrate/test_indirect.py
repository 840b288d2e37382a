"""Forwards that run by another name: the region holds them too."""

from __future__ import annotations

import textwrap

import pytest

from amplint.migrate import migrate_source
from tests.migrate.test_hazards import REGION, migrated, refusal
from tests.migrate.test_refusals import HEAD
from tests.migrate.verdicts import RIGHT, Verdict, judge

HEADER = """\
import functools
import torch
import torch.utils.checkpoint
from torch import nn
import torch.nn.functional as F

device = torch.device("cuda" if torch.cuda.is_available() else "cpu")


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Linear(4, 4)
        self.head = nn.Linear(4, 2)

    def forward(self, x):
        return self.head(self.body(x))


model = Net().to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
"""
LOOP = """
for i in range(3):
    x, y = torch.randn(4, 4).to(device), torch.randn(4, 2).to(device)
    h = {forward}
    loss = F.mse_loss(model.head(h), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""

OBJECT = """
class Encoder:
    def __init__(self, net):
        self.net = net

    def encode(self, x):
        return self.net(x)

encoder = Encoder(model.body)
"""


@pytest.mark.parametrize(
    ("before", "forward"),
    [
        ("", "torch.utils.checkpoint.checkpoint(model.body, x, use_reentrant=False)"),
        ("def f(v):\n    return model.body(v)", "torch.utils.checkpoint.checkpoint(f, x, use_reentrant=False)"),
        ("f = lambda v: model.body(v)", "f(x)"),
        ("f = functools.partial(model.body)", "f(x)"),
        ("f = {'a': model.body}", "f['a'](x)"),
        ("layers = [model.body, nn.ReLU()]", "functools.reduce(lambda v, m: m(v), layers, x)"),
        ("", "sum(map(model.body, [x, x + 1]))"),
        ("", "getattr(model, 'body')(x)"),
        ("", "torch.vmap(model.body)(x)"),
        ("def run(f, v):\n    return f(v)", "run(model.body, x)"),
        (OBJECT, "encoder.encode(x)"),
    ],
)
def test_the_region_holds_it(before: str, forward: str) -> None:
    text = HEADER + before + LOOP.format(forward=forward)
    new = migrate_source(text, "train.py").text
    assert f"    {REGION}\n        h = {forward}\n        loss = F.mse_loss(model.head(h), y)\n    optimizer" in new
    assert judge(text) == Verdict(RIGHT)


@pytest.mark.parametrize("call", ["count(model, y)", "f(y)"])
def test_what_gets_a_model_and_does_not_run_it_stays_outside(call: str) -> None:
    before = (
        "def count(net, y):\n    return len(list(net.parameters())) * y\nf = lambda y: f(y - 1) if y.sum() > 9 else y\n"
    )
    body = "x = torch.randn(4, 4).to(device)\n    loss = F.mse_loss(model.head(model.body(x)), target)"
    loop = f"for y in batches:\n    target = {call}\n    {body}\n"
    text = HEADER + before + loop + "    optimizer.zero_grad()\n    loss.backward()\n    optimizer.step()\n"
    new = migrate_source(text, "train.py").text
    assert f"    target = {call}\n    x = torch.randn(4, 4).to(device)\n    {REGION}\n        loss = " in new


TRAIN = """
for x, y in batches:
    loss = F.mse_loss(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


@pytest.mark.parametrize(
    ("call", "note"),
    [
        ("wandb.watch(model)", "line 9: the gradients that wandb.watch logs are scaled from now on"),
        ("wandb.watch(model, None, 'all')", "line 9: the gradients that wandb.watch logs are scaled from now on"),
        ("wandb.watch(model, log='parameters')", ""),
        ("wandb.watch(model, log=None)", ""),
    ],
)
def test_watched_gradients_are_noted(call: str, note: str) -> None:
    loops = migrate_source("import wandb\n" + HEAD + call + TRAIN, "train.py").loops
    assert [(loop.status, loop.reason) for loop in loops] == [("migrated", note)]


def test_an_optimizer_of_an_outer_function_that_an_inner_one_makes_is_refused() -> None:
    body = """
    def main():
        opt = None
        def make(lr):
            nonlocal opt
            opt = torch.optim.SGD(model.parameters(), lr=lr)
        def train():
            for x, y in batches:
                opt.zero_grad()
                loss = F.mse_loss(model(x), y)
                loss.backward()
                opt.step()
        make(0.1)
        train()
    main()
    """
    assert refusal(body) == "line 12: `opt` belongs to the function around the one that makes it"


def test_a_class_with_slots_is_refused() -> None:
    body = """
    class Trainer:
        __slots__ = ("opt",)
        def __init__(self):
            self.opt = torch.optim.SGD(model.parameters(), lr=0.1)
        def run(self):
            for x, y in batches:
                self.opt.zero_grad()
                loss = F.mse_loss(model(x), y)
                loss.backward()
                self.opt.step()
    Trainer().run()
    """
    assert refusal(body) == "line 9: the class has `__slots__`, none of them for a scaler"


def test_interpolation_in_place_is_refused_and_an_average_of_weights_is_not() -> None:
    body = TRAIN.replace("model(x)", "model(x).lerp_(y, 0.5)")
    assert refusal(body).endswith("`lerp_` needs all tensors in one dtype; write the interpolation out")
    average = (
        "    with torch.no_grad():\n        for p, q in zip(old, model.parameters()):\n            p.lerp_(q, 0.1)\n"
    )
    assert "p.lerp_(q, 0.1)" in migrated(TRAIN + average)


SECOND = """
other = nn.Linear(4, 4).to(device)
second = torch.optim.SGD(other.parameters(), lr=0.1)
def embed(x, skip):
    if skip:
        return x
    return other(x)
for x, y in batches:
    optimizer.zero_grad()
    second.zero_grad()
    h = x
    {forward}
    loss = F.mse_loss(model(h), y)
    loss.backward()
    optimizer.step()
    second.step()
"""


@pytest.mark.parametrize(
    "forward",
    [
        "for i in range(2):\n        if skip(i):\n            continue\n        h = other(h)",
        "for i in range(2):\n        if skip(i):\n            break\n        h = other(h)",
        "h = embed(h, skip)",
    ],
)
def test_a_model_that_may_be_skipped_gives_no_gradients_surely(forward: str) -> None:
    assert "this optimizer may step without gradients" in refusal(SECOND.format(forward=forward))


@pytest.mark.parametrize(
    "forward", ["for i in range(2):\n        h = other(h)\n        if skip(i):\n            break", "h = other(h)"]
)
def test_a_model_that_runs_before_a_break_gives_them(forward: str) -> None:
    assert "scaler.step(second)" in migrated(SECOND.format(forward=forward))


def test_a_subclass_that_makes_the_optimizer_itself_has_no_scaler() -> None:
    body = """
    class Trainer:
        def __init__(self):
            self.opt = torch.optim.SGD(model.parameters(), lr=0.1)
        def run(self):
            for x, y in batches:
                self.opt.zero_grad()
                loss = F.mse_loss(model(x), y)
                loss.backward()
                self.opt.step()
    class Other(Trainer):
        def __init__(self):
            {first}self.opt = torch.optim.Adam(model.parameters())
    Other().run()
    """
    assert refusal(body.format(first="")) == (
        "line 19: this `__init__` does not call that of the base class, which makes the scaler"
    )
    assert "self.scaler.step(self.opt)" in migrated_class(body.format(first="super().__init__(); "))


def migrated_class(body: str) -> str:
    result = migrate_source(HEAD + textwrap.dedent(body), "train.py")
    assert {loop.status for loop in result.loops} == {"migrated"}, result.loops
    return result.text


def test_a_lambda_that_computes_more_than_a_forward_is_refused() -> None:
    body = "f = lambda v: torch.sigmoid(model(v))\n" + TRAIN.replace("model(x)", "f(x) + model(x)")
    assert refusal(body) == (
        "line 8: this lambda runs a model and computes more; make it a function, which can be adapted"
    )


def test_a_function_that_is_handed_on_is_adapted() -> None:
    body = "def f(v):\n    return torch.logit(model(v), eps=1e-6)\n" + TRAIN.replace(
        "model(x)", "torch.utils.checkpoint.checkpoint(f, x)"
    )
    direct = body.replace("torch.utils.checkpoint.checkpoint(f, x)", "f(x)")
    reasons = [migrate_source(HEAD + text, "train.py").loops[0].reason for text in (body, direct)]
    assert reasons[0] == reasons[1]


WEIGHTS = """\
import torch
import torch.nn.functional as F

w1, b1 = torch.randn(4, 8, requires_grad=True), torch.zeros(8, requires_grad=True)
w2 = torch.randn(8, 2, requires_grad=True)
optimizer = torch.optim.SGD([w1, b1, w2], lr=0.1)


def forward(x):
    return F.relu(x @ w1 + b1) @ w2


for i in range(3):
    x, y = torch.randn(4, 4), torch.randn(4, 2)
    out = forward(x)
    loss = F.mse_loss(out, y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(loss.item())
"""


def test_a_function_that_computes_with_weights_of_the_module_is_a_forward() -> None:
    assert judge(WEIGHTS) == Verdict(RIGHT)
    text = migrate_source(WEIGHTS).text
    assert "        out = forward(x)\n        loss = F.mse_loss(out, y)\n    optimizer.zero_grad()\n" in text


def test_weights_that_no_optimizer_steps_stay_refused() -> None:
    text = WEIGHTS.replace("    optimizer.step()\n", "    with torch.no_grad():\n        w1 -= 0.1 * w1.grad\n")
    assert {loop.status for loop in migrate_source(text).loops} == {"refused"}


def test_a_function_that_detaches_itself_through_tuples_is_no_forward() -> None:
    body = """
    def detached(state):
        if isinstance(state, torch.Tensor):
            return state.detach()
        return tuple(detached(part) for part in state)

    state = torch.zeros(4, 4)
    for x, y in batches:
        state = detached(state)
        optimizer.zero_grad()
        out, state = model(x, state)
        loss = F.mse_loss(out, y)
        loss.backward()
        optimizer.step()
    """
    expected = f"""
        state = detached(state)
        optimizer.zero_grad()
        {REGION}
            out, state = model(x, state)
            loss = F.mse_loss(out, y)
        scaler.scale(loss).backward()
    """
    assert textwrap.indent(textwrap.dedent(expected), "    ").strip() in migrated(body)
