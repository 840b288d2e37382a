"""What `amplint check` and `amplint fix` do: settings, files, the run, reports and the exit code."""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from amplint.console import Color, Console, colored_diff, progress
from amplint.files import FileError, UndecodableError, decode, read, reason, write_atomically
from amplint.model import Applicability, Diagnostic, Level
from amplint.rule import ISSUES_URL
from amplint.run import Action, FileResult, RunResult, examine, run
from amplint.settings import Settings, SettingsResolver

if TYPE_CHECKING:
    from amplint.report import ReportContext

CLEAN, FOUND, FAILED = 0, 1, 2
"""Exit codes: nothing at or above the fail level; findings remain, or a diff was printed; what was asked for could not
be done: usage, settings, a file that can't be read or written, an internal fault."""

STDIN = "-"


class Request(NamedTuple):
    """The command line, read: see the help of the options in `amplint.cli`."""

    paths: tuple[str, ...]
    stdin_filename: str | None = None
    overrides: Mapping[str, object] | None = None
    config_file: str | None = None
    isolated: bool = False
    formats: tuple[tuple[str, str | None], ...] = ()
    statistics: bool = False
    exit_zero: bool = False
    exit_non_zero_on_fix: bool = False
    add_noqa: bool = False
    cache: bool = True
    jobs: int = 0
    color: Color = "auto"
    verbose: bool = False
    quiet: bool = False
    unsafe_fixes: bool = False
    apply: bool = False


class _Session(NamedTuple):
    """One run with all that its reports need.

    `fail_levels` is by file, `fail_level` that of the current directory; `failures` are paths that could not be
    reached, read or written, with the reason.
    """

    request: Request
    console: Console
    result: RunResult
    fail_levels: Mapping[str, Level]
    fail_level: Level
    failures: list[tuple[str, str]]

    @property
    def diagnostics(self) -> list[Diagnostic]:
        return [each for file in self.result.files for each in file.diagnostics]

    @property
    def errors(self) -> list[tuple[str, str]]:
        """The files that could not be read, checked or written, each with the reason."""
        return [
            *self.failures,
            *((file.filename, file.error) for file in self.result.files if file.error is not None),
            *((file.filename, message) for file in self.result.files for message in file.messages),
        ]

    def exit_code(self) -> int:
        """The exit code by what was found and what failed."""
        if self.errors:
            return FAILED
        failing = any(found.level >= self.fail_levels[found.filename] for found in self.diagnostics)
        return FOUND if failing and not self.request.exit_zero else CLEAN


def check(request: Request) -> int:
    """Check files, report what was found and return the exit code; raises `SettingsError`."""
    session = _run(request, Action())
    if request.add_noqa:
        return _add_noqa(session)
    _report(session, to_stdout=True)
    return _finish(session, session.exit_code())


def fix(request: Request) -> int:
    """Fix files or show the fixes as a diff, say what was done and return the exit code; raises `SettingsError`."""
    session = _run(request, Action(True, request.unsafe_fixes, request.apply))
    applied = [each for file in session.result.files for each in file.applied]
    code = session.exit_code()
    if STDIN in request.paths:
        _report(session, to_stdout=False)
    elif request.apply:
        for each in applied:
            row, column = each.location
            session.console.note(f"fixed {each.filename}:{row}:{column}: {each.code} {each.message}")
        _report(session, to_stdout=True)
    else:
        for file in session.result.files:
            _show_diff(session.console, file)
        _report(session, to_stdout=False)
    _tell_fixed(session, applied)
    if code == CLEAN and applied and not request.exit_zero:
        shown_as_diff = not request.apply and STDIN not in request.paths
        code = FOUND if shown_as_diff or request.exit_non_zero_on_fix else CLEAN
    return _finish(session, code)


def resolver_for(request: Request) -> SettingsResolver:
    """The settings that the command line asks for."""
    return SettingsResolver(request.overrides, config_file=request.config_file, isolated=request.isolated)


def _run(request: Request, action: Action) -> _Session:
    console = Console(request.color, request.quiet)
    resolver = resolver_for(request)
    if STDIN in request.paths:
        return _run_stdin(request, action, console, resolver)
    from amplint.discover import discover

    discovery = discover(request.paths or (".",), resolver)
    files = [(path, resolver.for_file(path)) for path in discovery.files]
    cache = None
    if request.cache:
        from amplint.cache import Cache

        cache = Cache(resolver.config(".").root or ".")
    bar = progress(request.quiet)
    try:
        result = run(files, action, cache=cache, jobs=request.jobs, progress=bar)
    finally:
        if bar is not None:
            bar.close()
    if cache is not None:
        cache.save()
    for message in resolver.messages:
        console.note(f"amplint: warning: {message}")
    if not files and not discovery.problems:
        console.note("amplint: warning: no Python files found")
    if request.verbose:
        _tell_settings(console, files)
        _tell_unfinished(console, result)
    said = {file.filename for file in result.files}
    fail_levels = {path: settings.fail_level for path, settings in files if path in said}
    problems = [(problem.path, problem.message) for problem in discovery.problems]
    return _Session(request, console, result, fail_levels, resolver.config(".").fail_level, problems)


def _tell_unfinished(console: Console, result: RunResult) -> None:
    """Say which functions are beyond the budget of the protocol engine, so that silence on them proves nothing."""
    for file in result.files:
        for name in file.unfinished:
            console.note(f"amplint: {file.filename}: `{name}` was not followed to its end: too many paths")


def _run_stdin(request: Request, action: Action, console: Console, resolver: SettingsResolver) -> _Session:
    """Check or fix standard input; when fixing, the text goes to standard output whatever was found in it."""
    filename = request.stdin_filename or "<stdin>"
    settings = resolver.for_file(request.stdin_filename or "")
    data = sys.stdin.buffer.read()
    result = examine(filename, data, settings, action)
    if request.verbose:
        _tell_unfinished(console, RunResult([result], 1))
    if action.fix:
        fixed = result.after is not None and result.before is not None and not result.error
        console.write_bytes(result.before.encode(result.after) if fixed else data)  # type: ignore[union-attr,arg-type]
    return _Session(request, console, RunResult([result], 1), {filename: settings.fail_level}, settings.fail_level, [])


def _report(session: _Session, to_stdout: bool) -> None:
    """Write the findings in every format that was asked for, as text if none of them goes to standard output."""
    request, console = session.request, session.console
    formats = list(request.formats)
    if to_stdout and all(file is not None for _, file in formats):
        formats.insert(0, ("text", None))
    found = session.diagnostics
    for name, file in formats:
        if file is not None:
            _write_report(session, name, file)
        elif request.statistics and name in ("text", "concise"):
            console.write(_statistics(found))
        elif found or name not in ("text", "concise") or not (request.quiet or session.errors):
            from amplint.report import render

            console.write(render(name, found, _context(session, console.color, console.hyperlinks)))
    if request.statistics and not any(file is None and name in ("text", "concise") for name, file in formats):
        console.note(_statistics(found).rstrip("\n"))


def _write_report(session: _Session, name: str, path: str) -> None:
    from amplint.report import render

    try:
        with open(path, "w", encoding="utf-8", newline="\n") as file:
            file.write(render(name, session.diagnostics, _context(session, False, False)))
    except OSError as error:
        session.failures.append((path, f"can't be written: {reason(error)}"))


def _context(session: _Session, color: bool, hyperlinks: bool) -> ReportContext:
    from amplint.report import ReportContext

    texts = {file.filename: file.text for file in session.result.files}

    def source(filename: str) -> str | None:
        text = texts.get(filename)
        if text is None and filename in texts:
            try:
                text = texts[filename] = decode(read(filename)).text
            except (FileError, UndecodableError):
                return None
        return text

    return ReportContext(
        sources=source,
        root=os.getcwd(),
        color=color,
        hyperlinks=hyperlinks,
        width=session.console.width,
        fail_level=session.fail_level,
        errors=tuple(session.errors),
    )


def _statistics(found: Sequence[Diagnostic]) -> str:
    """How often each rule was found, the most frequent first; `[*]` marks rules with a safe fix at every place."""
    counts = Counter((each.code, each.name) for each in found)
    fixable = Counter(each.code for each in found if each.fix and each.fix.applicability == Applicability.SAFE)
    width = len(str(max(counts.values(), default=0)))
    return "".join(
        f"{count:>{width}}  {code}  {'[*]' if fixable[code] == count else '   '}  {name}\n"
        for (code, name), count in sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    )


def _show_diff(console: Console, file: FileResult) -> None:
    """Print what fixing a file changes, in the file's own encoding so that the diff can be applied."""
    if file.before is None or file.after is None:
        return
    from amplint.diff import unified_diff

    mark = "\ufeff" if file.before.bom else ""
    here = os.path.join(os.getcwd(), "")
    diff = unified_diff(mark + file.before.text, mark + file.after, file.filename.removeprefix(here))
    if console.color:
        console.write(colored_diff(diff))
    else:
        old_name, new_name, body = diff.split("\n", 2)
        names = f"{old_name}\n{new_name}\n".encode("utf-8", "surrogateescape")
        console.write_bytes(names + body.encode(file.before.encoding))


def _tell_fixed(session: _Session, applied: Sequence[Diagnostic]) -> None:
    files = len({each.filename for each in applied})
    remaining = session.diagnostics
    unsafe = sum(each.fix is not None and each.fix.applicability == Applicability.UNSAFE for each in remaining)
    done = "Fixed" if session.request.apply or STDIN in session.request.paths else "Would fix"
    text = f"{done} {_counted(len(applied), 'finding')} in {_counted(files, 'file')}" if applied else "Nothing to fix"
    if remaining:
        text += f"; {len(remaining)} remain{'s' * (len(remaining) == 1)}"
        if unsafe and not session.request.unsafe_fixes:
            text += f" ({unsafe} fixable with --unsafe-fixes)"
    if applied and done == "Would fix":
        text += "; `amplint fix --apply` writes the changes"
    session.console.note(text + ".")


def _add_noqa(session: _Session) -> int:
    """Write a `# noqa` comment for every finding and say how many."""
    from amplint.add_noqa import add_noqa

    added = files = 0
    for result in session.result.files:
        by_row: dict[int, list[str]] = {}
        for found in result.diagnostics:
            by_row.setdefault(found.location.row, []).append(found.code)
        try:
            data = read(result.filename)
            decoded = decode(data)
            outcome = add_noqa(decoded.text, by_row)
            if outcome.text != decoded.text:
                write_atomically(result.filename, decoded.encode(outcome.text), expected=data)
                files += 1
        except UndecodableError as error:
            session.failures.append((result.filename, error.message))
        except FileError as error:
            session.failures.append((result.filename, str(error)))
        else:
            added += outcome.added
            session.failures.extend((result.filename, message) for message in outcome.messages)
    session.console.note(f"Suppressed {_counted(added, 'finding')} in {_counted(files, 'file')}.")
    return _finish(session, FAILED if session.errors else CLEAN)


def _tell_settings(console: Console, files: Sequence[tuple[str, Settings]]) -> None:
    """Say which torch is assumed for how many files, and where that was read."""
    counts = Counter((settings.target_torch, settings.target_torch_source) for _, settings in files)
    for (version, source), count in sorted(counts.items(), key=lambda item: item[0][1]):
        torch = "the current torch" if version is None else f"torch {version[0]}.{version[1]} and newer"
        console.note(f"{_counted(count, 'file')} checked for {torch}{f' ({source})' if source else ''}")


def _finish(session: _Session, code: int) -> int:
    """Tell what went wrong; the exit code, which a report that can't be written makes a failure."""
    for filename, message in session.errors:
        session.console.error(f"{filename}: {message}")
    if any(file.messages for file in session.result.files):
        session.console.error(f"internal faults are bugs of amplint; please report them at {ISSUES_URL}")
    return FAILED if session.errors else code


def _counted(count: int, noun: str) -> str:
    return f"{count} {noun}{'s' * (count != 1)}"
