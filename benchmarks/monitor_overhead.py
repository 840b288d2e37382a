"""How much time the monitor costs: the migrated fixtures and three larger models, with and without it.

    python -m benchmarks.monitor_overhead [--repeats N] [--scripts] [NAME ...]

A fixture is its `after.py` with the GPU's names replaced by the CPU's, in bfloat16, so that autocast and the scaler are
at work. It is compiled once and run again and again in this process: without a monitor, with the protocol alone, and
with dtypes and gradients, in turn. What counts is CPU time on one thread from its first optimizer step to its last:
neither imports nor the making of models dilute it. Each run under a monitor is compared with those right before and
behind it, since the speed of a machine that others share changes by more than what is measured; the median of these
ratios counts. With `--scripts` each fixture is run as its user runs it, by
`python train.py` and by `amplint trace train.py`, and all CPU time of the process counts, imports included. The
targets: the protocol alone costs less than 10 percent, with dtypes and gradients it takes less than twice as long. The
exit code is 1 if one is missed.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import io
import os
import random
import re
import statistics
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch._dynamo
from torch import nn
from torch.optim.optimizer import register_optimizer_step_pre_hook

from amplint.runtime import Monitor

FIXTURES = Path(__file__).parent.parent / "fixtures"
TARGETS = {"protocol": 1.10, "dtypes and gradients": 2.0}
STEPS = 30
ENOUGH = 0.01
"""A measurement takes as many runs as this many seconds hold."""

_ON_CPU = (
    (r"\"cuda(:0)?\"", '"cpu"'),
    (r"torch\.cuda\.is_available\(\)", "True"),
    (r"torch\.cuda\.max_memory_allocated\(\)", "0"),
    (r"torch\.cuda\.reset_peak_memory_stats\(\)", "None"),
    (r"\.cuda\(\)", ".cpu()"),
    (r"torch\.float16", "torch.bfloat16"),
)
"""What makes a migrated script train under AMP on a CPU."""

Run = Callable[[], float]
"""Trains, and returns the seconds of CPU time that this took from the first step to the last."""


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


def training(make: Callable[[], tuple[nn.Module, torch.Tensor]]) -> Run:
    """Iterations in bfloat16 under autocast, with a scaler, unscale_ and clipping."""
    torch.manual_seed(0)
    model, inputs = make()
    optimizer = torch.optim.AdamW(model.parameters())
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    targets = torch.randint(0, 10, (len(inputs),))

    def run() -> float:
        begin = time.process_time()
        for _ in range(STEPS):
            optimizer.zero_grad()
            with torch.autocast("cpu", dtype=torch.bfloat16):
                loss = nn.functional.cross_entropy(model(inputs), targets)
            scaler.scale(loss).backward()
            scaler.unscale_(optimizer)
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            scaler.step(optimizer)
            scaler.update()
        return time.process_time() - begin

    return run


def on_cpu(path: Path) -> str:
    """The text of a fixture with the GPU's names replaced by the CPU's."""
    text = path.read_text(encoding="utf-8")
    for pattern, replacement in _ON_CPU:
        text = re.sub(pattern, replacement, text)
    return text


def script(path: Path) -> Run:
    """A fixture on the CPU."""
    code = compile(on_cpu(path), str(path), "exec")
    stamps: list[float] = []

    def stamp(*_: Any) -> None:
        stamps.append(time.process_time())

    def run() -> float:
        random.seed(0)
        torch.manual_seed(0)
        stamps.clear()
        gc.collect()  # the run before left a module, with optimizers in it
        handle = register_optimizer_step_pre_hook(stamp)
        try:
            with contextlib.redirect_stdout(io.StringIO()):
                exec(code, {"__name__": "__main__", "__file__": str(path)})
        finally:
            handle.remove()
        return stamps[-1] - stamps[0]

    return run


def measure(run: Run, repeats: int) -> tuple[float, dict[str, float]]:
    """Seconds of a run without a monitor, and the ratio to that for each kind of monitor."""
    options: dict[str, dict[str, bool]] = {"protocol": {}, "dtypes and gradients": {"dtypes": True, "gradients": True}}
    run()
    several = max(1, round(ENOUGH / max(run(), 1e-4)))
    plain: list[float] = []
    ratios: dict[str, list[float]] = {name: [] for name in options}

    def unwatched() -> float:
        plain.append(sum(run() for _ in range(several)) / several)
        return plain[-1]

    before = unwatched()
    for _ in range(repeats):
        for name, kind in options.items():
            with Monitor(**kind):
                run()
                watched = sum(run() for _ in range(several)) / several
            behind = unwatched()
            ratios[name].append(2 * watched / (before + behind))
            before = behind
    return statistics.median(plain), {name: statistics.median(values) for name, values in ratios.items()}


def measure_script(path: Path, repeats: int) -> tuple[float, dict[str, float]]:
    """CPU seconds of a script's process, and the ratio to that under `amplint trace` for each kind of monitor."""
    trace = [sys.executable, "-m", "amplint", "trace"]
    commands = {
        "plain": [sys.executable],
        "protocol": trace,
        "dtypes and gradients": [*trace, "--dtypes", "--gradients"],
    }
    seconds: dict[str, list[float]] = {name: [] for name in commands}
    with tempfile.TemporaryDirectory() as directory:
        copy = Path(directory, "train.py")
        copy.write_text(on_cpu(path), encoding="utf-8")
        for _ in range(repeats):
            for name, command in commands.items():
                process = subprocess.Popen(
                    [*command, str(copy)],
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                    env={**os.environ, "OMP_NUM_THREADS": "1"},
                )
                _, status, used = os.wait4(process.pid, 0)
                process.returncode = os.waitstatus_to_exitcode(status)
                if process.returncode:
                    raise RuntimeError(f"{path} ends with {process.returncode}")
                seconds[name].append(used.ru_utime + used.ru_stime)
    least = {name: min(values) for name, values in seconds.items()}
    return least["plain"], {name: least[name] / least["plain"] for name in TARGETS}


def runs() -> dict[str, Run]:
    """All that is measured, by name."""
    models = {make.__name__: training(make) for make in (perceptron, convolutional, transformer)}
    fixtures = {path.parent.name: script(path) for path in sorted(FIXTURES.glob("*/after.py"))}
    return {**models, **fixtures}


def main() -> int:
    """Print a Markdown table; 1 if a target is missed."""
    parser = argparse.ArgumentParser(description="How much time the monitor costs.")
    parser.add_argument("--repeats", type=int, default=21, help="measurements of each kind")
    parser.add_argument("--scripts", action="store_true", help="measure whole processes of the fixtures")
    parser.add_argument("names", nargs="*", help="measure only these fixtures or models")
    options = parser.parse_args()
    sys.argv[1:] = []  # the fixtures read it
    torch.set_num_threads(1)
    gc.freeze()
    warnings.simplefilter("ignore")  # a scheduler before its optimizer, where the first step is skipped
    missed = 0
    print(f"torch {torch.__version__}, one thread\n")
    print("| training | CPU time without, ms | protocol | dtypes and gradients |\n|---|---|---|---|")
    fixtures = {path.parent.name: path for path in sorted(FIXTURES.glob("*/after.py"))}
    trainings = {} if options.scripts else runs()
    for name in trainings or fixtures:
        if options.names and name not in options.names:
            continue
        if options.scripts:
            seconds, ratios = measure_script(fixtures[name], options.repeats)
        else:
            seconds, ratios = measure(trainings[name], options.repeats)
        missed += sum(ratios[kind] >= target for kind, target in TARGETS.items())
        cells = " | ".join(f"{ratio - 1:+.1%}" for ratio in ratios.values())
        print(f"| {name} | {seconds * 1000:.2f} | {cells} |", flush=True)
    print(f"\ntargets missed: {missed}")
    return int(missed > 0)


if __name__ == "__main__":
    raise SystemExit(main())
