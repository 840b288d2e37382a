"""The command `amplint migrate`: a diff or written files, a report on every loop, and the exit code."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from keyword import iskeyword
from typing import TYPE_CHECKING, Any, NamedTuple

import click

if TYPE_CHECKING:
    from amplint.files import Decoded
    from amplint.migrate.model import LoopReport, MigrationResult, Options
    from amplint.settings import SettingsResolver

CLEAN, LEFT, FAILED = 0, 1, 2
"""Exit codes: every loop that was found was migrated; something was refused or left; the task could not be done."""

STDIN = "-"


class _Outcome(NamedTuple):
    filename: str
    data: bytes
    decoded: Decoded
    result: MigrationResult


@click.command(short_help="Turn FP32 training loops into mixed precision.")
@click.argument("paths", nargs=-1, required=True, type=click.Path(allow_dash=True))
@click.option("--apply", is_flag=True, help="Write the migrated files instead of printing a diff.")
@click.option(
    "--dtype",
    type=click.Choice(["float16", "bfloat16", "auto"]),
    default="float16",
    help="float16 with a scaler, bfloat16 without one, or what the GPU has at run time. [default: float16]",
)
@click.option(
    "--device",
    type=click.Choice(["cuda", "cpu", "mps", "xpu"]),
    help="The device type to write instead of the script's own.",
)
@click.option("--flag", metavar="NAME", help="Add a switch of this name to the script's own options.")
@click.option("--target-torch", metavar="VERSION", help="The oldest torch that the code must run on, such as 1.13.")
@click.option(
    "--output-format",
    type=click.Choice(["text", "json"]),
    default="text",
    help="How to write the report on the loops. JSON goes to standard output, in place of the diff. [default: text]",
)
def migrate(
    paths: tuple[str, ...],
    apply: bool,
    dtype: str,
    device: str | None,
    flag: str | None,
    target_torch: str | None,
    output_format: str,
) -> int:
    """Turn FP32 training loops into automatic mixed precision: print a diff, or write the files with --apply.

    PATHS are files and directories; `-` reads standard input and prints the diff. A loop that can't be migrated is
    refused with the reason, and its file is left as it is. Exit codes: 0 every loop was migrated or there is none, 1
    something was refused or left, 2 as in check.
    """
    from amplint.migrate.model import Options
    from amplint.settings import SettingsResolver

    if STDIN in paths and (apply or len(paths) > 1):
        raise click.UsageError("`-` (standard input) can't be combined with --apply or other paths")
    if flag is not None and (not flag.isidentifier() or iskeyword(flag)):
        raise click.UsageError(f"--flag: `{flag}` is no Python name; write it as in `use_amp`")
    if dtype == "auto" and device not in (None, "cuda"):
        raise click.UsageError(f"--dtype auto asks a CUDA device; with --device {device} choose float16 or bfloat16")
    given = {"target-torch": target_torch} if target_torch is not None else {}
    resolver = SettingsResolver(given)
    return _run(paths, resolver, Options(dtype, device, flag), apply, output_format)


def _run(paths: Sequence[str], resolver: SettingsResolver, options: Options, apply: bool, output_format: str) -> int:
    outcomes, groups, failures = _read_all(paths, resolver, options)
    if output_format == "json":
        _print_json(outcomes)
    else:
        _print_text(outcomes, diff=not apply)
    if apply:
        failures += _write_all(outcomes, groups)
    for filename, message in failures:
        sys.stderr.write(f"amplint: {filename}: {message}\n")
    if failures:
        return FAILED
    from amplint.migrate.model import MIGRATED

    return LEFT if any(loop.status != MIGRATED for o in outcomes for loop in o.result.loops) else CLEAN


def _read_all(
    paths: Sequence[str], resolver: SettingsResolver, options: Options
) -> tuple[list[_Outcome], list[list[str]], list[tuple[str, str]]]:
    from amplint.discover import discover
    from amplint.files import FileError, UndecodableError, decode, read
    from amplint.migrate.linking.migration import is_about_training, migrate_files
    from amplint.rule import ISSUES_URL

    failures: list[tuple[str, str]] = []
    if STDIN in paths:
        files: list[str] = [STDIN]
    else:
        discovery = discover(paths, resolver)
        failures += [(problem.path, problem.message) for problem in discovery.problems]
        files = list(discovery.files)
    sources: dict[str, tuple[bytes, Decoded]] = {}
    for filename in files:
        try:
            data = sys.stdin.buffer.read() if filename == STDIN else read(filename)
            sources["<stdin>" if filename == STDIN else filename] = data, decode(data)
        except FileError as error:
            failures.append((filename, str(error)))
        except UndecodableError as error:
            if is_about_training(data.decode("latin-1")):
                failures.append((filename, str(error)))
    texts = {name: decoded.text for name, (_, decoded) in sources.items()}
    migrations = migrate_files(texts, lambda name: resolver.for_file("" if name == "<stdin>" else name), options)
    for name, cause in migrations.failures.items():
        fault = f"internal fault, please report it at {ISSUES_URL}: {type(cause).__name__}: {cause}"
        failures.append((name, fault))
    found = [_Outcome(name, *sources[name], result) for name, result in migrations.results.items()]
    return found, migrations.groups, failures


def _print_text(outcomes: Sequence[_Outcome], *, diff: bool) -> None:
    from amplint.console import Console
    from amplint.diff import unified_diff

    console = Console()
    for outcome in outcomes:
        if diff and outcome.result.text != outcome.decoded.text:
            text = unified_diff(outcome.decoded.text, outcome.result.text, outcome.filename)
            console.write_bytes(text.encode(outcome.decoded.encoding))
    for outcome in outcomes:
        for loop in outcome.result.loops:
            reason = f": {loop.reason}" if loop.reason else ""
            console.note(f"{outcome.filename}:{loop.line}: {loop.status}{reason}")
    loops = [loop for outcome in outcomes for loop in outcome.result.loops]
    counts = [
        f"{sum(loop.status == status for loop in loops)} {status}" for status in ("migrated", "partly", "refused")
    ]
    console.note(f"{len(loops)} loop{'s' * (len(loops) != 1)}: {', '.join(counts)}." if loops else "No training loops.")


def _print_json(outcomes: Sequence[_Outcome]) -> None:
    import json

    entries = [_entry(outcome, loop) for outcome in outcomes for loop in outcome.result.loops]
    sys.stdout.write(json.dumps(entries, indent=2) + "\n")


def _entry(outcome: _Outcome, loop: LoopReport) -> dict[str, Any]:
    from amplint.settings import DEFAULT
    from amplint.source import SourceFile

    file = SourceFile(outcome.decoded.text, outcome.filename, DEFAULT)
    edits = [
        {
            "location": file.location(edit.span.start)._asdict(),
            "end_location": file.location(edit.span.end)._asdict(),
            "content": edit.text,
        }
        for edit in loop.edits
    ]
    return {
        "file": outcome.filename,
        "line": loop.line,
        "status": loop.status,
        "reason": loop.reason,
        "edits": edits,
    }


def _write_all(outcomes: Sequence[_Outcome], groups: Sequence[Sequence[str]]) -> list[tuple[str, str]]:
    """Write what was migrated, files of one group together or none of them."""
    from amplint.files import FileError, write_atomically, write_together

    failures = []
    changed = {o.filename: o for o in outcomes if o.result.text != o.decoded.text}
    grouped = {name for group in groups for name in group}
    for names in [*groups, *([name] for name in changed if name not in grouped)]:
        members = [changed[name] for name in names]
        try:
            changes = [(o.filename, o.decoded.encode(o.result.text), o.data) for o in members]
            if len(changes) == 1:
                write_atomically(changes[0][0], changes[0][1], expected=changes[0][2])
            else:
                write_together(changes)
        except FileError as error:
            failures.append((" and ".join(names), str(error)))
    return failures
