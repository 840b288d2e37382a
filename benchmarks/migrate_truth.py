"""Migrate many random FP32 training scripts, run each before and after, and print what became of them.

    python -m benchmarks.migrate_truth [--programs 5000] [--seed 0] [--jobs 2] [--show 2] [--dtype float16]
        [--device cuda] [--flag use_amp]

A script is wrong where the migrated one differs from it in any loss, gradient norm, printed number or final parameter
while autocast is switched off and the scaler is live, breaks the protocol, or leaves products out of the regions. What
is refused is counted by reason. For each way to be wrong the first `--show` scripts are printed, made short.
"""

from __future__ import annotations

import argparse
import time
from concurrent.futures import ProcessPoolExecutor

import torch

from amplint.migrate.model import Options
from benchmarks.shorten import shortened
from tests.migrate.random_scripts import script_of
from tests.migrate.verdicts import INVALID, REFUSED, RIGHT, WRONG, Verdict, judge

CHUNK = 20


def judge_chunk(first: int, count: int, options: Options) -> list[tuple[int, Verdict]]:
    """Judge the scripts of a run of seeds."""
    torch.set_num_threads(1)
    return [(seed, judge(script_of(seed), options)) for seed in range(first, first + count)]


def kind_of(verdict: Verdict) -> str:
    """The reason without numbers, so that alike reasons are counted together."""
    return "".join("#" if c.isdigit() else c for c in verdict.reason)[:160]


def main() -> None:
    """Parse the command line, judge the scripts and print the counts."""
    parser = argparse.ArgumentParser(description="Migrate random scripts and run them before and after.")
    parser.add_argument("--programs", type=int, default=5000)
    parser.add_argument("--seed", type=int, default=0, help="the first seed")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--show", type=int, default=2, help="how many scripts to print for each way to be wrong")
    parser.add_argument("--dtype", default="float16", choices=("float16", "bfloat16", "auto"))
    parser.add_argument("--device")
    parser.add_argument("--flag")
    arguments = parser.parse_args()
    options = Options(arguments.dtype, arguments.device, arguments.flag)
    started = time.monotonic()
    found: dict[str, dict[str, list[int]]] = {kind: {} for kind in (INVALID, REFUSED, RIGHT, WRONG)}
    with ProcessPoolExecutor(arguments.jobs) as pool:
        last = arguments.seed + arguments.programs
        starts = range(arguments.seed, last, CHUNK)
        jobs = [pool.submit(judge_chunk, start, min(CHUNK, last - start), options) for start in starts]
        for job in jobs:
            for seed, verdict in job.result():
                found[verdict.kind].setdefault(kind_of(verdict), []).append(seed)
    counts = {kind: sum(map(len, reasons.values())) for kind, reasons in found.items()}
    print(
        f"{arguments.programs} scripts in {time.monotonic() - started:.0f} s, of which {counts[INVALID]} fail by "
        f"themselves: {counts[RIGHT]} right, {counts[REFUSED]} refused, {counts[WRONG]} wrong"
    )
    for kind in (INVALID, REFUSED, WRONG):
        for reason, seeds in sorted(found[kind].items(), key=lambda item: -len(item[1])):
            print(f"{kind} {len(seeds)} x {reason}\n    seeds {' '.join(map(str, seeds[:12]))}", flush=True)
    for reason, seeds in found[WRONG].items():
        for seed in seeds[: arguments.show]:
            print(f"\n-- {seed}: {reason}")
            print(shortened(script_of(seed), _AsBefore(judge(script_of(seed), options), options)), flush=True)


class _AsBefore:
    """Whether another text is wrong in the same way."""

    def __init__(self, verdict: Verdict, options: Options) -> None:
        self.verdict = verdict
        self.options = options

    def __call__(self, text: str) -> bool:
        other = judge(text, self.options)
        return other.kind == self.verdict.kind and kind_of(other) == kind_of(self.verdict)


if __name__ == "__main__":
    main()
