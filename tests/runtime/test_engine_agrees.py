"""The same automata: on random sequences of protocol calls the monitor sees what the static engine foresees.

Each program is an ordinary iteration, a scaled backward, and then calls at random, one a line. The monitor watches it
run; the engine reads the text up to each line. They are compared at the first line at which either has something to
say, since the engine goes on to tell what follows from the first fault and the monitor does not. Both must speak up at
the same line, with the same kind of violation, and name at least one line in common. Where they may differ:

- `ALIKE` are kinds that are one and the same in torch. Which of them it is depends on what came before, of which the
  text shows another part than the run.
- `clip-after-step` is left out: a clip of no use, which the engine tells only where it is sure that the clip was meant
  for these gradients.
"""

from __future__ import annotations

import contextlib
import random
from typing import Any, NamedTuple

import pytest

from amplint.flow.violations import find
from amplint.runtime import Monitor
from amplint.settings import DEFAULT
from amplint.source import SourceFile

START = """\
import torch
model = torch.nn.Linear(2, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
scaler = torch.amp.GradScaler("cpu", init_scale=4.0)
x = torch.ones(1, 2)
scaler.scale(model(x).sum()).backward()
scaler.step(optimizer)
scaler.update()
optimizer.zero_grad()
scaler.scale(model(x).sum()).backward()
"""
CALLS = {
    "scaler.scale(model(x).sum()).backward()": 5,
    "model(x).sum().backward()": 1,
    "scaler.unscale_(optimizer)": 3,
    "scaler.step(optimizer)": 4,
    "scaler.update()": 4,
    "optimizer.step()": 1,
    "optimizer.zero_grad()": 2,
    "torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)": 2,
}
"""Calls and how often they are drawn."""

ALIKE = (
    frozenset(("update-before-step", "update-in-accumulation")),
    frozenset(
        (
            *("scaler-step-twice", "unscale-twice", "unscale-after-step"),
            *("missing-update", "update-skipped-on-path", "unscale-in-accumulation"),
        )
    ),
)
LEFT_OUT = "clip-after-step"
SEED = 20
PROGRAMS = 40
PARTS = 5


class Told(NamedTuple):
    """The kinds of violations at the first line where there are any, in names of `ALIKE`, and the lines named."""

    line: int
    kinds: frozenset[str]
    lines: frozenset[int]


SILENT = Told(0, frozenset(), frozenset())


def random_calls(seed: int) -> list[str]:
    """The calls of a program."""
    source = random.Random(seed)
    return source.choices(list(CALLS), weights=list(CALLS.values()), k=source.randint(2, 9))


def seen(calls: list[str], name: str, monitor: Monitor) -> Told:
    """What the installed monitor says of a run; it tells the program apart by the file's name."""
    space: dict[str, Any] = {}
    exec(compile(START, name, "exec"), space)
    first = START.count("\n") + 1
    for line, call in enumerate(calls, first):
        raised = True
        with contextlib.suppress(RuntimeError, AssertionError):
            exec(compile("\n" * (line - 1) + call, name, "exec"), space)
            raised = False
        found = [each for each in monitor.report().violations if each.place.file == name and each.kind != LEFT_OUT]
        if found or raised:
            places = [place for each in found for place in (each.place, each.related) if place is not None]
            return Told(line, named(each.kind for each in found), frozenset(place.line for place in places))
    return SILENT


def foreseen(calls: list[str]) -> Told:
    """What the engine says of the text."""
    first = START.count("\n") + 1
    for count in range(1, len(calls) + 1):
        file = SourceFile(START + "\n".join(calls[:count]) + "\n", "train.py", DEFAULT)
        found = [each for each in find(file) if each.kind != LEFT_OUT]
        if found:
            spans = [span for each in found for span in (each.span, each.place, each.related) if span is not None]
            spans += [label.span for each in found for label in each.labels]
            lines = frozenset(file.row(span.start) for span in spans)
            return Told(first + count - 1, named(each.kind for each in found), lines)
    return SILENT


def named(kinds: Any) -> frozenset[str]:
    """Kinds, with one name for those that are alike."""
    return frozenset(next((min(alike) for alike in ALIKE if kind in alike), kind) for kind in kinds)


def agree(monitor: Told, engine: Told) -> bool:
    """Whether both say the same."""
    if monitor == engine == SILENT:
        return True
    return monitor.line == engine.line and monitor.kinds == engine.kinds and bool(monitor.lines & engine.lines)


@pytest.mark.parametrize("part", range(PARTS))
def test_the_monitor_sees_what_the_engine_foresees(part: int) -> None:
    wrong, spoke = [], 0
    with Monitor() as monitor:
        for number in range(part * PROGRAMS, (part + 1) * PROGRAMS):
            calls = random_calls(SEED + number)
            at_run, in_text = seen(calls, f"<program {number}>", monitor), foreseen(calls)
            spoke += at_run is not SILENT
            if not agree(at_run, in_text):
                wrong.append((number, calls, at_run, in_text))
    assert wrong == []
    assert spoke > PROGRAMS // 2
