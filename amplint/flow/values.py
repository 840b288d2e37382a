"""Values: what expressions of the IR are in a world, and which object a path names."""

from __future__ import annotations

from amplint.flow import ir
from amplint.flow.guards import Frame, Guards, starts
from amplint.flow.program import Program
from amplint.flow.protocol import UNKNOWN
from amplint.flow.worlds import Abstract, Mark, Stack, Step, World, Worlds
from amplint.model import Span

Valued = list[tuple["Abstract | None", World]]

MAX_TRAIL = 12


class Values:
    """The running analysis of one root: frames, calls, loops, and the evaluation of values."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.guards = Guards()
        self.frame: Frame = Frame(ir.Procedure("", (), (), Span(0, 0)), "", None, {})
        self.frames: list[Frame] = []
        self.stack: Stack = ()
        self.loops: list[ir.Loop] = []
        self.branches: list[ir.If] = []
        self.quiet = 0
        self.several = False
        self.optimizers: set[str] = set()
        self.met: set[tuple[str, str]] = set()
        """The scalers and optimizers that meet in an `unscale_` or a step."""
        self.pairs: set[tuple[str, str]] = set()
        """As `met`, of an earlier run of the same root; none where there is only one scaler."""
        self.homes: dict[str, str] = {}
        """The path at which an object was first put."""
        self.families: dict[str, str] = {}
        self.owners: dict[str, frozenset[str]] = {}
        self.wraps: dict[str, frozenset[str]] = {}
        self.entered: dict[str, Span] = {}
        """The calls, in this file, that led to procedures of other files last."""
        self.places: dict[str, str] = {}
        """The (resolved) path by which an object was used last."""

    # -- objects -----------------------------------------------------------------------------------------------------

    def object_at(self, path: str, world: World) -> str | None:
        """The identity of the scaler or optimizer at a path, None where it is known to be absent or disabled."""
        place = self.frame.resolve(path)
        found = world.cells.get(place)
        if found is not None and found[0] in ("off", "none", "unbound"):
            return None
        name = str(found[1]) if found is not None and found[0] == "object" else place
        if self.guards.is_absent(name, world):
            return None
        self.places[name] = place
        return name

    def related(self, one: str, other: str) -> bool:
        """Whether one optimizer wraps the other, so that they own the same gradients."""
        if one == other:
            return False
        if one in self.wraps.get(other, ()) or other in self.wraps.get(one, ()):
            return True
        here, there = self.places.get(one, one), self.places.get(other, other)
        return here != there and "[" not in here + there and (starts(here, there) or starts(there, here))

    def identity(self, span: Span) -> str:
        """The identity of an object made at `span` by the running calls."""
        return "@".join(["new", str(span.start), *(str(call.start) for call in self.stack)])

    def is_private(self, name: str, world: World) -> bool:
        """Whether an object was made in the root and only its own names hold it: nobody else can use it."""
        mine = f"{self.frames[0].procedure.name}:"
        held = [path for path, value in world.cells.items() if value == ("object", name)]
        return name.startswith("new@") and bool(held) and all(path.startswith(mine) for path in held)

    # -- evaluation --------------------------------------------------------------------------------------------------

    def evaluate(self, value: ir.Value, world: World) -> Valued:
        """What a value is; a scaler that may be disabled is one or the other, each in its world."""
        if isinstance(value, ir.New):
            return self._new_scaler(value, world)
        if isinstance(value, ir.Optimizer):
            return [(("object", self._new_optimizer(value, world)), world)]
        return [(self.simple(value, world), world)]

    def simple(self, value: ir.Value, world: World) -> Abstract | None:
        """What a value is where that takes no decision; None where nothing is known."""
        if isinstance(value, ir.Copy):
            return self._copied(value, world)
        if isinstance(value, ir.Scaled):
            name = self.object_at(value.scaler, world)
            return ("plain",) if name is None else ("scaled", name)
        if isinstance(value, ir.Constant):
            if value.value is None:
                return ("none",) if value.kind else ("null",)
            return ("bool", value.value)
        if isinstance(value, ir.Plain):
            return ("plain",)
        if isinstance(value, ir.Gradient):
            return ("gradient",)
        if isinstance(value, (ir.Mix, ir.Derived)):
            parts = [self.simple(operand, world) for operand in value.operands]
            scaled = next((part for part in parts if part is not None and part[0] == "scaled"), None)
            if scaled is not None:
                return scaled
            if ("gradient",) in parts:
                return ("gradient",)
            if isinstance(value, ir.Derived):
                return ("plain",)
            plain = [part is not None and part[0] in ("plain", "bool", "null") for part in parts]
            return ("plain",) if all(plain) or (value.factors and any(plain)) else None
        if isinstance(value, ir.Region):
            if value.enabled is None:
                return ("region", value.span, None)
            return ("region", value.span, self.guards.formula(value.enabled, self.frame, world))
        if isinstance(value, ir.CONDITIONS):
            formula = self.guards.formula(value, self.frame, world)
            known = {"true": True, "false": False}.get(str(formula[0]))
            if known is not None:
                return ("bool", known)
            return None if _unsure(formula) else ("when", formula)
        return None

    def _copied(self, value: ir.Copy, world: World) -> Abstract | None:
        place = self.frame.resolve(value.path)
        found = world.cells.get(place)
        if value.kind and (found is None or found[0] == "plain"):
            return ("object", place)
        if found is not None:
            return found
        for end in range(len(place) - 1, 0, -1):  # a part of something plain is plain
            if place[end] in ".[" and (whole := world.cells.get(place[:end])) is not None:
                return whole if whole[0] in ("plain", "scaled", "gradient") else None
        formula = self.guards.formula(ir.Truthy(value.path), self.frame, world)
        return ("when", formula)

    def _new_scaler(self, value: ir.New, world: World) -> Valued:
        name = self.identity(value.span)
        on, off = [world], Worlds()
        if value.enabled is not None:
            on, off = self.guards.split(self.guards.formula(value.enabled, self.frame, world), world)
        made: Valued = []
        for enabled in on:
            stale = {fact for fact in enabled.facts if name in fact[0]}
            fresh = enabled.copy(facts=enabled.facts - stale) if stale else enabled
            fresh = fresh.track(name, "unset", "ready", "none", UNKNOWN)
            if value.enabled is not None:
                fresh = self.guards.enable(name, fresh)
            made.append((("object", name), fresh))
        return made + [(("off",), disabled) for disabled in off]

    def _new_optimizer(self, value: ir.Optimizer, world: World) -> str:
        name = self.identity(value.span)
        if value.family:
            self.families[name] = value.family
        self.owners[name] = frozenset(self.frame.resolve(path) for path in value.owners)
        wrapped = [self.object_at(path, world) for path in value.wraps]
        self.wraps[name] = frozenset(inner for inner in wrapped if inner is not None)
        return name

    # -- marks -------------------------------------------------------------------------------------------------------

    def mark(self, span: Span) -> Mark:
        """A mark for something that happens at `span` now."""
        return Mark(span, self.stack, False, self.frame.procedure.name)

    def decided(self, world: World, span: Span, text: str, truth: bool) -> World:
        """The world with a decision added to its trail."""
        return world.copy(trail=(*world.trail[-MAX_TRAIL:], Step(span, text, truth, self.stack)))


def _unsure(formula: tuple[object, ...]) -> bool:
    return formula[0] == "maybe" or any(_unsure(part) for part in formula[1:] if isinstance(part, tuple))
