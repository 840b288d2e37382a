"""Compare the CPU time of amplint with that of ruff and TorchFix on source trees.

    python benchmarks/speed.py TREE [TREE ...] [--rounds 5] [--torchfix /path/to/torchfix]

The programs run in turn (A B C, A B C, ...), so a busy machine slows all of them alike; what counts are CPU seconds
(user and system, of the whole process tree) and the median of the pairwise ratios. The first round warms up and is not
counted. TorchFix takes minutes and runs once; it is left out where it is not found.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple


class Contestant(NamedTuple):
    """A program to time: its name and its command line."""

    name: str
    command: list[str]


class Measured(NamedTuple):
    """CPU seconds and peak memory (MiB, of the largest process) of one run."""

    seconds: float
    peak: float


TORCHFIX_MOST_MB = 1


def measure(contestant: Contestant, tree: Path, directory: Path) -> Measured:
    """Run a program on a tree once, from a directory that keeps its cache, and wait for all its processes."""
    process = subprocess.Popen(
        [*contestant.command, str(tree)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd=directory
    )
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode not in (0, 1):
        raise SystemExit(f"{contestant.name} failed with exit code {process.returncode} on {tree}")
    return Measured(usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024)


def contestants(torchfix: str | None) -> list[Contestant]:
    """The programs in the order in which they run; the first is what the others are compared with."""
    here = Path(sys.executable).parent
    amplint = [str(here / "amplint"), "check", "--exit-zero", "--output-format", "concise"]
    ruff = [str(here / "ruff"), "check", "--no-cache", "--exit-zero", "--isolated"]
    found = [
        Contestant("amplint, cold", [*amplint, "--no-cache"]),
        Contestant("amplint, cached", amplint),
        Contestant("ruff --select F401", [*ruff, "--select", "F401"]),
        Contestant("ruff, default rules", ruff),
    ]
    if torchfix:
        found.append(Contestant("TorchFix", [torchfix, "--select", "ALL"]))
    return found


def startup(rounds: int) -> None:
    """Print what `amplint --version` costs beside a bare interpreter."""
    version = Contestant("amplint --version", [str(Path(sys.executable).parent / "amplint"), "--version"])
    bare = Contestant("python -c pass", [sys.executable, "-c", "pass"])

    def seconds(contestant: Contestant) -> float:
        process = subprocess.Popen(contestant.command, stdout=subprocess.DEVNULL)
        _, _, usage = os.wait4(process.pid, 0)
        return usage.ru_utime + usage.ru_stime

    pairs = [(seconds(version), seconds(bare)) for _ in range(rounds * 4)]
    ratio = statistics.median(a / b for a, b in pairs)
    print(f"amplint --version: {statistics.median(a for a, _ in pairs):.3f} s, {ratio:.2f} x `python -c pass`\n")


def compare(tree: Path, programs: list[Contestant], rounds: int, directory: Path) -> None:
    """Print a table for one tree."""
    files = [path for path in tree.rglob("*.py") if path.is_file()]
    size = sum(path.stat().st_size for path in files) / 1e6
    print(f"{tree}: {len(files)} files, {size:.2f} MB")
    if size > TORCHFIX_MOST_MB and programs[-1].name == "TorchFix":
        programs = programs[:-1]
        print(f"  TorchFix is left out: it takes minutes a MB, and this tree is larger than {TORCHFIX_MOST_MB} MB")
    runs: dict[str, list[Measured]] = {program.name: [] for program in programs}
    for turn in range(rounds + 1):
        for program in programs:
            if program.name == "TorchFix" and runs["TorchFix"]:
                continue
            measured = measure(program, tree, directory)
            if turn or program.name == "TorchFix":
                runs[program.name].append(measured)
    first = runs[programs[0].name]
    print(f"  {'program':22} {'CPU s':>8} {'ms/file':>8} {'peak MiB':>9}  cold amplint / it")
    for program in programs:
        own = runs[program.name]
        ratio = statistics.median(a.seconds / b.seconds for a, b in zip(first, own, strict=False))
        median = statistics.median(run.seconds for run in own)
        peak = max(run.peak for run in own)
        print(f"  {program.name:22} {median:8.3f} {1000 * median / len(files):8.3f} {peak:9.1f}  {ratio:.3f}")
    print()


def main() -> None:
    """Parse the command line and print one table a tree."""
    parser = argparse.ArgumentParser(description="Compare CPU time with ruff and TorchFix.")
    parser.add_argument("trees", nargs="+", type=Path)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--torchfix", default=shutil.which("torchfix"))
    options = parser.parse_args()
    if not options.torchfix:
        print("TorchFix is not installed: left out (give its path with --torchfix)\n")
    startup(options.rounds)
    with tempfile.TemporaryDirectory() as directory:
        for tree in options.trees:
            compare(tree.resolve(), contestants(options.torchfix), options.rounds, Path(directory))


if __name__ == "__main__":
    main()
