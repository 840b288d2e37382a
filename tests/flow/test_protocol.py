"""The tables of the protocol against the real class: where torch raises the tables say so, and nowhere else."""

from __future__ import annotations

import warnings
from collections.abc import Iterator

import pytest

from amplint.flow.protocol import (
    CHECKS,
    EVENTS,
    GRADIENTS,
    SCALE,
    SEVERAL_OPTIMIZERS,
    STAGE,
    UNKNOWN,
    Fault,
    Pair,
    advance,
)

torch = pytest.importorskip("torch")

Sequence = tuple[str, ...]
LENGTH = 6


def sequences(events: Sequence, length: int, ended: set[Sequence]) -> Iterator[Sequence]:
    """Every sequence of `events` up to `length`, without those that go on after one in `ended` (which grows
    meanwhile).
    """
    level: list[Sequence] = [()]
    for _ in range(length):
        level = [(*before, event) for before in level if before not in ended for event in events]
        yield from level


class RealTraining:
    """One parameter, one optimizer and torch's own scaler on the CPU."""

    def __init__(self) -> None:
        self.parameter = torch.nn.Parameter(torch.ones(1))
        self.optimizer = torch.optim.SGD([self.parameter], lr=0.1)
        self.scaler = torch.amp.GradScaler("cpu", init_scale=8.0)

    def feed(self, event: str) -> None:
        match event:
            case "backward":
                self.scaler.scale((self.parameter * 1.0).sum()).backward()
            case "plain-backward":
                (self.parameter * 1.0).sum().backward()
            case "unscale":
                self.scaler.unscale_(self.optimizer)
            case "step":
                self.scaler.step(self.optimizer)
            case "update":
                self.scaler.update()
            case "plain-step":
                self.optimizer.step()
            case "zero-grad":
                self.optimizer.zero_grad()
            case "clip":
                torch.nn.utils.clip_grad_norm_([self.parameter], 1.0)
            case "grad-read":
                _ = self.parameter.grad
            case _:
                raise ValueError(event)


def raises_last(sequence: Sequence) -> bool:
    """Whether torch raises at the last event; a raise before it is an error of the test."""
    training = RealTraining()
    for event in sequence[:-1]:
        training.feed(event)
    try:
        training.feed(sequence[-1])
    except (RuntimeError, AssertionError):
        return True
    return False


def predicted(sequence: Sequence) -> bool:
    pair = Pair()
    faults: tuple[Fault, ...] = ()
    for event in sequence:
        pair, faults = pair.after(event)
    return any(fault.raises for fault in faults)


def compare(length: int, events: Sequence) -> tuple[int, list[Sequence]]:
    """How many sequences were tried, and those on which torch and the tables disagree."""
    ended: set[Sequence] = set()
    wrong: list[Sequence] = []
    count = 0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for sequence in sequences(events, length, ended):
            count += 1
            real = raises_last(sequence)
            if real != predicted(sequence):
                wrong.append(sequence)
            if real:
                ended.add(sequence)
    return count, wrong


def test_every_sequence_of_the_scalers_own_events_up_to_length_6() -> None:
    events = ("backward", "unscale", "step", "update", "zero-grad")
    count, wrong = compare(LENGTH, events)
    assert (count, wrong) == (1630, [])


@pytest.mark.slow
def test_every_sequence_of_all_events_up_to_length_6() -> None:
    count, wrong = compare(LENGTH, EVENTS)
    assert count == 128_430
    assert wrong == []


def test_every_sequence_of_all_events_up_to_length_4() -> None:
    _, wrong = compare(4, EVENTS)
    assert wrong == []


@pytest.mark.parametrize("table", [SCALE, STAGE, CHECKS, GRADIENTS, SEVERAL_OPTIMIZERS])
def test_nothing_is_wrong_in_the_unknown_state(table: dict[tuple[str, str], str | Fault]) -> None:
    for event in EVENTS:
        assert advance(table, UNKNOWN, event)[1] is None


def test_states_that_tables_lead_to_have_rows_or_are_final() -> None:
    for table in (SCALE, STAGE, CHECKS, GRADIENTS):
        sources = {state for state, _ in table}
        targets = {cell.then if isinstance(cell, Fault) else cell for cell in table.values()}
        assert targets - sources <= {"set"}
