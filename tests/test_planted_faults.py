"""The planting of faults: every kind has its place in a correct loop, and amplint finds each."""

from __future__ import annotations

from pathlib import Path

from benchmarks.planted_faults import KINDS, Tally, try_all
from benchmarks.scaler_code import Code

CLIPPING = """\
import torch


def train(model, loader, optimizer, loss_fn):
    scaler = torch.amp.GradScaler("cuda")
    for x, y in loader:
        optimizer.zero_grad()
        with torch.autocast("cuda", dtype=torch.float16):
            loss = loss_fn(model(x), y)
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
"""
PLAIN_METHOD = """\
class Trainer:
    def training_step(self, batch):
        self.optimizer.zero_grad()
        loss = self.model(batch)
        self.scaler.scale(loss).backward()
        self.scaler.step(self.optimizer)
        self.scaler.update()
"""
TAIL = """\
def train(loader, scaler, optimizer):
    for i, loss in enumerate(loader):
        scaler.scale(loss).backward()
        if i % 4 == 3:
            scaler.step(optimizer)
            scaler.update()
        scaler.update()
"""


def planted(text: str) -> dict[str, tuple[int, int]]:
    """How many faults of each kind were planted and found, where any was."""
    tallies = {kind.name: Tally() for kind in KINDS}
    try_all(Path("train.py"), text, KINDS, tallies, None)
    return {name: (tally.planted, tally.found) for name, tally in tallies.items() if tally.planted}


def test_a_loop_that_clips() -> None:
    assert planted(CLIPPING) == {
        "drop update": (1, 1),
        "drop unscale_": (1, 1),
        "repeat unscale_": (1, 1),
        "repeat step": (1, 1),
        "repeat update": (1, 1),
        "step directly": (1, 1),
        "backward unscaled": (1, 1),
        "clip moved up": (1, 1),
        "update in a branch": (1, 1),
        "continue before step": (1, 1),
        "continue before update": (1, 1),
    }


def test_a_method_that_is_one_iteration() -> None:
    assert planted(PLAIN_METHOD) == {
        "drop update": (1, 1),
        "repeat step": (1, 1),
        "repeat update": (1, 1),
        "step directly": (1, 1),
        "backward unscaled": (1, 1),
        "update in a branch": (1, 1),
        "step in a branch": (1, 1),
        "return before update": (1, 1),
    }


def test_an_update_that_another_one_makes_good_is_not_dropped() -> None:
    code = Code(TAIL)
    assert [code.ends_iteration(use) for use in code.uses("update")] == [False, False]


def test_the_lines_around_a_fault_stay() -> None:
    moved = next(planted for kind in KINDS if kind.name == "clip moved up" for _, planted in kind.plant(Code(CLIPPING)))
    lines = CLIPPING.split("\n")
    assert moved.lines == [*lines[:10], lines[11], lines[10], *lines[12:]]
    assert moved.row == 11
