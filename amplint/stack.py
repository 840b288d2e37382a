"""Room for deep recursion: generated code nests and chains expressions thousands of levels deep."""

from __future__ import annotations

import _thread
import sys
from collections.abc import Callable
from typing import TypeVar

Result = TypeVar("Result")

STACK_BYTES = 256 * 1024 * 1024
"""Address space only: the system gives memory to the part that is used."""

RECURSION_LIMIT = 20_000
"""So low that `STACK_BYTES` last for it, with C frames of up to 12 KiB a level (CPython needs under 2 KiB)."""


def call_with_deep_stack(function: Callable[[], Result]) -> Result:
    """Call `function` in a thread with a large stack, so that deep recursion is a `RecursionError` and no crash.

    Returns or raises what the function does. Where the system gives no such stack the call is made as usual.
    """
    limit = sys.getrecursionlimit()
    outcome: list[Result] = []
    failure: list[BaseException] = []
    done = _thread.allocate_lock()

    def run() -> None:
        try:
            outcome.append(function())
        except BaseException as error:
            failure.append(error)
        finally:
            done.release()

    done.acquire()
    try:
        usual = _thread.stack_size(STACK_BYTES)
    except (ValueError, RuntimeError):
        return function()
    try:
        sys.setrecursionlimit(max(limit, RECURSION_LIMIT))
        try:
            _thread.start_new_thread(run, ())
        except RuntimeError:
            sys.setrecursionlimit(limit)
            return function()
        done.acquire()
    finally:
        _thread.stack_size(usual)
        sys.setrecursionlimit(limit)
    if failure:
        raise failure[0]
    return outcome[0]
