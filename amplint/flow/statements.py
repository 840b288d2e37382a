"""Statements: how control flows through the IR."""

from __future__ import annotations

from amplint.flow import ir
from amplint.flow.calls import RESULT, Calls, Out
from amplint.flow.loops import scaler_in_loop
from amplint.flow.program import Program
from amplint.flow.protocol import UNKNOWN
from amplint.flow.worlds import Active, World, Worlds, join, view
from amplint.model import Span

MAX_ROUNDS = 8
MAX_COARSE_ROUNDS = 2
MAX_COARSE_WORLDS = 3
ELSEWHERE = Span(-1, -1)
"""The place of a loop that is not in the file."""


_MERGING = (ir.If, ir.Loop, ir.Try, ir.Within, ir.Invoke, ir.Assign, ir.Forget)


def _few(worlds: Worlds) -> Worlds:
    """The worlds of which most is known and in which nothing was wrong yet."""
    if len(worlds) <= MAX_COARSE_WORLDS:
        return worlds
    return sorted(worlds, key=_doubtfulness)[:MAX_COARSE_WORLDS]


def _doubtfulness(world: World) -> tuple[bool, bool, int]:
    states = list(world.types.values())
    return ("wrong",) in world.types, not world.scalers(), states.count(UNKNOWN)


class BudgetError(Exception):
    """The procedure takes more steps than the engine allows; it is left alone."""


class Statements(Calls):
    """The part of the engine that interprets statements."""

    def __init__(self, program: Program) -> None:
        super().__init__(program)
        self.steps = 0
        self.budget = 0
        self.coarse = False
        """Follow only a few of the worlds, and no exceptions: what is found happens on a path, much may be missed."""

    def block(self, body: ir.Block, worlds: Worlds) -> Out:
        """The ways out of a block that is entered in `worlds`."""
        out = Out(_few(worlds) if self.coarse else worlds)
        for statement in body:
            if not out.normal:
                break
            self.steps += len(out.normal)
            if self.steps > self.budget:
                raise BudgetError
            step = self.statement(statement, out.normal)
            out.also(step)
            out.normal = join(step.normal) if len(step.normal) > 1 and isinstance(statement, _MERGING) else step.normal
            if self.coarse:
                out.normal = _few(out.normal)
        return out

    def statement(self, statement: ir.Stmt, worlds: Worlds) -> Out:
        """The ways out of one statement."""
        if isinstance(statement, ir.Event):
            return Out([after for world in worlds for after in self.feed(statement, world)])
        if isinstance(statement, ir.Assign):
            return Out([after for world in worlds for after in self.assign(statement, world)])
        if isinstance(statement, ir.If):
            return self.branch(statement, worlds)
        if isinstance(statement, ir.Loop):
            return self.loop(statement, worlds)
        if isinstance(statement, ir.Try):
            return self.attempt(statement, worlds)
        if isinstance(statement, ir.Within):
            return self.within(statement, worlds)
        if isinstance(statement, ir.Invoke):
            callee = self.program.procedures[statement.target]
            done = [back for world in worlds for back in self.invoke(statement, world)]
            if self.sinks and self.program.kinds(callee.body):
                self.sinks[-1] += worlds if callee.opens else done
            return Out(done)
        if isinstance(statement, ir.Return):
            result = self.frame.resolve(f"%{RESULT}")
            returned: Out = Out([])
            for world in worlds:
                for value, after in self.evaluate(statement.value, world):
                    left = self.guards.bind(result, value, after)
                    returned.returned.append(self.decided(left, statement.span, "return", True))
            return returned
        return self.simple_statement(statement, worlds)

    def simple_statement(self, statement: ir.Stmt, worlds: Worlds) -> Out:
        """The ways out of a statement without blocks, calls and values."""
        if isinstance(statement, ir.Jump):
            out = Out([])
            if statement.kind == "raise":
                if self.sinks:
                    self.sinks[-1] += worlds
            else:
                left = [self.decided(world, statement.span, statement.kind, True) for world in worlds]
                setattr(out, {"break": "broken", "continue": "continued"}[statement.kind], left)
            return out
        if isinstance(statement, ir.Enter):
            return Out([entered for world in worlds for entered in self.enter(statement.value, world)])
        if isinstance(statement, ir.Escape):
            return Out([self.escape(statement, world) for world in worlds])
        if isinstance(statement, ir.Forget):
            dead = {self.frame.resolve(path) for path in statement.paths}
            return Out([self.dropped(world, dead) for world in worlds])
        if isinstance(statement, ir.Risk) and self.sinks:
            self.sinks[-1] += worlds
        if isinstance(statement, ir.Suspend):
            return Out([self.suspend(world) for world in worlds])
        return Out(worlds)

    @staticmethod
    def dropped(world: World, dead: set[str]) -> World:
        """The world without some cells."""
        if dead.isdisjoint(world.cells):
            return world
        return world.copy(cells={path: value for path, value in world.cells.items() if path not in dead})

    def assign(self, statement: ir.Assign, world: World) -> Worlds:
        """The worlds after an assignment."""
        place = self.frame.resolve(statement.path)
        if isinstance(statement.value, ir.New):
            scaler_in_loop(self, statement.value)
        bound: Worlds = []
        for value, after in self.evaluate(statement.value, world):
            known = value
            if value == ("object", place):
                known = None
            if known is not None and str(known[-1]).startswith("new@") and "<" not in statement.path:
                self.homes.setdefault(str(known[1]), place)
            after = self.guards.bind(place, known, after)
            if value is None or value[0] in ("plain", "none", "null"):
                after = self.rebound(place, after)
            bound.append(after)
        return bound

    def rebound(self, place: str, world: World) -> World:
        """The world in which the object that was known by `place` is another one."""
        dead = [key for key in world.types if place in key[1:]]
        if not dead:
            return world
        if any(key[0] == "scale" for key in dead):
            return world.forget(place)
        return world.copy(types={key: UNKNOWN if key in dead else state for key, state in world.types.items()})

    def branch(self, statement: ir.If, worlds: Worlds) -> Out:
        """Both arms of an `if`, each in the worlds that can take it."""
        taken: Worlds = []
        passed: Worlds = []
        for world in worlds:
            formula = self.guards.formula(statement.test, self.frame, world)
            yes, no = self.guards.split(formula, world)
            if yes and no and statement.text:
                yes = [self.decided(w, statement.span, statement.text, True) for w in yes]
                no = [self.decided(w, statement.span, statement.text, False) for w in no]
            taken += yes
            passed += no
        self.branches.append(statement)
        out = self.block(statement.then, join(taken))
        other = self.block(statement.orelse, join(passed))
        self.branches.pop()
        out.also(other)
        out.normal = out.normal + other.normal
        return out

    def elsewhere(self, body: ir.Block) -> ir.Loop:
        """The loop around a procedure that holds a whole iteration."""
        return ir.Loop(None, (), body, (), ELSEWHERE)

    def loop(self, statement: ir.Loop, worlds: Worlds) -> Out:
        """A loop: to a fixpoint in silence, then once for the record."""
        if statement.rounds is not None:
            return self.rounds(statement, worlds)
        self.loops.append(statement)
        branches, self.branches = self.branches, list(self.branches)
        current = fresh = join(worlds)
        self.quiet += 1
        for _ in range(MAX_ROUNDS if not self.coarse else MAX_COARSE_ROUNDS):
            once = self.round(statement, fresh)
            again = once.normal + once.continued
            if statement.span == ELSEWHERE:
                again = again + once.returned
            seen = view(current)
            if self.coarse:
                again = [world for world in again if ("wrong",) not in world.types]
            current = join(current + [world.round() for world in again])
            fresh = [world for world in current if world.known() not in seen]
            if not fresh:
                break
        else:
            if not self.coarse:
                current = join(world.doubt().copy(facts=frozenset()) for world in current)
        self.quiet -= 1
        last = self.round(statement, current)
        self.loops.pop()
        self.branches = branches
        leave = join(last.normal + last.continued)
        if statement.test is not None:
            leave = self.head(statement, join(worlds + [world.round() for world in leave]))[1]
        out = self.block(statement.orelse, leave)
        out.returned = out.returned + last.returned
        out.normal = out.normal + last.broken
        return out

    def head(self, statement: ir.Loop, worlds: Worlds) -> tuple[Worlds, Worlds]:
        """The worlds that enter the body, and those that leave the loop."""
        for path in statement.binds:
            place = self.frame.resolve(path)
            worlds = [self.rebound(place, self.guards.bind(place, None, world)) for world in worlds]
        if statement.test is None:
            return join(worlds), worlds
        entered: Worlds = []
        left: Worlds = []
        for world in self.block(statement.head, worlds).normal:
            yes, no = self.guards.split(self.guards.formula(statement.test, self.frame, world), world)
            entered += yes
            left += no
        return join(entered), join(left)

    def round(self, statement: ir.Loop, worlds: Worlds) -> Out:
        """One pass through a loop's head and body."""
        return self.block(statement.body, self.head(statement, worlds)[0])

    def rounds(self, statement: ir.Loop, worlds: Worlds) -> Out:
        """A loop whose rounds are known."""
        out = Out(worlds)
        broken: Worlds = []
        for binds in statement.rounds or ():
            bound = self.block(binds, join(out.normal)).normal
            once = self.block(statement.body, join(bound))
            broken = broken + once.broken
            out.returned = out.returned + once.returned
            out.normal = join(once.normal + once.continued)
        tail = self.block(statement.orelse, out.normal)
        tail.returned = tail.returned + out.returned
        tail.normal = tail.normal + broken
        return tail

    def attempt(self, statement: ir.Try, worlds: Worlds) -> Out:
        """`try`: handlers run in the worlds of the marked calls; `finally` once for each way out."""
        self.sinks.append([])
        out = self.block(statement.body, worlds)
        depth = min((len(world.regions) for world in worlds), default=0)
        raised = (
            join(self.left(world, depth) for world in self.sinks.pop()) if not self.coarse else self.sinks.pop()[:0]
        )
        tail = self.block(statement.orelse, out.normal)
        out.also(tail)
        out.normal = tail.normal
        for handler in statement.handlers:
            self.branches.append(ir.If(ir.Maybe(), handler, (), ELSEWHERE, "except"))
            arm = self.block(handler, raised)
            self.branches.pop()
            out.also(arm)
            out.normal = out.normal + arm.normal
        if not statement.final:
            if self.sinks and not statement.handlers:
                self.sinks[-1] += raised
            return out
        if self.sinks and not statement.handlers:  # already failing: seen by an outer handler, never reported
            self.quiet += 1
            self.sinks[-1] += self.block(statement.final, raised).normal
            self.quiet -= 1
        done = Out([])
        for way in Out.__slots__:
            left = getattr(out, way)
            part = self.block(statement.final, join(left)) if left else Out([])
            done.also(part)
            setattr(done, way, getattr(done, way) + part.normal)
        return done

    def within(self, statement: ir.Within, worlds: Worlds) -> Out:
        """`with`: the region is active in the body, and whatever was entered in it ends with it."""
        entered: Worlds = []
        depths: dict[int, int] = {}
        for world in worlds:
            for after in self.enter(statement.value, world):
                entered.append(after)
                depths[id(after)] = len(world.regions)
        depth = min(depths.values(), default=0)
        out = self.block(statement.body, join(entered))
        for way in Out.__slots__:
            setattr(out, way, [self.left(world, depth) for world in getattr(out, way)])
        return out

    @staticmethod
    def left(world: World, depth: int) -> World:
        """The world with only the outermost `depth` regions active."""
        ended = {("region", str(region.span.start)) for region in world.regions[depth:]}
        if not ended:
            return world
        types = {key: state for key, state in world.types.items() if key not in ended}
        return world.copy(types=types, regions=world.regions[:depth])

    def enter(self, value: ir.Value, world: World) -> Worlds:
        """The worlds in which a context manager was entered."""
        entered: Worlds = []
        for found, after in self.evaluate(value, world):
            if found is None or found[0] != "region":
                entered.append(after)
                continue
            span, formula = found[1], found[2]
            assert isinstance(span, Span)
            on, off = [after], Worlds()
            if isinstance(formula, tuple):
                on, off = self.guards.split(formula, after)
            key = ("region", str(span.start))
            for world_on in on:
                active = Active(span, self.stack, True)
                entered.append(world_on.typed(key, "entered").copy(regions=(*world_on.regions, active)))
            for world_off in off:
                entered.append(world_off.copy(regions=(*world_off.regions, Active(span, self.stack, False))))
        return entered
