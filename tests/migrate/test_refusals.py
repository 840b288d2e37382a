"""What is refused, with the reason and the line; the text is then as it was."""

from __future__ import annotations

import textwrap

import pytest

from amplint.migrate import migrate_source

HEAD = """\
import torch
from torch import nn
import torch.nn.functional as F

device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
model = nn.Linear(4, 2).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
"""

CASES = {
    "closure": (
        """
        for x, y in batches:
            optimizer.step(lambda: F.mse_loss(model(x), y).backward())
        """,
        10,
        "no plain `loss.backward()`",
    ),
    "lbfgs": (
        """
        second = torch.optim.LBFGS(model.parameters())
        for x, y in batches:
            loss = F.mse_loss(model(x), y)
            loss.backward()
            second.step()
        """,
        9,
        "LBFGS",
    ),
    "parameters by hand": (
        """
        for x, y in batches:
            loss = F.mse_loss(model(x), y)
            loss.backward()
            with torch.no_grad():
                for p in model.parameters():
                    p -= 0.1 * p.grad
        """,
        11,
        "no optimizer that trains on this is in view, so nothing can unscale the gradients; step one of torch.optim in "
        "this file",
    ),
    "the result of a step": (
        """
        for x, y in batches:
            optimizer.zero_grad()
            F.mse_loss(model(x), y).backward()
            result = optimizer.step()
        """,
        12,
        "what `step()` returns is used, and a scaler's step returns None where it skips",
    ),
    "backward in an expression": (
        """
        for x, y in batches:
            optimizer.zero_grad()
            result = F.mse_loss(model(x), y).backward()
            optimizer.step()
        """,
        11,
        "backward() is part of another expression; put it on a line of its own",
    ),
    "probabilities": (
        """
        from networks import net
        criterion = nn.BCELoss()
        for x, y in batches:
            optimizer.zero_grad()
            loss = criterion(net(model(x)), y)
            loss.backward()
            optimizer.step()
        """,
        13,
        "BCELoss",
    ),
    "logarithm": (
        """
        for x, y in batches:
            p = torch.sigmoid(model(x)) @ mixing
            loss = -(y * torch.log(p + 1e-6) + (1 - y) * torch.log(1 - p)).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        """,
        11,
        "logarithm",
    ),
    "double precision": (
        """
        model.double()
        for x, y in batches:
            loss = F.mse_loss(model(x), y)
            loss.backward()
            optimizer.step()
        """,
        9,
        "double precision",
    ),
    "create_graph": (
        """
        for x, y in batches:
            loss = F.mse_loss(model(x), y)
            loss.backward(create_graph=True)
            optimizer.step()
        """,
        11,
        "can't be scaled right",
    ),
    "hook": (
        """
        model.weight.register_hook(lambda g: g.clamp(-1, 1))
        for x, y in batches:
            loss = F.mse_loss(model(x), y)
            loss.backward()
            optimizer.step()
        """,
        9,
        "a hook sees gradients",
    ),
    "gradients between backwards": (
        """
        for x, y in batches:
            optimizer.zero_grad()
            first = F.mse_loss(model(x), y)
            first.backward()
            print(model.weight.grad.norm())
            second = F.l1_loss(model(x), y)
            second.backward()
            optimizer.step()
        """,
        13,
        "still be scaled",
    ),
    "backward under a condition": (
        """
        for x, y in batches:
            loss = F.mse_loss(model(x), y)
            optimizer.zero_grad()
            if loss > 0.1:
                loss.backward()
            optimizer.step()
        """,
        14,
        "no backward() comes before this step",
    ),
    "already under autocast": (
        """
        for x, y in batches:
            with torch.autocast("cuda"):
                loss = F.mse_loss(model(x), y)
            loss.backward()
            optimizer.step()
        """,
        10,
        "already runs under automatic mixed precision",
    ),
    "graph in a container": (
        """
        saved = []

        def act(x):
            saved.append(model(x).log_softmax(1)[0])

        def learn(rewards):
            loss = torch.stack(saved).sum() * rewards
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        """,
        17,
        "container `saved`",
    ),
    "custom function": (
        """
        class Twice(torch.autograd.Function):
            @staticmethod
            def forward(ctx, x):
                return x @ x.t()

            @staticmethod
            def backward(ctx, g):
                return g * 2

        for x, y in batches:
            loss = F.mse_loss(Twice.apply(model(x)), y)
            loss.backward()
            optimizer.step()
        """,
        9,
        "custom autograd function",
    ),
    "tiny constant": (
        """
        for x, y in batches:
            out = model(x)
            out[:, 0] += 1e-12
            loss = (out - y).abs().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        """,
        11,
        "rounds to zero",
    ),
    "unknown caller": (
        """
        def step(net, opt, x, y):
            loss = F.mse_loss(net(x), y)
            loss.backward()
            opt.step()
        """,
        12,
        "does not call",
    ),
    "accelerate": (
        """
        from accelerate import Accelerator
        for x, y in batches:
            loss = F.mse_loss(model(x), y)
            loss.backward()
            optimizer.step()
        """,
        9,
        "Accelerate",
    ),
    "inner loop": (
        """
        for x, y in batches:
            loss = F.mse_loss(model(x), y)
            grads = torch.autograd.grad(loss, model.parameters(), create_graph=True)
            outer = sum(g.pow(2).sum() for g in grads)
            optimizer.zero_grad()
            outer.backward()
            optimizer.step()
        """,
        11,
        "autograd.grad",
    ),
    "leaves between steps": (
        """
        other = torch.optim.SGD(nn.Linear(4, 2).parameters(), lr=0.2)
        for x, y in batches:
            loss = F.mse_loss(model(x), y)
            loss.backward()
            optimizer.step()
            if loss < 0.1:
                continue
            other.step()
        """,
        13,
        "gradients that are left over",
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_is_refused(name: str) -> None:
    body, line, reason = CASES[name]
    text = HEAD + textwrap.dedent(body)
    result = migrate_source(text, "train.py")
    assert result.text == text
    assert result.edits == ()
    assert {loop.status for loop in result.loops} == {"refused"}
    assert result.loops[0].reason.startswith(f"line {line}: "), result.loops[0].reason
    assert reason in result.loops[0].reason


def test_what_does_not_parse_is_refused() -> None:
    result = migrate_source("def f(:\n", "broken.py")
    assert [(loop.line, loop.status) for loop in result.loops] == [(1, "refused")]


def test_a_file_without_loops_has_no_report() -> None:
    assert migrate_source("import torch\n", "empty.py") == ("import torch\n", [], ())
