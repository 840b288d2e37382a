"""Truth by execution: random training loops run on real torch, and what raises there is what the engine finds.

The loops are the documented one with random faults, or random sequences of protocol calls under branches. Each is
run with every combination of its flags. A loop that raises must have a finding; one whose only findings are of the
kind that raises must raise. Every round has a scaled backward: whether a round without one steps on nothing, or on
what a callee differentiated, does not show, and the engine is silent there.
"""

from __future__ import annotations

import itertools
import random
import warnings

import pytest

from amplint.flow.violations import find
from amplint.settings import DEFAULT
from amplint.source import SourceFile

torch = pytest.importorskip("torch")

CALLS = (
    "opt.zero_grad()",
    "scaler.scale(loss(p)).backward()",
    "scaler.unscale_(opt)",
    "torch.nn.utils.clip_grad_norm_([p], 1.0)",
    "scaler.step(opt)",
    "scaler.update()",
)
RARE_CALLS = ("opt.step()", "loss(p).backward()")
TESTS = ("a", "b", "not a", "a and b", "a or b", "(i + 1) % 2 == 0")
ROUNDS = 4


def indented(lines: list[str]) -> list[str]:
    return [f"    {line}" for line in lines]


def random_block(source: random.Random, depth: int) -> list[str]:
    """A block of protocol calls in any order, with branches."""
    lines = [] if depth else ["scaler.scale(loss(p)).backward()"]
    for _ in range(source.randint(1, 3) if depth else source.randint(3, 7)):
        dice = source.random()
        if dice < 0.16 and depth < 2:
            lines.append(f"if {source.choice(TESTS)}:")
            lines += indented(random_block(source, depth + 1))
            if source.random() < 0.4:
                lines += ["else:", *indented(random_block(source, depth + 1))]
        elif dice < 0.2 and depth:
            return [*lines, "continue"]
        else:
            lines.append(source.choice(CALLS if source.random() < 0.9 else RARE_CALLS))
    return lines


def faulty_loop(source: random.Random) -> list[str]:
    """The documented loop with up to two faults: a call dropped, repeated, put under a test, or a `continue`."""
    lines = [[call] for call in CALLS]
    for _ in range(source.randint(0, 2)):
        at = source.randrange(2, len(lines)) if len(lines) > 2 else len(lines)
        dice = source.random()
        if dice < 0.3:
            del lines[at : at + 1]
        elif dice < 0.5:
            lines.insert(at, [source.choice(CALLS)])
        elif dice < 0.9 and at < len(lines):
            end = min(len(lines), at + source.randint(1, 3))
            inner = [line for group in lines[at:end] for line in group]
            lines[at:end] = [[f"if {source.choice(TESTS)}:", *indented(inner)]]
        else:
            lines.insert(at, [f"if {source.choice(TESTS)}:", "    continue"])
    return [line for group in lines for line in group]


def random_program(seed: int) -> str:
    """A training function of two flags; the same seed gives the same text."""
    source = random.Random(seed)
    body = faulty_loop(source) if source.random() < 0.6 else random_block(source, 0)
    head = ["scaler = torch.amp.GradScaler('cpu', init_scale=4.0)", f"for i in range({ROUNDS}):"]
    lines = ["import torch", "def train(p, opt, loss, a, b):", *indented([*head, *indented(body or ["pass"])])]
    return "\n".join(lines) + "\n"


def raises(text: str) -> bool:
    """Whether any combination of the flags makes torch raise."""
    names: dict[str, object] = {}
    exec(compile(text, "train.py", "exec"), names)
    train = names["train"]
    assert callable(train)
    for a, b in itertools.product((False, True), repeat=2):
        parameter = torch.nn.Parameter(torch.ones(1))
        optimizer = torch.optim.SGD([parameter], lr=0.1)
        try:
            train(parameter, optimizer, lambda p: (p * 2.0).sum(), a, b)
        except (RuntimeError, AssertionError):
            return True
    return False


def disagreement(text: str) -> str:
    """`missed`, `false alarm`, or "" where the engine and torch agree."""
    found = find(SourceFile(text, "train.py", DEFAULT))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        real = raises(text)
    if real and not found:
        return "missed"
    return "false alarm" if found and not real and all(violation.raises for violation in found) else ""


def compare(seeds: range) -> dict[str, list[int]]:
    """The seeds of programs on which the engine and torch disagree."""
    wrong: dict[str, list[int]] = {}
    for seed in seeds:
        verdict = disagreement(random_program(seed))
        if verdict:
            wrong.setdefault(verdict, []).append(seed)
    return wrong


def test_500_random_programs() -> None:
    assert compare(range(500)) == {}


@pytest.mark.slow
def test_20000_random_programs() -> None:
    count = 20_000
    wrong = compare(range(count))
    disagreements = sum(map(len, wrong.values()))
    print(f"{disagreements} of {count} random programs: {disagreements / count:.2%} disagreement", wrong)
    assert disagreements / count < 0.005
