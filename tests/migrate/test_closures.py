"""Closures of plain optimizers are called, then the scaler steps; what may call them more often is refused."""

from __future__ import annotations

import textwrap

import pytest

from amplint.migrate import migrate_source
from amplint.migrate.model import Options
from tests.migrate.test_gradients import HEAD

CLOSURE = """
for x, y in batches:
    def closure():
        opt.zero_grad()
        loss = F.mse_loss(net(x), y)
        loss.backward()
        return loss

    {step}
"""


def steps_of(step: str, head: str = HEAD) -> str:
    """What a step in the loop becomes."""
    result = migrate_source(head + CLOSURE.format(step=step), "train.py")
    assert {loop.status for loop in result.loops} == {"migrated"}, result.loops
    assert "        scaler.scale(loss).backward()\n        return loss\n" in result.text
    assert "            loss = F.mse_loss(net(x), y)\n" in result.text
    return textwrap.dedent(result.text[result.text.index("return loss\n") + len("return loss\n") :]).strip("\n")


@pytest.mark.parametrize(
    ("step", "after"),
    [
        ("opt.step(closure)", "closure()\nscaler.step(opt)\nscaler.update()"),
        ("loss = opt.step(closure)  # one step", "loss = closure()\nscaler.step(opt)  # one step\nscaler.update()"),
        ("total += opt.step(closure=closure).item()", "total += closure().item()\nscaler.step(opt)\nscaler.update()"),
        ("if x.sum() > 0: opt.step(closure)", "if x.sum() > 0: closure(); scaler.step(opt); scaler.update()"),
    ],
)
def test_is_called_and_then_stepped(step: str, after: str) -> None:
    assert steps_of(step) == after


def test_a_step_that_is_returned() -> None:
    text = HEAD + textwrap.dedent(
        """
        class Trainer:
            def __init__(self):
                self.opt = torch.optim.Adam(net.parameters())

            def closure(self):
                self.opt.zero_grad()
                self.value = F.mse_loss(net(self.x), self.y)
                self.value.backward()
                return self.value

            def learn(self, x, y):
                self.x, self.y = x, y
                return self.opt.step(self.closure)
        """
    )
    assert migrate_source(text, "train.py").text.endswith(
        "        loss = self.closure()\n"
        "        self.scaler.step(self.opt)\n"
        "        self.scaler.update()\n"
        "        return loss\n"
    )


def test_a_closure_in_a_method_sees_its_scaler() -> None:
    text = HEAD + textwrap.dedent(
        """
        class Trainer:
            def __init__(self):
                self.opt = torch.optim.Adam(net.parameters())

            def learn(self, x, y):
                def closure():
                    self.opt.zero_grad()
                    loss = F.mse_loss(net(x), y)
                    loss.backward()
                    return loss

                self.opt.step(closure)
        """
    )
    assert migrate_source(text, "train.py").text.endswith(
        "            self.scaler.scale(loss).backward()\n"
        "            return loss\n\n"
        "        closure()\n"
        "        self.scaler.step(self.opt)\n"
        "        self.scaler.update()\n"
    )


def test_bfloat16_leaves_it() -> None:
    result = migrate_source(HEAD + CLOSURE.format(step="opt.step(closure)"), "train.py", options=Options("bfloat16"))
    assert result.text.endswith("        loss.backward()\n        return loss\n\n    opt.step(closure)\n")
    assert "            loss = F.mse_loss(net(x), y)\n" in result.text


@pytest.mark.parametrize(
    ("head", "step"),
    [
        (HEAD, "print(opt.step(closure))\n    opt.step(lambda: 1)"),
        (HEAD, "if opt.step(closure) > 1: break"),
        (HEAD.replace("torch.optim.SGD(net", "Other(net"), "opt.step(closure)"),
        (HEAD.replace("torch.optim.SGD(net", "make(net"), "opt.step(closure)"),
    ],
)
def test_is_refused(head: str, step: str) -> None:
    text = head + CLOSURE.format(step=step)
    result = migrate_source(text, "train.py")
    assert result.text == text
    assert "closure" in result.loops[0].reason


def test_lbfgs_is_refused() -> None:
    text = HEAD.replace("SGD(net", "LBFGS(net") + CLOSURE.format(step="opt.step(closure)")
    assert "LBFGS evaluates" in migrate_source(text, "train.py").loops[0].reason
