"""What a training loop really does to its gradients, seen at run time and judged without the engine's tables.

Models are so simple that each loss has gradient 1 in a coordinate of its own. So every change of a gradient tells, by
its size, whether the loss behind it was scaled, and the recorder can follow each contribution from the backward that
made it to the step that uses it: a step is right if all that it uses has been divided by just the scale that it
carried. Where torch raises, that is the judgement.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
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
        ("unscale-after-step", "update-skipped-on-path", "missing-update", "update-between-optimizers"),
    ),
    (
        "step() has already been called",
        ("scaler-step-twice", "update-skipped-on-path", "missing-update", "update-between-optimizers"),
    ),
    (
        "No inf checks were recorded for this optimizer",
        ("no-gradients-at-step", "unscale-in-accumulation", "update-between-optimizers"),
    ),
    (
        "No inf checks were recorded prior to update",
        ("update-before-step", "update-in-accumulation", "update-between-optimizers", "step-bypasses-scaler"),
    ),
    ("Attempted update but _scale is None", ("unscaled-backward", "update-before-step", "update-in-accumulation")),
    ("Attempted unscale_ but _scale is None", ("unscaled-backward", "unscale-in-accumulation")),
    ("_scale is None", ("unscaled-backward",)),
    *(
        (f"'NoneType' object has no attribute '{method}'", ("scaler-maybe-unbound",))
        for method in ("scale", "unscale_", "step", "update")
    ),
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


class Recorder:
    """The events of one run.

    With several optimizers the text does not say whose parameters a loss reaches; `apart` are those whose losses reach
    also the parameters of the other (as in a GAN). Breaches that only this decides are not required there.
    """

    def __init__(self, several: bool = False, apart: bool = False) -> None:
        self.several = several
        self.apart = apart
        self.breaches: list[Breach] = []
        self.visited: set[int] = set()  # the rows of all events
        self.scales = False  # a scaler that is not switched off was used
        self.raised = ""  # why the run ended, "" if it did not fail
        self.alien = False  # it failed for a reason that has nothing to do with the protocol
        self._made: dict[int, list[Contribution]] = {}
        self._weights: dict[int, Any] = {}
        self._versions: dict[int, int] = {}
        self._scaling: Any = None
        self._stepping: Any = None
        self._used: dict[tuple[int, int], frozenset[int]] = {}  # rows of unscale_ and step by scaler and optimizer
        self._served: dict[int, Any] = {}
        self._region = 0
        self._depth = 0
        self._updated: dict[int, frozenset[int]] = {}  # the last update of each scaler
        self._zeroed: dict[int, frozenset[int]] = {}  # where gradients were zeroed last
        self._bypassing: frozenset[int] = frozenset()  # plain steps since the last update
        self._thrown: set[int] = set()  # the weights whose gradients were zeroed before any step used them
        self._unscaled_since_update = False
        self._stepped_in: dict[int, tuple[int, frozenset[int]]] = {}
        self._keep: list[Any] = []  # ids must not be used again

    def note(self, kinds: tuple[str, ...], rows: frozenset[int], required: bool = True) -> None:
        """Add a breach."""
        self.breaches.append(Breach(kinds, rows, required))

    def here(self) -> frozenset[int]:
        """The rows of the program that are running."""
        rows = rows_now()
        self.visited |= rows
        return rows

    # -- gradients ----------------------------------------------------------------------------------------------------

    def backward(self, original: Callable[..., None], loss: Any, *args: Any, **kwargs: Any) -> None:
        """Differentiate and see what it adds."""
        rows = self.here()
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
                    self._thrown.discard(key)

    def zeroed(self, weights: list[Any]) -> None:
        """Forget the contributions."""
        for weight in weights:
            made = self._made.pop(id(weight), ())
            self._zeroed[id(weight)] = self.here()
            if any(not one.spent_by for one in made):
                self._thrown.add(id(weight))

    def forward(self, weight: Any) -> None:
        """A model runs: after a step in the same region it gets old weights from the cache."""
        self._weights[id(weight)] = weight
        for key, (region, rows) in self._stepped_in.items():
            if region == self._region and self._depth:
                self.note(("step-in-autocast",), rows, required=key == id(weight))
        self._stepped_in = {key: value for key, value in self._stepped_in.items() if value[0] == self._region}

    def clipped(self, weights: list[Any]) -> None:
        """Clip: nothing may carry a scale."""
        rows = self.here()
        fresh = [one for weight in weights for one in self._made.get(id(weight), ()) if not one.spent_by]
        if any(one.state == "scaled" for one in fresh):
            # Which optimizer owns the parameters is not in the text.
            clear = not self.several or not (self.apart or self._unscaled_since_update)
            kinds: tuple[str, ...] = ("clip-before-unscale",)
            if self._unscaled_since_update:  # too early
                kinds = (*kinds, "unscale-in-accumulation")
                rows = rows.union(*self._used.values())
            self.note(kinds, rows, required=clear)

    def clamped(self, tensor: Any) -> None:
        """Clip by hand, if it is the gradient of a weight."""
        owners = [w for w in self._weights.values() if w.grad is not None and w.grad.data_ptr() == tensor.data_ptr()]
        if owners:
            self.clipped(owners)

    def _unscaled(self, scaler: Any, optimizer: Any) -> None:
        version = self._versions.get(id(scaler), 0)
        for weight in optimizer.weights():
            for one in self._made.get(id(weight), ()):
                if one.spent_by:
                    continue
                if one.state == "scaled" and one.scaler is scaler and one.version == version:
                    one.state = "right"
                    continue
                if one.state == "right" and one.version != version and self._anew(weight):
                    one.spent_by = "nothing"  # a batch that was skipped, and its share is divided away
                    continue
                if one.state == "plain":
                    one.kinds = ("unscaled-backward",)
                elif one.state == "scaled":
                    one.kinds = _BETWEEN
                elif one.state == "right":
                    one.kinds = (*_BETWEEN, "unscale-in-accumulation")
                one.state = "wrong"
                one.rows |= self._updated.get(id(scaler), frozenset())

    def _anew(self, weight: Any) -> bool:
        """Whether a scaled loss was differentiated since the last update."""
        return any(
            one.state == "scaled" and one.version == self._versions.get(id(one.scaler), 0)
            for one in self._made[id(weight)]
        )

    def stepped(self, optimizer: Any) -> None:
        """Judge what a step uses."""
        rows = self.here()
        fresh: list[Contribution] = []
        spent: list[Contribution] = []
        for weight in optimizer.weights():
            for one in self._made.get(id(weight), ()):
                (spent if one.spent_by else fresh).append(one)
            if self._depth and torch.is_autocast_enabled("cpu"):
                self._stepped_in[id(weight)] = (self._region, rows)
        through_scaler = self._stepping is not None
        if through_scaler and not fresh and self._threw_away(optimizer):
            self.note(("no-gradients-at-step",), rows | self._zero_rows(optimizer))
        if not through_scaler:
            self._bypassing |= rows
        mixed = len({one.state for one in fresh}) > 1
        for one in fresh:
            both = rows | one.rows
            if one.state == "wrong":
                self.note(one.kinds, both, required=not self.apart and not (self.several and mixed))
            elif through_scaler and one.state == "scaled":
                both |= self._unscale_rows(optimizer)
                self.note(("unscale-in-accumulation",), both, required=not self.several)
            elif not through_scaler and one.state in ("scaled", "right"):
                # Right gradients stay right after an update; only the check for infinities is passed over.
                stale = one.state == "right" and one.version != self._versions.get(id(one.scaler), 0)
                self.note(("step-bypasses-scaler",), both, required=not stale)
            one.spent_by = "scaler" if through_scaler else "plain"
        if not through_scaler and not fresh and spent and all(one.spent_by == "scaler" for one in spent):
            self.note(("double-step",), rows | self._unscale_rows(optimizer))

    def _threw_away(self, optimizer: Any) -> bool:
        return any(id(weight) in self._thrown for weight in optimizer.weights())

    def _zero_rows(self, optimizer: Any) -> frozenset[int]:
        return frozenset().union(*(self._zeroed.get(id(weight), ()) for weight in optimizer.weights()))

    def _unscale_rows(self, optimizer: Any) -> frozenset[int]:
        return frozenset().union(*(rows for (_, key), rows in self._used.items() if key == id(optimizer)))

    # -- the scaler ---------------------------------------------------------------------------------------------------

    def scale(self, original: Callable[..., Any], scaler: Any, outputs: Any) -> Any:
        """Remember who scales."""
        self._scaling = scaler
        self.scales |= scaler.is_enabled()
        self.here()
        return original(scaler, outputs)

    def unscale(self, original: Callable[..., None], scaler: Any, optimizer: Any) -> None:
        """Divide, also as a part of step."""
        if not scaler.is_enabled():
            return original(scaler, optimizer)
        inside = self._stepping is not None
        if not inside:
            self._guarded(scaler, optimizer, lambda: original(scaler, optimizer))
            self._use(scaler, optimizer)
            self._unscaled_since_update = True
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
        self._use(scaler, optimizer)
        return result

    def _use(self, scaler: Any, optimizer: Any) -> None:
        pair = id(scaler), id(optimizer)
        self._used[pair] = self._used.get(pair, frozenset()) | self.here()

    def update(self, original: Callable[..., None], scaler: Any, *args: Any) -> None:
        """A new scale may hold from here."""
        if scaler.is_enabled():
            self._guarded(scaler, None, lambda: original(scaler, *args))
            self._versions[id(scaler)] = self._versions.get(id(scaler), 0) + 1
            self._updated[id(scaler)] = self.here()
            self._unscaled_since_update = False
            self._bypassing = frozenset()
            self._bypassing = frozenset()
        else:
            original(scaler, *args)

    def _guarded(self, scaler: Any, optimizer: Any, call: Callable[[], Any]) -> Any:
        """Call torch; note what it raises together with the earlier call that is to blame."""
        self.scales = True
        try:
            return call()
        except (RuntimeError, AssertionError) as error:
            rows = self.here() | self._used.get((id(scaler), id(optimizer)), frozenset())
            rows |= self._updated.get(id(scaler), frozenset())
            weights = list(self._weights.values()) if optimizer is None else optimizer.weights()
            made = [one for weight in weights for one in self._made.get(id(weight), ())]
            if optimizer is None or "_scale is None" in str(error):
                rows |= {row for one in made for row in one.rows} | self._bypassing
            required = True
            if "inf checks were recorded for" in str(error):
                rows |= self._zero_rows(optimizer)
                required = (self._threw_away(optimizer) and not self.apart) or (bool(made) and not self.several)
            elif "_scale is None" in str(error):
                required = bool(made)  # a program that has no backward lacks more than this
            self.note(kinds_of(error), rows, required)
            error.noted = True  # type: ignore[union-attr]
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


def _value(weight: Any) -> Any:
    return torch.zeros(4) if weight.grad is None else weight.grad.detach().clone()


def rows_now() -> frozenset[int]:
    """The rows of the program that are running."""
    rows = set()
    frame = sys._getframe(1)
    while frame is not None:
        if frame.f_code.co_filename == PROGRAM:
            rows.add(frame.f_lineno)
        frame = frame.f_back  # type: ignore[assignment]
    return frozenset(rows)


def kinds_of(error: BaseException) -> tuple[str, ...]:
    """The kinds of findings that foresee what torch or Python raised, none where it is not about the protocol."""
    return next((kinds for words, kinds in RAISED if words in str(error)), ())
