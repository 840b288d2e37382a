"""Forward abstract interpretation of the IR: one list of worlds per way out of a block.

Python has no goto, so the structured form is exact and no graph is needed: `try`, `finally`, `with`, `break`,
`continue` and `return` are interpreted where they stand. Loops run to a fixpoint in silence and once more for the
record. Calls of the file's own procedures are interpreted in place, to a depth. What is not understood ends in the
unknown state, from where nothing is reported.
"""

from __future__ import annotations

from amplint.flow import ir
from amplint.flow.guards import Frame
from amplint.flow.loops import one_sided_zero_grad, repeated_optimizers, updates_between
from amplint.flow.program import MODULE, Program
from amplint.flow.protocol import UNKNOWN
from amplint.flow.roots import class_worlds, module_worlds, split_iterations, stepped_pairs
from amplint.flow.statements import BudgetError, Statements
from amplint.flow.verdicts import Hit, Tally, violations
from amplint.flow.violations import Violation
from amplint.flow.worlds import World, join

MAX_STEPS = 20_000
"""World-steps for one root; and for all roots of a file, which keeps any file under two seconds."""
MAX_STEPS_OF_FILE = 80_000

_WHOLE_ITERATION = frozenset({"backward", "step"})
"""The kinds of a procedure that is one iteration: the loop around it is elsewhere, so it is entered again."""

_WITHOUT_UPDATE = frozenset({"missing-update", "update-skipped-on-path"})
"""All that can be said of methods whose caller is elsewhere and may do more between them."""


class Engine:
    """Analyses every procedure of a program that has events.

    `unfinished` names the procedures that were beyond the budget; nothing is reported on them.
    """

    def __init__(self, program: Program) -> None:
        self.program = program
        self.unfinished: list[str] = []
        self._left = MAX_STEPS_OF_FILE
        self._beyond: set[str] = set()

    def run(self) -> list[Violation]:
        """All violations, in the order of the text."""
        shapes = one_sided_zero_grad(self.program) + repeated_optimizers(self.program)
        hits = [(hit, True) for hit in shapes] + [(hit, False) for hit in updates_between(self.program)]
        called = self.program.callers()
        roots = [
            procedure
            for name, procedure in self.program.procedures.items()
            if procedure.body
            and name not in self.program.imported
            and not (procedure.outer is not None and name in called)
        ]
        roots.sort(key=lambda procedure: procedure.name == MODULE)  # what the module calls has been seen by then
        for procedure in roots:
            hits += self._analyse(procedure, alone=procedure.name not in called)
        for procedure in split_iterations(self.program):
            hits += [hit for hit in self._analyse(procedure, alone=True) if hit[0].kind in _WITHOUT_UPDATE]
        return violations(hits, stepped_pairs(self.program))

    def _analyse(self, procedure: ir.Procedure, *, alone: bool) -> list[tuple[Hit, bool]]:
        """The hits of one root. The optimizers that it turns out to use decide how sure the gradients' owner is."""
        pairs: set[tuple[str, str]] = set()
        several, coarse = False, bool(self._beyond & self.program.reached(procedure)) if self._beyond else False
        if coarse and not any(isinstance(statement, ir.Event) for statement in ir.every(procedure.body)):
            return []  # it only leads to what was too much by itself
        while True:
            run = Root(self.program, procedure, alone=alone)
            run.several, run.coarse, run.pairs = several, coarse, pairs
            run.budget = min(MAX_STEPS, self._left)
            try:
                run.interpret()
            except BudgetError:
                if coarse or self._left <= run.steps:
                    self.unfinished.append(procedure.name)
                    return []
                coarse = True
                self._beyond.add(procedure.name)
            else:
                if run.count_optimizers() < 2 or several:
                    return self._believed(run)
                pairs = run.met if len({scaler for scaler, _ in run.met}) > 1 else set()
            finally:
                self._left -= run.steps
            several = several or run.count_optimizers() > 1

    def _believed(self, run: Root) -> list[tuple[Hit, bool]]:
        """The hits of a run. One that saw only some paths proves nothing, least of all that an `update()` is missing
        that is in the program.
        """
        hits = run.tally.certain_hits()
        if not run.coarse:
            return hits
        updates = "update" in self.program.kinds(run.procedure.body)
        return [(hit, False) for hit, _ in hits if hit.kind != "missing-update" or not updates]


class Root(Statements):
    """The analysis of one procedure with nothing known of its caller."""

    def __init__(self, program: Program, procedure: ir.Procedure, *, alone: bool) -> None:
        super().__init__(program)
        self.procedure = procedure
        self.alone = alone

    def interpret(self) -> None:
        """Run the procedure from every state that its module and class may leave."""
        procedure = self.procedure
        entry = [World({}, {})]
        if procedure.name != MODULE:
            entry = module_worlds(self, entry)
        if procedure.owner is not None and procedure.receiver and not procedure.name.endswith(".__init__"):
            entry = class_worlds(self, procedure.owner, entry)
        self.tally = Tally()
        alias = {procedure.receiver: f"<{procedure.owner}>"} if procedure.receiver and procedure.owner else {}
        self.frame = Frame(procedure, "" if procedure.name == MODULE else f"{procedure.name}:", self._around(), alias)
        self.frames = [self.frame]
        self.active = [procedure.name]
        entry = [self._introduce(self._unbound_names(world)) for world in entry]
        kinds = self.program.kinds(procedure.body)
        body = procedure.body
        if self.alone and procedure.name != MODULE and kinds >= _WHOLE_ITERATION and not procedure.made:
            body = (self.elsewhere(body),)
        self.block(body, join(entry))

    def _around(self) -> Frame | None:
        """The frames of the functions around a closure, with nothing known in them."""
        outer, frames = self.procedure.outer, []
        while outer is not None and outer in self.program.procedures:
            around = self.program.procedures[outer]
            frames.append(around)
            outer = around.outer
        frame: Frame | None = None
        for around in reversed(frames):
            alias = {around.receiver: f"<{around.owner}>"} if around.receiver and around.owner else {}
            frame = Frame(around, f"{around.name}:", frame, alias)
        return frame

    def _unbound_names(self, world: World) -> World:
        for name in self.procedure.made:
            world = self.guards.bind(self.frame.resolve(name), ("unbound",), world)
        return world

    def _introduce(self, world: World) -> World:
        """Track the scalers that come from outside, so that what happens before their first use counts."""
        for path in self.procedure.objects:
            if not self.is_scaler(path):
                continue
            name = self.object_at(path, world)
            if name is not None and ("scale", name) not in world.types:
                world = world.track(name, UNKNOWN, UNKNOWN, UNKNOWN, UNKNOWN)
        return world

    def is_scaler(self, path: str) -> bool:
        """Whether a path is a scaler in the root's own events."""
        return any(isinstance(s, ir.Event) and s.scaler == path for s in ir.every(self.procedure.body))
