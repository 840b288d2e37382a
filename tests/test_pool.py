"""Worker processes: all results arrive, and one that dies takes only its own item with it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from amplint.pool import map_in_processes

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the workers are killed with signals")


def double(number: int) -> int:
    return 2 * number


def die_on_odd(number: int) -> int:
    if number % 2:
        os.kill(os.getpid(), signal.SIGKILL)
    return number


def process_of(_: int) -> int:
    time.sleep(0.01)
    return os.getpid()


def has_ended(process: int) -> bool:
    """Whether a process ends within ten seconds, but for its exit code that nobody takes."""
    for _ in range(1000):
        try:
            if Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] == "Z":
                return True
        except OSError:
            return True
        time.sleep(0.01)
    return False


@pytest.mark.parametrize("jobs", [1, 2, 3, 20])
def test_every_item_gets_its_result(jobs: int) -> None:
    assert sorted(map_in_processes(double, list(range(10)), jobs)) == [(n, 2 * n) for n in range(10)]


def test_no_items_need_no_process() -> None:
    assert list(map_in_processes(double, [], 4)) == []


def test_large_items_and_results_pass() -> None:
    [(index, result)] = map_in_processes(bytes.upper, [b"a" * 5_000_000], 2)
    assert (index, result) == (0, b"A" * 5_000_000)


def test_a_killed_worker_is_told_and_the_rest_is_done() -> None:
    results = dict(map_in_processes(die_on_odd, list(range(9)), 2))
    assert results == {n: None if n % 2 else n for n in range(9)}


def test_the_number_of_processes_is_kept() -> None:
    processes = {process for _, process in map_in_processes(process_of, list(range(12)), 3)}
    assert 1 <= len(processes) <= 3
    assert os.getpid() not in processes


def test_workers_end_when_the_results_are_no_longer_wanted() -> None:
    results = map_in_processes(process_of, list(range(50)), 2)
    _, process = next(results)
    results.close()  # type: ignore[attr-defined]
    assert process is not None
    assert has_ended(process)


def test_workers_end_when_the_parent_is_killed() -> None:
    code = (
        "import os, signal, time\n"
        "from amplint.pool import map_in_processes\n"
        "def work(n):\n"
        "    print(os.getpid(), flush=True)\n"
        "    return n\n"
        "for index, _ in map_in_processes(work, list(range(4)), 3):\n"
        "    if index == 2:\n"
        "        os.kill(os.getpid(), signal.SIGKILL)\n"
        "    time.sleep(0.2)\n"
    )
    # The output ends only when the last worker has closed it.
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert ran.returncode == -signal.SIGKILL
    workers = {int(word) for word in ran.stdout.split()}
    assert len(workers) >= 1
    assert all(has_ended(worker) for worker in workers)
