"""How much time the monitor costs: training steps with and without it, for small and for ordinary models.

    python benchmarks/monitor_overhead.py [--steps N] [--rounds N]

Blocks of steps without and with the monitor take turns, and the fastest block of each kind counts, so that other work
on the machine does little harm. The targets: the protocol alone costs less than 10 percent, with dtypes and gradients a
step takes less than twice as long. The exit code is 1 if one is missed.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

import torch
from torch import nn

from amplint.runtime import Monitor

TARGETS = {"protocol": 1.10, "dtypes and gradients": 2.0}

Step = Callable[[], None]


class Attention(nn.Module):
    """A small transformer over a sequence of vectors."""

    def __init__(self) -> None:
        super().__init__()
        layer = nn.TransformerEncoderLayer(64, 4, dim_feedforward=128, batch_first=True, dropout=0.0)
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(64, 10)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        """The logits of each sequence."""
        logits: torch.Tensor = self.head(self.encoder(inputs).mean(1))
        return logits


def perceptron() -> tuple[nn.Module, torch.Tensor]:
    """Three layers, a batch of 64 vectors."""
    model = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, 10))
    return model, torch.randn(64, 64)


def convolutional() -> tuple[nn.Module, torch.Tensor]:
    """Three convolutions with batch normalization, a batch of 16 images of 32 x 32."""
    layers: list[nn.Module] = []
    for before, after in ((3, 16), (16, 32), (32, 32)):
        layers += [nn.Conv2d(before, after, 3, padding=1), nn.BatchNorm2d(after), nn.ReLU(), nn.MaxPool2d(2)]
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(512, 10)), torch.randn(16, 3, 32, 32)


def transformer() -> tuple[nn.Module, torch.Tensor]:
    """Two layers of attention, a batch of 8 sequences of 32 vectors."""
    return Attention(), torch.randn(8, 32, 64)


def training_step(model: nn.Module, inputs: torch.Tensor) -> Step:
    """One iteration in bfloat16 under autocast, with a scaler, unscale_ and clipping."""
    optimizer = torch.optim.AdamW(model.parameters())
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    targets = torch.randint(0, 10, (len(inputs),))

    def step() -> None:
        optimizer.zero_grad()
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = nn.functional.cross_entropy(model(inputs), targets)
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()

    return step


def seconds(step: Step, steps: int) -> float:
    """How much CPU time one step takes; with one thread that is what it takes on an idle machine."""
    begin = time.process_time()
    for _ in range(steps):
        step()
    return (time.process_time() - begin) / steps


def measure(step: Step, steps: int, rounds: int) -> dict[str, float]:
    """The fastest step without a monitor (`plain`) and with each kind of monitor."""
    monitors = {"protocol": Monitor(), "dtypes and gradients": Monitor(dtypes=True, gradients=True)}
    fastest = dict.fromkeys(("plain", *monitors), float("inf"))
    for _ in range(rounds):
        fastest["plain"] = min(fastest["plain"], seconds(step, steps))
        for name, monitor in monitors.items():
            with monitor:
                step()
                fastest[name] = min(fastest[name], seconds(step, steps))
    return fastest


def main() -> int:
    """Print a Markdown table; 1 if a target is missed."""
    parser = argparse.ArgumentParser(description="How much time the monitor costs.")
    parser.add_argument("--steps", type=int, default=30, help="steps in a block")
    parser.add_argument("--rounds", type=int, default=10, help="blocks of each kind")
    options = parser.parse_args()
    torch.set_num_threads(1)
    missed = False
    print(f"torch {torch.__version__}, one thread\n")
    print("| model | CPU time of a step, ms | protocol | dtypes and gradients |\n|---|---|---|---|")
    for make in (perceptron, convolutional, transformer):
        torch.manual_seed(0)
        step = training_step(*make())
        seconds(step, options.steps)
        fastest = measure(step, options.steps, options.rounds)
        ratios = {name: fastest[name] / fastest["plain"] for name in TARGETS}
        missed = missed or any(ratios[name] >= target for name, target in TARGETS.items())
        cells = " | ".join(f"{ratio - 1:+.1%}" for ratio in ratios.values())
        print(f"| {make.__name__} | {fastest['plain'] * 1000:.2f} | {cells} |")
    return int(missed)


if __name__ == "__main__":
    raise SystemExit(main())
