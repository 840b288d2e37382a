"""Compare the engine with real torch on many random training programs, and print how often they disagree.

    python -m benchmarks.truth [--programs 20000] [--first SEED] [--jobs 2] [--show 3]

Each program is run with every combination of its flags and several kinds of data under a recorder. They disagree where
a finding that the engine calls certain never shows, or where a run breaks the protocol and no finding foresees it. For
each way to disagree the seeds are listed, and the first `--show` programs, as short as they can be made.
"""

from __future__ import annotations

import argparse
import random
import re
import time
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from typing import NamedTuple

import torch

from benchmarks.shorten import shortened
from tests.flow.generator import Program, Writer
from tests.flow.truth import Verdict, compare

CHUNK = 50


class Outcome(NamedTuple):
    """What became of one program."""

    seed: int
    verdict: Verdict


def judge(first: int) -> list[Outcome]:
    """Judge the programs of a chunk of seeds."""
    torch.set_num_threads(1)
    return [Outcome(seed, compare(program_of(seed))) for seed in range(first, first + CHUNK)]


def program_of(seed: int) -> Program:
    """The program that a seed stands for."""
    return Writer(random.Random(seed)).program()


def ways(verdict: Verdict) -> set[str]:
    """How text and truth disagree, without the rows."""
    false = {f"certain, but never seen: {re.sub(r' in row .*', '', text)}" for text in verdict.false}
    return false | {f"not foreseen: {re.sub(r' in rows [^(]*', ' ', text)}" for text in verdict.missed}


def short(program: Program) -> str:
    """The program without the statements that it can do without and still disagree in the same way."""
    wanted = ways(compare(program))

    def disagrees(text: str) -> bool:
        try:
            return bool(wanted & ways(compare(program._replace(text=text))))
        except (SyntaxError, KeyError, AttributeError):
            return False

    return shortened(program.text, disagrees)


def main() -> None:
    """Parse the command line, judge the programs and print the rate."""
    parser = argparse.ArgumentParser(description="Compare the engine with torch on random programs.")
    parser.add_argument("--programs", type=int, default=20_000)
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--show", type=int, default=3, help="how many programs to print for each way to disagree")
    options = parser.parse_args()
    started = time.monotonic()
    counts: Counter[str] = Counter()
    disagreeing: dict[str, list[int]] = {}
    with ProcessPoolExecutor(options.jobs) as pool:
        for chunk in pool.map(judge, range(options.first, options.first + options.programs, CHUNK)):
            for seed, verdict in chunk:
                counts["judged"] += verdict.judged
                counts["broken"] += verdict.broken
                counts["found"] += verdict.found
                counts["disagree"] += not verdict.agrees
                for way in ways(verdict):
                    disagreeing.setdefault(way, []).append(seed)
    print(
        f"{options.programs} programs in {time.monotonic() - started:.0f} s, {counts['judged']} judged (the others "
        f"fail for reasons of their own); {counts['broken']} break the protocol, {counts['found']} have findings"
    )
    print(f"disagreement: {counts['disagree']} of {counts['judged']}, {counts['disagree'] / counts['judged']:.4%}")
    by_number = sorted(disagreeing.items(), key=lambda item: -len(item[1]))
    for way, seeds in by_number:
        print(f"{len(seeds)} x {way}\n  seeds {' '.join(map(str, seeds[:20]))}", flush=True)
    for way, seeds in by_number if options.show else ():
        print(f"\n{way}")
        for seed in seeds[: options.show]:
            print(f"  -- {seed}")
            print("\n".join(f"    {line}" for line in short(program_of(seed)).splitlines()), flush=True)


if __name__ == "__main__":
    main()
