"""Calls of the file's own procedures, and what goes where it can't be followed."""

from __future__ import annotations

from amplint.flow import ir
from amplint.flow.events import Events
from amplint.flow.guards import Frame, atoms
from amplint.flow.program import Program
from amplint.flow.summaries import Effect, Summaries
from amplint.flow.worlds import Abstract, World, Worlds, join

MAX_DEPTH = 5
RESULT = "<result>"


class Out:
    """Where worlds leave a block."""

    __slots__ = ("broken", "continued", "normal", "returned")

    def __init__(self, normal: Worlds) -> None:
        self.normal = normal
        self.broken: Worlds = []
        self.continued: Worlds = []
        self.returned: Worlds = []

    def also(self, other: Out) -> None:
        """Add the other ways out of another block."""
        self.broken = self.broken + other.broken
        self.continued = self.continued + other.continued
        self.returned = self.returned + other.returned


class Calls(Events):
    """The part of the engine that enters procedures."""

    def __init__(self, program: Program) -> None:
        super().__init__(program)
        self.active: list[str] = []
        self.sinks: list[Worlds] = []
        self.summaries = Summaries()

    def block(self, body: ir.Block, worlds: Worlds) -> Out:
        """See `Statements.block`."""
        raise NotImplementedError

    def invoke(self, statement: ir.Invoke, world: World) -> Worlds:
        """The worlds after a call of one of the file's procedures."""
        procedure = self.program.procedures[statement.target]
        if statement.target in self.active or len(self.active) > MAX_DEPTH:
            return [self.guards.bind(self.frame.resolve(statement.result), None, world.doubt())]
        caller, prefix = self.frame, f"{statement.target}#{len(self.active)}@{statement.span.start}:"
        world = self._without(prefix, world)
        alias: dict[str, str] = {}
        cells: dict[str, Abstract] = {}
        left = dict(procedure.defaults)
        for slot, value in statement.args:
            name = slot
            if isinstance(slot, int):
                name = procedure.params[slot] if slot < len(procedure.params) else ""
            assert isinstance(name, str)
            if not name:
                continue
            left.pop(name, None)
            if isinstance(value, ir.Copy) and name not in procedure.rebound:
                alias[name] = caller.resolve(value.path)
            else:
                pairs = self.evaluate(value, world)
                found, world = pairs[0]
                if found is not None:
                    cells[prefix + name] = found
        if procedure.receiver and statement.receiver is not None:
            alias[procedure.receiver] = caller.resolve(statement.receiver)
        elif procedure.receiver and procedure.owner:
            alias[procedure.receiver] = f"<{procedure.owner}>"
        outer = self._outer_frame(procedure, caller)
        for name, value in left.items():
            found = self.simple(value, world)
            if found is not None:
                cells[prefix + name] = found
        for name in procedure.made:
            cells[prefix + name.lstrip("%")] = ("unbound",)
        entry = world.copy(cells={**world.cells, **cells})
        key = self.summaries.key(statement, (*self.stack, statement.span), alias, entry)
        effect = self.summaries.find(key) if self.quiet else None
        if statement.target in self.program.imported:
            self.entered[statement.target] = self.entered.get(caller.procedure.name, statement.span)
        if effect is None:
            self.frame = Frame(procedure, prefix, outer, alias)
            self.frames.append(self.frame)
            self.active.append(statement.target)
            stack, self.stack = self.stack, (*self.stack, statement.span)
            self.sinks.append([])
            out = self.block(procedure.body, [entry])
            effect = Effect(join(out.normal + out.returned), self.sinks.pop())
            self.stack = stack
            self.active.pop()
            self.frames.pop()
            self.frame = caller
            self.summaries.keep(key, effect)
        if self.sinks:
            self.sinks[-1] += effect.raised
        return [self._back(after, prefix, statement) for after in effect.left]

    def _outer_frame(self, procedure: ir.Procedure, caller: Frame) -> Frame | None:
        """The frame around a closure: the running one of the function that defines it."""
        frame: Frame | None = caller
        while frame is not None and procedure.outer is not None:
            if frame.procedure.name == procedure.outer:
                return frame
            frame = frame.outer
        if procedure.outer is not None and procedure.outer in self.program.procedures:
            around = self.program.procedures[procedure.outer]
            alias = {around.receiver: f"<{around.owner}>"} if around.receiver and around.owner else {}
            return Frame(around, f"{around.name}:", None, alias)
        return None

    def _without(self, prefix: str, world: World) -> World:
        """The world without what an earlier call from the same place left: its parameters are others now."""
        facts = frozenset(fact for fact in world.facts if prefix not in fact[0])
        cells = {
            path: value for path, value in world.cells.items() if value[0] != "when" or prefix not in f"{value[1]}"
        }
        if len(facts) == len(world.facts) and len(cells) == len(world.cells):
            return world
        return world.copy(cells=cells, facts=facts)

    def _back(self, world: World, prefix: str, statement: ir.Invoke) -> World:
        result = world.cells.get(f"{prefix}{RESULT}")
        cells = {path: value for path, value in world.cells.items() if not path.startswith(prefix)}
        held_atoms = {
            key
            for value in cells.values()
            if value[0] == "when" and isinstance(value[1], tuple)
            for key in (*atoms(value[1]), f"{value[1]}")
        }
        facts = frozenset(fact for fact in world.facts if prefix not in fact[0] or fact[0] in held_atoms)
        trail = tuple(step for step in world.trail if step.text != "return")
        back = world.copy(cells=cells, facts=facts, trail=trail)
        held = {value[1] for value in cells.values() if value[0] in ("object", "scaled")} | {(result or ("", ""))[-1]}
        for name in back.scalers():
            if name.startswith(("new@", prefix)) and name not in held:
                back = back.forget(name)  # it was the callee's own
        own = [key for key in back.types if len(key) == 3 and key[2].startswith(prefix)]
        if own:
            back = back.copy(types={key: state for key, state in back.types.items() if key not in own})
        if result is not None and result[0] == "when" and prefix in str(result[1]):
            formula = result[1]
            assert isinstance(formula, tuple)
            yes, no = self.guards.split(formula, world)
            result = None if yes and no else ("bool", bool(yes))
        return self.guards.bind(self.frame.resolve(statement.result), result, back)

    def escape(self, statement: ir.Escape, world: World) -> World:
        """The world after a scaler or an optimizer went to code that can't be seen."""
        name = self.object_at(statement.path, world)
        if name is None:
            return world
        if ("scale", name) in world.types:
            world = world.doubt(name)
            return world.typed(("escaped", name), "yes") if statement.lasting else world
        return world.doubt(optimizer=name)

    def suspend(self, world: World) -> World:
        """The world after `yield`: what isn't local may have changed."""
        for name in world.scalers():
            if not self.is_private(name, world):
                world = world.doubt(name)
        return world
