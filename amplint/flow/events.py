"""Events: how the automata move in a world, and which faults that gives."""

from __future__ import annotations

from amplint.flow import ir
from amplint.flow.program import Program
from amplint.flow.protocol import (
    CHECKS,
    GRADIENTS,
    SCALE,
    STAGE,
    UNKNOWN,
    Fault,
    advance,
)
from amplint.flow.reports import Reports
from amplint.flow.verdicts import ANY_WAY, Hit, Where, blame
from amplint.flow.worlds import Mark, World, Worlds
from amplint.model import Label

_OF_SCALER = ("scale", "scaler-use", "unscale", "step", "update")
_SENSITIVE_TO_SCALE = frozenset({"SGD", "Adagrad", "Adadelta", "Rprop", "ASGD"})
"""Optimizers whose step does change with the size of the gradients; the Adam family's hardly does."""


class Events(Reports):
    """The part of the engine that feeds events to the automata."""

    def __init__(self, program: Program) -> None:
        super().__init__(program)
        self.nothing_scaled = program.makes_scalers() and not program.written_event("scale")
        self.scaler_steps = program.any_event("step") or program.any_event("update")

    def feed(self, event: ir.Event, world: World) -> Worlds:
        """The worlds after an event."""
        if event.kind not in ("backward", "scale") and any(key[0] == "run" for key in world.marks):
            world = world.copy(marks={key: mark for key, mark in world.marks.items() if key[0] != "run"})
        after = self._fed(event, world)
        if not self.several:
            return [world.settled() for world in after]
        return [world.apart(self.pairs | self.met) for world in after] if self.pairs else after

    def _fed(self, event: ir.Event, world: World) -> Worlds:
        if event.kind in _OF_SCALER:
            return self._feed_scaler(event, world)
        if event.kind in ("backward", "autograd"):
            return [self._feed_backward(event, world)]
        if event.kind in ("plain-step", "zero-grad"):
            return [self._feed_optimizer(event, world)]
        if event.kind in ("foreign-backward", "gradients-changed", "optimizer-call"):
            return [self._doubt_gradients(event, world)]
        return [self._feed_gradients(event, world)]

    def _feed_scaler(self, event: ir.Event, world: World) -> Worlds:
        assert event.scaler is not None
        place = self.frame.resolve(event.scaler)
        found = world.cells.get(place)
        name = str(found[1]) if found is not None and found[0] == "object" else place
        absent = found is not None and found[0] in ("none", "unbound")
        if absent or self.guards.is_none(name, world):
            self.unbound(event, world, place)
            return []
        self.count(event, world)
        self.bound(event, world, place)
        if (found is not None and found[0] == "off") or self.guards.is_absent(name, world):
            return [world]
        self.places[name] = place
        if event.kind == "scaler-use":
            return [world]
        if ("scale", name) not in world.types:
            world = world.track(name, UNKNOWN, UNKNOWN, UNKNOWN, UNKNOWN)
        if event.kind == "scale":
            world = world.typed(("scale", name), advance(SCALE, world.state("scale", name), "backward")[0])
        elif ("escaped", name) not in world.types:
            world = self._update(event, name, world) if event.kind == "update" else self._on_pair(event, name, world)
        return self.guards.exists(name, world)

    def _on_pair(self, event: ir.Event, name: str, world: World) -> World:
        optimizer = self.object_at(event.optimizer, world) if event.optimizer else None
        if optimizer is None:  # an optimizer without a name: give this scaler up
            return world.doubt(name)
        self._meet(optimizer)
        self.met.add((name, optimizer))
        world = self._identities(event, name, optimizer, world)
        gradients = world.state("gradients", name, optimizer)
        staged = f"{event.kind}-nothing" if gradients == "cleared" else event.kind
        before = world
        _, no_scale = advance(SCALE, world.state("scale", name), event.kind)
        stage, wrong_stage = advance(STAGE, world.state("stage", name, optimizer), staged)
        after, wrong_gradients = self.gradients(gradients, event.kind)
        checks, _ = advance(CHECKS, world.state("checks", name), staged)
        world = world.typed(("stage", name, optimizer), stage).typed(("gradients", name, optimizer), after)
        world = world.typed(("checks", name), checks)
        fault = wrong_stage or wrong_gradients or no_scale
        if fault is not None:
            self.report(event, fault, name, optimizer, before)
            world = world.typed(("wrong",), "yes")
            if fault is wrong_gradients:  # what the scaler remembers of its calls is as sure as before
                world = world.typed(("gradients", name, optimizer), UNKNOWN)
            else:
                world = world.doubt(name, optimizer)
            if no_scale is not None:
                world = world.doubt(name)
                if after in ("early", "unscaled"):  # the next backward is what comes too late, as it is in later rounds
                    world = world.typed(("gradients", name, optimizer), after)
        world = world.marked(("stage", name, optimizer), self.mark(event.span))
        if event.kind == "step":
            world = self._step_in_region(event, world).marked(("spent", name, optimizer), self.mark(event.span))
        return world.copy(trail=())

    def _update(self, event: ir.Event, name: str, world: World) -> World:
        before = world
        _, no_scale = advance(SCALE, world.state("scale", name), "update")
        checks, no_checks = advance(CHECKS, world.state("checks", name), "update")
        fault = no_checks or no_scale
        if fault is not None:
            self.report(event, fault, name, None, before)
        for optimizer in (*world.optimizers(name), "*"):
            for table, label in ((STAGE, "stage"), (GRADIENTS, "gradients")):
                key = (label, name, optimizer)
                world = world.typed(key, advance(table, world.state(*key), "update")[0])
        world = world.typed(("checks", name), checks)
        if fault is not None:
            world = world.typed(("wrong",), "yes").doubt(name)
        world = world.marked(("update", name), self.mark(event.span))
        return world.copy(trail=())

    def _identities(self, event: ir.Event, name: str, optimizer: str, world: World) -> World:
        """Report `unscale_(wrapper)` followed by `step(inner)`: the scaler keeps its state by object."""
        if event.kind != "step" or world.state("stage", name, optimizer) in ("unscaled", "stepped"):
            return world
        for other in world.optimizers(name):
            unscaled = world.marks.get(("stage", name, other))
            if world.state("stage", name, other) == "unscaled" and self.related(optimizer, other) and unscaled:
                if not unscaled.old:
                    self.hit(event, "optimizer-identity", world, name, other, blamed=unscaled)
                return world.doubt(name, other).doubt(name, optimizer)
        return world

    def _meet(self, optimizer: str) -> None:
        self.optimizers.add(optimizer)

    def count_optimizers(self) -> int:
        """How many optimizers were met; what is made at several places for one path is one."""
        return len({self.homes.get(optimizer, optimizer) for optimizer in self.optimizers})

    def _feed_backward(self, event: ir.Event, world: World) -> World:
        loss = self.simple(event.loss, world) if event.loss is not None else None
        region = world.regions[-1] if world.regions else None
        self.count(event, world)
        if region is not None and region.on:
            entered = Mark(region.span, region.stack, False, "")
            self.hit(event, "backward-in-autocast", world, "", None, partner=entered)
            world = self._again_in_region(event, world)
        if event.kind == "autograd":
            return world
        if loss is not None and loss[0] == "scaled":
            world = self._scaled_backward(event, str(loss[1]), world)
        elif self.nothing_scaled or (loss is not None and loss[0] in ("plain", "null", "bool")):
            world = self._plain_backward(event, world)
        else:
            types = {key: UNKNOWN if key[0] == "gradients" else state for key, state in world.types.items()}
            world = world.copy(types=types).marked(("plain",), self.mark(event.span))
        return world

    def _plain_backward(self, event: ir.Event, world: World) -> World:
        """The first of the plain backwards that a step sums up is the one to blame.

        With several optimizers it is the first of those that follow one another: others may belong to others.
        """
        first = self.mark(event.span)
        run = ("run", str(self.branches[-1].span.start) if self.branches else "")
        if self.several:
            first = world.marks.get(run, first)
        marks = {**world.marks, run: first, ("plain",): first}
        for name in world.scalers():
            if self.several or "plain" not in world.gradients(name):
                marks["plain", name] = first
            world = self._on_all(event, "plain-backward", name, world)
        return world.copy(marks=marks)

    def _scaled_backward(self, event: ir.Event, name: str, world: World) -> World:
        if ("scale", name) not in world.types:
            world = world.track(name, UNKNOWN, UNKNOWN, UNKNOWN, UNKNOWN)
        world = world.typed(("scale", name), advance(SCALE, world.state("scale", name), "backward")[0])
        for optimizer in (*world.optimizers(name), "*"):
            key = ("stage", name, optimizer)
            world = world.typed(key, advance(STAGE, world.state(*key), "backward")[0])
        if not self.several and world.state("checks", name) == UNKNOWN:
            world = world.typed(("checks", name), "none")  # the only optimizer is ready: nothing was checked
        world = self._on_all(event, "backward", name, world)
        return world.marked(("scaled", name), self.mark(event.span))

    def _on_all(self, event: ir.Event, kind: str, name: str, world: World) -> World:
        """Feed a backward to the gradients of every optimizer of a scaler."""
        if ("escaped", name) in world.types:
            return world
        before = world
        reported = False
        for optimizer in (*world.optimizers(name), "*"):
            key = ("gradients", name, optimizer)
            state, fault = self.gradients(world.state(*key), kind)
            world = world.typed(key, state)
            if fault is not None and optimizer == "*" and before.optimizers(name):
                world = world.typed(key, UNKNOWN)
            elif fault is not None:
                if not reported:
                    self.report(event, fault, name, optimizer, before)
                    reported = True
                world = world.typed(key, UNKNOWN).typed(("wrong",), "yes")
                if fault.kind == "unscale-in-accumulation":
                    world = world.doubt(name, optimizer)
        return world

    def _feed_optimizer(self, event: ir.Event, world: World) -> World:
        optimizer = self.object_at(event.optimizer, world) if event.optimizer else None
        self.count(event, world)
        if optimizer is not None:
            self._meet(optimizer)
        elif event.kind == "plain-step":
            return world
        if event.kind == "plain-step":
            world = self._step_in_region(event, world)
        for name in world.scalers():
            if ("escaped", name) in world.types:
                continue
            if optimizer is None:  # model.zero_grad(): everybody's gradients, if there is only one optimizer
                for known in (*world.optimizers(name), "*"):
                    key = ("gradients", name, known)
                    state = UNKNOWN if self.several else advance(GRADIENTS, world.state(*key), "zero-grad")[0]
                    world = world.typed(key, state)
                continue
            key = ("gradients", name, optimizer)
            state, fault = self.gradients(world.state(*key), event.kind)
            if fault is not None and not self._matters(fault, optimizer):
                world = world.typed(key, UNKNOWN)
            elif fault is not None:
                self.report(event, fault, name, optimizer, world)
                world = world.typed(("wrong",), "yes").doubt(name, optimizer)
                if not self.several:
                    world = world.doubt(name)
            else:
                world = world.typed(key, state)
        if event.kind == "zero-grad":
            world = self._zeroed(event, optimizer, world)
        return world

    def _zeroed(self, event: ir.Event, optimizer: str | None, world: World) -> World:
        """The world with a mark where gradients were zeroed: those of one optimizer or, without one, of any."""
        if optimizer is None:
            marks = {key: mark for key, mark in world.marks.items() if key[0] != "zero"}
            world = world.copy(marks=marks)
        return world.marked(("zero", optimizer or ""), self.mark(event.span))

    def _matters(self, fault: Fault, optimizer: str) -> bool:
        """Whether a bypass is one: a scaler that never steps is a fixed multiplier, which Adam does not feel."""
        if fault.kind != "step-bypasses-scaler" or self.scaler_steps:
            return True
        return self.families.get(optimizer) in _SENSITIVE_TO_SCALE

    def _feed_gradients(self, event: ir.Event, world: World) -> World:
        """A clip or another use of gradients: wrong while they are scaled, whoever owns them."""
        owner = self._owner(event)
        if not self.quiet:
            self.tally.count(ANY_WAY, self.where(event), world)
        if world.scalers() or not self._is_off(world):
            self.count(event, world)
        live = [name for name in world.scalers() if ("escaped", name) not in world.types]
        if len(live) < len(world.scalers()):
            return world
        owning = [name for name in live if owner is not None and owner in world.optimizers(name)]
        owned: dict[str, dict[str, str]] = {}
        for name in owning or live:
            known = [owner] if owning and owner is not None else world.optimizers(name) or ["*"]
            owned[name] = {optimizer: world.state("gradients", name, optimizer) for optimizer in known}
        every = [state for states in owned.values() for state in states.values()]
        if any(state in ("unscaled", "early", UNKNOWN, "mixed", "late", "plain") for state in every):
            return world
        if any(self._thrown_away(name, optimizer, world) for name, states in owned.items() for optimizer in states):
            return world
        for name, states in owned.items():
            for optimizer, state in states.items():
                fault = self.gradients(state, event.kind)[1]
                if fault is not None and fault.kind == "clip-after-step" and set(every) != {"spent"}:
                    continue
                if fault is not None:
                    self.report(event, fault, name, optimizer if optimizer != "*" else None, world)
                    return world
        return world

    @staticmethod
    def _is_off(world: World) -> bool:
        """Whether a scaler is there and switched off: calling it does no harm, so this is no way that is right."""
        return any(value[0] == "off" for value in world.cells.values())

    @staticmethod
    def _thrown_away(name: str, optimizer: str, world: World) -> bool:
        """Whether gradients were unscaled and then zeroed: it may be these that are used, whatever others are."""
        unscaled = world.state("stage", name, optimizer) == "unscaled"
        return unscaled and world.state("gradients", name, optimizer) == "cleared"

    def _owner(self, event: ir.Event) -> str | None:
        """The optimizer whose parameters an event uses, where the only candidate is known: the one that got them, or
        else, of several that end differently, the one with the same end (`net_d` and `optimizer_d`).
        """
        if event.params is None:
            return None
        place = self.frame.resolve(event.params)
        owners = [optimizer for optimizer in self.optimizers if place in self.owners.get(optimizer, ())]
        if len(owners) == 1:
            return owners[0]
        ends: dict[str, str] = {}
        for optimizer in self.optimizers:
            ends.setdefault(_ending(self.homes.get(optimizer, optimizer)), optimizer)
        if len(ends) < max(self.count_optimizers(), 2):
            return None
        return ends.get(_ending(place)) if "" not in ends else None

    def _doubt_gradients(self, event: ir.Event, world: World) -> World:
        """Something changed gradients in a way that can't be followed: those of one optimizer, or all."""
        optimizer = self.object_at(event.optimizer, world) if event.optimizer else None
        types = dict(world.types)
        for name in world.scalers():
            if optimizer is not None:
                types["gradients", name, optimizer] = UNKNOWN
        if optimizer is None:
            types = {key: UNKNOWN if key[0] == "gradients" else state for key, state in types.items()}
        return world.copy(types=types)

    def _step_in_region(self, event: ir.Event, world: World) -> World:
        region = world.regions[-1] if world.regions else None
        if region is None or not region.on:
            return world
        entered = Mark(region.span, region.stack, False, "")
        self.hit(event, "step-in-autocast", world, "", None, partner=entered)
        key = ("region", str(region.span.start))
        return world.typed(key, "stepped").marked(key, self.mark(event.span))

    def _again_in_region(self, event: ir.Event, world: World) -> World:
        region = world.regions[-1]
        key = ("region", str(region.span.start))
        step = world.marks.get(key)
        if world.types.get(key) != "stepped" or step is None:
            return world
        if not self.quiet:
            entered = Mark(region.span, region.stack, False, "")
            where = blame(Where(step.span, step.stack, step.procedure), entered)
            label = Label(region.span, "one region holds several iterations")
            hit = Hit("step-in-autocast", where, step.span, False, (label,), (), "", "", region.span, again=True)
            self.tally.hit(event.kind, self.where(event), world, hit)
        return world.typed(key, "entered")


def _ending(path: str) -> str:
    """What comes after the last underscore of a path's last name, "" without one."""
    name = path[path.rfind(".") + 1 :]
    return name[name.rfind("_") + 1 :] if "_" in name else ""
