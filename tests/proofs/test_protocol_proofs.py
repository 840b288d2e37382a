"""AMP201 to AMP214: what breaking the scaler's protocol does on real torch, and that the fixed text does not do it."""

from __future__ import annotations

import math
from typing import Any

import pytest

from amplint import check_source
from amplint.settings import Settings

from .helpers import cpu, fixed, problem, run, torch

HEAD = """\
import torch


"""
LOOP = (
    HEAD
    + """\
def train(model, x, y, optimizer):
    scaler = torch.amp.GradScaler("cuda", init_scale=1024.0)
    losses = []
    for _ in range(50):
        optimizer.zero_grad()
        with torch.autocast("cuda", dtype=torch.float16):
            out = model(x)
            loss = torch.nn.functional.mse_loss(out.float(), y)
        losses.append(loss.item())
{steps}
    return losses
"""
)


def loop(*steps: str) -> str:
    """The documented loop with these statements behind the forward."""
    return LOOP.format(steps="\n".join(f"        {step}" for step in steps))


def losses(text: str, lr: float = 0.1) -> Any:
    """What `train` of a text returns on the small problem, with SGD."""
    model, x, y = problem()
    return run(cpu(text))["train"](model, x, y, torch.optim.SGD(model.parameters(), lr=lr))


def learns(text: str) -> bool:
    """Whether the loss falls to what plain training reaches."""
    seen = losses(text)
    return len(seen) == 50 and seen[-1] < 0.5 * seen[0]


RAISING = {
    "AMP201": (
        loop("scaler.scale(loss).backward()", "scaler.step(optimizer)"),
        14,
        "step() has already been called since the last update()",
    ),
    "AMP203": (
        loop("scaler.scale(loss).backward()", "scaler.update()", "scaler.step(optimizer)"),
        14,
        "No inf checks were recorded prior to update",
    ),
    "AMP205": (
        loop("scaler.scale(loss).backward()", "scaler.step(optimizer)", "scaler.step(optimizer)", "scaler.update()"),
        15,
        "step() has already been called since the last update()",
    ),
    "AMP206": (
        loop("scaler.scale(loss).backward()", "optimizer.step()", "scaler.update()"),
        14,
        "No inf checks were recorded prior to update",
    ),
    "AMP208": (
        loop("loss.backward()", "scaler.step(optimizer)", "scaler.update()"),
        13,
        "Attempted step but _scale is None",
    ),
    "AMP214": (
        loop("scaler.scale(loss).backward()", "optimizer.zero_grad()", "scaler.step(optimizer)", "scaler.update()"),
        14,
        "No inf checks were recorded for this optimizer",
    ),
    "AMP303": (
        loop(
            "scaler.scale(loss).backward()",
            "scaler.unscale_(optimizer)",
            "scaler.unscale_(optimizer)",
            "scaler.step(optimizer)",
            "scaler.update()",
        ),
        15,
        "unscale_() has already been called on this optimizer",
    ),
    "AMP304": (
        loop(
            "scaler.scale(loss).backward()",
            "scaler.step(optimizer)",
            "scaler.unscale_(optimizer)",
            "scaler.update()",
        ),
        15,
        "unscale_() is being called after step()",
    ),
}
"""By code: a text, the row of the finding, and what torch says."""


@pytest.mark.parametrize("code", RAISING)
def test_torch_raises_and_the_fixed_text_learns(code: str) -> None:
    text, row, message = RAISING[code]
    after = fixed(code, text, row)
    with pytest.raises((RuntimeError, AssertionError)) as caught:
        losses(text)
    assert message in str(caught.value)
    assert learns(after)


@pytest.mark.parametrize("code", RAISING)
def test_a_disabled_scaler_accepts_all_of_them(code: str) -> None:
    text = RAISING[code][0].replace("init_scale=1024.0", "enabled=False")
    assert len(losses(text)) == 50


SKIPPING = """\
import torch


def train(model, x, y, optimizer):
    scaler = torch.amp.GradScaler("cuda", init_scale=2.0**26)
    for step in range(8):
        optimizer.zero_grad()
        with torch.autocast("cuda", dtype=torch.float16):
            out = model(x)
            loss = torch.nn.functional.mse_loss(out.float(), y)
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        if not torch.isfinite(norm):
            continue
        scaler.step(optimizer)
        scaler.update()
    return scaler.get_scale()
"""


def test_a_skipped_update_raises_at_the_first_overflow() -> None:
    after = fixed("AMP202", SKIPPING, 12)
    with pytest.raises(RuntimeError, match="has already been called on this optimizer since the last update"):
        losses(SKIPPING)
    assert losses(after) < 2.0**26


BETWEEN = """\
import torch


def train(a, b, first, second):
    scaler = torch.amp.GradScaler("cuda", init_scale=1024.0, growth_interval=1)
    for _ in range(1):
        scaler.scale((a * 0.5).sum() + (b * 0.5).sum()).backward()
        scaler.step(first)
        scaler.update()
        scaler.step(second)
        scaler.update()
"""


def test_an_update_between_optimizers_halves_the_second_step() -> None:
    def step_of_second(text: str) -> float:
        a, b = torch.nn.Parameter(torch.ones(4)), torch.nn.Parameter(torch.ones(4))
        run(cpu(text))["train"](a, b, torch.optim.SGD([a], lr=1.0), torch.optim.SGD([b], lr=1.0))
        return 1.0 - float(b.mean())

    after = fixed("AMP204", BETWEEN, 9)
    assert step_of_second(BETWEEN) == 0.25
    assert step_of_second(after) == 0.5


BYPASS = loop("scaler.scale(loss).backward()", "optimizer.step()")


def test_a_plain_step_on_scaled_gradients_destroys_the_weights() -> None:
    assert [found.code for found in check_source(BYPASS, "train.py", Settings(select=("AMP206",)))] == []
    known = BYPASS.replace("optimizer):", "_):").replace(
        "    losses = []", "    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)\n    losses = []"
    )
    assert [found.location.row for found in check_source(known, "train.py", Settings(select=("AMP206",)))] == [15]
    assert not math.isfinite(losses(known)[-1])


def test_a_second_step_uses_the_same_gradients_again() -> None:
    text = loop("scaler.scale(loss).backward()", "scaler.step(optimizer)", "optimizer.step()", "scaler.update()")

    def moved(text: str) -> float:
        model, x, y = problem()
        before = [weight.detach().clone() for weight in model.parameters()]
        once = text.replace("range(50)", "range(1)")
        run(cpu(once))["train"](model, x, y, torch.optim.SGD(model.parameters(), lr=0.1))
        return math.sqrt(
            sum((new - old).square().sum().item() for new, old in zip(model.parameters(), before, strict=True))
        )

    after = fixed("AMP207", text, 15)
    assert moved(text) == pytest.approx(2 * moved(after), rel=1e-4)


PARTLY_SCALED = """\
import torch


def train(model, x, y, optimizer):
    scaler = torch.amp.GradScaler("cuda", init_scale=1024.0)
    for _ in range(1):
        optimizer.zero_grad()
        with torch.autocast("cuda", dtype=torch.float16):
            out = model(x)
            loss = torch.nn.functional.mse_loss(out.float(), y)
            extra = (out.float() - 1).abs().mean()
        scaler.scale(loss).backward(retain_graph=True)
        extra.backward()
        scaler.step(optimizer)
        scaler.update()
"""


def gradients(text: str) -> Any:
    """The gradients that the step used, as one vector."""
    model, x, y = problem()
    run(cpu(text))["train"](model, x, y, torch.optim.SGD(model.parameters(), lr=0.0))
    return torch.cat([weight.grad.reshape(-1) for weight in model.parameters()])


def test_a_loss_that_is_not_scaled_is_dropped() -> None:
    after = fixed("AMP208", PARTLY_SCALED, 13)
    alone = gradients(PARTLY_SCALED.replace("        extra.backward()\n", ""))
    share = gradients(after) - alone
    weight = torch.dot(gradients(PARTLY_SCALED) - alone, share) / torch.dot(share, share)
    assert weight.item() == pytest.approx(1 / 1024, rel=0.02)


ACCUMULATING = """\
import torch


def train(model, x, y, optimizer):
    scaler = torch.amp.GradScaler("cuda", init_scale=1024.0)
    for i in range(4):
        with torch.autocast("cuda", dtype=torch.float16):
            out = model(x[i::4])
            loss = torch.nn.functional.mse_loss(out.float(), y[i::4]) / 4
        scaler.scale(loss).backward()
{after_backward}
        if (i + 1) % 4 == 0:
            scaler.step(optimizer)
{end}
"""
UPDATE_OFTEN = ACCUMULATING.format(after_backward="", end="        scaler.update()")
UNSCALE_OFTEN = ACCUMULATING.format(
    after_backward="        scaler.unscale_(optimizer)", end="            scaler.update()"
)
RIGHT = ACCUMULATING.format(after_backward="", end="            scaler.update()")


@pytest.mark.parametrize(
    ("code", "text", "row", "message"),
    [
        ("AMP209", UPDATE_OFTEN, 14, "No inf checks were recorded prior to update"),
        ("AMP305", UNSCALE_OFTEN, 11, "unscale_() has already been called on this optimizer"),
    ],
)
def test_what_belongs_to_the_boundary_raises_in_every_micro_batch(code: str, text: str, row: int, message: str) -> None:
    after = fixed(code, text, row)
    with pytest.raises((RuntimeError, AssertionError)) as caught:
        gradients(text)
    assert message in str(caught.value)
    assert torch.equal(gradients(after), gradients(RIGHT))


CLOSURE = """\
import torch


def train(model, x, y, optimizer):
    scaler = torch.amp.GradScaler("cuda", init_scale=1024.0)

    def closure():
        optimizer.zero_grad()
        with torch.autocast("cuda", dtype=torch.float16):
            out = model(x)
            loss = torch.nn.functional.mse_loss(out.float(), y)
        scaler.scale(loss).backward()
        return loss

    for _ in range(10):
        closure()
        scaler.step(optimizer, {argument})
        scaler.update()
    return closure().item()
"""


@pytest.mark.parametrize("argument", ["closure", "closure=closure"])
def test_closures_are_found(argument: str) -> None:
    text = CLOSURE.format(argument=argument)
    assert [d.location.row for d in check_source(text, "train.py", Settings(select=("AMP210",)))] == [17]


def test_a_closure_by_keyword_raises_and_by_position_steps_on_scaled_gradients() -> None:
    with pytest.raises(RuntimeError, match="Closure use is not currently supported"):
        losses(CLOSURE.format(argument="closure=closure"))
    assert not losses(CLOSURE.format(argument="closure"), lr=0.05) < 10.0


REBUILT = """\
import torch


def train(model, x, y, optimizer):
    skipped = 0
    for _ in range(40):
        scaler = torch.amp.GradScaler("cuda", init_scale=2.0**26)
        optimizer.zero_grad()
        with torch.autocast("cuda", dtype=torch.float16):
            out = model(x)
            loss = torch.nn.functional.mse_loss(out.float(), y)
        before = model[0].weight.detach().clone()
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        skipped += torch.equal(before, model[0].weight)
    return skipped
"""


def test_a_scaler_in_the_loop_skips_every_step() -> None:
    after = fixed("AMP211", REBUILT, 7)
    assert losses(REBUILT) == 40
    assert losses(after) < 20


WRAPPED = """\
import torch


class Wrapper:
    def __init__(self, optimizer):
        self.optimizer = optimizer
        self.param_groups = optimizer.param_groups

    def step(self):
        self.optimizer.step()


def train(weight, optimizer):
    scaler = torch.amp.GradScaler("cuda", init_scale=1024.0)
    wrapper = Wrapper(optimizer)
    for _ in range(1):
        scaler.scale(weight.sum()).backward()
        scaler.unscale_(wrapper)
        scaler.step(wrapper.optimizer)
        scaler.update()
"""


def test_a_wrapper_and_what_it_wraps_are_divided_twice() -> None:
    def step(text: str) -> float:
        weight = torch.nn.Parameter(torch.ones(4))
        run(cpu(text))["train"](weight, torch.optim.SGD([weight], lr=1.0))
        return 1.0 - float(weight.mean())

    found = check_source(WRAPPED, "train.py", Settings(select=("AMP213",)))
    assert [diagnostic.location.row for diagnostic in found] == [18]
    assert step(WRAPPED) == pytest.approx(1 / 1024)
    assert step(WRAPPED.replace("step(wrapper.optimizer)", "step(wrapper)")) == 1.0
