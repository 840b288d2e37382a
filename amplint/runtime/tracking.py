"""The automata of the protocol, driven by what happens to each scaler and each optimizer.

The tables are those of `amplint.flow.protocol`. What the static engine must guess is known here (which optimizers a
backward reached, whether there are gradients), and comes in as facts; torch itself is not needed.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cache
from typing import NamedTuple

from amplint.flow.protocol import CHECKS, GRADIENTS, SCALE, STAGE, UNKNOWN, Fault, advance
from amplint.runtime.places import Place
from amplint.runtime.results import Violation

WITHOUT_GRADIENTS = ("clean", "cleared", "early")
_HARMLESS_AFTER = ("clip-before-unscale", "grad-read-before-unscale", "clip-after-step")
"""Faults after which the automata still know where they are."""

_INVARIANT_TO_SCALE = ("Adam", "Lion")
_FIRST_SCALED = {
    state: after for state in ("clean", "cleared") if not isinstance(after := GRADIENTS[state, "backward"], Fault)
}
"""The gradients after the first backward of an iteration, which is no fault."""


class Stage(NamedTuple):
    """What a scaler remembers of an optimizer, since which call, and in which round of the optimizer that was."""

    state: str = "ready"
    place: Place | None = None
    round: int = 0
    zeroed: int = 0


_READY = Stage()


class TrackedOptimizer:
    """The gradients of one optimizer: their state, the scaler whose scale they carry, and where that came about."""

    def __init__(self, family: str, gradients: str) -> None:
        self.family = family
        self.gradients = gradients
        self.owner: TrackedScaler | None = None
        self.scalers: dict[Place, TrackedScaler] = {}  # that stepped it last, by where they were made
        self.round = 0  # how many backwards reached it
        self.zeroed = 0  # how often its gradients were cleared
        self.doubtful = False
        self.scaled_at: Place | None = None
        self.plain_at: Place | None = None
        self.zeroed_at: Place | None = None
        self.spent_at: Place | None = None
        self.updated_at: Place | None = None
        self.updated_among_others = False
        self.reads: dict[Place, None] = {}
        self.aliases: list[TrackedOptimizer] = []

    def belong_to(self, scaler: TrackedScaler) -> None:
        """The gradients carry the scale of this scaler, or did until it unscaled them."""
        self.owner = scaler
        scaler.owned.add(self)

    def share(self) -> None:
        """Tell the optimizers with the same parameters (wrappers and what they wrap) what became of the gradients."""
        for other in self.aliases:
            other.gradients, other.owner, other.doubtful = self.gradients, self.owner, self.doubtful
            if self.owner is not None:
                self.owner.owned.add(other)
            other.zeroed, other.zeroed_at, other.spent_at = self.zeroed, self.zeroed_at, self.spent_at
            other.reads.clear()


class TrackedScaler:
    """One enabled scaler: its automata and counters. `unchecked` is the reason why nothing is told of it any more."""

    def __init__(self, scale: str, checks: str, made_at: Place | None) -> None:
        self.scale = scale
        self.checks = checks
        self.unchecked = ""
        self.made_at = made_at
        self.stages: dict[TrackedOptimizer, Stage] = {}
        self.unscales = 0
        self.steps = 0
        self.updates = 0
        self.backwards = 0  # since update()
        self.doubtful = False
        self.owned: set[TrackedOptimizer] = set()

    def owned_now(self) -> list[TrackedOptimizer]:
        """The optimizers whose gradients carry the scale, or did until they were unscaled."""
        owned = list(self.owned)
        for optimizer in owned:
            if optimizer.owner is not self:
                self.owned.discard(optimizer)
        return owned if len(owned) == len(self.owned) else list(self.owned)


@cache
def _without_fault(scale: str, checks: str, stage: str, gradients: str, event: str) -> tuple[str, str, str] | None:
    """The states of checks, stage and gradients after `event`, None if it is a fault for one of the automata."""
    steps = [advance(t, s, event) for t, s in ((CHECKS, checks), (STAGE, stage), (GRADIENTS, gradients))]
    if advance(SCALE, scale, event)[1] or any(fault for _, fault in steps):
        return None
    return steps[0][0], steps[1][0], steps[2][0]


class _Record:
    def __init__(self, related: Place | None, excuse: TrackedScaler | None) -> None:
        self.related = related
        self.excuse = excuse
        self.count = 0
        self.raised = False
        self.tick = -1


class Tracker:
    """Feeds events to the automata and keeps the violations that come out, each once with a count."""

    def __init__(self) -> None:
        self._records: dict[tuple[str, Place], _Record] = {}
        self._tick = 0
        self._touched: list[_Record] = []

    def violations(self) -> tuple[Violation, ...]:
        """All violations so far, by file and line."""
        found = [
            Violation(kind, place, record.related, record.count, record.raised)
            for (kind, place), record in self._records.items()
            if record.excuse is None or record.excuse.steps or record.excuse.updates
        ]
        return tuple(sorted(found, key=lambda violation: (violation.place, violation.kind)))

    def begin(self) -> None:
        """A new event begins; what it finds more than once counts once."""
        self._tick += 1
        if self._touched:
            self._touched.clear()

    def raised(self) -> None:
        """The event that began last ended with an exception."""
        for record in self._touched:
            record.raised = True

    def report(
        self, kind: str, place: Place, related: Place | None = None, excuse: TrackedScaler | None = None
    ) -> None:
        """Record a violation. With `excuse` it counts only if that scaler ever steps or updates."""
        record = self._records.get((kind, place))
        if record is None:
            record = self._records[kind, place] = _Record(None if related == place else related, excuse)
        if excuse is None:
            record.excuse = None
        if record.tick != self._tick:
            record.tick = self._tick
            record.count += 1
            self._touched.append(record)

    # -- events -------------------------------------------------------------------------------------------------------

    def backward(
        self, scaler: TrackedScaler | None, optimizers: Iterable[TrackedOptimizer], place: Place, kind: str
    ) -> None:
        """A backward of `kind` (`scaled`, `plain`, `mixed`, `unknown`) that reached these optimizers."""
        if scaler is not None:
            scaler.backwards += 1
        for optimizer in optimizers:
            optimizer.round += 1
            if kind == "unknown" or (scaler is not None and scaler.unchecked):
                optimizer.gradients, optimizer.owner = UNKNOWN, None
            elif kind == "mixed":
                self.report("unscaled-backward", place, optimizer.scaled_at)
                self._lose(optimizer)
            elif scaler is None:
                self._plain_backward(optimizer, place)
            else:
                self._scaled_backward(scaler, optimizer, place)

    def _plain_backward(self, optimizer: TrackedOptimizer, place: Place) -> None:
        if not self._gradients(optimizer, "plain-backward", place, optimizer.scaled_at):
            optimizer.plain_at = place
            if optimizer.gradients == "plain":
                optimizer.owner = None

    def _scaled_backward(self, scaler: TrackedScaler, optimizer: TrackedOptimizer, place: Place) -> None:
        first = _FIRST_SCALED.get(optimizer.gradients)
        if first is not None:  # nearly always
            optimizer.gradients = first
            optimizer.belong_to(scaler)
            optimizer.scaled_at = place
            if optimizer.reads:
                optimizer.reads.clear()
            return
        if optimizer.gradients == "scaled" and optimizer.owner is not scaler:
            self.report("unscaled-backward", place, optimizer.scaled_at)
            self._lose(optimizer)
            return
        cause: Place | None = None
        if optimizer.gradients == "plain":
            cause = optimizer.plain_at
        elif optimizer.gradients in ("unscaled", "early"):
            cause = scaler.stages.get(optimizer, _READY).place
        if not self._gradients(optimizer, "backward", cause or place, place if cause else None):
            optimizer.belong_to(scaler)
            optimizer.scaled_at = place
            optimizer.reads.clear()

    def give_up(self, scaler: TrackedScaler, reason: str) -> None:
        """From now on nothing is known of the gradients that carry this scaler's scale."""
        scaler.unchecked = scaler.unchecked or reason
        for optimizer in scaler.owned_now():
            optimizer.gradients, optimizer.owner = UNKNOWN, None
            optimizer.reads.clear()
        scaler.stages.clear()

    def unscale(self, scaler: TrackedScaler, optimizer: TrackedOptimizer, place: Place, nothing: bool) -> None:
        """unscale_(optimizer), which has no gradients if `nothing`."""
        scaler.unscales += 1
        if not nothing and self._as_usual(scaler, optimizer, "unscale", place):
            return
        if self._stage(scaler, optimizer, "unscale", place, nothing):
            self._use(scaler, optimizer, "unscale", place)
            optimizer.share()

    def step(self, scaler: TrackedScaler, optimizer: TrackedOptimizer, place: Place, nothing: bool) -> None:
        """scaler.step(optimizer), which has no gradients if `nothing`."""
        if not nothing and self._as_usual(scaler, optimizer, "step", place):
            optimizer.spent_at = place
        elif self._stage(scaler, optimizer, "step", place, nothing):
            self._use(scaler, optimizer, "step", place)
            optimizer.spent_at = place
            optimizer.share()
        if scaler.made_at is not None:
            earlier = optimizer.scalers.setdefault(scaler.made_at, scaler)
            if earlier is not scaler:
                optimizer.scalers[scaler.made_at] = scaler
                self.report("scaler-in-loop", scaler.made_at, place)

    def inner_step(self, optimizer: TrackedOptimizer) -> None:
        """optimizer.step() of an optimizer that belongs to the one which a scaler or another optimizer steps now."""
        optimizer.gradients = advance(GRADIENTS, optimizer.gradients, "step")[0]

    def update(self, scaler: TrackedScaler, place: Place, new_scale: bool) -> None:
        """scaler.update(), with a scale given by hand if `new_scale`."""
        if scaler.unchecked:
            scaler.updates += 1
            return
        if self._no_scale(scaler, "update", None, place):
            return
        checks, fault = advance(CHECKS, scaler.checks, "update")
        if fault is not None and not new_scale and not scaler.doubtful:
            accumulating = scaler.steps > 0 and scaler.backwards > 0
            self.report("update-in-accumulation" if accumulating else fault.kind, place)
        if fault is None or new_scale:
            for optimizer in scaler.owned_now():
                optimizer.gradients = advance(GRADIENTS, optimizer.gradients, "update")[0]
                optimizer.updated_at = place
                if optimizer.gradients == "late":
                    others = (stage for other, stage in scaler.stages.items() if other is not optimizer)
                    optimizer.updated_among_others = any(stage.state == "stepped" for stage in others)
                optimizer.doubtful = False
            scaler.stages.clear()
            scaler.checks = checks
            scaler.doubtful = False
            scaler.backwards = 0
        scaler.updates += 1

    def plain_step(self, optimizer: TrackedOptimizer, place: Place, changed: bool) -> None:
        """optimizer.step(), without a scaler; `changed`: something else wrote to the gradients since the backward."""
        owner = optimizer.owner
        if changed and optimizer.gradients == "scaled":  # divided by the scale by hand
            optimizer.gradients = UNKNOWN
        if owner is None:
            optimizer.gradients = advance(GRADIENTS, optimizer.gradients, "plain-step")[0]
            if optimizer.gradients == "spent":
                optimizer.doubtful = False
        else:
            cause = optimizer.spent_at if optimizer.gradients == "spent" else optimizer.scaled_at
            excuse = owner if any(name in optimizer.family for name in _INVARIANT_TO_SCALE) else None
            state, fault = advance(GRADIENTS, optimizer.gradients, "plain-step")
            if fault is not None and not optimizer.doubtful:
                self.report(fault.kind, place, cause, excuse if fault.kind == "step-bypasses-scaler" else None)
                owner.doubtful = True
            optimizer.gradients = state
            optimizer.owner = None
        optimizer.reads.clear()
        optimizer.share()

    def zero_grad(self, optimizer: TrackedOptimizer, place: Place | None) -> None:
        """The optimizer's gradients are gone or zero; `place` is None where nobody saw who did that."""
        if optimizer.gradients not in WITHOUT_GRADIENTS:
            optimizer.zeroed += 1
            optimizer.zeroed_at = place
        optimizer.gradients = advance(GRADIENTS, optimizer.gradients, "zero-grad")[0]
        optimizer.doubtful = False
        optimizer.reads.clear()
        optimizer.share()

    def clip(self, optimizers: Sequence[TrackedOptimizer], place: Place, reads_only: bool) -> None:
        """A clip that reaches gradients of these optimizers; `reads_only` if the threshold is infinite."""
        event = "grad-read" if reads_only else "clip"
        useless = all(each.gradients == "spent" and each.owner is not None for each in optimizers)
        for optimizer in optimizers:
            fault = advance(GRADIENTS, optimizer.gradients, event)[1]
            if fault is None or optimizer.doubtful or optimizer.owner is None:
                continue
            if fault.kind != "clip-after-step" or useless:
                cause = optimizer.spent_at if fault.kind == "clip-after-step" else optimizer.scaled_at
                self.report(fault.kind, place, cause)

    def thrown_away(self, optimizer: TrackedOptimizer, place: Place) -> None:
        """A step with gradients that are all zero since they were cleared after the backward."""
        cause = optimizer.zeroed_at
        self.report("no-gradients-at-step", cause or place, place if cause else None)

    def _as_usual(self, scaler: TrackedScaler, optimizer: TrackedOptimizer, event: str, place: Place) -> bool:
        """Do all that unscale or step does in one go where nothing is wrong, which is nearly always."""
        if optimizer.owner is not scaler or optimizer.reads or optimizer.aliases or scaler.unchecked:
            return False
        before = scaler.stages.get(optimizer, _READY)
        after = _without_fault(scaler.scale, scaler.checks, before.state, optimizer.gradients, event)
        if after is None:
            return False
        scaler.checks, state, optimizer.gradients = after
        scaler.stages[optimizer] = Stage(state, place, optimizer.round, optimizer.zeroed)
        return True

    # -- automata -----------------------------------------------------------------------------------------------------

    def _use(self, scaler: TrackedScaler, optimizer: TrackedOptimizer, event: str, place: Place) -> None:
        """Feed unscale or step of a scaler to the gradients."""
        if optimizer.gradients == "scaled" and optimizer.owner is not scaler:
            self.report("unscaled-backward", optimizer.scaled_at or place, place)
            self._lose(optimizer)
            return
        if optimizer.gradients == "scaled":
            for read in optimizer.reads:
                self.report("grad-read-before-unscale", read, optimizer.scaled_at)
        optimizer.reads.clear()
        cause: Place | None = None
        if optimizer.gradients == "plain":
            cause = optimizer.plain_at
        elif optimizer.gradients == "late":
            cause = optimizer.updated_at
        self._gradients(optimizer, event, cause or place, place if cause else None)
        optimizer.belong_to(scaler)

    def _gradients(self, optimizer: TrackedOptimizer, event: str, place: Place, related: Place | None) -> bool:
        """Advance the state of the gradients; whether that was a fault."""
        cell = GRADIENTS.get((optimizer.gradients, event))
        if not isinstance(cell, Fault):
            if cell is not None:
                optimizer.gradients = cell
            return False
        fault = cell
        optimizer.gradients = fault.then
        kind = fault.kind
        if kind == "update-between-optimizers" and not optimizer.updated_among_others:
            kind = "update-before-step"
        if not optimizer.doubtful:
            self.report(kind, place, related)
        if kind not in _HARMLESS_AFTER:
            self._lose(optimizer)
        return True

    def _lose(self, optimizer: TrackedOptimizer) -> None:
        """After a fault nothing is known of the gradients, and what follows from it is not told again."""
        optimizer.gradients = UNKNOWN
        optimizer.doubtful = True
        optimizer.reads.clear()

    def _no_scale(self, scaler: TrackedScaler, event: str, optimizer: TrackedOptimizer | None, place: Place) -> bool:
        fault = SCALE.get((scaler.scale, event))
        if not isinstance(fault, Fault):
            return False
        if not scaler.doubtful:
            cause = None if optimizer is None else optimizer.plain_at
            self.report(fault.kind, cause or place, place)
        scaler.doubtful = True
        return True

    def _stage(
        self, scaler: TrackedScaler, optimizer: TrackedOptimizer, event: str, place: Place, nothing: bool
    ) -> bool:
        """Feed unscale or step to the automata of the scaler; whether the gradients are used by it."""
        if scaler.unchecked:
            optimizer.gradients, optimizer.owner = UNKNOWN, None
            return False
        if self._no_scale(scaler, event, optimizer, place):
            self._lose(optimizer)
            return False
        for other in optimizer.aliases:
            earlier = scaler.stages.get(other)
            if earlier is not None and earlier.state in ("unscaled", "stepped"):
                self.report("optimizer-identity", place, earlier.place)
                self._lose(optimizer)
        before = scaler.stages.get(optimizer, _READY)
        staged = f"{event}-nothing" if nothing else event
        state, fault = advance(STAGE, before.state, staged)
        scaler.checks = advance(CHECKS, scaler.checks, staged)[0]
        if fault is None:
            scaler.stages[optimizer] = Stage(state, place, optimizer.round, optimizer.zeroed)
            return True
        if not optimizer.doubtful:
            self._report_stage(fault, optimizer, before, place, scaler)
        scaler.stages[optimizer] = before._replace(state=state)
        self._lose(optimizer)
        return False

    def _report_stage(
        self, fault: Fault, optimizer: TrackedOptimizer, before: Stage, place: Place, scaler: TrackedScaler
    ) -> None:
        """Name a fault of the scaler's order: the same iteration, or one whose update() never came."""
        kind = fault.kind
        if kind == "no-gradients-at-step":
            cause = optimizer.zeroed_at if optimizer.gradients == "cleared" else None
            self.report(kind, cause or place, place if cause else None)
        elif before.round == optimizer.round or before.place is None:
            self.report(kind, place, before.place)
        elif kind == "unscale-twice" and before.zeroed == optimizer.zeroed:
            self.report("unscale-in-accumulation", before.place, place)
        else:
            missing = kind != "unscale-twice" and not scaler.updates
            self.report("missing-update" if missing else "update-skipped-on-path", before.place, place)
