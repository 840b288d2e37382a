"""What becomes of a script that is migrated: refused, right, or in which way wrong. Many are judged in one process."""

from __future__ import annotations

import contextlib
import io
import random
import re
import signal
import warnings
from collections.abc import Iterator
from typing import Any, NamedTuple

import torch

from amplint.migrate import migrate_source
from amplint.migrate.model import Options
from tests.migrate.standin import Recorder

INVALID, REFUSED, RIGHT, WRONG = "invalid", "refused", "right", "wrong"
_SECONDS = 5


class Verdict(NamedTuple):
    """One of the kinds above, and the reason for it; a script that fails before it is migrated is invalid."""

    kind: str
    reason: str = ""


class _Ran(NamedTuple):
    record: dict[str, Any]
    output: str
    error: str


def judge(text: str, options: Options = Options()) -> Verdict:  # noqa: B008
    """Migrate a script and run it before and after, under the stand-in for CUDA and without."""
    before = {way: _run(text, way) for way in ("exact", "plain")}
    if any(ran.error for ran in before.values()):
        return Verdict(INVALID, before["exact"].error or before["plain"].error)
    try:
        result = migrate_source(text, "script.py", options=options)
    except Exception as error:
        return Verdict(WRONG, f"the migrator fails: {type(error).__name__}: {error}")
    if result.text == text:
        return Verdict(REFUSED, _reason(result.loops[0].reason) if result.loops else "no loops")
    if migrate_source(result.text, "script.py", options=options).text != result.text:
        return Verdict(WRONG, "migrating again changes something")
    for way, ran in before.items():
        after = _run(result.text, way)
        if after.error:
            return Verdict(WRONG, f"{way}: {after.error}")
        if after.record["faults"]:
            return Verdict(WRONG, f"{way}: {after.record['faults'][0]}")
        for name in ("losses", "steps", "digest"):
            if after.record[name] != ran.record[name]:
                return Verdict(WRONG, f"{way}: other {name}")
        if after.output != ran.output:
            return Verdict(WRONG, f"{way}: other output")
    live = _run(result.text, "amp")
    if live.error or live.record["faults"]:
        return Verdict(WRONG, f"amp: {live.error or live.record['faults'][0]}")
    if live.record["left_out"]:
        return Verdict(WRONG, f"amp: {live.record['left_out']} products of losses in full precision")
    return Verdict(RIGHT)


def _reason(reason: str) -> str:
    """The reason without the line and without what it quotes."""
    return re.sub(r"`[^`]*`", "`...`", re.sub(r"^line \d+: ", "", reason))


def _run(text: str, way: str) -> _Ran:
    """Run a script in this process."""
    recorder = Recorder(way, "bfloat16")
    output, error = io.StringIO(), ""
    random.seed(0)
    torch.manual_seed(0)
    with recorder, contextlib.redirect_stdout(output), _limited(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            exec(compile(text, "script.py", "exec"), {"__name__": "__main__"})
        except SystemExit:
            pass
        except BaseException as failure:
            if isinstance(failure, KeyboardInterrupt):
                raise
            error = f"{type(failure).__name__}: {failure}".splitlines()[0]
    return _Ran(recorder.record(), output.getvalue(), error)


@contextlib.contextmanager
def _limited() -> Iterator[None]:
    """Stop what runs for too long."""

    def stop(*_: object) -> None:
        raise TimeoutError("it does not end")

    old = signal.signal(signal.SIGVTALRM, stop)
    signal.setitimer(signal.ITIMER_VIRTUAL, _SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, old)
