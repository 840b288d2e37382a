"""Runs a user's script as Python itself would, in this process."""

from __future__ import annotations

import builtins
import io
import os
import sys
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import ModuleType

INTERRUPTED = 130
"""The exit code after Ctrl-C, as shells have it: 128 + SIGINT."""


def run_script(path: str, arguments: Sequence[str]) -> int:
    """Run the file as `__main__` with these arguments and return its exit code.

    An exception that the script lets through is printed as Python prints it, without our own frames. Raises `OSError`
    if the file can't be read, and leaves `sys.argv`, `sys.path` and `__main__` as they were.
    """
    with io.open_code(path) as file:
        text = file.read()
    full = os.path.abspath(path)  # as Python names the script it runs, since 3.9
    module = ModuleType("__main__")
    module.__file__ = full
    module.__dict__.update(__builtins__=builtins, __cached__=None)
    with _as_main(module, path, arguments):
        try:
            exec(compile(text, full, "exec", dont_inherit=True), module.__dict__)
        except SystemExit as stop:
            return _exit_code(stop)
        except KeyboardInterrupt as interrupt:
            _show(interrupt, full)
            return INTERRUPTED
        except BaseException as error:
            _show(error, full)
            return 1
    return 0


@contextmanager
def _as_main(module: ModuleType, path: str, arguments: Sequence[str]) -> Iterator[None]:
    before = sys.argv, sys.path[:], sys.modules.get("__main__")
    sys.argv = [path, *arguments]
    sys.path[0] = os.path.dirname(os.path.abspath(path))
    sys.modules["__main__"] = module
    try:
        yield
    finally:
        sys.argv, sys.path[:] = before[0], before[1]
        if before[2] is not None:
            sys.modules["__main__"] = before[2]


def _exit_code(stop: SystemExit) -> int:
    if stop.code is None:
        return 0
    if isinstance(stop.code, int):
        return stop.code
    sys.stderr.write(f"{stop.code}\n")
    return 1


def _show(error: BaseException, path: str) -> None:
    """Print the traceback from the script's own first frame on."""
    trace = error.__traceback__
    while trace is not None and trace.tb_frame.f_code.co_filename != path:
        trace = trace.tb_next
    sys.stdout.flush()
    traceback.print_exception(type(error), error, trace)
