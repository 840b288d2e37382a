"""Proves a migration by running it: the script before and after, on a CPU that stands in for a GPU.

The ways. `exact`: autocast is entered and switched off, the GradScaler is live; a power-of-two scale is exact in
float32, so all that the script prints and all final parameters must be those of the original. `amp`: autocast is live
on the CPU. `plain`: nothing stands in, as on a machine without a GPU. `gpu exact` and `gpu amp` are the first two on
CUDA itself. In all of them the calls of the scaler's
protocol, and the dtypes of products with gradients, are recorded. A watched run is one under the monitor of
`amplint.runtime` besides, an observer that shares nothing with the recorder, and counts the memory of its tensors.

Scripts run in a process of their own, since they change global state.
"""

from __future__ import annotations

import json
import os
import random
import runpy
import sys
import tempfile
import traceback
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple


class Outcome(NamedTuple):
    """What a run left: what it printed, its exit code, a digest of the final parameters, and the recorded events.

    `losses` are the values that went backward, `steps` the norms of the gradients that each optimizer stepped on,
    `low` and `full` count matrix products and convolutions with gradients in low and in full precision, `left_out`
    those of the latter whose results went backward, `protocol` are the names of the calls in order, `live` their
    number with scalers that are not switched off, `faults` what was against the protocol. `finite`: all final
    parameters are; `moved`: no optimizer left all of its parameters as they were. Of a watched run there are the
    monitor's report, as JSON has it, and the peak memory of its tensors in bytes.
    """

    code: int
    output: str
    error: str
    losses: Sequence[float] = ()
    steps: Sequence[float] = ()
    low: int = 0
    full: int = 0
    left_out: int = 0
    protocol: Sequence[str] = ()
    live: Mapping[str, int] = MappingProxyType({})
    faults: Sequence[str] = ("no record",)
    digest: str = ""
    finite: bool = False
    moved: bool = False
    report: Mapping[str, Any] = MappingProxyType({})
    memory: int = 0


def run_script(
    path: Path,
    way: str,
    arguments: tuple[str, ...] = (),
    dtype: str = "float16",
    work: str = "",
    watched: bool = False,
) -> Outcome:
    """Run a script in one of the ways `plain`, `exact`, `amp`, `gpu exact` and `gpu amp`.

    `dtype` replaces the one that the script asks for.
    The process is forked, so that torch is imported once; `work` is its directory, a new one by default.
    """
    _import_once()
    with tempfile.TemporaryDirectory() as scratch:
        child = os.fork()
        if child == 0:
            _in_child(path, way, arguments, dtype, scratch, work or scratch, watched)
        _, status = os.waitpid(child, 0)
        texts = {}
        for name in ("out", "err", "record"):
            place = Path(scratch) / f"{name}.harness"
            texts[name] = place.read_text(encoding="utf-8", errors="replace") if place.exists() else ""
    code = os.waitstatus_to_exitcode(status)
    if not texts["record"]:
        return Outcome(code or 1, texts["out"], texts["err"])
    found: dict[str, Any] = json.loads(texts["record"])
    return Outcome(code, texts["out"], texts["err"], **found)


@cache
def _import_once() -> None:
    """Import what every run needs before the first fork.

    torch imports `torch._dynamo` when the first optimizer is made, which takes 25 times as long as a fixture runs.
    """
    import numpy  # noqa: F401
    import torch
    import torch._dynamo

    import amplint.runtime.monitor  # noqa: F401
    import tests.migrate.memory
    import tests.migrate.standin  # noqa: F401

    torch.set_num_threads(1)


def _in_child(
    path: Path, way: str, arguments: tuple[str, ...], dtype: str, scratch: str, work: str, watched: bool
) -> None:
    failure = 1
    try:
        import numpy
        import torch

        from amplint.runtime import Monitor
        from tests.migrate.memory import TensorMemory
        from tests.migrate.standin import Recorder

        place = path.resolve()
        for number, name in ((1, "out"), (2, "err")):
            os.dup2(os.open(f"{scratch}/{name}.harness", os.O_CREAT | os.O_WRONLY), number)
        sys.stdout = open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
        sys.stderr = open(2, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
        sys.argv = [str(place), *arguments]
        sys.path.insert(0, str(place.parent))
        os.chdir(work)
        random.seed(0)
        numpy.random.seed(0)
        torch.manual_seed(0)
        if way.startswith("gpu"):
            os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # which determinism needs
            torch.use_deterministic_algorithms(True, warn_only=True)
        recorder = Recorder(way, dtype)
        monitor, memory = Monitor(dtypes=True), TensorMemory()  # looking at gradients takes memory
        with ExitStack() as stack:
            if watched:
                stack.enter_context(monitor)
                stack.enter_context(memory)
            stack.enter_context(recorder)
            try:
                runpy.run_path(str(place), run_name="__main__")
                failure = 0
            except SystemExit as stop:
                failure = int(bool(stop.code))
        record = recorder.record()
        record["report"] = json.loads(monitor.report().to_json()) if watched else {}
        record["memory"] = memory.peak
        Path(scratch, "record.harness").write_text(json.dumps(record), encoding="utf-8")
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(failure)
