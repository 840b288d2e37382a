"""Random programs on real torch: what the engine calls certain shows at run time, and what breaks there is foreseen."""

from __future__ import annotations

import random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

torch = pytest.importorskip("torch")

from amplint import fix_source  # noqa: E402
from amplint.settings import Settings  # noqa: E402
from tests.flow.generator import Program, Writer  # noqa: E402
from tests.flow.truth import compare  # noqa: E402

PROGRAMS = 500
PARTS = 10
PROTOCOL = Settings(select=("AMP1", "AMP2", "AMP3"))


def judged(program: Program) -> tuple[tuple[str, ...], tuple[str, ...]]:
    verdict = compare(program)
    if not verdict.agrees:
        print(program.text)
    return verdict.false, verdict.missed


@pytest.mark.parametrize("part", range(PARTS))
def test_text_and_truth_agree(part: int) -> None:
    size = PROGRAMS // PARTS
    for seed in range(part * size, (part + 1) * size):
        program = Writer(random.Random(seed)).program()
        assert (seed, *judged(program)) == (seed, (), ())


@pytest.mark.parametrize("part", range(4))
def test_fixed_texts_run_and_agree_with_the_truth(part: int) -> None:
    fixed = 0
    for seed in range(5000 + part * 40, 5000 + (part + 1) * 40):
        program = Writer(random.Random(seed)).program()
        text = fix_source(program.text, "train.py", PROTOCOL).text
        if text == program.text or not compare(program).judged:
            continue
        fixed += 1
        verdict = compare(program._replace(text=text))
        assert (seed, verdict.judged, verdict.false, verdict.missed) == (seed, True, (), ())
    assert fixed > 0


@pytest.mark.slow
@settings(max_examples=2000, deadline=None, database=None, suppress_health_check=list(HealthCheck))
@given(st.randoms(use_true_random=False))
def test_text_and_truth_agree_for_any_choices(choice: random.Random) -> None:
    assert judged(Writer(choice).program()) == ((), ())


def test_a_breach_without_a_finding_would_be_seen() -> None:
    text = """\
import torch
from torch.amp import GradScaler


def train(model, opt, loader, loss_fn, aux_fn):
    scaler = GradScaler("cpu", init_scale=4096.0)
    step = getattr(scaler, "st" + "ep")
    for x, y in loader:
        scaler.scale(loss_fn(model(x), y)).backward()
        step(opt)
"""
    message = "RuntimeError: step() has already been called since the last update()."
    missed = compare(Program(text, (), "one")).missed
    assert missed == (
        "scaler-step-twice or update-skipped-on-path or missing-update or update-between-optimizers in rows 10 "
        f"({message})",
    )


def test_a_finding_without_a_breach_would_be_seen() -> None:
    text = """\
import torch
from torch.amp import GradScaler


def train(model, opt, loader, loss_fn, aux_fn):
    scaler = GradScaler("cpu", init_scale=4096.0)
    ends = {"round": scaler.update}
    for x, y in loader:
        scaler.scale(loss_fn(model(x), y)).backward()
        scaler.step(opt)
        ends["round"]()
"""
    assert compare(Program(text, (), "one")).false == ("missing-update in row 10",)
