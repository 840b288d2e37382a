"""Scalers that are made anew in a training loop, and arms that differ in `zero_grad()`: questions about shape, not
states.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from amplint.flow import ir
from amplint.flow.program import MODULE, Program
from amplint.flow.verdicts import Hit, Where
from amplint.flow.worlds import World
from amplint.model import Label, Span

if TYPE_CHECKING:
    from amplint.flow.statements import Statements

_OF_EPOCH = re.compile(
    r"(?:^|_)(?:(?:one|single|an|per|each)_?epoch|(?:train|run|fit|do)_?epoch|epoch_?(?:train|step|fit))(?:$|_)", re.I
)
_OF_ITERATION = re.compile(
    r"(?:^|_)(?:train(?:ing)?_?(?:step|batch|iter|one_batch|on_batch)|batch_?step|one_?step)$", re.I
)
_USUAL_FLAG = re.compile(
    r"\(?(?:not )?[\w.]*(?:amp|fp16|half|mixed|cuda|precision|gpu|scal|enabled)(?:\.is_available\(\)|[\w.]*)\)?"
    r"|[\w.]*device[\w.()]* ?[!=]= ?['\"]\w+['\"]",
    re.IGNORECASE,
)
"""A test that does not change from one round to the next; any other may hold in the first round only."""


def _is_flag(test: str) -> bool:
    return all(_USUAL_FLAG.fullmatch(part) for part in re.split(r" (?:and|or) ", test))


def scaler_in_loop(run: Statements, made: ir.New) -> None:
    """Report a scaler that is built anew by each round of a training loop, or by each call of a per-epoch function."""
    if run.quiet or run.frame.procedure.name in run.program.imported:
        return
    loops = [loop for loop in run.loops if loop.span.start >= 0]
    if not all(_is_flag(branch.text) for branch in run.branches if branch.text):
        return
    if loops:
        loop = loops[-1]
        kinds = run.program.kinds(loop.body)
        if "step" not in kinds or "new-optimizer" in kinds:
            return
        often = "step" in run.program.near_kinds(loop.body)
        label = Label(loop.span, "this loop builds it anew each time")
    else:
        procedure = run.frame.procedure
        name = procedure.name.rpartition(".")[2]
        kinds = run.program.kinds(procedure.body)
        often = bool(_OF_ITERATION.search(name))
        if procedure.name == MODULE or not (often or _OF_EPOCH.search(name)):
            return
        if "step" not in kinds or "new-optimizer" in kinds:
            return
        label = Label(procedure.span, "this function is called again and again")
    where = Where(made.span, run.stack, run.frame.procedure.name)
    hit = Hit("scaler-in-loop", where, made.span, False, (label,), (), "", "", label.span, per_iteration=often)
    world = World({}, {})
    run.tally.count("new-scaler", where, world)
    run.tally.hit("new-scaler", where, world, hit)


def repeated_optimizers(program: Program) -> list[Hit]:
    """Optimizers that stand twice in a literal of a procedure that steps through a scaler."""
    hits: list[Hit] = []
    for span, name, text in program.duplicates:
        if "step" in program.kinds(program.procedures[name].body):
            where = Where(span, (), name)
            hits.append(Hit("optimizer-identity", where, span, True, (), (), "", text, None))
    return hits


def updates_between(program: Program) -> list[Hit]:
    """Updates in a loop over a collection of optimizers that steps each, after one backward for all of them."""
    hits: list[Hit] = []
    for name, procedure in program.procedures.items():
        for loop in ir.every(procedure.body) if name not in program.imported else ():
            if not isinstance(loop, ir.Loop) or loop.rounds is None or len(loop.rounds) != 1:
                continue
            elements = {
                s.path
                for s in loop.rounds[0]
                if isinstance(s, ir.Assign) and isinstance(s.value, ir.Copy) and s.value.path.endswith("[*]")
            }
            events = [s for s in loop.body if isinstance(s, ir.Event)]
            step = next((s for s in events if s.kind == "step" and s.optimizer in elements), None)
            update = next((s for s in events if step and s.kind == "update" and s.scaler == step.scaler), None)
            if step is None or update is None or program.kinds(loop.body) & {"backward", "scale"}:
                continue
            label = Label(step.span, "the next optimizer is stepped here, with the scale that this changed")
            where = Where(update.span, (), name)
            scaler = ir.text_of(step.scaler or "")
            hits.append(
                Hit("update-between-optimizers", where, update.span, False, (label,), (), scaler, "", step.span)
            )
    return hits


def one_sided_zero_grad(program: Program) -> list[Hit]:
    """Arms of one `if`, of which one steps through a scaler and one without, and only one zeroes the gradients.

    Silent where anything else in the file zeroes gradients: the other arm's may be meant.
    """
    zeroing = sum(
        isinstance(statement, ir.Event) and statement.kind == "zero-grad"
        for procedure in program.procedures.values()
        for statement in ir.every(procedure.body)
    )
    if not zeroing:
        return []
    hits: list[Hit] = []
    for name, procedure in program.procedures.items():
        for statement in ir.every(procedure.body) if name not in program.imported else ():
            if not isinstance(statement, ir.If):
                continue
            for arm, other in ((statement.then, statement.orelse), (statement.orelse, statement.then)):
                mine = [s for s in ir.every(arm) if isinstance(s, ir.Event)]
                theirs = [s for s in ir.every(other) if isinstance(s, ir.Event)]
                zeroes = [event for event in theirs if event.kind == "zero-grad"]
                step = next((event for event in mine if event.kind in ("step", "plain-step")), None)
                opposite = {"step": "plain-step", "plain-step": "step"}[step.kind] if step is not None else ""
                if step is None or not any(event.kind == opposite for event in theirs):
                    continue
                if zeroes and len(zeroes) == zeroing and "zero-grad" not in program.kinds(arm):
                    hits.append(_missing(procedure, step, zeroes[0].span))
    return hits


def _missing(procedure: ir.Procedure, step: ir.Event, zeroed: Span) -> Hit:
    label = Label(zeroed, "the other arm zeroes the gradients here")
    scaler = ir.text_of(step.scaler) if step.scaler else ""
    optimizer = ir.text_of(step.optimizer) if step.optimizer else ""
    where = Where(step.span, (), procedure.name)
    return Hit("zero-grad-missing-on-path", where, step.span, False, (label,), (), scaler, optimizer, zeroed)
