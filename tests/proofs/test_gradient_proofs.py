"""AMP101, AMP102 and AMP301 to AMP311: regions around backward and step, and gradients that carry the scale."""

from __future__ import annotations

import math
from typing import Any

import pytest

from amplint import check_source, fix_source
from amplint.settings import Settings

from .helpers import cpu, fixed, problem, run, torch


def train(text: str, lr: float = 1.0, **names: Any) -> tuple[Any, float]:
    """What `train` of a text returns, and how far the weights moved."""
    model, x, y = problem()
    before = [weight.detach().clone() for weight in model.parameters()]
    result = run(cpu(text), **names)["train"](model, x, y, torch.optim.SGD(model.parameters(), lr=lr))
    moved = sum((new - old).square().sum().item() for new, old in zip(model.parameters(), before, strict=True))
    return result, math.sqrt(moved)


ISLAND = """\
import torch


def train(weight, x):
    scaler = torch.amp.GradScaler("cuda", init_scale=1.0)
    with torch.autocast("cuda", dtype=torch.float16):
        with torch.autocast("cuda", enabled=False):
            out = x.float() @ weight * 300.0
        loss = (out**2).mean()
        scaler.scale(loss).backward()
"""


def test_a_backward_in_the_region_overflows_behind_a_float32_island() -> None:
    def gradient(text: str) -> float:
        torch.manual_seed(0)
        weight, x = torch.nn.Parameter(torch.randn(8, 8)), torch.randn(4, 8)
        run(cpu(text))["train"](weight, x)
        assert weight.grad is not None
        return float(weight.grad.norm())

    after = fixed("AMP101", ISLAND, 10)
    assert not math.isfinite(gradient(ISLAND))
    assert gradient(after) == pytest.approx(271064, rel=1e-3)


ONE_REGION = """\
import torch


def train(model, x, y, optimizer):
    scaler = torch.amp.GradScaler("cuda", init_scale=1024.0)
    losses = []
    with torch.autocast("cuda", dtype=torch.float16):
        for _ in range(30):
            optimizer.zero_grad()
            out = model(x)
            loss = torch.nn.functional.mse_loss(out.float(), y)
            losses.append(loss.item())
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
    return losses
"""
REGION_A_ROUND = """\
import torch


def train(model, x, y, optimizer):
    scaler = torch.amp.GradScaler("cuda", init_scale=1024.0)
    losses = []
    for _ in range(30):
        optimizer.zero_grad()
        with torch.autocast("cuda", dtype=torch.float16):
            out = model(x)
            loss = torch.nn.functional.mse_loss(out.float(), y)
        losses.append(loss.item())
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
    return losses
"""


def test_a_loop_in_one_region_sees_the_old_weights_for_ever() -> None:
    found = check_source(ONE_REGION, "train.py", Settings(select=("AMP102",)))
    assert [(diagnostic.location.row, diagnostic.level.label) for diagnostic in found] == [(14, "error")]
    frozen, moved = train(ONE_REGION, lr=0.1)
    assert len(set(frozen)) == 1
    assert moved > 0.1
    assert check_source(REGION_A_ROUND, "train.py", Settings(select=("AMP102",))) == []
    falling, _ = train(REGION_A_ROUND, lr=0.1)
    assert falling[-1] < 0.5 * falling[0]


CLIPPED = """\
import torch


def train(model, x, y, optimizer):
    scaler = torch.amp.GradScaler("cuda", init_scale=4096.0)
    norm = None
    for _ in range(1):
        optimizer.zero_grad()
        with torch.autocast("cuda", dtype=torch.float16):
            out = model(x)
            loss = torch.nn.functional.mse_loss(out.float() * 8, y * 8)
        scaler.scale(loss).backward()
{steps}
    return norm
"""


def clipped(*steps: str) -> str:
    """One iteration with these statements after the backward."""
    return CLIPPED.format(steps="\n".join(f"        {step}" for step in steps))


NORM = "norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)"
VALUE = "torch.nn.utils.clip_grad_value_(model.parameters(), 0.1)"


def test_a_norm_clipped_while_scaled_leaves_a_step_of_one_by_scale() -> None:
    text = clipped(NORM, "scaler.step(optimizer)", "scaler.update()")
    after = fixed("AMP301", text, 13)
    norm, moved = train(text)
    right, step = train(after)
    assert moved == pytest.approx(1 / 4096, rel=1e-3)
    assert step == pytest.approx(1.0, rel=1e-3)
    assert norm / right == pytest.approx(4096, rel=1e-2)


def test_values_clipped_while_scaled_leave_next_to_nothing() -> None:
    text = clipped(VALUE, "scaler.step(optimizer)", "scaler.update()")
    after = fixed("AMP301", text, 13)
    assert train(text)[1] < 1e-3 * train(after)[1]


READ = "norm = model[0].weight.grad.norm()"


def test_a_norm_read_while_scaled_is_as_many_times_too_large() -> None:
    text = clipped(READ, "scaler.step(optimizer)", "scaler.update()")
    after = fixed("AMP302", text, 13)
    assert train(text)[0] / train(after)[0] == pytest.approx(4096, rel=1e-3)


def test_a_clip_after_the_step_does_nothing() -> None:
    text = clipped("scaler.step(optimizer)", NORM.removeprefix("norm = "), "scaler.update()")
    after = fixed("AMP309", text, 14)
    none = clipped("scaler.step(optimizer)", "scaler.update()")
    assert train(text)[1] == train(none)[1]
    assert train(text)[1] > 10
    assert train(after)[1] == pytest.approx(1.0, rel=1e-3)


STRICT = """\
import torch


def train(model, x, y, optimizer):
    scaler = torch.amp.GradScaler("cuda", init_scale=2.0**26)
    for _ in range(20):
        optimizer.zero_grad()
        with torch.autocast("cuda", dtype=torch.float16):
            out = model(x)
            loss = torch.nn.functional.mse_loss(out.float(), y)
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0, error_if_nonfinite=True)
        scaler.step(optimizer)
        scaler.update()
    return scaler.get_scale()
"""


def test_an_error_for_infinite_norms_ends_the_calibration() -> None:
    after = fixed("AMP310", STRICT, 13)
    with pytest.raises(RuntimeError, match="is non-finite"):
        train(STRICT)
    assert train(after)[0] < 2.0**26


PENALTY = """\
import torch


def train(model, x, y, optimizer):
    scaler = torch.amp.GradScaler("cuda", init_scale=2.0**14)
    x = x.detach().requires_grad_()
    with torch.autocast("cuda", dtype=torch.float16):
        out = model(x)
        loss = torch.nn.functional.mse_loss(out.float(), y)
    (grad,) = torch.autograd.grad(scaler.scale(loss), [x], create_graph=True)
    penalty = grad.norm()
    scaler.scale(loss + penalty).backward()
    scaler.step(optimizer)
    scaler.update()
    return penalty.item()
"""


def test_a_penalty_of_scaled_gradients_is_as_many_times_too_large() -> None:
    after = fixed("AMP306", PENALTY, 11)
    assert train(PENALTY)[0] / train(after)[0] == pytest.approx(2.0**14, rel=1e-2)


LOGGED = """\
import torch


def train(model, x, y, optimizer):
    scaler = torch.amp.GradScaler("cuda")
    total = 0.0
    for _ in range(1):
        optimizer.zero_grad()
        with torch.autocast("cuda", dtype=torch.float16):
            out = model(x)
            loss = torch.nn.functional.mse_loss(out.float(), y)
        loss = scaler.scale(loss)
        loss.backward()
        scaler.step(optimizer)
        scaler.update()
        total += loss.item()
    return total
"""


def test_a_scaled_loss_in_the_log_is_65536_times_too_large() -> None:
    after = fixed("AMP308", LOGGED, 16)
    assert train(LOGGED)[0] / train(after)[0] == pytest.approx(65536)


VECTOR = """\
import torch


def train(model, x, y, optimizer):
    scaler = torch.amp.GradScaler("cuda", init_scale=65536.0)
    for _ in range(1):
        optimizer.zero_grad()
        with torch.autocast("cuda", dtype=torch.float16):
            loss = model(x) * 0 + 2.0
        scaled = scaler.scale(loss).mean()
        scaled.backward()
    return scaled.item()
"""


def test_a_scaled_half_vector_overflows_before_it_is_reduced() -> None:
    found = check_source(VECTOR, "train.py", Settings(select=("AMP311",)))
    assert [diagnostic.location.row for diagnostic in found] == [10]
    after = fix_source(VECTOR, "train.py", Settings(select=("AMP311",)), unsafe=True).text
    assert train(VECTOR)[0] == math.inf
    assert train(after)[0] == 2.0 * 65536
