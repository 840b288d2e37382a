"""Every misuse that the protocol knows, run for real: the monitor names it, at the line that is to blame."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator

import pytest
import torch
from torch import nn
from torch.nn.utils import clip_grad_norm_, clip_grad_value_

from tests.runtime.training import expected, loss_of, problem, scaler, sgd, violations, watch


def backward_in_autocast() -> None:
    model, inputs, targets = problem()
    optimizer, scaling = sgd(model), scaler()
    with torch.autocast("cpu", dtype=torch.float16):
        loss = nn.functional.mse_loss(model(inputs), targets)
        scaling.scale(loss).backward()  # breaks: backward-in-autocast
    scaling.step(optimizer)
    scaling.update()


def loop_in_autocast() -> None:
    model, inputs, targets = problem()
    optimizer, scaling = sgd(model), scaler()
    with torch.autocast("cpu", dtype=torch.float16):
        for _ in range(2):
            optimizer.zero_grad()
            loss = nn.functional.mse_loss(model(inputs), targets)
            scaling.scale(loss).backward()  # breaks: backward-in-autocast
            scaling.step(optimizer)  # breaks: step-in-autocast
            scaling.update()


def decorated_training_function() -> None:
    model, inputs, targets = problem()
    optimizer = sgd(model)

    @torch.autocast("cpu", dtype=torch.bfloat16)  # type: ignore[untyped-decorator]
    def train() -> None:
        for _ in range(2):
            optimizer.zero_grad()
            nn.functional.mse_loss(model(inputs), targets).backward()  # breaks: backward-in-autocast
            optimizer.step()  # breaks: step-in-autocast

    train()


def scale_never_called() -> None:
    model, inputs, targets = problem()
    optimizer, scaling = sgd(model), scaler()
    loss_of(model, inputs, targets).backward()  # breaks: unscaled-backward
    scaling.step(optimizer)


def scaled_loss_thrown_away() -> None:
    model, inputs, targets = problem()
    optimizer, scaling = sgd(model), scaler()
    for _ in range(2):
        optimizer.zero_grad()
        loss = loss_of(model, inputs, targets)
        scaling.scale(loss)
        loss.backward()  # breaks: unscaled-backward
        scaling.step(optimizer)
        scaling.update()


def plain_step() -> None:
    model, inputs, targets = problem()
    optimizer, scaling = sgd(model), scaler()
    for _ in range(2):
        optimizer.zero_grad()
        scaling.scale(loss_of(model, inputs, targets)).backward()
        optimizer.step()  # breaks: step-bypasses-scaler


def plain_step_and_update() -> None:
    model, inputs, targets = problem()
    optimizer, scaling = torch.optim.Adam(model.parameters()), scaler()
    scaling.scale(loss_of(model, inputs, targets)).backward()
    optimizer.step()  # breaks: step-bypasses-scaler
    scaling.update()


def both_steps() -> None:
    model, inputs, targets = problem()
    optimizer, scaling = sgd(model), scaler()
    scaling.scale(loss_of(model, inputs, targets)).backward()
    scaling.step(optimizer)
    optimizer.step()  # breaks: double-step
    scaling.update()


def no_update() -> None:
    model, inputs, targets = problem()
    optimizer, scaling = sgd(model), scaler()
    for _ in range(2):
        optimizer.zero_grad()
        scaling.scale(loss_of(model, inputs, targets)).backward()
        scaling.step(optimizer)  # breaks: missing-update


def no_update_with_unscale() -> None:
    model, inputs, targets = problem()
    optimizer, scaling = sgd(model), scaler()
    for _ in range(2):
        optimizer.zero_grad()
        scaling.scale(loss_of(model, inputs, targets)).backward()
        scaling.unscale_(optimizer)
        scaling.step(optimizer)  # breaks: missing-update


def update_on_one_branch_only() -> None:
    model, inputs, targets = problem()
    optimizer, scaling = sgd(model), scaler()
    for step in range(4):
        optimizer.zero_grad()
        scaling.scale(loss_of(model, inputs, targets)).backward()
        scaling.step(optimizer)  # breaks: update-skipped-on-path
        if step < 2:
            scaling.update()


def update_first() -> None:
    model, inputs, targets = problem()
    optimizer, scaling = sgd(model), scaler()
    scaling.scale(loss_of(model, inputs, targets)).backward()
    scaling.update()  # breaks: update-before-step
    scaling.step(optimizer)


def update_after_unscale() -> None:
    model, inputs, targets = problem()
    optimizer, scaling = sgd(model), scaler()
    scaling.scale(loss_of(model, inputs, targets)).backward()
    scaling.unscale_(optimizer)
    scaling.update()  # breaks: update-before-step
    scaling.step(optimizer)


def update_twice() -> None:
    model, inputs, targets = problem()
    optimizer, scaling = sgd(model), scaler()
    scaling.scale(loss_of(model, inputs, targets)).backward()
    scaling.step(optimizer)
    scaling.update()
    scaling.update()  # breaks: update-before-step


def update_with_every_micro_batch() -> None:
    model, inputs, targets = problem()
    optimizer, scaling = sgd(model), scaler()
    for step in range(4):
        scaling.scale(loss_of(model, inputs, targets)).backward()
        if step % 4 == 0:
            scaling.step(optimizer)
            optimizer.zero_grad()
        scaling.update()  # breaks: update-in-accumulation


def update_between_two_optimizers() -> None:
    model, inputs, targets = problem()
    first, second = sgd(model[0]), sgd(model[2])  # type: ignore[index]
    scaling = scaler()
    scaling.scale(loss_of(model, inputs, targets)).backward()
    scaling.step(first)
    scaling.update()  # breaks: update-between-optimizers
    scaling.step(second)


def clip_scaled_gradients() -> None:
    model, inputs, targets = problem()
    optimizer, scaling = sgd(model), scaler()
    for _ in range(2):
        optimizer.zero_grad()
        scaling.scale(loss_of(model, inputs, targets)).backward()
        clip_grad_norm_(model.parameters(), 1.0)  # breaks: clip-before-unscale
        torch.nn.utils.clip_grad_value_(list(model.parameters()), 0.1)  # breaks: clip-before-unscale
        scaling.step(optimizer)
        scaling.update()


def unscale_after_clip() -> None:
    model, inputs, targets = problem()
    optimizer, scaling = sgd(model), scaler()
    scaling.scale(loss_of(model, inputs, targets)).backward()
    clip_grad_value_(next(iter(model.parameters())), 0.1)  # breaks: clip-before-unscale
    scaling.unscale_(optimizer)
    scaling.step(optimizer)
    scaling.update()


def read_scaled_gradients() -> None:
    model, inputs, targets = problem()
    optimizer, scaling = sgd(model), scaler()
    scaling.scale(loss_of(model, inputs, targets)).backward()
    total = 0.0
    for parameter in model.parameters():
        if parameter.grad is not None:
            total += float(parameter.grad.norm())  # breaks: grad-read-before-unscale
    scaling.step(optimizer)
    scaling.update()


def norm_of_scaled_gradients() -> None:
    model, inputs, targets = problem()
    optimizer, scaling = sgd(model), scaler()
    scaling.scale(loss_of(model, inputs, targets)).backward()
    clip_grad_norm_(model.parameters(), float("inf"))  # breaks: grad-read-before-unscale
    scaling.step(optimizer)
    scaling.update()


def gradients_clipped_by_hand() -> None:
    model, inputs, targets = problem()
    optimizer, scaling = sgd(model), scaler()
    scaling.scale(loss_of(model, inputs, targets)).backward()
    for parameter in model.parameters():
        parameter.grad.clamp_(-1, 1)  # type: ignore[union-attr]  # breaks: grad-read-before-unscale
    scaling.step(optimizer)
    scaling.update()


def unscale_twice() -> None:
    model, inputs, targets = problem()
    optimizer, scaling = sgd(model), scaler()
    scaling.scale(loss_of(model, inputs, targets)).backward()
    scaling.unscale_(optimizer)
    scaling.unscale_(optimizer)  # breaks: unscale-twice


def unscale_after_step() -> None:
    model, inputs, targets = problem()
    optimizer, scaling = sgd(model), scaler()
    scaling.scale(loss_of(model, inputs, targets)).backward()
    scaling.step(optimizer)
    scaling.unscale_(optimizer)  # breaks: unscale-after-step


def step_twice() -> None:
    model, inputs, targets = problem()
    optimizer, scaling = sgd(model), scaler()
    scaling.scale(loss_of(model, inputs, targets)).backward()
    scaling.step(optimizer)
    scaling.step(optimizer)  # breaks: scaler-step-twice


def unscale_with_every_micro_batch() -> None:
    model, inputs, targets = problem()
    optimizer, scaling = sgd(model), scaler()
    for _ in range(2):
        scaling.scale(loss_of(model, inputs, targets) / 2).backward()
        scaling.unscale_(optimizer)  # breaks: unscale-in-accumulation
    scaling.step(optimizer)


def unscale_with_the_first_micro_batch() -> None:
    model, inputs, targets = problem()
    optimizer, scaling = sgd(model), scaler()
    for step in range(2):
        scaling.scale(loss_of(model, inputs, targets) / 2).backward()
        if step == 0:
            scaling.unscale_(optimizer)  # breaks: unscale-in-accumulation
    scaling.step(optimizer)
    scaling.update()


def unscale_before_backward() -> None:
    model, inputs, targets = problem()
    optimizer, scaling = sgd(model), scaler()
    scaled = scaling.scale(loss_of(model, inputs, targets))
    scaling.unscale_(optimizer)  # breaks: unscale-in-accumulation
    scaled.backward()
    scaling.step(optimizer)


def scaler_made_in_every_iteration() -> None:
    model, inputs, targets = problem()
    optimizer = sgd(model)
    for _ in range(3):
        scaling = torch.amp.GradScaler("cpu")  # breaks: scaler-in-loop
        optimizer.zero_grad()
        scaling.scale(loss_of(model, inputs, targets)).backward()
        scaling.step(optimizer)
        scaling.update()


def second_loss_not_scaled() -> None:
    model, inputs, targets = problem()
    optimizer, scaling = sgd(model), scaler()
    scaling.scale(loss_of(model, inputs, targets)).backward()
    loss_of(model, inputs, -targets).backward()  # breaks: unscaled-backward
    scaling.step(optimizer)
    scaling.update()


def first_loss_not_scaled() -> None:
    model, inputs, targets = problem()
    optimizer, scaling = sgd(model), scaler()
    loss_of(model, inputs, targets).backward()  # breaks: unscaled-backward
    scaling.scale(loss_of(model, inputs, -targets)).backward()
    scaling.step(optimizer)
    scaling.update()


def part_of_the_sum_not_scaled() -> None:
    model, inputs, targets = problem()
    optimizer, scaling = sgd(model), scaler()
    other = loss_of(model, inputs, -targets)
    (scaling.scale(loss_of(model, inputs, targets)) + other).backward()  # breaks: unscaled-backward
    scaling.step(optimizer)
    scaling.update()


def one_of_two_optimizers_outside() -> None:
    model, inputs, targets = problem()
    first, second = sgd(model[0]), sgd(model[2])  # type: ignore[index]
    scaling = scaler()
    for _ in range(2):
        model.zero_grad()
        scaling.scale(loss_of(model, inputs, targets)).backward()
        scaling.step(first)
        second.step()  # breaks: step-bypasses-scaler
        scaling.update()


def half_parameters() -> None:
    model, inputs, targets = problem()
    model.half()
    optimizer, scaling = sgd(model), scaler()
    scaling.scale(nn.functional.mse_loss(model(inputs.half()).float(), targets)).backward()
    scaling.step(optimizer)  # breaks: half-parameters-with-scaler


def autocast_object_nested_in_itself() -> None:
    region = torch.autocast("cpu", dtype=torch.bfloat16)
    with region, region:  # breaks: autocast-reentered
        pass
    torch.set_autocast_enabled("cpu", False)


def gradients_cleared_before_the_step() -> None:
    model, inputs, targets = problem()
    optimizer, scaling = sgd(model), scaler()
    scaling.scale(loss_of(model, inputs, targets)).backward()
    optimizer.zero_grad()  # breaks: no-gradients-at-step
    scaling.step(optimizer)


def gradients_zeroed_before_the_step() -> None:
    model, inputs, targets = problem()
    optimizer, scaling = sgd(model), scaler()
    for _ in range(2):
        scaling.scale(loss_of(model, inputs, targets)).backward()
        model.zero_grad(set_to_none=False)  # breaks: no-gradients-at-step
        scaling.step(optimizer)
        scaling.update()


def no_gradients() -> None:
    model, inputs, targets = problem()
    other, _, _ = problem(1)
    optimizer, scaling = sgd(other), scaler()
    scaling.scale(loss_of(model, inputs, targets)).backward()
    scaling.step(optimizer)  # breaks: no-gradients-at-step


def closure() -> None:
    model, inputs, targets = problem()
    optimizer, scaling = sgd(model), scaler()

    def evaluate() -> torch.Tensor:
        optimizer.zero_grad()
        loss = loss_of(model, inputs, targets)
        scaling.scale(loss).backward()
        return loss

    evaluate()
    scaling.step(optimizer, evaluate)  # breaks: scaler-step-with-closure
    scaling.update()


def closure_by_keyword() -> None:
    model, inputs, targets = problem()
    optimizer, scaling = sgd(model), scaler()
    scaling.scale(loss_of(model, inputs, targets)).backward()
    scaling.step(optimizer, closure=lambda: 0.0)  # breaks: scaler-step-with-closure


def error_if_nonfinite() -> None:
    model, inputs, targets = problem()
    optimizer, scaling = sgd(model), scaler()
    scaling.scale(loss_of(model, inputs, targets)).backward()
    scaling.unscale_(optimizer)
    clip_grad_norm_(model.parameters(), 1.0, error_if_nonfinite=True)  # breaks: clip-error-if-nonfinite
    scaling.step(optimizer)
    scaling.update()


def continue_after_unscale() -> None:
    model, inputs, targets = problem()
    optimizer, scaling = sgd(model), scaler(2.0**40)
    for _ in range(3):
        optimizer.zero_grad()
        scaling.scale(loss_of(model, inputs, targets)).backward()
        scaling.unscale_(optimizer)  # breaks: update-skipped-on-path
        if not torch.isfinite(clip_grad_norm_(model.parameters(), 1.0)):
            continue
        scaling.step(optimizer)
        scaling.update()


class Wrapper:
    def __init__(self, optimizer: torch.optim.Optimizer) -> None:
        self.optimizer = optimizer
        self.param_groups = optimizer.param_groups


def wrapper_unscaled_and_inner_stepped() -> None:
    model, inputs, targets = problem()
    wrapper, scaling = Wrapper(sgd(model)), scaler()
    scaling.scale(loss_of(model, inputs, targets)).backward()
    scaling.unscale_(wrapper)  # type: ignore[arg-type]
    scaling.step(wrapper.optimizer)  # breaks: optimizer-identity
    scaling.update()


def scaled_by_another_scaler() -> None:
    model, inputs, targets = problem()
    optimizer, one, other = sgd(model), scaler(1024.0), scaler(4096.0)
    other.scale(torch.ones(1))
    one.scale(loss_of(model, inputs, targets)).backward()  # breaks: unscaled-backward
    other.step(optimizer)
    other.update()


def clip_after_step() -> None:
    model, inputs, targets = problem()
    optimizer, scaling = sgd(model), scaler()
    scaling.scale(loss_of(model, inputs, targets)).backward()
    scaling.step(optimizer)
    clip_grad_norm_(model.parameters(), 1.0)  # breaks: clip-after-step
    scaling.update()


def generators_closed_in_the_order_of_opening() -> None:
    def region() -> Iterator[int]:
        with torch.autocast("cpu", dtype=torch.bfloat16):  # breaks: autocast-around-yield
            yield 1

    first, second = region(), region()
    next(first)
    next(second)
    first.close()  # type: ignore[attr-defined]
    second.close()  # type: ignore[attr-defined]
    torch.set_autocast_enabled("cpu", False)


def threads_share_a_decorated_function() -> None:
    entered, leave = threading.Event(), threading.Event()
    region = torch.autocast("cpu", dtype=torch.bfloat16)

    def work() -> None:
        with region:
            entered.set()
            leave.wait(10)

    thread = threading.Thread(target=work)
    thread.start()
    entered.wait(10)
    with region:  # breaks: autocast-reentered
        leave.set()
        thread.join()
    torch.set_autocast_enabled("cpu", False)


MISUSES: list[Callable[[], None]] = [
    backward_in_autocast,
    loop_in_autocast,
    decorated_training_function,
    scale_never_called,
    scaled_loss_thrown_away,
    plain_step,
    plain_step_and_update,
    both_steps,
    no_update,
    no_update_with_unscale,
    update_on_one_branch_only,
    update_first,
    update_after_unscale,
    update_twice,
    update_with_every_micro_batch,
    update_between_two_optimizers,
    clip_scaled_gradients,
    unscale_after_clip,
    read_scaled_gradients,
    norm_of_scaled_gradients,
    gradients_clipped_by_hand,
    unscale_twice,
    unscale_after_step,
    step_twice,
    unscale_with_every_micro_batch,
    unscale_with_the_first_micro_batch,
    unscale_before_backward,
    scaler_made_in_every_iteration,
    second_loss_not_scaled,
    first_loss_not_scaled,
    part_of_the_sum_not_scaled,
    one_of_two_optimizers_outside,
    half_parameters,
    autocast_object_nested_in_itself,
    gradients_cleared_before_the_step,
    gradients_zeroed_before_the_step,
    no_gradients,
    closure,
    closure_by_keyword,
    error_if_nonfinite,
    continue_after_unscale,
    wrapper_unscaled_and_inner_stepped,
    scaled_by_another_scaler,
    clip_after_step,
    generators_closed_in_the_order_of_opening,
    threads_share_a_decorated_function,
]

RAISE = {
    "scale_never_called",
    "no_update",
    "no_update_with_unscale",
    "update_on_one_branch_only",
    "update_first",
    "update_twice",
    "update_with_every_micro_batch",
    "unscale_twice",
    "unscale_after_step",
    "step_twice",
    "half_parameters",
    "gradients_cleared_before_the_step",
    "no_gradients",
    "closure_by_keyword",
    "continue_after_unscale",
}
"""Where torch raises at the event that shows the violation."""


@pytest.mark.parametrize("misuse", MISUSES, ids=lambda misuse: misuse.__name__)
def test_a_misuse_is_found_where_it_is(misuse: Callable[[], None]) -> None:
    report = watch(misuse)
    assert violations(report) == expected(misuse)
    assert {violation.place.file for violation in report.violations} == {__file__}
    assert any(violation.raised for violation in report.violations) is (misuse.__name__ in RAISE)


def test_every_function_is_in_the_list() -> None:
    marked = [value for value in globals().values() if callable(value) and _is_misuse(value)]
    assert marked == MISUSES


def _is_misuse(value: Callable[[], object]) -> bool:
    return getattr(value, "__module__", "") == __name__ and not isinstance(value, type) and bool(expected(value))
