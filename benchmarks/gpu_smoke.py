"""What mixed precision gains on a CUDA device: time and peak memory of the classic tutorial's training, five ways.

    python -m benchmarks.gpu_smoke --output benchmarks/gpu.md

ResNeXt-50 of torchvision (a ResNet of our own where torchvision is missing) is trained on synthetic images in float32,
with and without TF32, and by hand with autocast and a scaler in float16, and with autocast in bfloat16, and as
`amplint migrate` writes the float32 training. Afterwards each
way runs a few steps under the monitor, which tells whether the protocol was kept and AMP took effect. It takes a few
minutes on one device; without one it says so and exits with 0. The page is Markdown, progress goes to standard error.
"""

from __future__ import annotations

import argparse
import gc
import sys
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import nn

from amplint.migrate import migrate_source
from amplint.runtime import Monitor

WATCHED_STEPS = 3
CLASSES = 1000


class Way(NamedTuple):
    """A way to train: its name, the precision of autocast (None: none), whether float32 products may use TF32, and
    whether the migrated text is run in place of the one written by hand."""

    name: str
    autocast: torch.dtype | None
    tf32: bool
    is_migrated: bool = False


class Figures(NamedTuple):
    """Seconds of one step, peak memory in MiB (0 off CUDA), the last loss, and the monitor's words."""

    seconds: float
    memory: float
    loss: float
    protocol: str
    effective: str


WAYS = (
    Way("float32", None, False),
    Way("float32, TF32", None, True),
    Way("float16 autocast, GradScaler", torch.float16, True),
    Way("bfloat16 autocast", torch.bfloat16, True),
    Way("float16, as migrated", torch.float16, True, is_migrated=True),
)

FLOAT32_TRAINING = """
import torch
from torch import nn


def training(make, inputs, targets, device):
    model = make().to(device).train()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)

    def step():
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(inputs.to(device)), targets.to(device))
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step
"""
"""What is migrated, in the words of a script."""


class Residual(nn.Module):
    """Two convolutions round which the input goes past."""

    def __init__(self, before: int, after: int, stride: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(before, after, 3, stride, padding=1, bias=False),
            nn.BatchNorm2d(after),
            nn.ReLU(),
            nn.Conv2d(after, after, 3, padding=1, bias=False),
            nn.BatchNorm2d(after),
        )
        self.past = nn.Conv2d(before, after, 1, stride, bias=False)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        """The sum of both ways through."""
        return torch.relu(self.body(inputs) + self.past(inputs))


def own_resnet() -> nn.Module:
    """A ResNet of eight blocks."""
    layers: list[nn.Module] = [nn.Conv2d(3, 64, 7, 2, padding=3, bias=False), nn.BatchNorm2d(64), nn.ReLU()]
    for before, after, stride in ((64, 64, 2), (64, 128, 2), (128, 256, 2), (256, 512, 2)):
        layers += [Residual(before, after, stride), Residual(after, after, 1)]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, CLASSES))


def network() -> tuple[str, Callable[[], nn.Module]]:
    """The name of the model and a function that makes it."""
    try:
        from torchvision.models import resnext50_32x4d
    except ImportError:
        return "a ResNet of eight blocks (torchvision is not installed)", own_resnet
    return "torchvision's ResNeXt-50 (32x4d)", resnext50_32x4d


def migrated(
    make: Callable[[], nn.Module], inputs: torch.Tensor, targets: torch.Tensor, device: str
) -> Callable[[], torch.Tensor]:
    """The step of the migrated text; raises `RuntimeError` where the migration is refused."""
    result = migrate_source(FLOAT32_TRAINING, "training.py")
    if any(loop.status != "migrated" for loop in result.loops) or not result.loops:
        raise RuntimeError(f"the training was not migrated: {result.loops}")
    names: dict[str, Any] = {}
    exec(compile(result.text, "training.py", "exec"), names)
    step: Callable[[], torch.Tensor] = names["training"](make, inputs, targets, device)
    return step


def training(way: Way, make: Callable[[], nn.Module], options: argparse.Namespace) -> Callable[[], torch.Tensor]:
    """A function that does one step of training and returns the loss."""
    device = options.device
    torch.manual_seed(0)
    inputs = torch.randn(options.batch, 3, options.size, options.size, device=device)
    targets = torch.randint(0, CLASSES, (options.batch,), device=device)
    if way.is_migrated:
        return migrated(make, inputs, targets, device)
    model = make().to(device).train()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    scaler = torch.amp.GradScaler(device, enabled=way.autocast is torch.float16)

    def step() -> torch.Tensor:
        optimizer.zero_grad()
        with torch.autocast(device, dtype=way.autocast, enabled=way.autocast is not None):
            loss = nn.functional.cross_entropy(model(inputs), targets)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        return loss.detach()

    return step


def measure(way: Way, make: Callable[[], nn.Module], options: argparse.Namespace) -> Figures:
    """Train one way, first with the clock and then under the monitor."""
    on_cuda = options.device == "cuda"
    torch.backends.cudnn.benchmark = True
    torch.backends.cudnn.allow_tf32 = way.tf32
    torch.backends.cuda.matmul.allow_tf32 = way.tf32
    gc.collect()
    if on_cuda:
        torch.cuda.empty_cache()
    step = training(way, make, options)
    for _ in range(options.warmup):
        step()
    if on_cuda:
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
    begin = time.perf_counter()
    for _ in range(options.steps):
        loss = step()
    if on_cuda:
        torch.cuda.synchronize()
    seconds = (time.perf_counter() - begin) / options.steps
    memory = torch.cuda.max_memory_allocated() / 2**20 if on_cuda else 0.0
    with Monitor() as monitor:
        for _ in range(WATCHED_STEPS):
            step()
    report = monitor.report()
    kept = "kept" if not report.violations else ", ".join(violation.kind for violation in report.violations)
    skipped = f", {report.skipped} of {report.steps} steps skipped" if report.steps else ""
    return Figures(seconds, memory, float(loss), kept + skipped, "yes" if report.effective else "no")


def page(name: str, figures: dict[str, Figures], options: argparse.Namespace) -> str:
    """The results as Markdown."""
    device = torch.cuda.get_device_name() if options.device == "cuda" else "CPU"
    first = next(iter(figures.values()))
    lines = [
        "# Time and memory on a GPU",
        "",
        f"Written by `benchmarks/gpu_smoke.py`: {name}, synthetic images of {options.size} x {options.size}, "
        f"batches of {options.batch}, {options.steps} steps timed after {options.warmup} to warm up.",
        "",
        f"{device}, torch {torch.__version__}.",
        "",
        "| training | ms a step | time | peak memory, MiB | memory | last loss | low precision | protocol |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for way, figure in figures.items():
        time_share = f"{figure.seconds / first.seconds - 1:+.0%}"
        memory_share = f"{figure.memory / first.memory - 1:+.0%}" if first.memory else "-"
        lines.append(
            f"| {way} | {figure.seconds * 1000:.1f} | {time_share} | {figure.memory:.0f} | {memory_share} | "
            f"{figure.loss:.3f} | {figure.effective} | {figure.protocol} |"
        )
    return "\n".join(lines) + "\n"


def main() -> int:
    """Measure all ways and print the page; 1 if the protocol was broken or AMP took no effect where it should."""
    parser = argparse.ArgumentParser(description="What mixed precision gains on a CUDA device.")
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda", help="cpu: only to try the script itself")
    parser.add_argument("--batch", type=int, default=64, help="images in a batch")
    parser.add_argument("--size", type=int, default=224, help="height and width of an image")
    parser.add_argument("--steps", type=int, default=40, help="steps that are timed")
    parser.add_argument("--warmup", type=int, default=10, help="steps before them")
    parser.add_argument("--output", metavar="FILE", help="write the page to this file, too")
    options = parser.parse_args()
    if options.device == "cuda" and not torch.cuda.is_available():
        sys.stderr.write(f"no CUDA device (torch {torch.__version__}): nothing was measured\n")
        return 0
    name, make = network()
    figures: dict[str, Figures] = {}
    for way in WAYS:
        sys.stderr.write(f"{way.name} ...\n")
        figures[way.name] = measure(way, make, options)
    text = page(name, figures, options)
    sys.stdout.write(text)
    if options.output is not None:
        with open(options.output, "w", encoding="utf-8") as file:
            file.write(text)
    # Migrated code enables autocast on CUDA only.
    on = {way.name: way.autocast and (options.device == "cuda" or not way.is_migrated) for way in WAYS}
    expected = {name: "yes" if is_on else "no" for name, is_on in on.items()}
    right = all(each.protocol.startswith("kept") and each.effective == expected[way] for way, each in figures.items())
    return 0 if right else 1


if __name__ == "__main__":
    raise SystemExit(main())
