"""Run a program on real torch for all its inputs and compare what happens with what the engine says of its text."""

from __future__ import annotations

import ast
import itertools
import re
from typing import Any, NamedTuple

import torch

from amplint.flow.violations import Violation, find
from amplint.model import Level
from amplint.rule import all_rules
from amplint.settings import DEFAULT
from amplint.source import SourceFile
from tests.flow.generator import Program
from tests.flow.recorder import INIT_SCALE, PROGRAM, RAISED, Breach, Recorder
from tests.flow.watching import Descent, Model, recording, run

UPDATE_RAISES = next(kinds for words, kinds in RAISED if "prior to update" in words)
_STEPS = re.compile(r"scaler(?:_b)?\.(?:step|update|unscale_)\(")
PATTERNS = ((0, 0, 0, 0), (1, 1, 1, 1), (0, 1, 0, 0), (1, 0, 1, 0), (0.5, 0.5, 1, 0))
"""The targets of the batches: what tests on data depend on."""


class Verdict(NamedTuple):
    """How text and truth disagree: findings that never show, and breaches that nothing foresees."""

    false: tuple[str, ...]
    missed: tuple[str, ...]
    judged: bool = True
    broken: bool = False
    found: bool = False

    @property
    def agrees(self) -> bool:
        """Whether there is neither."""
        return not self.false and not self.missed


def runs(program: Program) -> list[Recorder]:
    """Run a program with every combination of its flags and every kind of data."""
    space: dict[str, Any] = {}
    found: list[Recorder] = []
    with recording():
        exec(compile(program.text, PROGRAM, "exec"), space)
        for values in itertools.product((True, False), repeat=len(program.flags)):
            for pattern in PATTERNS:
                model, other = Model(), Model()
                arguments: dict[str, Any] = {
                    "model": model,
                    "opt": Descent(model.parameters()),
                    "model_b": other,
                    "opt_b": Descent(other.parameters()),
                    "loader": [(torch.ones(4), torch.tensor(float(y))) for y in pattern],
                    "loss_fn": lambda out, y: out[0].float() * 1.0,
                    "aux_fn": lambda out: out[1].float() * 1.0,
                    "scaler": torch.amp.GradScaler("cpu", init_scale=INIT_SCALE),
                    **dict(zip(program.flags, values, strict=True)),
                }
                names = space["train"].__code__.co_varnames[: space["train"].__code__.co_argcount]
                recorder = Recorder(program.shape != "one", program.shape == "gan")
                found.append(run(space["train"], {name: arguments[name] for name in names}, recorder))
                if found[-1].alien:
                    return found
    return found


def compare(program: Program) -> Verdict:
    """Judge one program. A program that fails for reasons of its own is not judged."""
    seen = runs(program)
    if any(each.alien for each in seen):
        return Verdict((), (), judged=False)
    file = SourceFile(program.text, "train.py", DEFAULT)
    findings = find(file)
    breaches = {breach for each in seen for breach in each.breaches}
    false = []
    for violation in findings:
        if not violation.certain or _level(violation) is not Level.ERROR:
            continue
        rows = _places(file, violation)
        # Where all that come to the place fail there or later, nobody sees what would have come of it.
        seen_through = any(rows & each.visited and each.scales and not each.raised for each in seen)
        if seen_through and not any(_fits(file, violation, breach) for breach in breaches):
            false.append(f"{violation.kind} in row {file.row(violation.span.start)}")
    tested = _tested_rows(file)
    missed = set()
    for each in seen:
        first = next((breach for breach in each.breaches if breach.required), None)
        # The engine does not believe that a scaler is None under a test: it may exclude that in ways unseen.
        if first is not None and first.kinds == ("scaler-maybe-unbound",) and first.rows & tested:
            continue
        # Nor does it judge an update without a step where the scaler comes from outside: whoever made it may step it.
        if first is not None and first.kinds == UPDATE_RAISES and program.given:
            continue
        # A scaler that only scales is a fixed multiplier, which does no harm to optimizers that divide it out.
        if first is not None and first.kinds == ("step-bypasses-scaler",) and not _STEPS.search(program.text):
            continue
        if first is not None and not any(_fits(file, violation, first) for violation in findings):
            listed = ", ".join(str(row) for row in sorted(first.rows))
            missed.add(f"{' or '.join(first.kinds)} in rows {listed} ({each.raised or 'silent'})")
    return Verdict(
        tuple(false), tuple(sorted(missed)), broken=any(each.breaches for each in seen), found=bool(findings)
    )


def _level(violation: Violation) -> Level:
    rule = next(rule for rule in all_rules().values() if rule.name == violation.kind)
    if violation.kind == "step-in-autocast" and not violation.again:
        return Level.INFO
    return Level(rule.level)


def _fits(file: SourceFile, violation: Violation, breach: Breach) -> bool:
    if violation.kind == "missing-update" and "missing-update" in breach.kinds:
        return True  # no call of the loop is to blame more than another
    return violation.kind in breach.kinds and bool(_places(file, violation) & breach.rows)


def _places(file: SourceFile, violation: Violation) -> frozenset[int]:
    return frozenset((file.row(violation.span.start), file.row(violation.place.start)))


def _tested_rows(file: SourceFile) -> frozenset[int]:
    """The rows that stand under an `if`."""
    return frozenset(
        row
        for node in ast.walk(file.tree)
        if isinstance(node, ast.If)
        for row in range(node.body[0].lineno, (node.end_lineno or 0) + 1)
    )
