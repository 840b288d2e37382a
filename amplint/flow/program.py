"""A file as the engine sees it: its procedures and classes, and what their blocks may do."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

from amplint.flow import ir
from amplint.model import Span

if TYPE_CHECKING:
    from amplint.source import SourceFile

MODULE = "<module>"


class Imported(NamedTuple):
    """The other file that a procedure comes from, what is added to its places, and its path as messages show it."""

    file: SourceFile
    at: int
    shown: str

    def row(self, span: Span) -> int:
        """The row, from 1, of a moved place."""
        return self.file.row(span.start - self.at)


class ClassInfo:
    """A class of the file: its methods (those of bases in the file included), and which of them set up scalers."""

    __slots__ = ("methods", "name", "setup")

    def __init__(self, name: str) -> None:
        self.name = name
        self.methods: dict[str, str] = {}
        self.setup: tuple[str, ...] = ()


class Program:
    """All procedures of a file by name, its classes, and questions about blocks that are answered once."""

    def __init__(self) -> None:
        self.procedures: dict[str, ir.Procedure] = {}
        self.classes: dict[str, ClassInfo] = {}
        self.globals: ir.Block = ()
        """The module's assignments that other procedures may rely on, without events and calls."""
        self.imported: dict[str, Imported] = {}
        """The procedures of other files."""
        self.duplicates: tuple[tuple[Span, str, str], ...] = ()
        """Optimizers that stand in a literal a second time: where, in which procedure, and the source text."""
        self.counters: frozenset[Span] = frozenset()
        """Tests of a counter that an arm of the same `if` sets back to zero: boundaries of accumulation windows."""
        self._kinds: dict[int, frozenset[str]] = {}
        self._near: dict[int, frozenset[str]] = {}
        self._busy: set[int] = set()

    def kinds(self, block: ir.Block) -> frozenset[str]:
        """The kinds of event that a block may cause, through calls; `new-scaler` and `new-optimizer` among them."""
        return self._reach(block, self._kinds, loops=True)

    def near_kinds(self, block: ir.Block) -> frozenset[str]:
        """As `kinds`, without what only happens in loops inside the block."""
        return self._reach(block, self._near, loops=False)

    def _reach(self, block: ir.Block, memory: dict[int, frozenset[str]], *, loops: bool) -> frozenset[str]:
        key = id(block)
        if key in memory:
            return memory[key]
        if key in self._busy:
            return frozenset()
        self._busy.add(key)
        found: set[str] = set()
        for statement in block:
            if isinstance(statement, ir.Event):
                found.add(statement.kind)
            elif isinstance(statement, ir.Invoke):
                procedure = self.procedures.get(statement.target)
                if procedure is not None:
                    found |= self._reach(procedure.body, memory, loops=loops)
            elif isinstance(statement, ir.Assign):
                if isinstance(statement.value, ir.New):
                    found.add("new-scaler")
                elif isinstance(statement.value, ir.Optimizer) or (
                    statement.path in self.optimizer_paths and not isinstance(statement.value, ir.Copy)
                ):
                    found.add("new-optimizer")
            elif loops or not isinstance(statement, ir.Loop) or statement.rounds is not None:
                for inner in ir.inner_blocks(statement):
                    found |= self._reach(inner, memory, loops=loops)
        self._busy.discard(key)
        if not self._busy:
            memory[key] = frozenset(found)
        return frozenset(found)

    @cached_property
    def optimizer_paths(self) -> frozenset[str]:
        """The paths of the optimizers that events name."""
        return frozenset(
            statement.optimizer
            for procedure in self.procedures.values()
            for statement in ir.every(procedure.body)
            if isinstance(statement, ir.Event) and statement.optimizer is not None
        )

    def callers(self) -> frozenset[str]:
        """The procedures that some other procedure of the file calls."""
        return frozenset(
            statement.target
            for name, procedure in self.procedures.items()
            for statement in ir.every(procedure.body)
            if isinstance(statement, ir.Invoke) and statement.target != name
        )

    def reached(self, procedure: ir.Procedure) -> frozenset[str]:
        """The procedures that a procedure calls, directly or through others."""
        found: set[str] = set()
        waiting = [procedure]
        while waiting:
            for statement in ir.every(waiting.pop().body):
                if isinstance(statement, ir.Invoke) and statement.target not in found:
                    found.add(statement.target)
                    waiting.append(self.procedures[statement.target])
        return frozenset(found)

    def makes_scalers(self) -> bool:
        """Whether any procedure makes a scaler."""
        return any(
            isinstance(statement, ir.Assign) and isinstance(statement.value, ir.New)
            for procedure in self.procedures.values()
            for statement in ir.every(procedure.body)
        )

    def any_event(self, kind: str) -> bool:
        """Whether any procedure has an event of this kind."""
        return any(
            isinstance(statement, ir.Event) and statement.kind == kind
            for procedure in self.procedures.values()
            for statement in ir.every(procedure.body)
        )

    def written_event(self, kind: str) -> bool:
        """As `any_event`, without what calls of objects in timm's manner stand for: their classes are written here."""
        return any(
            isinstance(statement, ir.Event) and statement.kind == kind and statement.span not in self._called
            for procedure in self.procedures.values()
            for statement in ir.every(procedure.body)
        )

    @cached_property
    def _called(self) -> frozenset[Span]:
        """The calls that scale and go backward at once."""
        spans: dict[str, set[Span]] = {"scale": set(), "backward": set()}
        for procedure in self.procedures.values():
            for statement in ir.every(procedure.body):
                if isinstance(statement, ir.Event) and statement.kind in spans:
                    spans[statement.kind].add(statement.span)
        return frozenset(spans["scale"] & spans["backward"])
