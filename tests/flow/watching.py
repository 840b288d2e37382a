"""Models, optimizers and hooks in torch that tell a recorder what a program does."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

from tests.flow.recorder import PROGRAM, Recorder, kinds_of

_running: list[Recorder] = []


def _current() -> Recorder:
    return _running[-1]


class Model(torch.nn.Module):
    """`model(x)` has four outputs, each with a weight of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(4))

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        """The product of inputs and weights."""
        recorder = _current()
        recorder.forward(self.weight)
        return self.weight * inputs

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Zero the gradients and forget what made them."""
        super().zero_grad(set_to_none)
        _current().zeroed([self.weight])


class Descent(torch.optim.Optimizer):
    """An optimizer that changes nothing, so that all gradients stay what they are by construction."""

    def __init__(self, parameters: Any) -> None:
        super().__init__(parameters, {})

    def weights(self) -> list[Any]:
        """Its parameters."""
        return [weight for group in self.param_groups for weight in group["params"]]

    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        """Let the recorder judge the gradients."""
        _current().stepped(self)

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Zero the gradients and forget what made them."""
        super().zero_grad(set_to_none)
        _current().zeroed(self.weights())


def _clip(original: Callable[..., Any]) -> Callable[..., Any]:
    def clip(parameters: Any, *args: Any, **kwargs: Any) -> Any:
        weights = [parameters] if isinstance(parameters, torch.Tensor) else list(parameters)
        _current().clipped(weights)
        if all(weight.grad is None for weight in weights):
            return torch.zeros(())  # torch raises here for values, which is not what this is about
        return original(weights, *args, **kwargs)

    return clip


def _clamp(original: Callable[..., Any]) -> Callable[..., Any]:
    def clamp_(tensor: Any, *args: Any, **kwargs: Any) -> Any:
        _current().clamped(tensor)
        return original(tensor, *args, **kwargs)

    return clamp_


@contextmanager
def recording() -> Iterator[None]:
    """Put the recorder's hooks into torch while programs run."""
    scaler: Any = torch.amp.grad_scaler.GradScaler
    autocast: Any = torch.amp.autocast_mode.autocast
    utilities: Any = torch.nn.utils
    patches: list[tuple[Any, str, Any]] = []

    def patch(owner: Any, name: str, make: Callable[[Any], Any]) -> None:
        original = getattr(owner, name)
        patches.append((owner, name, original))
        setattr(owner, name, make(original))

    patch(torch.Tensor, "backward", lambda f: lambda *a, **k: _current().backward(f, *a, **k))
    patch(scaler, "scale", lambda f: lambda *a: _current().scale(f, *a))
    patch(scaler, "unscale_", lambda f: lambda *a: _current().unscale(f, *a))
    patch(scaler, "step", lambda f: lambda *a, **k: _current().step(f, *a, **k))
    patch(scaler, "update", lambda f: lambda *a: _current().update(f, *a))
    patch(torch.Tensor, "clamp_", _clamp)
    patch(utilities, "clip_grad_norm_", _clip)
    patch(utilities, "clip_grad_value_", _clip)
    patch(autocast, "__enter__", _entering)
    patch(autocast, "__exit__", _leaving)
    try:
        yield
    finally:
        for owner, name, original in patches:
            setattr(owner, name, original)


def _entering(original: Callable[..., Any]) -> Callable[..., Any]:
    def enter(region: Any) -> Any:
        _current().entered()
        return original(region)

    return enter


def _leaving(original: Callable[..., Any]) -> Callable[..., Any]:
    def leave(region: Any, *args: Any) -> Any:
        _current().left()
        return original(region, *args)

    return leave


def run(function: Callable[..., None], arguments: dict[str, Any], recorder: Recorder) -> Recorder:
    """Call a function of a program, inside `recording()`, and tell what it did."""
    _running.append(recorder)
    try:
        function(**arguments)
    except Exception as error:
        recorder.raised = f"{type(error).__name__}: {error}"
        if not hasattr(error, "noted"):
            kinds = kinds_of(error)
            recorder.alien = not kinds
            frames = traceback.extract_tb(error.__traceback__)
            rows = frozenset(frame.lineno or 0 for frame in frames if frame.filename == PROGRAM)
            recorder.note(kinds, rows)
    finally:
        _running.pop()
        torch.set_autocast_enabled("cpu", False)
        torch.clear_autocast_cache()
    return recorder
