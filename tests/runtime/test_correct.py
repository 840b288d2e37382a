"""Correct training, also of unusual shapes: the monitor is silent and counts right."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, nullcontext

import pytest
import torch
from torch import nn
from torch.nn.utils import clip_grad_norm_

from amplint.runtime import Monitor
from tests.runtime.training import loss_of, problem, scaler, sgd, watch


def ordinary() -> None:
    model, inputs, targets = problem()
    optimizer, scaling = sgd(model), scaler()
    for _ in range(3):
        optimizer.zero_grad()
        scaling.scale(loss_of(model, inputs, targets)).backward()
        scaling.unscale_(optimizer)
        clip_grad_norm_(model.parameters(), 1.0)
        scaling.step(optimizer)
        scaling.update()


def zeros_kept_by_the_module() -> None:
    model, inputs, targets = problem()
    optimizer, scaling = sgd(model), scaler()
    for _ in range(3):
        model.zero_grad(set_to_none=False)
        scaling.scale(loss_of(model, inputs, targets)).backward()
        scaling.step(optimizer)
        scaling.update()


def zeroed_by_hand() -> None:
    model, inputs, targets = problem()
    optimizer, scaling = sgd(model), scaler()
    for step in range(4):
        for parameter in model.parameters():
            if parameter.grad is not None and step % 2:
                parameter.grad.zero_()
            else:
                parameter.grad = None
        scaling.scale(loss_of(model, inputs, targets)).backward()
        scaling.step(optimizer)
        scaling.update()


def accumulation_with_a_tail() -> None:
    model, inputs, targets = problem()
    optimizer, scaling = sgd(model), scaler()
    for step in range(5):
        scaling.scale(loss_of(model, inputs, targets) / 2).backward()
        if step % 2 == 1 or step == 4:
            scaling.unscale_(optimizer)
            clip_grad_norm_(model.parameters(), 1.0)
            scaling.step(optimizer)
            scaling.update()
            optimizer.zero_grad()


def two_optimizers_one_loss() -> None:
    model, inputs, targets = problem()
    optimizers, scaling = [sgd(model[0]), sgd(model[2])], scaler()  # type: ignore[index]
    for _ in range(3):
        for optimizer in optimizers:
            optimizer.zero_grad()
        scaling.scale(loss_of(model, inputs, targets)).backward()
        for optimizer in optimizers:
            scaling.step(optimizer)
        scaling.update()


def adversarial() -> None:
    generator, inputs, _ = problem()
    critic = nn.Linear(1, 1)
    first, second, scaling = sgd(generator), sgd(critic), scaler()
    for _ in range(3):
        second.zero_grad()
        with torch.autocast("cpu", dtype=torch.float16):
            loss = critic(generator(inputs).detach()).float().mean()
        scaling.scale(loss).backward()
        scaling.step(second)
        scaling.update()
        first.zero_grad()
        with torch.autocast("cpu", dtype=torch.float16):
            loss = -critic(generator(inputs)).float().mean()
        scaling.scale(loss).backward()
        scaling.step(first)
        scaling.update()


def two_scalers() -> None:
    model, inputs, targets = problem()
    other, _, _ = problem(1)
    pairs = [(model, sgd(model), scaler(256.0)), (other, sgd(other), scaler(1024.0))]
    for _ in range(3):
        for network, optimizer, scaling in pairs:
            optimizer.zero_grad()
            scaling.scale(loss_of(network, inputs, targets)).backward()
            scaling.step(optimizer)
            scaling.update()


def several_losses() -> None:
    model, inputs, targets = problem()
    optimizer, scaling = sgd(model), scaler()
    for _ in range(2):
        optimizer.zero_grad()
        losses = [loss_of(model, inputs, targets), loss_of(model, inputs, -targets)]
        first, second = scaling.scale(losses)
        (first + 0.5 * second).backward(retain_graph=True)
        torch.autograd.backward([first, second])
        scaling.step(optimizer)
        scaling.update()


def disabled_scaler() -> None:
    model, inputs, targets = problem()
    optimizer, scaling = sgd(model), scaler(enabled=False)
    for _ in range(2):
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(inputs), targets)
        scaling.scale(loss).backward()
        clip_grad_norm_(model.parameters(), 1.0)
        scaling.unscale_(optimizer)
        scaling.unscale_(optimizer)
        scaling.step(optimizer)
        scaling.step(optimizer)


def bfloat16_without_scaler() -> None:
    model, inputs, targets = problem()
    optimizer = sgd(model)
    with ExitStack() as stack:
        stack.enter_context(nullcontext())
        for _ in range(2):
            optimizer.zero_grad()
            with torch.autocast("cpu", dtype=torch.bfloat16):
                output = model(inputs)
            nn.functional.mse_loss(output.float(), targets).backward()
            clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()


def float32_model_beside_a_scaled_one() -> None:
    model, inputs, targets = problem()
    teacher, _, _ = problem(1)
    optimizer, plain, scaling = sgd(model), sgd(teacher), scaler()
    for _ in range(2):
        plain.zero_grad()
        nn.functional.mse_loss(teacher(inputs), targets).backward()
        clip_grad_norm_(teacher.parameters(), 1.0)
        plain.step()
        plain.step()
        optimizer.zero_grad()
        scaling.scale(loss_of(model, inputs, targets)).backward()
        scaling.step(optimizer)
        scaling.update()


def gradient_penalty() -> None:
    model, inputs, targets = problem()
    optimizer, scaling = sgd(model), scaler()
    for _ in range(2):
        optimizer.zero_grad()
        loss = loss_of(model, inputs, targets)
        gradients = torch.autograd.grad(scaling.scale(loss), list(model.parameters()), create_graph=True)
        penalty = sum((gradient / scaling.get_scale()).pow(2).sum() for gradient in gradients)
        scaling.scale(loss + penalty).backward()
        scaling.step(optimizer)
        scaling.update()


def threshold_that_carries_the_scale() -> None:
    model, inputs, targets = problem()
    optimizer, scaling = sgd(model), scaler()
    for _ in range(2):
        optimizer.zero_grad()
        scaling.scale(loss_of(model, inputs, targets)).backward()
        clip_grad_norm_(model.parameters(), 0.5 * scaling.get_scale())
        scaling.step(optimizer)
        scaling.update()


def scaled_by_hand() -> None:
    model, inputs, targets = problem()
    optimizer, scaling = sgd(model), scaler()
    scaling.scale(torch.zeros(1))
    for _ in range(2):
        optimizer.zero_grad()
        (loss_of(model, inputs, targets) * scaling.get_scale()).backward()
        scaling.step(optimizer)
        scaling.update()


def unscaled_by_hand() -> None:
    model, inputs, targets = problem()
    optimizer, scaling = sgd(model), scaler()
    for _ in range(2):
        optimizer.zero_grad()
        scaling.scale(loss_of(model, inputs, targets)).backward()
        for parameter in model.parameters():
            assert parameter.grad is not None
            parameter.grad.div_(1024.0)
        optimizer.step()


def fixed_scale_with_adam() -> None:
    model, inputs, targets = problem()
    optimizer, scaling = torch.optim.Adam(model.parameters()), scaler()
    for _ in range(2):
        optimizer.zero_grad()
        scaling.scale(loss_of(model, inputs, targets)).backward()
        optimizer.step()


def gradients_put_there_by_hand() -> None:
    model, _, _ = problem()
    optimizer, scaling = sgd(model), scaler()
    scaling.scale(torch.zeros(1))
    for parameter in model.parameters():
        parameter.grad = torch.ones_like(parameter) * 1024.0
    scaling.step(optimizer)
    scaling.update()


def gradient_given_to_backward() -> None:
    model, inputs, _ = problem()
    optimizer, scaling = sgd(model), scaler()
    hidden = model[0](inputs)  # type: ignore[index]
    leaf = hidden.detach().requires_grad_()
    scaling.scale(leaf.pow(2).mean()).backward()
    hidden.backward(leaf.grad)
    scaling.step(optimizer)
    scaling.update()


def nothing_to_unscale_in_this_iteration() -> None:
    model, inputs, targets = problem()
    other, _, _ = problem(1)
    first, second, scaling = sgd(model), sgd(other), scaler()
    scaling.scale(loss_of(model, inputs, targets)).backward()
    scaling.unscale_(first)
    scaling.unscale_(second)
    scaling.step(first)
    scaling.update()


def abandoned_iteration() -> None:
    model, inputs, targets = problem()
    optimizer, scaling = sgd(model), scaler(2.0**40)
    for _ in range(3):
        optimizer.zero_grad()
        scaling.scale(loss_of(model, inputs, targets)).backward()
        scaling.unscale_(optimizer)
        if not torch.isfinite(clip_grad_norm_(model.parameters(), 1.0)):
            scaling.update()
            continue
        scaling.step(optimizer)
        scaling.update()


class Lookahead(torch.optim.Optimizer):
    def __init__(self, base: torch.optim.Optimizer) -> None:
        self.base = base
        super().__init__(base.param_groups, {})

    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        self.base.step()


def optimizer_in_an_optimizer() -> None:
    model, inputs, targets = problem()
    optimizer, scaling = Lookahead(sgd(model)), scaler()
    for _ in range(3):
        optimizer.zero_grad()
        scaling.scale(loss_of(model, inputs, targets)).backward()
        scaling.unscale_(optimizer)
        clip_grad_norm_(model.parameters(), 1.0)
        scaling.step(optimizer)
        scaling.update()


class StaticScaler(torch.amp.GradScaler):
    def scale(self, outputs: torch.Tensor) -> torch.Tensor:  # type: ignore[override]
        if self._scale is None:
            self._lazy_init_scale_growth_tracker(outputs.device)
        return outputs * 1024.0


def scaler_of_ones_own() -> None:
    model, inputs, targets = problem()
    optimizer, scaling = sgd(model), StaticScaler("cpu", init_scale=1024.0)
    for _ in range(3):
        optimizer.zero_grad()
        scaling.scale(loss_of(model, inputs, targets)).backward()
        scaling.step(optimizer)
        scaling.update()


def checkpointed_forward() -> None:
    model, inputs, targets = problem()
    optimizer, scaling = sgd(model), scaler()
    for reentrant in (True, False):
        optimizer.zero_grad()
        with torch.autocast("cpu", dtype=torch.float16):
            hidden = inputs.clone().requires_grad_()
            output = torch.utils.checkpoint.checkpoint(model, hidden, use_reentrant=reentrant)
        scaling.scale(nn.functional.mse_loss(output.float(), targets)).backward()
        scaling.step(optimizer)
        scaling.update()


def island_of_float32() -> None:
    model, inputs, targets = problem()
    optimizer, scaling = sgd(model), scaler()
    with torch.autocast("cpu", dtype=torch.float16):
        output = model(inputs)
        with torch.autocast("cpu", enabled=False):
            loss = nn.functional.mse_loss(output.float(), targets)
            scaling.scale(loss).backward()
    scaling.step(optimizer)
    scaling.update()


def pre_existing_scaler_and_optimizer() -> Iterator[None]:
    model, inputs, targets = problem()
    optimizer, scaling = sgd(model), scaler()
    scaling.scale(loss_of(model, inputs, targets)).backward()
    scaling.unscale_(optimizer)
    yield
    clip_grad_norm_(model.parameters(), 1.0)
    scaling.step(optimizer)
    scaling.update()


CORRECT: list[Callable[[], None]] = [
    ordinary,
    zeros_kept_by_the_module,
    zeroed_by_hand,
    accumulation_with_a_tail,
    two_optimizers_one_loss,
    adversarial,
    two_scalers,
    several_losses,
    disabled_scaler,
    bfloat16_without_scaler,
    float32_model_beside_a_scaled_one,
    gradient_penalty,
    threshold_that_carries_the_scale,
    scaled_by_hand,
    unscaled_by_hand,
    fixed_scale_with_adam,
    gradients_put_there_by_hand,
    gradient_given_to_backward,
    nothing_to_unscale_in_this_iteration,
    abandoned_iteration,
    optimizer_in_an_optimizer,
    scaler_of_ones_own,
    checkpointed_forward,
    island_of_float32,
]


@pytest.mark.parametrize("training", CORRECT, ids=lambda training: training.__name__)
def test_correct_training_is_silent(training: Callable[[], None]) -> None:
    with Monitor() as monitor:
        training()
    assert monitor.report().violations == ()


def test_a_monitor_that_comes_late_finds_the_states_of_scalers_and_optimizers() -> None:
    training = pre_existing_scaler_and_optimizer()
    next(training)
    with Monitor() as monitor:
        assert next(training, "done") == "done"
    report = monitor.report()
    assert report.violations == ()
    assert (report.steps, report.skipped, report.scalers[0].updates) == (1, 0, 1)


def test_counts_of_an_ordinary_loop() -> None:
    report = watch(ordinary)
    assert report.backward == (3, 0, 0, 0)
    assert [(scaler.steps, scaler.skipped, scaler.updates, scaler.history) for scaler in report.scalers] == [
        (3, 0, 3, ((0, 1024.0),))
    ]
    assert [(region.device, region.dtype, region.enabled, region.entries) for region in report.regions] == [
        ("cpu", "float16", True, 3)
    ]
    assert (report.effective, report.plain_steps) == (True, 0)


def test_a_disabled_scaler_is_told_apart() -> None:
    report = watch(disabled_scaler)
    assert [scaler.enabled for scaler in report.scalers] == [False]
    assert (report.backward, report.plain_steps, report.steps, report.effective) == ((0, 2, 0, 0), 4, 0, False)


def test_threads_that_train_at_the_same_time_are_left_alone() -> None:
    running, inside = threading.Barrier(2, timeout=10), threading.Barrier(2, timeout=10)

    def meet(_: torch.Tensor) -> None:
        inside.wait()  # both are in a backward now

    def work() -> None:
        model, inputs, targets = problem()
        optimizer, scaling = sgd(model), scaler()
        for step in range(3):
            optimizer.zero_grad()
            loss = loss_of(model, inputs, targets)
            if step == 0:
                loss.register_hook(meet)
                running.wait()
            scaling.scale(loss).backward()
            scaling.step(optimizer)
            scaling.update()

    with Monitor() as monitor:
        threads = [threading.Thread(target=work) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    report = monitor.report()
    assert report.violations == ()
    assert {each.unchecked for each in report.scalers} == {"several threads train at the same time"}


def test_a_thread_that_trains_alone_is_watched() -> None:
    with Monitor() as monitor:
        thread = threading.Thread(target=ordinary)
        thread.start()
        thread.join()
    report = monitor.report()
    assert (report.violations, report.steps, report.scalers[0].unchecked) == ((), 3, "")
