"""From faults of the automata to violations: naming them as the catalogue does, blaming the right place, and counting.

The automata know that torch raises at a second `unscale_()`; whether that is `unscale-twice`, an `update()` skipped
on a path or an `unscale_()` inside an accumulation window shows in the loops and decisions since the first one.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from amplint.flow.violations import Violation
from amplint.flow.worlds import Mark, Stack, Step, World, common
from amplint.model import Label, Span

BOUNDARY = re.compile(
    r"%|accum|micro|sync_grad|should_step|is_last|last_|boundary|need_update|do_step"
    r"|update_(?:freq|every|grad|param|step)",
    re.IGNORECASE,
)
"""Tests that look like the boundary of a gradient accumulation window."""


class Where(NamedTuple):
    """An event in its context: the call, the calls around it and the running procedure."""

    span: Span
    stack: Stack
    procedure: str


class Hit(NamedTuple):
    """A fault with a name and a place, before it is known whether all worlds agree."""

    kind: str
    blamed: Where
    place: Span
    raises: bool
    labels: tuple[Label, ...]
    path: tuple[Label, ...]
    scaler: str
    optimizer: str
    related: Span | None
    threshold: float | None = None
    again: bool = False
    optimizer_class: str = ""
    per_iteration: bool = False


def blame(event: Where, partner: Mark | None) -> Where:
    """The event as seen from the function that holds it and its partner: the call of the helper it happens in."""
    if partner is None:
        return event
    shared = common(event.stack, partner.stack)
    if len(event.stack) > shared:
        return Where(event.stack[shared], event.stack[:shared], "")
    return event


def crossed_boundary(trail: tuple[Step, ...], counters: frozenset[Span]) -> bool:
    """Whether a decision since the last step or update is at the boundary of an accumulation window: it looks like
    one, or is the test of one of `counters`.
    """
    return any(BOUNDARY.search(step.text) or step.span in counters for step in trail)


def worded(trail: tuple[Step, ...]) -> tuple[Label, ...]:
    """The decisions of a trail as labels."""
    labels: list[Label] = []
    for step in trail:
        if step.text in ("continue", "break", "return", "except"):
            message = {"except": "an exception leads here"}.get(step.text, f"this `{step.text}` is taken")
        else:
            message = f"when `{step.text}` is {'true' if step.truth else 'false'}"
        label = Label(step.span, message)
        if label not in labels:
            labels.append(label)
    return tuple(labels[-4:])


ANY_WAY = "any-way"
THERE = "there: "
"""Ways of counting an event for which it does not matter how its worlds came there; the second, with the path of a
scaler, asks whether the scaler is there.
"""


class Tally:
    """Hits and the worlds in which they were possible, of one root or of all.

    `alive` are the ways (`THERE` and a path) of scalers that were met where they are there: one that never is may be
    set from outside.
    """

    def __init__(self) -> None:
        self.alive: set[str] = set()
        self._totals: dict[tuple[object, ...], int] = {}
        self._hits: dict[tuple[object, ...], tuple[int, Hit]] = {}

    @staticmethod
    def _key(event: str, where: Where, world: World) -> tuple[object, ...]:
        any_way = event == ANY_WAY or event.startswith(THERE)
        came = None if any_way else (world.types.get(("lap",)), world.types.get(("wrong",)))
        return event, where.span, where.stack, came

    def count(self, event: str, where: Where, world: World) -> None:
        """A world in which the event happens."""
        key = self._key(event, where, world)
        self._totals[key] = self._totals.get(key, 0) + 1

    def hit(self, event: str, where: Where, world: World, hit: Hit) -> None:
        """A world in which the event is wrong; `count` is called for it too."""
        key = (*self._key(event, where, world), hit.kind, hit.blamed.span)
        before = self._hits.get(key)
        self._hits[key] = (1, hit) if before is None else (before[0] + 1, before[1])

    def certain_hits(self) -> list[tuple[Hit, bool]]:
        """All hits, each with whether every world that came there the same way has it.

        Worlds in which something was wrong before prove nothing: only they may be left of a branch.
        """
        certain: list[tuple[Hit, bool]] = []
        for key, (count, hit) in self._hits.items():
            came = key[3]
            proves = came is None or (isinstance(came, tuple) and came[1] is None)
            sure = proves and count >= self._totals.get(key[:4], 0)
            if not str(key[0]).startswith(THERE) or (sure and key[0] in self.alive):
                certain.append((hit, sure))
        return certain


SEEN_FROM_CALLER = frozenset(
    {
        "clip-before-unscale",
        "grad-read-before-unscale",
        "clip-after-step",
        "backward-in-autocast",
        "step-in-autocast",
        "unscale-twice",
        "scaler-step-twice",
    }
)
"""Kinds in which a helper that does it is not wrong by itself: its call is, in the function that made it wrong."""

CERTAIN_ONLY = frozenset({"clip-after-step"})
"""Kinds that are reported only where every way is wrong: the other ways give the statement its sense."""


def violations(hits: list[tuple[Hit, bool]], stepped: dict[str, tuple[tuple[str, str], ...]]) -> list[Violation]:
    """Hits of all roots as violations, one for each kind and place, in the order of the text.

    `stepped` gives, by procedure, the (scaler, optimizer) texts of its `scaler.step` and `unscale_` calls.
    """
    best: dict[tuple[str, Span], tuple[Hit, bool]] = {}
    for hit, certain in hits:
        if not certain and hit.kind in CERTAIN_ONLY:
            continue
        key = hit.kind, hit.blamed.span
        known = best.get(key)
        if known is None or (hit.again, certain) > (known[0].again, known[1]):
            best[key] = hit, certain or (known is not None and known[1])
    within_region = {hit.related for hit, _ in best.values() if hit.kind == "backward-in-autocast"}
    found: list[Violation] = []
    for hit, certain in best.values():
        # One fix moves both out of the region, so a harmless step beside a reported backward is not news.
        if hit.kind == "step-in-autocast" and not hit.again and hit.related in within_region:
            continue
        pairs = stepped.get(hit.blamed.procedure, ())
        optimizers = dict.fromkeys(o for s, o in pairs if o and (not hit.scaler or s == hit.scaler))
        found.append(
            Violation(
                hit.kind,
                hit.blamed.span,
                hit.place,
                certain,
                hit.raises,
                hit.labels,
                () if certain else hit.path,
                hit.scaler,
                hit.optimizer,
                tuple(optimizers),
                hit.related,
                hit.threshold,
                hit.again,
                hit.optimizer_class,
                hit.per_iteration,
            )
        )
    found.sort(key=lambda violation: (violation.span, violation.kind))
    return found
