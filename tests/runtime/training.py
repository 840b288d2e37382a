"""A small training problem, and a check that a function breaks the protocol just where its comments say so."""

from __future__ import annotations

import contextlib
import inspect
import re
from collections.abc import Callable

import torch
from torch import nn

from amplint.runtime import Monitor, Report

MARK = re.compile(r"# breaks: ([a-z-]+(?:, [a-z-]+)*)")

Problem = tuple[nn.Module, torch.Tensor, torch.Tensor]


def problem(seed: int = 0) -> Problem:
    """A model for a regression, and its data."""
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 1))
    inputs = torch.randn(32, 8)
    return model, inputs, inputs.sum(1, keepdim=True) / 4


def scaler(init_scale: float = 1024.0, enabled: bool = True) -> torch.amp.GradScaler:
    """A scaler for the CPU."""
    return torch.amp.GradScaler("cpu", init_scale=init_scale, enabled=enabled)


def sgd(model: nn.Module, lr: float = 0.01) -> torch.optim.SGD:
    """An optimizer that feels the scale of gradients."""
    return torch.optim.SGD(model.parameters(), lr=lr)


def loss_of(model: nn.Module, inputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """The loss of a forward under float16 autocast."""
    with torch.autocast("cpu", dtype=torch.float16):
        output = model(inputs)
    return nn.functional.mse_loss(output.float(), targets)


def expected(function: Callable[[], object]) -> list[tuple[str, int]]:
    """The violations that the comments of a function announce: kinds and lines."""
    lines, first = inspect.getsourcelines(function)
    found = [
        (kind, first + row)
        for row, line in enumerate(lines)
        for mark in MARK.findall(line)
        for kind in mark.split(", ")
    ]
    return sorted(found, key=lambda item: (item[1], item[0]))


def watch(function: Callable[[], object]) -> Report:
    """Run a function under the monitor; exceptions that torch raises for misuse end it."""
    with Monitor() as monitor, contextlib.suppress(RuntimeError, AssertionError, ValueError):
        function()
    return monitor.report()


def violations(report: Report) -> list[tuple[str, int]]:
    """Kinds and lines of the violations in a report."""
    return [(violation.kind, violation.place.line) for violation in report.violations]
