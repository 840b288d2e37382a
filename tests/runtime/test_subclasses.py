"""Scalers and optimizers of classes derived from torch's: seen through where they call their base."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.nn.utils import clip_grad_norm_

from amplint.runtime import Monitor
from tests.runtime.training import expected, loss_of, problem, sgd, violations, watch


class Quiet(torch.amp.GradScaler):
    """Overrides nothing."""


class Counting(torch.amp.GradScaler):
    """Overrides everything, and calls the base."""

    calls = 0

    def scale(self, outputs: Any) -> Any:
        self.calls += 1
        return super().scale(outputs)

    def unscale_(self, optimizer: Any) -> None:
        self.calls += 1
        super().unscale_(optimizer)

    def step(self, optimizer: Any, *args: Any, **kwargs: Any) -> Any:
        self.calls += 1
        return super().step(optimizer, *args, **kwargs)

    def update(self, new_scale: Any = None) -> None:
        self.calls += 1
        super().update(new_scale)


class CountingMore(Counting):
    """Overrides what was overridden."""

    def step(self, optimizer: Any, *args: Any, **kwargs: Any) -> Any:
        return super().step(optimizer, *args, **kwargs)


class Clipping(torch.amp.GradScaler):
    """Unscales and clips in `step`, and updates there."""

    def step(self, optimizer: Any, *args: Any, **kwargs: Any) -> Any:
        self.unscale_(optimizer)
        clip_grad_norm_(optimizer.param_groups[0]["params"], 1.0)
        result = super().step(optimizer, *args, **kwargs)
        self.update()
        return result


class ByItself(torch.amp.GradScaler):
    """Steps without the base."""

    def step(self, optimizer: Any, *args: Any, **kwargs: Any) -> Any:
        for parameter in optimizer.param_groups[0]["params"]:
            parameter.grad /= 1024.0
        return optimizer.step()

    def update(self, new_scale: Any = None) -> None:
        pass


class TwiceAsFast(torch.optim.SGD):
    """An optimizer whose `step` calls that of its base."""

    def step(self, closure: Any = None) -> Any:
        return super().step(closure)


def scaled_by(kind: Callable[..., Any]) -> Any:
    return kind("cpu", init_scale=1024.0)


def loop(scaling: Any, clip: bool = False, steps: int = 3) -> None:
    model, inputs, targets = problem()
    optimizer = sgd(model)
    for _ in range(steps):
        optimizer.zero_grad()
        scaling.scale(loss_of(model, inputs, targets)).backward()
        if clip:
            scaling.unscale_(optimizer)
            clip_grad_norm_(model.parameters(), 1.0)
        scaling.step(optimizer)
        scaling.update()


@pytest.mark.parametrize("kind", [Quiet, Counting, CountingMore])
@pytest.mark.parametrize("clip", [False, True])
def test_a_subclass_that_calls_its_base_is_watched(kind: type, clip: bool) -> None:
    with Monitor() as monitor:
        loop(scaled_by(kind), clip)
    report = monitor.report()
    scaler = report.scalers[0]
    assert report.violations == ()
    assert (scaler.name, scaler.unchecked, scaler.steps, scaler.updates) == (kind.__name__, "", 3, 3)
    assert (report.backward.scaled, report.plain_steps) == (3, 0)


def test_events_inside_an_overriding_method_are_events() -> None:
    model, inputs, targets = problem()
    optimizer = sgd(model)
    with Monitor() as monitor:
        scaling = scaled_by(Clipping)
        for _ in range(3):
            optimizer.zero_grad()
            scaling.scale(loss_of(model, inputs, targets)).backward()
            scaling.step(optimizer)
    report = monitor.report()
    assert report.violations == ()
    assert (report.scalers[0].unchecked, report.scalers[0].steps, report.scalers[0].updates) == ("", 3, 3)


def clip_before_unscale_of_a_subclass() -> None:
    model, inputs, targets = problem()
    optimizer, scaling = sgd(model), scaled_by(Counting)
    for _ in range(2):
        optimizer.zero_grad()
        scaling.scale(loss_of(model, inputs, targets)).backward()
        clip_grad_norm_(model.parameters(), 1.0)  # breaks: clip-before-unscale
        scaling.step(optimizer)
        scaling.update()


def second_step_of_a_subclass() -> None:
    model, inputs, targets = problem()
    optimizer, scaling = sgd(model), scaled_by(CountingMore)
    scaling.scale(loss_of(model, inputs, targets)).backward()
    scaling.step(optimizer)
    scaling.step(optimizer)  # breaks: scaler-step-twice


def update_of_a_subclass_that_never_comes() -> None:
    model, inputs, targets = problem()
    optimizer, scaling = sgd(model), scaled_by(Counting)
    for _ in range(2):
        optimizer.zero_grad()
        scaling.scale(loss_of(model, inputs, targets)).backward()
        scaling.step(optimizer)  # breaks: missing-update


def step_past_a_subclass() -> None:
    model, inputs, targets = problem()
    optimizer, scaling = sgd(model), scaled_by(Quiet)
    scaling.scale(loss_of(model, inputs, targets)).backward()
    optimizer.step()  # breaks: step-bypasses-scaler
    scaling.update(1.0)


def update_twice_as_step_updates_already() -> None:
    model, inputs, targets = problem()
    optimizer, scaling = sgd(model), scaled_by(Clipping)
    scaling.scale(loss_of(model, inputs, targets)).backward()
    scaling.step(optimizer)
    scaling.update()  # breaks: update-before-step


MISUSES = [
    clip_before_unscale_of_a_subclass,
    second_step_of_a_subclass,
    update_of_a_subclass_that_never_comes,
    step_past_a_subclass,
    update_twice_as_step_updates_already,
]


@pytest.mark.parametrize("misuse", MISUSES, ids=lambda misuse: misuse.__name__)
def test_a_misuse_of_a_subclass_is_found_where_the_loop_calls_it(misuse: Callable[[], None]) -> None:
    assert violations(watch(misuse)) == expected(misuse)


def test_a_subclass_made_before_the_monitor_came() -> None:
    scaling = scaled_by(Counting)
    with Monitor() as monitor:
        loop(scaling)
    with monitor:
        loop(scaling)
    report = monitor.report()
    assert (report.violations, report.scalers[0].unchecked, report.scalers[0].steps) == ((), "", 6)
    assert Counting.step.__qualname__ == "Counting.step"
    assert not hasattr(Counting.step, "__wrapped__")


def test_of_a_scaler_that_steps_by_itself_nothing_is_said() -> None:
    with Monitor() as monitor:
        loop(scaled_by(ByItself))
    report = monitor.report()
    assert report.violations == ()
    assert (report.scalers[0].steps, report.plain_steps) == (3, 0)
    assert report.scalers[0].unchecked == "step() of ByItself does without that of GradScaler"


@pytest.mark.filterwarnings("ignore::FutureWarning")
@pytest.mark.parametrize("clip", [False, True])
def test_old_names_of_the_scaler(clip: bool) -> None:
    with Monitor() as monitor:
        loop(torch.cpu.amp.GradScaler(init_scale=1024.0), clip)  # type: ignore[attr-defined]
    report = monitor.report()
    assert (report.violations, report.scalers[0].steps, report.scalers[0].updates) == ((), 3, 3)


@pytest.mark.filterwarnings("ignore::FutureWarning")
@pytest.mark.filterwarnings("ignore:torch.cuda.amp.GradScaler is enabled")
@pytest.mark.skipif(torch.cuda.is_available(), reason="without a GPU the scaler is switched off")
def test_the_scaler_for_cuda_is_switched_off_without_it() -> None:
    with Monitor() as monitor:
        loop(torch.cuda.amp.GradScaler())
    scaler = monitor.report().scalers[0]
    assert (scaler.enabled, scaler.steps, monitor.report().backward.plain) == (False, 0, 3)


def test_the_sharded_scaler(tmp_path: Any) -> None:
    from torch.distributed.fsdp.sharded_grad_scaler import ShardedGradScaler

    torch.distributed.init_process_group("gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
    try:
        with Monitor() as monitor:
            loop(ShardedGradScaler("cpu", init_scale=1024.0), clip=True)
            scaling = ShardedGradScaler("cpu", init_scale=1024.0)
            model, inputs, targets = problem()
            optimizer = sgd(model)
            scaling.scale(loss_of(model, inputs, targets)).backward()
            clip_grad_norm_(model.parameters(), 1.0)
            scaling.step(optimizer)
            scaling.update()
    finally:
        torch.distributed.destroy_process_group()
    report = monitor.report()
    assert (report.scalers[0].steps, report.scalers[0].updates, report.scalers[0].unchecked) == (3, 3, "")
    line = test_the_sharded_scaler.__code__.co_firstlineno + 11
    assert violations(report) == [("clip-before-unscale", line)]


def test_a_step_that_calls_that_of_its_base_is_one_step() -> None:
    model, inputs, targets = problem()
    torch.optim.SGD(model.parameters(), lr=0.1).step()  # now torch has wrapped the base's step, too
    with Monitor() as monitor:
        optimizer = TwiceAsFast(model.parameters(), lr=0.1)
        for _ in range(2):
            optimizer.zero_grad()
            loss_of(model, inputs, targets).backward()
            optimizer.step()
    assert monitor.report().plain_steps == 2


def test_such_an_optimizer_behind_a_scaler() -> None:
    model, inputs, targets = problem()
    with Monitor() as monitor:
        optimizer, scaling = TwiceAsFast(model.parameters(), lr=0.1), scaled_by(Counting)
        for _ in range(2):
            optimizer.zero_grad()
            scaling.scale(loss_of(model, inputs, targets)).backward()
            scaling.step(optimizer)
            scaling.update()
    report = monitor.report()
    assert (report.violations, report.steps, report.plain_steps) == ((), 2, 0)
