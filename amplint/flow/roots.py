"""What a procedure finds when it is entered: what the module and the constructor of its class leave behind."""

from __future__ import annotations

from typing import TYPE_CHECKING

from amplint.flow import ir
from amplint.flow.guards import Frame, atoms
from amplint.flow.program import MODULE, Program
from amplint.flow.protocol import UNKNOWN
from amplint.flow.worlds import World, Worlds, join
from amplint.model import Span

if TYPE_CHECKING:
    from amplint.flow.statements import Statements

MAX_ENTRIES = 8
_NOWHERE = Span(-2, -2)


def stepped_pairs(program: Program) -> dict[str, tuple[tuple[str, str], ...]]:
    """By procedure, the (scaler, optimizer) texts of its `scaler.step` and `unscale_` calls."""
    pairs: dict[str, tuple[tuple[str, str], ...]] = {}
    for name, procedure in program.procedures.items():
        found = {
            (ir.text_of(event.scaler), ir.text_of(event.optimizer)): None
            for event in ir.every(procedure.body)
            if isinstance(event, ir.Event) and event.kind in ("step", "unscale") and event.scaler and event.optimizer
        }
        pairs[name] = tuple(found)
    return pairs


def module_worlds(run: Statements, worlds: Worlds) -> Worlds:
    """The worlds after the module's own assignments."""
    procedure = ir.Procedure(MODULE, (), run.program.globals, _NOWHERE)
    run.frame = Frame(procedure, "", None, {})
    run.frames = [run.frame]
    run.active = [MODULE]
    run.quiet += 1
    left = run.block(procedure.body, worlds).normal
    run.quiet -= 1
    return _settled(left, "", worlds)


def class_worlds(run: Statements, owner: str, worlds: Worlds) -> Worlds:
    """The worlds after the constructor of a class, and after the other methods that set its scalers."""
    info = run.program.classes[owner]
    receiver = f"<{owner}>"
    run.frame = Frame(ir.Procedure("", (), (), _NOWHERE), "", None, {})
    run.frames = [run.frame]
    run.active = [""]
    run.quiet += 1
    init = info.methods.get("__init__", "")
    made = _called(run, init, receiver, worlds) if init in run.program.procedures else worlds
    after = [made] + [_called(run, name, receiver, made) for name in info.setup if name in run.program.procedures]
    run.quiet -= 1
    if len(after) > 1:  # the constructor alone leaves what the other methods are there to set
        after = after[1:] if all(after[1:]) else after
    return _settled([world for some in after for world in some], receiver, worlds)


def _called(run: Statements, name: str, receiver: str, worlds: Worlds) -> Worlds:
    call = ir.Invoke(name, (), "%<setup>", _NOWHERE, receiver)
    return [after for world in worlds for after in run.invoke(call, world)]


def _settled(left: Worlds, receiver: str, before: Worlds) -> Worlds:
    """Worlds as an entry: what is at the receiver (or global) stays, typestates are unknown."""
    entries: Worlds = []
    for world in left:
        cells = {
            path: value for path, value in world.cells.items() if path.startswith(receiver) or path in before[0].cells
        }
        kept = {key for value in cells.values() if value[0] == "when" for key in _atoms(value)}
        facts = frozenset(fact for fact in world.facts if fact[0] in kept or "#" not in fact[0])
        types = {key: UNKNOWN for key in world.types if key[0] in ("scale", "checks")}
        types.update(
            {(t, key[1], "*"): UNKNOWN for key in world.types if key[0] == "scale" for t in ("stage", "gradients")}
        )
        entries.append(World(cells, types, facts))
    merged = join(entries)
    return merged if 0 < len(merged) <= MAX_ENTRIES else before


def _atoms(value: tuple[object, ...]) -> list[str]:
    formula = value[1]
    return [*atoms(formula), f"{formula}"] if isinstance(formula, tuple) else []
