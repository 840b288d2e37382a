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
_PROTOCOL = frozenset({"scale", "backward", "unscale", "step", "update", "plain-step"})


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


def split_iterations(program: Program) -> list[ir.Procedure]:
    """For each class that backs a scaled loss in one method and steps in another: a procedure that calls both.

    Whoever calls the methods in turn is in another file. Only classes in which no third method takes part in the
    scaler's protocol count, and none of whose two methods is called in this file.
    """
    called = program.callers()
    found: list[ir.Procedure] = []
    for name, info in program.classes.items():
        kinds = {full: program.kinds(program.procedures[full].body) & _PROTOCOL for full in info.methods.values()}
        backs = [full for full, events in kinds.items() if events == {"scale", "backward"}]
        steps = [full for full, events in kinds.items() if "step" in events and "backward" not in events]
        if len(backs) != 1 or len(steps) != 1 or sum(map(bool, kinds.values())) != 2 or {*backs, *steps} & called:
            continue
        body = tuple(
            ir.Invoke(full, (), f"%<{index}>", program.procedures[full].span, "%self")
            for index, full in enumerate((*backs, *steps))
        )
        procedure = ir.Procedure(f"{name}.<iteration>", (), body, _NOWHERE)
        procedure.receiver, procedure.owner = "self", name
        found.append(procedure)
    return found


def module_worlds(run: Statements, worlds: Worlds) -> Worlds:
    """The worlds after the module's own assignments."""
    procedure = ir.Procedure(MODULE, (), run.program.globals, _NOWHERE)
    run.frame = Frame(procedure, "", None, {})
    run.frames = [run.frame]
    run.active = [MODULE]
    run.quiet += 1
    left = run.block(procedure.body, worlds).normal
    run.quiet -= 1
    return _settled(run, left, "", worlds)


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
    return _settled(run, [world for some in after for world in some], receiver, worlds)


def _called(run: Statements, name: str, receiver: str, worlds: Worlds) -> Worlds:
    call = ir.Invoke(name, (), "%<setup>", _NOWHERE, receiver)
    return [after for world in worlds for after in run.invoke(call, world)]


def _settled(run: Statements, left: Worlds, receiver: str, before: Worlds) -> Worlds:
    """Worlds as an entry: what is at the receiver (or global) stays, typestates are unknown."""
    entries: Worlds = []
    chosen = _chosen(run, left)
    for world in left:
        cells = {
            path: value
            for path, value in world.cells.items()
            if (path.startswith(receiver) or path in before[0].cells) and path not in chosen
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


def _chosen(run: Statements, left: Worlds) -> set[str]:
    """The paths that hold one of several optimizers: from now on the path is the optimizer, whichever it is."""
    held: dict[str, set[str]] = {}
    for world in left:
        for path, value in world.cells.items():
            if value[0] == "object" and ("scale", str(value[1])) not in world.types:
                held.setdefault(path, set()).add(str(value[1]))
    chosen = {path: sorted(names) for path, names in held.items() if len(names) > 1}
    for path, names in chosen.items():
        families = {run.families.get(name, "") for name in names}
        owners = {run.owners.get(name, frozenset()) for name in names}
        if len(families) == 1:
            run.families[path] = families.pop()
        if len(owners) == 1:
            run.owners[path] = owners.pop()
    return set(chosen)


def _atoms(value: tuple[object, ...]) -> list[str]:
    formula = value[1]
    return [*atoms(formula), f"{formula}"] if isinstance(formula, tuple) else []
