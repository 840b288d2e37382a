"""What torch allows, as data: the automata of a loss scaler, of its optimizers and of their gradients.

Four automata run side by side. `SCALE` and `CHECKS` belong to a scaler, `STAGE` and `GRADIENTS` to a pair of a scaler
and an optimizer; `STAGE` is torch's own `OptState`. A cell of a table is the next state, or a `Fault` when the event
is wrong there; an event without a cell changes nothing. The tables describe `torch.amp.GradScaler` of torch 1.6 to
2.13, whose methods did not change in this respect; a test runs every sequence of events up to length 6 against the
real class.

`UNKNOWN` is the top of every automaton: no event is wrong there.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

UNKNOWN = "unknown"


class Fault(NamedTuple):
    """A wrong event: what to call it, whether torch raises, and the state that torch is in when it does not.

    `kind` is the name of a rule of the catalogue. The engine refines it where the catalogue tells apart what torch
    does not (a second `step()` in the same iteration, or in the next one because `update()` was skipped).
    """

    kind: str
    raises: bool
    then: str


Cell = str | Fault
Table = Mapping[tuple[str, str], Cell]

EVENTS = (
    "backward",  # of a scaled loss
    "plain-backward",  # of a loss that was not scaled
    "unscale",
    "step",  # scaler.step(optimizer)
    "update",
    "plain-step",  # optimizer.step()
    "zero-grad",
    "clip",
    "grad-read",
)

SCALE: Table = {
    # scale() makes the scale tensor when it is first called; all other methods assert that it is there.
    ("unset", "backward"): "set",
    ("unset", "unscale"): Fault("unscaled-backward", True, "unset"),
    ("unset", "step"): Fault("unscaled-backward", True, "unset"),
    ("unset", "update"): Fault("unscaled-backward", True, "unset"),
    (UNKNOWN, "backward"): "set",
}
"""Whether the scaler has a scale yet: `unset` or `set`."""

STAGE: Table = {
    ("ready", "unscale"): "unscaled",
    ("ready", "unscale-nothing"): "unchecked",
    ("ready", "step"): "stepped",
    ("ready", "step-nothing"): Fault("no-gradients-at-step", True, "unchecked"),
    ("unscaled", "unscale"): Fault("unscale-twice", True, "unscaled"),
    ("unscaled", "unscale-nothing"): Fault("unscale-twice", True, "unscaled"),
    ("unscaled", "step"): "stepped",
    ("unscaled", "step-nothing"): Fault("no-gradients-at-step", False, "stepped"),
    ("unscaled", "update"): "ready",
    # unscale_() found no gradient, so it recorded no check for infinities, and step() asserts that there is one.
    ("unchecked", "unscale"): Fault("unscale-twice", True, "unchecked"),
    ("unchecked", "unscale-nothing"): Fault("unscale-twice", True, "unchecked"),
    ("unchecked", "step"): Fault("no-gradients-at-step", True, "unchecked"),
    ("unchecked", "step-nothing"): Fault("no-gradients-at-step", True, "unchecked"),
    ("unchecked", "update"): "ready",
    ("stepped", "unscale"): Fault("unscale-after-step", True, "stepped"),
    ("stepped", "unscale-nothing"): Fault("unscale-after-step", True, "stepped"),
    ("stepped", "step"): Fault("scaler-step-twice", True, "stepped"),
    ("stepped", "step-nothing"): Fault("scaler-step-twice", True, "stepped"),
    ("stepped", "update"): "ready",
    (UNKNOWN, "unscale"): "unscaled",
    (UNKNOWN, "step"): "stepped",
    (UNKNOWN, "update"): "ready",
    # Assume and guarantee: whoever comes to a scaled backward() from outside did nothing wrong before.
    (UNKNOWN, "backward"): "ready",
}
"""What the scaler remembers of the optimizer since `update()`: `ready`, `unscaled`, `unchecked`, `stepped`."""

CHECKS: Table = {
    ("none", "unscale"): "some",
    ("none", "step"): "some",
    ("none", "update"): Fault("update-before-step", True, "none"),
    ("some", "update"): "none",
    (UNKNOWN, "unscale"): "some",
    (UNKNOWN, "step"): "some",
    (UNKNOWN, "update"): "none",
}
"""Whether any check for infinities was recorded since `update()`: `none` or `some`."""

_WITHOUT_GRADIENTS: dict[tuple[str, str], Cell] = {
    cell: after
    for nothing in ("clean", "cleared")
    for cell, after in {
        (nothing, "backward"): "scaled",
        (nothing, "plain-backward"): "plain",
        (nothing, "unscale"): "early",
        (nothing, "zero-grad"): nothing,
    }.items()
}

GRADIENTS: Table = {
    **_WITHOUT_GRADIENTS,
    ("scaled", "plain-backward"): Fault("unscaled-backward", False, "mixed"),
    ("scaled", "unscale"): "unscaled",
    ("scaled", "step"): "spent",
    ("scaled", "update"): "late",
    ("scaled", "plain-step"): Fault("step-bypasses-scaler", False, "spent"),
    ("scaled", "zero-grad"): "cleared",
    ("scaled", "clip"): Fault("clip-before-unscale", False, "scaled"),
    ("scaled", "grad-read"): Fault("grad-read-before-unscale", False, "scaled"),
    ("plain", "backward"): Fault("unscaled-backward", False, "mixed"),
    ("plain", "unscale"): Fault("unscaled-backward", False, "mixed"),
    ("plain", "step"): Fault("unscaled-backward", False, "spent"),
    ("plain", "plain-step"): "spent",
    ("plain", "zero-grad"): "cleared",
    ("mixed", "step"): "spent",
    ("mixed", "plain-step"): "spent",
    ("mixed", "zero-grad"): "cleared",
    # A scaled backward() adds 65536 times as much to gradients that were divided already; a plain one fits them.
    ("unscaled", "backward"): Fault("unscale-in-accumulation", False, "mixed"),
    ("unscaled", "step"): "spent",
    ("unscaled", "update"): "late",
    ("unscaled", "plain-step"): Fault("step-bypasses-scaler", False, "spent"),
    ("unscaled", "zero-grad"): "cleared",
    ("early", "backward"): Fault("unscale-in-accumulation", False, "mixed"),
    ("early", "plain-backward"): "plain",
    ("early", "update"): "clean",
    ("early", "zero-grad"): "clean",
    ("early", "step"): "clean",
    ("spent", "backward"): "scaled",
    ("spent", "plain-backward"): "plain",
    ("spent", "plain-step"): Fault("double-step", False, "spent"),
    ("spent", "zero-grad"): "clean",
    ("spent", "clip"): Fault("clip-after-step", False, "spent"),
    # update() forgot that these gradients were unscaled, or changed the scale that they carry.
    ("late", "backward"): "scaled",
    ("late", "plain-backward"): "mixed",
    ("late", "unscale"): Fault("update-between-optimizers", False, "mixed"),
    ("late", "step"): Fault("update-between-optimizers", False, "spent"),
    ("late", "plain-step"): "spent",
    ("late", "zero-grad"): "cleared",
    # Another optimizer's loss was differentiated after this one had stepped; it may or may not have reached these.
    ("blurred", "plain-backward"): UNKNOWN,
    ("blurred", "unscale"): "unscaled",
    ("blurred", "step"): "spent",
    ("blurred", "plain-step"): Fault("double-step", False, "spent"),
    ("blurred", "zero-grad"): "clean",
    (UNKNOWN, "backward"): "scaled",
    (UNKNOWN, "plain-backward"): "plain",
    (UNKNOWN, "unscale"): "unscaled",
    (UNKNOWN, "step"): "spent",
    (UNKNOWN, "plain-step"): UNKNOWN,
    (UNKNOWN, "zero-grad"): "clean",
}
"""What the optimizer's gradients are.

`clean` and `cleared` (there were some, and they were thrown away): none. `scaled`, `plain`, `mixed`: as the backward
left them. `unscaled`: divided by the scale; `early`: `unscale_()` came before any backward. `spent`: a step used
them. `late`: not used before `update()`. `blurred`: see the table.
"""

SEVERAL_OPTIMIZERS: Table = {
    # Which optimizer's parameters a loss reaches is not known when there are several.
    ("scaled", "plain-backward"): UNKNOWN,
    ("plain", "backward"): UNKNOWN,
    ("unscaled", "backward"): UNKNOWN,
    ("early", "backward"): UNKNOWN,
    ("spent", "backward"): "blurred",
    ("spent", "plain-backward"): UNKNOWN,
    ("late", "plain-backward"): UNKNOWN,
}
"""Cells that replace those of `GRADIENTS` when a function steps more than one optimizer."""


def advance(table: Table, state: str, event: str) -> tuple[str, Fault | None]:
    """The state after `event`, and the fault if the event is wrong in `state`."""
    cell = table.get((state, event), state)
    if isinstance(cell, Fault):
        return cell.then, cell
    return cell, None


def without_gradients(event: str, gradients: str) -> str:
    """`event` as `STAGE` knows it: `unscale-nothing` and `step-nothing` when the optimizer has no gradients."""
    return f"{event}-nothing" if event in ("unscale", "step") and gradients in ("clean", "cleared", "early") else event


class Pair(NamedTuple):
    """One scaler with one optimizer, as it is after construction and `zero_grad()`."""

    scale: str = "unset"
    stage: str = "ready"
    checks: str = "none"
    gradients: str = "clean"

    def after(self, event: str) -> tuple[Pair, tuple[Fault, ...]]:
        """The pair after one of `EVENTS`, and the faults in the order in which torch would meet them."""
        staged = without_gradients(event, self.gradients)
        scale, no_scale = advance(SCALE, self.scale, event)
        stage, wrong_stage = advance(STAGE, self.stage, staged)
        checks, no_checks = advance(CHECKS, self.checks, staged)
        gradients, wrong_gradients = advance(GRADIENTS, self.gradients, event)
        faults = tuple(f for f in (no_scale, wrong_stage, no_checks, wrong_gradients) if f)
        return Pair(scale, stage, checks, gradients), faults
