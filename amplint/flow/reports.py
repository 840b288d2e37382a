"""Reports: faults become hits, named and placed as the catalogue does."""

from __future__ import annotations

from amplint.flow import ir
from amplint.flow.guards import Frame
from amplint.flow.imports import FAR
from amplint.flow.program import Program
from amplint.flow.protocol import GRADIENTS, SEVERAL_OPTIMIZERS, Fault, advance
from amplint.flow.values import Values
from amplint.flow.verdicts import (
    ANY_WAY,
    CERTAIN_ONLY,
    SEEN_FROM_CALLER,
    THERE,
    Hit,
    Tally,
    Where,
    blame,
    crossed_boundary,
    worded,
)
from amplint.flow.worlds import Mark, World
from amplint.model import Label, Span


class Reports(Values):
    """The part of the engine that tells what is wrong."""

    def __init__(self, program: Program) -> None:
        super().__init__(program)
        self.tally = Tally()

    def where(self, event: ir.Event) -> Where:
        return Where(event.span, self.stack, self.frame.procedure.name)

    def count(self, event: ir.Event, world: World) -> None:
        if not self.quiet:
            self.tally.count(event.kind, self.where(event), world)

    def unbound(self, event: ir.Event, world: World, place: str) -> None:
        """Report a scaler that is None or unbound; an element of a collection is never known to be there.

        A test around the use may exclude this world in a way that can't be seen, so within one all worlds must agree.
        """
        if "[" in place:
            return
        if not self.branches:
            self.hit(event, "scaler-maybe-unbound", world, place, None)
        elif not self.stack and not self.quiet:
            self.tally.count(THERE + place, self.where(event), world)
            self.hit(event, "scaler-maybe-unbound", world, place, None, way=THERE + place)

    def bound(self, event: ir.Event, world: World, place: str) -> None:
        """Note that a scaler is there in a world."""
        if not self.quiet and not self.stack:
            self.tally.count(THERE + place, self.where(event), world)
            self.tally.alive.add(THERE + place)

    def report(self, event: ir.Event, fault: Fault, name: str, optimizer: str | None, world: World) -> None:
        """Name a fault as the catalogue does and record it."""
        if self.quiet:
            return
        marks = world.marks
        stage = marks.get(("stage", name, optimizer or "*"))
        scaled = marks.get(("scaled", name))
        kind, blamed, partner = fault.kind, None, scaled
        if kind in ("unscale-twice", "unscale-after-step", "scaler-step-twice"):
            partner = stage
            if stage is not None and stage.old and not self._within_iteration(kind):
                kind, blamed = self._next_round(kind, world), stage
                if kind == "":
                    return
            elif stage is not None and self._forgets_update(stage, event):
                kind, blamed = "missing-update", stage
        elif kind == "unscale-in-accumulation":
            if stage is None:
                return
            blamed = partner = stage
            if stage.old and world.trail and not self._left_at_boundary(world) and self._loop_updates():
                kind = "update-skipped-on-path"
        elif kind == "no-gradients-at-step":
            partner = blamed = self._zeroed_at(optimizer, world)
            if blamed is None or blamed.old:
                return
        elif kind == "unscaled-backward":
            loss = self.simple(event.loss, world) if event.loss is not None else None
            if event.kind != "backward" or (loss is not None and loss[0] == "scaled"):
                blamed = marks.get(("plain", name), marks.get(("plain",)))
                if blamed is None and not (self.is_private(name, world) and self._never_scales()):
                    return
        elif kind == "update-between-optimizers":
            partner = blamed = marks.get(("update", name))
            if blamed is None or blamed.old:
                return
            if not self.several:
                kind = "update-before-step"
        elif kind == "update-before-step":
            if not self.steps_in_view() and not self.is_private(name, world):
                return
            update = marks.get(("update", name))
            if self.several and update is not None and not update.old:
                kind, partner = "update-between-optimizers", update
            elif self._at_boundary(world) and "scaled" in world.gradients(name):
                kind = "update-in-accumulation"
        elif kind in ("double-step", "clip-after-step"):
            partner = marks.get(("spent", name, optimizer or "*"), scaled)
        self.hit(event, kind, world, name, optimizer, blamed=blamed, partner=partner, raises=fault.raises)

    def _at_boundary(self, world: World) -> bool:
        return crossed_boundary(world.trail, self.program.counters)

    def _left_at_boundary(self, world: World) -> bool:
        """As `_at_boundary`, of the decisions up to the first jump: what follows belongs to the next iteration."""
        jump = next((at for at, step in enumerate(world.trail) if step.text == "continue"), len(world.trail))
        return crossed_boundary(world.trail[:jump], self.program.counters)

    def _forgets_update(self, stage: Mark, event: ir.Event) -> bool:
        """Whether the first half of a fault lies in another function, which steps and never updates."""
        procedure = self.program.procedures.get(stage.procedure)
        if procedure is None or stage.procedure == self.frame.procedure.name or event.kind != "step":
            return False
        return "update" not in self.program.kinds(procedure.body) and "backward" in self.program.kinds(procedure.body)

    def steps_in_view(self) -> bool:
        """Whether the root steps through a scaler at all: if not, whoever does may do so between two of its events."""
        return "step" in self.program.kinds(self.frames[0].procedure.body)

    def _never_scales(self) -> bool:
        return "scale" not in self.program.kinds(self.frames[0].procedure.body)

    def _next_round(self, kind: str, world: World) -> str:
        """The name of a fault whose first half lies in an earlier round of a loop."""
        if kind == "unscale-twice" and self._left_at_boundary(world):
            return "unscale-in-accumulation"
        loop = self.loops[-1] if self.loops else None
        if self._loop_updates():
            return "update-skipped-on-path"
        if loop is not None and loop.span.start < 0 and self.program.written_event("update"):
            return ""  # the loop is in another file, and so may be the update
        return "missing-update"

    def _within_iteration(self, kind: str) -> bool:
        """Whether a loop around a second step is part of an iteration: it has no backward, and `update()` follows."""
        if kind != "scaler-step-twice" or not self.loops:
            return False
        inner, *outer = (self.program.kinds(loop.body) for loop in reversed(self.loops))
        if inner & {"backward", "update"}:
            return False
        return any("update" in kinds for kinds in outer) if outer else self.program.any_event("update")

    def _loop_updates(self) -> bool:
        return bool(self.loops) and "update" in self.program.kinds(self.loops[-1].body)

    def hit(
        self,
        event: ir.Event,
        kind: str,
        world: World,
        name: str,
        optimizer: str | None,
        *,
        blamed: Mark | None = None,
        partner: Mark | None = None,
        raises: bool = False,
        way: str = "",
    ) -> None:
        if self.quiet:
            return
        here = self.where(event)
        related: Span | None
        if blamed is not None:
            place = Where(blamed.span, blamed.stack, blamed.procedure)
            if kind == "no-gradients-at-step":  # a helper that zeroes is not wrong by itself
                place = blame(place, self.mark(event.span))
            inner = blamed.span
            related = event.span
        elif partner is not None and partner.old and partner[:2] == here[:2] and kind in SEEN_FROM_CALLER:
            place = self._repeated(here)
            inner = event.span
            related = partner.span
        else:
            place = blame(here, partner) if self._is_innocent(kind) else here
            inner = event.span
            related = partner.span if partner is not None else None
        labels = self._labels(kind, name, optimizer, world, event, place)
        if self.program.imported:
            other = Where(event.span, self.stack, "") if blamed is not None else partner
            seen = self._from_here(place, other)
            if seen is None:
                return
            related = None if related is None else self._label(related, "").span
            labels, place = tuple(self._label(*label) for label in labels), seen
        frame = self.frames[min(len(place.stack), len(self.frames) - 1)]
        hit = Hit(
            kind,
            place._replace(procedure=frame.procedure.name),
            inner,
            raises,
            labels,
            tuple(self._label(*label) for label in worded(world.trail)),
            self._text(frame, name, world),
            self._text(frame, optimizer, world),
            related,
            event.threshold,
            optimizer_class=self.families.get(optimizer or "", ""),
        )
        self.tally.hit(way or (ANY_WAY if kind in CERTAIN_ONLY else event.kind), here, world, hit)

    def _repeated(self, here: Where) -> Where:
        """An event that the innermost loop repeats, as seen from the function of that loop."""
        loop = self.loops[-1].span.start if self.loops else here.span.start
        bodies = [frame.procedure.span for frame in self.frames]
        depth = max((at for at, body in enumerate(bodies) if body.start <= loop < body.end), default=0)
        return Where(here.stack[depth], here.stack[:depth], "") if depth < len(here.stack) else here

    def _from_here(self, place: Where, other: Where | Mark | None) -> Where | None:
        """A place as seen from this file: the call that leads to it; None if all happens in the other file."""
        if place.span.start < FAR:
            return place
        depth = next(i for i, call in enumerate((*place.stack, place.span)) if call.start >= FAR) - 1
        call = place.stack[depth]
        inside = other is None or (
            other.span.start >= FAR
            and len(other.stack) > depth
            and other.stack[: depth + 1] == place.stack[: depth + 1]
        )
        return None if inside else Where(call, place.stack[:depth], "")

    def _label(self, span: Span, message: str) -> Label:
        """A label; one in another file stands at the call that leads there and names the place."""
        if span.start < FAR:
            return Label(span, message)
        for name, imported in self.program.imported.items():
            body = self.program.procedures[name].span
            if body.start <= span.start < body.end and name in self.entered:
                text = f"{message.removesuffix(' here')} in {imported.shown}:{imported.row(span)}"
                return Label(self.entered[name], text)
        return Label(self.stack[0] if self.stack else Span(0, 0), message)

    def _is_innocent(self, kind: str) -> bool:
        """Whether the running procedure does nothing wrong by itself: a helper that clips and unscales does."""
        if kind == "clip-before-unscale" and "unscale" in self.program.kinds(self.frame.procedure.body):
            return False
        return kind in SEEN_FROM_CALLER

    def _text(self, frame: Frame, name: str | None, world: World) -> str:
        """The source text that names an object in the function of `frame`, "" where there is none."""
        for path in frame.procedure.objects if name else ():
            place = frame.resolve(path)
            found = world.cells.get(place)
            if name == (str(found[1]) if found is not None and found[0] == "object" else place):
                return ir.text_of(path)
        return ""

    def _labels(
        self, kind: str, name: str, optimizer: str | None, world: World, event: ir.Event, place: Where
    ) -> tuple[Label, ...]:
        marks = world.marks
        plain = kind == "unscaled-backward" and world.state("gradients", name, optimizer or "*") == "plain"
        named = (
            (None if plain else marks.get(("scaled", name)), "gradients are scaled here"),
            (
                marks.get(("plain", name), marks.get(("plain",))) if kind == "unscaled-backward" else None,
                "this loss is not scaled",
            ),
            (None if plain else marks.get(("stage", name, optimizer or "*")), "unscaled or stepped here"),
            (marks.get(("update", name)) if kind.startswith("update-be") else None, "updated here"),
            (self._zeroed_at(optimizer, world) if kind == "no-gradients-at-step" else None, "zeroed here"),
        )
        labels = [Label(mark.span, text) for mark, text in named if mark is not None and mark.span != place.span]
        if event.span not in (place.span, *(label.span for label in labels)):
            labels.append(Label(event.span, f"{_DID.get(event.kind, 'used')} here"))
        return tuple(labels)

    @staticmethod
    def _zeroed_at(optimizer: str | None, world: World) -> Mark | None:
        return world.marks.get(("zero", optimizer or ""), world.marks.get(("zero", "")))

    def gradients(self, state: str, event: str) -> tuple[str, Fault | None]:
        if self.several and (state, event) in SEVERAL_OPTIMIZERS:
            return advance(SEVERAL_OPTIMIZERS, state, event)
        return advance(GRADIENTS, state, event)


_DID = {
    "clip": "clipped",
    "grad-read": "read",
    "unscale": "unscaled",
    "step": "stepped",
    "plain-step": "stepped",
    "update": "updated",
    "backward": "differentiated",
    "zero-grad": "zeroed",
}
