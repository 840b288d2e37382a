"""Random training scripts are refused, or migrated so that they compute what they did."""

from __future__ import annotations

import multiprocessing
from collections import Counter

import torch

from tests.migrate.random_scripts import script_of
from tests.migrate.verdicts import INVALID, RIGHT, WRONG, judge

SEEDS = range(60)


def _judged() -> list[tuple[str, str]]:
    torch.set_num_threads(1)
    return [tuple(judge(script_of(seed))) for seed in SEEDS]  # type: ignore[misc]


def test_none_is_broken() -> None:
    with multiprocessing.get_context("fork").Pool(1) as pool:  # torch is patched there
        verdicts = pool.apply(_judged)
    assert [(seed, reason) for seed, (kind, reason) in zip(SEEDS, verdicts, strict=True) if kind == WRONG] == []
    counts = Counter(kind for kind, _ in verdicts)
    assert counts[INVALID] < 20
    assert counts[RIGHT] > 20
