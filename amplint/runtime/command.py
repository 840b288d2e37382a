"""`amplint trace`: run a script under the monitor."""

from __future__ import annotations

import os
import sys
from difflib import get_close_matches
from typing import Any

import click

STDOUT = "-"
_JSON = "--json"


class _TraceCommand(click.Command):
    """A command whose `--json` takes the next word as its file only if that ends in `.json`.

    Options behind the script are the script's own, and those before it must be known.
    """

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        known = {name for parameter in self.get_params(ctx) for name in parameter.opts if name.startswith("-")}
        for word in args:
            if word == "--" or not (word.startswith("-") or word.endswith(".json")):
                break
            option = word.split("=", 1)[0]
            if word.startswith("-") and option not in known:
                raise click.NoSuchOption(option, possibilities=get_close_matches(option, sorted(known)), ctx=ctx)
        if _JSON in args:
            index = args.index(_JSON)
            before = all(word.startswith("-") for word in args[:index])
            if before and not (index + 1 < len(args) and args[index + 1].endswith(".json")):
                args = [*args[:index], f"{_JSON}={STDOUT}", *args[index + 1 :]]
        return super().parse_args(ctx, args)


@click.command(
    cls=_TraceCommand,
    short_help="Run a script and report on its mixed precision.",
    context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False},
    options_metavar="[OPTIONS]",
)
@click.argument("script", type=click.Path(exists=True, dir_okay=False))
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
@click.option(
    "json_file",
    _JSON,
    metavar="[FILE.json]",
    help="Write the report as JSON, to this file or to standard output, instead of as text to standard error.",
)
@click.option("--dtypes", is_flag=True, help="Count matrix products by precision.")
@click.option("--gradients", is_flag=True, help="Count gradients that are 0, nearly 0 or not finite.")
def trace(script: str, arguments: tuple[str, ...], json_file: str | None, **options: Any) -> int:
    """Run SCRIPT with its ARGUMENTS under a monitor and report what it did to its scalers, gradients and autocast.

    Violations of the protocol come with the file and line of the cause. The exit code is the script's own.
    """
    from importlib.util import find_spec

    if find_spec("torch") is None:
        raise click.ClickException("`amplint trace` runs the script and needs torch, which is not installed here")
    try:
        from amplint.runtime.monitor import Monitor
    except Exception as error:  # a broken installation, or a file of the user's that hides one that torch imports
        reason = f"{type(error).__name__}: {error}"
        raise click.ClickException(f"torch can't be imported, so nothing was run ({reason})") from error
    from amplint.runtime.script import run_script

    monitor = Monitor(**options)
    directory = os.getcwd()  # the script may go elsewhere
    if json_file not in (None, STDOUT):
        json_file = os.path.abspath(str(json_file))
    try:
        with monitor:
            return run_script(script, arguments)
    finally:
        sys.stdout.flush()
        _write(monitor, json_file, directory)


def _write(monitor: Any, json_file: str | None, directory: str) -> None:
    from amplint.runtime.text import render

    report = monitor.report()
    if json_file is None:
        sys.stderr.write(f"\n{render(report, directory)}")
    elif json_file == STDOUT:
        sys.stdout.write(report.to_json() + "\n")
    else:
        try:
            with open(json_file, "w", encoding="utf-8") as file:
                file.write(report.to_json() + "\n")
        except OSError as error:
            sys.stderr.write(f"amplint: {json_file}: {error.strerror}\n")
