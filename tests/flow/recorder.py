"""What a training loop really does to its gradients, seen at run time and judged without the engine's tables.

Models are so simple that each loss has gradient 1 in a coordinate of its own. So every change of a gradient tells, by
its size, whether the loss behind it was scaled, and the recorder can follow each contribution from the backward that
made it to the step that uses it: a step is right if all that it uses has been divided by just the scale that it
carried. Where torch raises, that is the judgement.
"""

from __future__ import annotations

import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch

PROGRAM = "<program>"
"""The file name of the program that is watched."""

INIT_SCALE = 4096.0
_SCALED_FROM = 64.0  # a gradient this large belongs to a scaled loss

RAISED: tuple[tuple[str, tuple[str, ...]], ...] = (
    (
        "unscale_() has already been called",
        ("unscale-twice", "update-skipped-on-path", "missing-update", "unscale-in-accumulation"),
    ),
    (
        "unscale_() is being called after step()",
        ("unscale-after-step", "update-skipped-on-path", "missing-update"),
    ),
    (
        "step() has already been called",
        ("scaler-step-twice", "update-skipped-on-path", "missing-update"),
    ),
    ("No inf checks were recorded for this optimizer", ("no-gradients-at-step", "unscale-in-accumulation")),
    (
        "No inf checks were recorded prior to update",
        ("update-before-step", "update-in-accumulation", "update-between-optimizers", "step-bypasses-scaler"),
    ),
    ("_scale is None", ("unscaled-backward",)),
    ("'NoneType' object has no attribute", ("scaler-maybe-unbound",)),
    ("cannot access local variable 'scaler'", ("scaler-maybe-unbound",)),
)
"""What torch or Python says, and the kinds of findings that foresee it."""


class Breach(NamedTuple):
    """Something wrong at run time: the kinds of findings that fit it, and the rows of the program that take part.

    `required`: a finding must foresee it; otherwise one may.
    """

    kinds: tuple[str, ...]
    rows: frozenset[int]
    required: bool = True


class Contribution:
    """What one backward added to one coordinate: `plain`, `scaled`, `right` (divided by its scale) or `wrong`."""

    def __init__(self, state: str, scaler: Any, version: int, rows: frozenset[int]) -> None:
        self.state = state
        self.scaler = scaler
        self.version = version
        self.rows = rows
        self.kinds: tuple[str, ...] = ()
        self.spent_by = ""


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


class Recorder:
    """The events of one run."""

    def __init__(self) -> None:
        self.breaches: list[Breach] = []
        self.raised = ""  # why the run ended, "" if it did not fail
        self.alien = False  # it failed for a reason that has nothing to do with the protocol
        self._made: dict[int, list[Contribution]] = {}
        self._weights: dict[int, Any] = {}
        self._versions: dict[int, int] = {}
        self._scaling: Any = None
        self._stepping: Any = None
        self._last: dict[tuple[int, int], frozenset[int]] = {}
        self._served: dict[int, Any] = {}
        self._region = 0
        self._depth = 0
        self._stepped_in: dict[int, tuple[int, frozenset[int]]] = {}
        self._keep: list[Any] = []  # ids must not be used again

    def note(self, kinds: tuple[str, ...], rows: frozenset[int], required: bool = True) -> None:
        """Add a breach."""
        self.breaches.append(Breach(kinds, rows, required))

    # -- gradients ----------------------------------------------------------------------------------------------------

    def backward(self, original: Callable[..., None], loss: Any, *args: Any, **kwargs: Any) -> None:
        """Differentiate and see what it adds."""
        rows = _rows()
        if torch.is_autocast_enabled("cpu"):
            self.note(("backward-in-autocast",), rows)
        before = {key: _value(weight) for key, weight in self._weights.items()}
        original(loss, *args, **kwargs)
        for key, weight in self._weights.items():
            for change in (_value(weight) - before[key]).tolist():
                if change:
                    scaled = abs(change) > _SCALED_FROM
                    scaler = self._scaling if scaled else None
                    version = self._versions.get(id(scaler), 0)
                    made = Contribution("scaled" if scaled else "plain", scaler, version, rows)
                    self._made.setdefault(key, []).append(made)

    def zeroed(self, weights: list[Any]) -> None:
        """Forget the contributions."""
        for weight in weights:
            self._made.pop(id(weight), None)

    def forward(self, weight: Any) -> None:
        """A model runs: after a step in the same region it gets old weights from the cache."""
        self._weights[id(weight)] = weight
        for key, (region, rows) in self._stepped_in.items():
            if region == self._region and self._depth:
                self.note(("step-in-autocast",), rows, required=key == id(weight))
        self._stepped_in = {key: value for key, value in self._stepped_in.items() if value[0] == self._region}

    def clipped(self, weights: list[Any]) -> None:
        """Clip: nothing may carry a scale."""
        fresh = [one for weight in weights for one in self._made.get(id(weight), ()) if not one.spent_by]
        if any(one.state == "scaled" for one in fresh):
            self.note(("clip-before-unscale",), _rows())

    def _unscaled(self, scaler: Any, optimizer: Any) -> None:
        version = self._versions.get(id(scaler), 0)
        for weight in optimizer.weights():
            for one in self._made.get(id(weight), ()):
                if one.spent_by:
                    continue
                if one.state == "scaled" and one.scaler is scaler and one.version == version:
                    one.state = "right"
                    continue
                if one.state == "plain":
                    one.kinds = ("unscaled-backward",)
                elif one.state == "scaled":
                    one.kinds = _BETWEEN
                elif one.state == "right":
                    one.kinds = (*_BETWEEN, "unscale-in-accumulation")
                one.state = "wrong"

    def stepped(self, optimizer: Any) -> None:
        """Judge what a step uses."""
        rows = _rows()
        fresh, spent = [], []
        for weight in optimizer.weights():
            for one in self._made.get(id(weight), ()):
                (spent if one.spent_by else fresh).append(one)
            if self._depth and torch.is_autocast_enabled("cpu"):
                self._stepped_in[id(weight)] = (self._region, rows)
        through_scaler = self._stepping is not None
        for one in fresh:
            both = rows | one.rows
            if one.state == "wrong":
                self.note(one.kinds, both)
            elif through_scaler and one.state == "scaled":
                self.note(("unscale-in-accumulation", "scaled-after-unscale"), both | self._unscale_rows(optimizer))
            elif not through_scaler and one.state in ("scaled", "right"):
                self.note(("step-bypasses-scaler",), both)
            one.spent_by = "scaler" if through_scaler else "plain"
        if not through_scaler and not fresh and spent and all(one.spent_by == "scaler" for one in spent):
            self.note(("double-step",), rows | self._unscale_rows(optimizer))

    def _unscale_rows(self, optimizer: Any) -> frozenset[int]:
        return frozenset().union(*(rows for (_, key), rows in self._last.items() if key == id(optimizer)))

    # -- the scaler ---------------------------------------------------------------------------------------------------

    def scale(self, original: Callable[..., Any], scaler: Any, outputs: Any) -> Any:
        """Remember who scales."""
        self._scaling = scaler
        return original(scaler, outputs)

    def unscale(self, original: Callable[..., None], scaler: Any, optimizer: Any) -> None:
        """Divide, also as a part of step."""
        if not scaler.is_enabled():
            return original(scaler, optimizer)
        inside = self._stepping is not None
        if not inside:
            self._guarded(scaler, optimizer, lambda: original(scaler, optimizer))
            self._last[id(scaler), id(optimizer)] = _rows()
        else:
            original(scaler, optimizer)
        self._unscaled(scaler, optimizer)
        return None

    def step(self, original: Callable[..., Any], scaler: Any, optimizer: Any, *args: Any, **kwargs: Any) -> Any:
        """Step through the scaler."""
        if not scaler.is_enabled():
            return original(scaler, optimizer, *args, **kwargs)
        self._keep += [scaler, optimizer]
        served = self._served.setdefault(id(optimizer), scaler)
        if served is not scaler:
            self._served[id(optimizer)] = scaler
            self.note(("scaler-in-loop",), frozenset(range(1000)))
        self._stepping = scaler
        try:
            result = self._guarded(scaler, optimizer, lambda: original(scaler, optimizer, *args, **kwargs))
        finally:
            self._stepping = None
        self._last[id(scaler), id(optimizer)] = _rows()
        return result

    def update(self, original: Callable[..., None], scaler: Any, *args: Any) -> None:
        """A new scale may hold from here."""
        if scaler.is_enabled():
            self._guarded(scaler, None, lambda: original(scaler, *args))
            self._versions[id(scaler)] = self._versions.get(id(scaler), 0) + 1
        else:
            original(scaler, *args)

    def _guarded(self, scaler: Any, optimizer: Any, call: Callable[[], Any]) -> Any:
        """Call torch; note what it raises together with the earlier call that is to blame."""
        try:
            return call()
        except (RuntimeError, AssertionError) as error:
            kinds = _kinds_of(error)
            rows = _rows() | self._last.get((id(scaler), id(optimizer)), frozenset())
            if optimizer is None or "_scale is None" in str(error):
                rows |= {row for made in self._made.values() for one in made for row in one.rows}
            self.note(kinds, rows)
            error.noted = True  # type: ignore[attr-defined]
            raise

    # -- regions ------------------------------------------------------------------------------------------------------

    def entered(self) -> None:
        """An autocast region begins."""
        self._depth += 1

    def left(self) -> None:
        """An autocast region ends; the weight cache is cleared with the outermost one."""
        self._depth -= 1
        if not self._depth:
            self._region += 1


_BETWEEN = ("update-between-optimizers", "update-before-step", "update-in-accumulation")
_running: list[Recorder] = []


def _current() -> Recorder:
    return _running[-1]


def _value(weight: Any) -> Any:
    return torch.zeros(4) if weight.grad is None else weight.grad.detach().clone()


def _rows() -> frozenset[int]:
    """The rows of the program that are running."""
    rows = set()
    frame = sys._getframe(1)
    while frame is not None:
        if frame.f_code.co_filename == PROGRAM:
            rows.add(frame.f_lineno)
        frame = frame.f_back  # type: ignore[assignment]
    return frozenset(rows)


def _kinds_of(error: BaseException) -> tuple[str, ...]:
    return next((kinds for words, kinds in RAISED if words in str(error)), ())


def _clip(original: Callable[..., Any]) -> Callable[..., Any]:
    def clip(parameters: Any, *args: Any, **kwargs: Any) -> Any:
        weights = [parameters] if isinstance(parameters, torch.Tensor) else list(parameters)
        _current().clipped(weights)
        return original(weights, *args, **kwargs)

    return clip


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


def run(function: Callable[..., None], arguments: dict[str, Any]) -> Recorder:
    """Call a function of a program, inside `recording()`, and tell what it did."""
    recorder = Recorder()
    _running.append(recorder)
    try:
        function(**arguments)
    except Exception as error:
        recorder.raised = f"{type(error).__name__}: {error}"
        if not hasattr(error, "noted"):
            kinds = _kinds_of(error)
            recorder.alien = not kinds
            frames = traceback.extract_tb(error.__traceback__)
            rows = frozenset(frame.lineno or 0 for frame in frames if frame.filename == PROGRAM)
            recorder.note(kinds, rows)
    finally:
        _running.pop()
        torch.set_autocast_enabled("cpu", False)
        torch.clear_autocast_cache()
    return recorder
