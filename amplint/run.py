"""Many files at once: which of them need a look, looking at them, and results in the same order on every run.

Most files never get far: what the cache knows is not read, and what holds no trigger word of a rule is not parsed.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from amplint.files import Decoded, FileError, UndecodableError, decode, read, reason, write_atomically
from amplint.model import Applicability, Diagnostic, Level, Location
from amplint.prefilter import worth_parsing
from amplint.rule import DOCS_URL

if TYPE_CHECKING:
    from amplint.cache import Cache
    from amplint.check import RuleError
    from amplint.modules import Answer, Project
    from amplint.settings import Settings
    from amplint.source import SourceFile

POOL_BYTES = 1_000_000
"""Below this much source to parse, starting processes takes longer than they save."""

_COLLECT_BYTES = 1_500_000
"""After this much source garbage is collected: what was built on it refers to itself and takes some 15 MB."""

PLEASE_REPORT = "please report this with the file"


class Action(NamedTuple):
    """What to do with each file: check it, work out its fixes (`fix`), also unsafe ones, and write them (`apply`)."""

    fix: bool = False
    unsafe: bool = False
    apply: bool = False

    def concerns(self, found: Sequence[Diagnostic]) -> bool:
        """Whether there is a fix to make among findings."""
        least = Applicability.UNSAFE if self.unsafe else Applicability.SAFE
        return self.fix and any(each.fix is not None and each.fix.applicability >= least for each in found)


CHECK = Action()


class FileResult(NamedTuple):
    """What is to be said about one file.

    `diagnostics` is what was found, after fixing what remains; `applied` what the fixes remove. `before` is the file as
    it was read, None where that was not necessary; `after` is the text with the fixes made, None without any.
    `messages` tell of internal faults, `error` why the file could not be read or written. `unfinished` names the
    functions that were too much for the protocol engine. `answers` is what was looked up in other files of the run.
    """

    filename: str
    diagnostics: Sequence[Diagnostic] = ()
    applied: Sequence[Diagnostic] = ()
    before: Decoded | None = None
    after: str | None = None
    messages: Sequence[str] = ()
    error: str | None = None
    unfinished: Sequence[str] = ()
    answers: Sequence[Answer] = ()

    @property
    def text(self) -> str | None:
        """The text to which the rows and columns of `diagnostics` belong, None if it was not read."""
        if self.after is not None:
            return self.after
        return None if self.before is None else self.before.text


class RunResult(NamedTuple):
    """The files about which there is something to say, in the order given, and how many there were in all."""

    files: list[FileResult]
    checked: int


class _Task(NamedTuple):
    path: str
    settings: Settings
    action: Action


class _Outcome(NamedTuple):
    """A result and, where it can be remembered, the status and the content of the file that it belongs to."""

    result: FileResult
    status: os.stat_result | None = None
    digest: str = ""


def run(
    files: Sequence[tuple[str, Settings]],
    action: Action = CHECK,
    *,
    cache: Cache | None = None,
    jobs: int = 0,
    progress: Callable[[int, int], None] | None = None,
) -> RunResult:
    """Check or fix files, each with its settings; what can't be done for one is told in its result.

    `jobs` is the greatest number of processes, 0 for one a CPU. `progress` is called now and then with the number of
    files done and their total. New results are given to `cache`, which the caller saves.
    """
    import gc

    from amplint.modules import Project

    project = Project(path for path, _ in files)
    results: dict[int, FileResult] = {}
    tasks: list[tuple[int, int]] = []
    collected = gc.isenabled()
    gc.disable()
    try:
        for index, (path, settings) in enumerate(files):
            outcome = _quick_look(path, settings, action, cache, project)
            if isinstance(outcome, FileResult):
                results[index] = outcome
            else:
                tasks.append((outcome, index))
            if progress is not None and index % 64 == 0:
                progress(len(results), len(files))
        if tasks:
            _prepare()
        for index, (result, status, digest) in _examine_all(files, tasks, action, jobs, project):
            results[index] = result
            if cache is not None and status is not None:
                path, settings = files[index]
                cache.store(path, status, digest, settings, result.diagnostics, result.answers, result.unfinished)
            if progress is not None:
                progress(len(results), len(files))
    finally:
        gc.unfreeze()
        if collected:
            gc.enable()
    return RunResult([results[index] for index in sorted(results) if _says_something(results[index])], len(files))


def examine(
    filename: str, data: bytes, settings: Settings, action: Action = CHECK, project: Project | None = None
) -> FileResult:
    """Check the content of one file, or work out its fixes; nothing is written, whatever `action` says."""
    from amplint.stack import call_with_deep_stack

    try:
        before = decode(data)
    except UndecodableError as error:
        return FileResult(filename, [_unreadable(filename, error)])
    try:
        return call_with_deep_stack(lambda: _examine_text(filename, before, data, settings, action, project))
    except FileError as error:
        return FileResult(filename, error=str(error))
    except Exception as error:
        return FileResult(filename, before=before, messages=[_fault("the check failed", error)])


def _quick_look(
    path: str, settings: Settings, action: Action, cache: Cache | None, project: Project
) -> FileResult | int:
    """The result for a file that need not be parsed; for another one its size in bytes."""
    try:
        status = os.stat(path)
        if not stat.S_ISREG(status.st_mode):
            return FileResult(path, error="can't be read: not a regular file (`-` reads standard input)")
        if cache is not None:
            known = cache.find(path, status, settings, project)
            if known is not None:
                again = action.concerns(known.found)
                return status.st_size if again else FileResult(path, known.found, unfinished=known.unfinished)
        data = read(path)
    except FileError as error:
        return FileResult(path, error=str(error))
    except OSError as error:
        return FileResult(path, error=f"can't be read: {reason(error)}")
    if worth_parsing(data, settings):
        if cache is not None:
            from amplint.cache import content_digest

            known = cache.find_by_content(path, status, content_digest(data), settings, project)
            if known is not None and not action.concerns(known.found):
                return FileResult(path, known.found, unfinished=known.unfinished)
        return len(data)
    found = [] if data.isascii() and b"\0" not in data else _decoding_faults(path, data)
    if cache is not None:
        cache.store(path, status, "", settings, found)
    return FileResult(path, found)


def _decoding_faults(path: str, data: bytes) -> list[Diagnostic]:
    try:
        decode(data)
    except UndecodableError as error:
        return [_unreadable(path, error)]
    return []


def _examine_all(
    files: Sequence[tuple[str, Settings]],
    tasks: list[tuple[int, int]],
    action: Action,
    jobs: int,
    project: Project,
) -> Iterator[tuple[int, _Outcome]]:
    """Examine the files of `tasks` (size and index in `files`), in several processes if that is worth it."""
    jobs = min(jobs or available_cpus(), len(tasks))
    if jobs < 2 or sum(size for size, _ in tasks) < POOL_BYTES:
        for _, index in tasks:
            yield index, _examine_file(project, _Task(*files[index], action))
        return
    from functools import partial

    from amplint.pool import map_in_processes

    # The largest first: one that comes last would keep a single process busy at the end.
    indices = [index for _, index in sorted(tasks, key=lambda task: (-task[0], task[1]))]
    work = [_Task(*files[index], action) for index in indices]
    for position, outcome in map_in_processes(partial(_examine_file, project), work, jobs):
        index = indices[position]
        if outcome is None:
            died = "internal fault: the process that examined the file died (killed, or out of memory)"
            outcome = _Outcome(FileResult(files[index][0], messages=[f"{died}; {PLEASE_REPORT}"]))
        yield index, outcome


def _examine_file(project: Project, task: _Task) -> _Outcome:
    """Read, check or fix, and where that is asked for write one file; raises nothing but what ends the process."""
    from amplint.cache import content_digest

    path, settings, action = task
    try:
        status = os.stat(path)
        data = read_data = read(path)
    except FileError as error:
        return _Outcome(FileResult(path, error=str(error)))
    except OSError as error:
        return _Outcome(FileResult(path, error=f"can't be read: {reason(error)}"))
    result = examine(path, data, settings, action, project)
    _garbage.add(len(data))
    if result.after is not None and result.before is not None and action.apply:
        data = result.before.encode(result.after)
        try:
            write_atomically(path, data, expected=read_data)
            status = os.stat(path)
        except (FileError, OSError) as error:
            why = str(error) if isinstance(error, FileError) else f"can't be read: {reason(error)}"
            return _Outcome(examine(path, read_data, settings, CHECK, project)._replace(error=why))
    elif result.after is not None:
        return _Outcome(result)
    if result.messages or result.error is not None:
        return _Outcome(result)
    return _Outcome(result, status, content_digest(data))


def _examine_text(
    filename: str, before: Decoded, data: bytes, settings: Settings, action: Action, project: Project | None
) -> FileResult:
    from amplint.check import check_source, fix_source

    faults: list[RuleError] = []
    seen: list[SourceFile] = []
    after: str | None = None
    applied: Sequence[Diagnostic] = ()
    messages: list[str] = []
    if action.fix:
        fixed = fix_source(
            before.text, filename, settings, unsafe=action.unsafe, faults=faults, project=project, analysed=seen
        )
        found, applied, messages = fixed.remaining, fixed.applied, fixed.messages
        if fixed.text != before.text:
            if before.encode(before.text) != data:
                raise FileError(f"can't be written: its encoding {before.encoding} does not give back the same bytes")
            before.encode(fixed.text)
            after = fixed.text
    else:
        found = check_source(before.text, filename, settings, faults=faults, project=project, analysed=seen)
    messages += _fault_messages(faults)
    shown = before if found or after is not None else None
    unfinished = tuple(name for file in seen for name in file.unfinished)
    answers = tuple(answer for file in seen for answer in project.answers(file)) if project is not None else ()
    return FileResult(filename, found, applied, shown, after, messages, None, unfinished, answers)


def _fault_messages(faults: list[RuleError]) -> list[str]:
    """A message for each fault; rules that met the same one, such as one of the protocol engine, share it."""
    failed: dict[str, dict[str, None]] = {}
    causes: dict[str, BaseException] = {}
    for fault in faults:
        cause = fault.__cause__ or fault
        same = _fault("", cause)
        causes.setdefault(same, cause)
        failed.setdefault(same, {})[fault.code] = None
    return [
        _fault(f"rule{'s' if len(codes) > 1 else ''} {', '.join(codes)} failed", causes[same])
        for same, codes in failed.items()
    ]


class _Garbage:
    """Collects garbage now and then, for the collector's own moments come far too often in a batch."""

    def __init__(self) -> None:
        self._source = 0

    def add(self, source: int) -> None:
        """Count bytes of source that were examined, and collect when they are many."""
        self._source += source
        if self._source >= _COLLECT_BYTES:
            import gc

            gc.collect()
            self._source = 0


_garbage = _Garbage()


def _prepare() -> None:
    """Import what the examination needs, once and not in every process, and keep the collector away from it."""
    import gc
    from importlib import import_module

    from amplint.rule import all_rules

    import_module("amplint.check")
    all_rules()
    gc.freeze()


def _says_something(result: FileResult) -> bool:
    return bool(result.diagnostics or result.applied or result.messages or result.error or result.unfinished)


def _unreadable(filename: str, error: UndecodableError) -> Diagnostic:
    place = Location(error.row, error.column)
    url = f"{DOCS_URL}AMP000-unreadable-file.md"
    return Diagnostic("AMP000", "unreadable-file", Level.ERROR, error.message, filename, place, place, (), None, url)


def _fault(what: str, error: BaseException) -> str:
    """Say what failed and where in our code, in one line that a report can quote."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    where = "" if trace is None else f" ({os.path.basename(trace.tb_frame.f_code.co_filename)}:{trace.tb_lineno})"
    text = " ".join(str(error).split())
    return f"internal fault: {what}: {type(error).__name__}: {text}{where}; {PLEASE_REPORT}"


def available_cpus() -> int:
    """The number of CPUs that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
