"""Worker processes that may die: what a dead one was working on is told, everything else is still done."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, TypeVar, cast

if TYPE_CHECKING:
    from multiprocessing.connection import Connection
    from multiprocessing.process import BaseProcess

Item = TypeVar("Item")
Result = TypeVar("Result")


def map_in_processes(
    function: Callable[[Item], Result], items: Sequence[Item], jobs: int
) -> Iterator[tuple[int, Result | None]]:
    """Call `function` on every item in up to `jobs` processes; yield the item's index and the result as they come.

    The items are started in their order. The result is None where the process died (killed, or out of memory). The
    function, the items and the results must be picklable, and the function must not raise.
    """
    import multiprocessing
    from multiprocessing.connection import wait

    # Forking takes milliseconds and is safe here, for no thread runs yet; elsewhere than on Linux it is not.
    context: Any = multiprocessing.get_context("fork" if sys.platform == "linux" else "spawn")
    waiting = list(range(len(items) - 1, -1, -1))
    busy: dict[Connection, tuple[BaseProcess, int]] = {}
    try:
        while waiting or busy:
            while waiting and len(busy) < jobs:
                ours, theirs = context.Pipe()
                inherited = [*busy, ours] if sys.platform == "linux" else []
                process = context.Process(target=_work, args=(function, theirs, inherited), daemon=True)
                _start(process)
                theirs.close()
                busy[ours] = (process, waiting.pop())
                _send(ours, items[busy[ours][1]])
            for connection in cast("list[Connection]", wait(list(busy))):
                process, index = busy.pop(connection)
                result: Result | None
                try:
                    result, alive = connection.recv(), True
                except (EOFError, OSError):
                    result, alive = None, False
                if alive and waiting:
                    busy[connection] = (process, waiting.pop())
                    _send(connection, items[busy[connection][1]])
                else:
                    connection.close()
                    process.join()
                yield index, result
    finally:
        for process, _ in busy.values():
            process.terminate()
            process.join()


def _start(process: BaseProcess) -> None:
    """Start a process without being interrupted meanwhile: the hooks that run then swallow exceptions."""
    import signal

    if not hasattr(signal, "pthread_sigmask"):
        process.start()
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
    try:
        process.start()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _send(connection: Connection, item: object) -> None:
    """Hand an item to a worker; that it has died meanwhile is found when its result is awaited."""
    try:
        connection.send(item)
    except OSError:
        return


def _work(function: Callable[[Any], object], connection: Connection, inherited: Iterable[Connection]) -> None:
    """The life of a worker: it ends when the other end of its pipe is closed, be it because the parent was killed."""
    import gc
    import signal

    # The parent is interrupted too, and ends us.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # A copy of another worker's pipe kept open here would keep that worker alive after the parent.
    for other in inherited:
        other.close()
    gc.disable()
    while True:
        try:
            item = connection.recv()
        except EOFError:
            return
        connection.send(function(item))
