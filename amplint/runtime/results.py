"""What the monitor found out, as plain values."""

from __future__ import annotations

import json
from typing import Any, NamedTuple

from amplint.runtime.kinds import KINDS
from amplint.runtime.places import Place


class Violation(NamedTuple):
    """A breach of the protocol: where the cause is, where it showed, how often, and whether torch raised there."""

    kind: str
    place: Place
    related: Place | None
    times: int
    raised: bool

    @property
    def code(self) -> str:
        """The code of the rule that finds the same without running the code."""
        return KINDS[self.kind].code

    @property
    def level(self) -> str:
        """`warning` or `error`."""
        return KINDS[self.kind].level.label

    @property
    def message(self) -> str:
        """Why it hurts, in one sentence."""
        return KINDS[self.kind].why


class RegionReport(NamedTuple):
    """An autocast region: where and how often it was entered, and whether it was on (torch may switch it off)."""

    place: Place
    device: str
    dtype: str
    enabled: bool
    entries: int


class BackwardReport(NamedTuple):
    """Calls of backward(): of scaled losses, of others, of sums of both; how many ran under autocast."""

    scaled: int
    plain: int
    mixed: int
    in_autocast: int


class ScaleChange(NamedTuple):
    """The scale after the `update`-th call of update() (0: before the first)."""

    update: int
    scale: float


class ScalerReport(NamedTuple):
    """A scaler: where it was made, its class, its calls of `unscale_`, `step` (with the skipped ones) and `update`.

    `history` is how its scale went.

    `unchecked`: why no violation is told of it, "" if they are: its class goes a way of its own, or threads train at
    the same time.
    """

    place: Place
    name: str
    enabled: bool
    unchecked: str
    unscales: int
    steps: int
    skipped: int
    updates: int
    history: tuple[ScaleChange, ...]


class ProductReport(NamedTuple):
    """Matrix products of one operation in one precision: all calls, and those that gradients flow through."""

    operation: str
    dtype: str
    calls: int
    with_gradients: int


class GradientReport(NamedTuple):
    """Values of gradients, counted after every backward() and again when the scaler was about to step.

    `zero`: exactly 0 as the backward left them. `subnormal`: so small that float16 holds them with fewer digits.
    `zero_at_step`: 0 when they were used, after the division by the scale; `nonfinite_at_step`: inf or nan there.
    `compared`: values, in the backwards that were looked at closely, that are not 0 in truth; `underflowed`: those of
    them that are 0 all the same. `amplint.runtime.gradients` says how that is found out.
    """

    values: int
    zero: int
    subnormal: int
    values_at_step: int
    zero_at_step: int
    nonfinite_at_step: int
    compared: int
    underflowed: int

    @property
    def lost(self) -> float | None:
        """The fraction of gradient values that underflowed, from 0 to 1; None where no backward could be compared."""
        return self.underflowed / self.compared if self.compared else None


class Report(NamedTuple):
    """All that the monitor saw.

    `effective`: whether gradients flowed through matrix products in low precision; None where that can't be told.
    `products` and `gradients` are None unless they were asked for.
    """

    torch: str
    effective: bool | None
    violations: tuple[Violation, ...]
    regions: tuple[RegionReport, ...]
    backward: BackwardReport
    scalers: tuple[ScalerReport, ...]
    plain_steps: int
    products: tuple[ProductReport, ...] | None
    gradients: GradientReport | None

    @property
    def steps(self) -> int:
        """Steps that went through a scaler that is enabled, skipped ones included."""
        return sum(scaler.steps for scaler in self.scalers)

    @property
    def skipped(self) -> int:
        """Steps that the scalers skipped because of inf or nan."""
        return sum(scaler.skipped for scaler in self.scalers)

    def to_json(self) -> str:
        """The report as a JSON object, indented, keys as the fields are named."""
        return json.dumps(_plain(self), indent=2)


def _plain(value: Any) -> Any:
    if isinstance(value, Violation):
        extra = {"code": value.code, "level": value.level, "message": value.message}
        return {**extra, **{name: _plain(item) for name, item in zip(value._fields, value, strict=True)}}
    if isinstance(value, GradientReport):
        return {**value._asdict(), "lost": value.lost}
    if isinstance(value, Report):
        totals = {"steps": value.steps, "skipped": value.skipped}
        return {**{name: _plain(item) for name, item in value._asdict().items()}, **totals}
    if isinstance(value, tuple) and hasattr(value, "_asdict"):
        return {name: _plain(item) for name, item in value._asdict().items()}
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    if isinstance(value, float) and (value != value or value in (float("inf"), float("-inf"))):
        return str(value)
    return value
