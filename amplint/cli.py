"""The command line: options in, exit code out. Each command imports what it does only when it runs."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import click

from amplint._version import VERSION
from amplint.report import FORMATS

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

    from amplint.commands import Request

    _ParamType = click.ParamType[Any]
else:
    _ParamType = click.ParamType  # not generic before click 8.2

Command = TypeVar("Command", bound=Callable[..., Any])

INTERRUPTED = 130
"""The exit code after Ctrl-C, as shells have it: 128 + SIGINT."""

FAILED = 2

_LAZY_COMMANDS = {
    "completion": "amplint.cli_info:completion",
    "config": "amplint.cli_info:config",
    "migrate": "amplint.migrate.command:migrate",
    "rule": "amplint.cli_info:rule",
    "trace": "amplint.runtime.command:trace",
}
"""Commands in modules of their own, as `module:attribute`, imported when they are called."""


class _LazyGroup(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted([*super().list_commands(ctx), *_LAZY_COMMANDS])

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in _LAZY_COMMANDS:
            return super().get_command(ctx, cmd_name)
        from importlib import import_module

        module, attribute = _LAZY_COMMANDS[cmd_name].split(":")
        command: click.Command = getattr(import_module(module), attribute)
        return command


class RuleSelector(_ParamType):
    """Codes, prefixes and names of rules, checked with the settings; the shell completes codes and names."""

    name = "rules"

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        from click.shell_completion import CompletionItem

        from amplint.rule import all_rules

        rules = all_rules().values()
        items = [(rule.code, rule.name) for rule in rules] + [(rule.name, rule.code) for rule in rules]
        return [CompletionItem(word, help=help_text) for word, help_text in items if word.startswith(incomplete)]


class _OutputFormat(_ParamType):
    """`FORMAT`, or `FORMAT=FILE`, as a pair."""

    name = "format"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, str | None]:
        if isinstance(value, tuple):
            return value
        name, separator, path = str(value).partition("=")
        if name not in FORMATS:
            from amplint.selectors import nearest

            self.fail(f"unknown format `{name}`{nearest(name, FORMATS)} (one of {', '.join(FORMATS)})", param, ctx)
        if separator and not path:
            self.fail(f"no file after `{value}`", param, ctx)
        return name, path or None

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        from click.shell_completion import CompletionItem

        return [CompletionItem(name) for name in FORMATS if name.startswith(incomplete)]


class _FileIgnores(_ParamType):
    """`PATTERN:RULES` as a pair."""

    name = "pattern:rules"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, list[str]]:
        if isinstance(value, tuple):
            return value
        pattern, separator, rules = str(value).rpartition(":")
        if not separator or not pattern or not rules:
            self.fail(f"`{value}` is not like `tests/*.py:AMP1,AMP301`", param, ctx)
        return pattern, [rule.strip() for rule in rules.split(",")]


def _options(*options: Callable[[Command], Command]) -> Callable[[Command], Command]:
    def decorate(command: Command) -> Command:
        for option in reversed(options):
            command = option(command)
        return command

    return decorate


def _rules_option(name: str, help_text: str) -> Callable[[Command], Command]:
    return click.option(name, multiple=True, type=RuleSelector(), metavar="RULES", help=help_text)


settings_options = _options(
    _rules_option("--select", "Codes, prefixes or names of the rules to run, separated by commas, or ALL."),
    _rules_option("--ignore", "Rules not to run."),
    _rules_option("--extend-select", "Rules to run besides the selected ones."),
    _rules_option("--extend-ignore", "Rules not to run besides the ignored ones."),
    click.option(
        "--per-file-ignores",
        multiple=True,
        type=_FileIgnores(),
        metavar="PATTERN:RULES",
        help="Rules not to run on files that match a pattern.",
    ),
    click.option("--exclude", multiple=True, metavar="PATTERN", help="What to leave out, instead of the usual names."),
    click.option("--extend-exclude", multiple=True, metavar="PATTERN", help="What to leave out besides."),
    click.option(
        "--target-torch",
        metavar="VERSION",
        help="The oldest torch that the code must run on, such as 1.13; `current` for no older one.",
    ),
    click.option(
        "--fail-level",
        type=click.Choice(["info", "warning", "error"]),
        help="The lowest level of findings for which the exit code is 1. [default: warning]",
    ),
    click.option(
        "--config", "config_file", type=click.Path(), metavar="FILE", help="Read the settings from this file."
    ),
    click.option("--isolated", is_flag=True, help="Read no settings and no lists of dependencies."),
)

_run_options = _options(
    click.option("--stdin-filename", metavar="NAME", help="The name of the file that comes from standard input (`-`)."),
    click.option(
        "--output-format",
        "formats",
        multiple=True,
        type=_OutputFormat(),
        metavar="FORMAT[=FILE]",
        help=f"How to write the findings, and into which file: {', '.join(FORMATS)}. May be repeated.",
    ),
    click.option("--statistics", is_flag=True, help="Count the findings of each rule."),
    click.option("--exit-zero", is_flag=True, help="Exit with 0 even if there are findings."),
    click.option(
        "--no-cache", "cache", is_flag=True, flag_value=False, default=True, help="Neither read nor write the cache."
    ),
    click.option(
        "-j", "--jobs", type=click.IntRange(min=1), metavar="N", help="At most N processes. [default: one a CPU]"
    ),
    click.option("--color", type=click.Choice(["auto", "always", "never"]), default="auto", help="When to use colors."),
    click.option("-v", "--verbose", is_flag=True, help="Say which torch is assumed, and what was too long to follow."),
    click.option("-q", "--quiet", is_flag=True, help="Print the findings and nothing else."),
)

_paths = click.argument("paths", nargs=-1, type=click.Path(allow_dash=True))


@click.group(cls=_LazyGroup, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(VERSION, message="amplint %(version)s")
def cli() -> None:
    """Find and fix misuse of PyTorch automatic mixed precision (AMP).

    Exit codes: 0 nothing found at or above the fail level, 1 findings remain or a diff was printed, 2 usage,
    settings, a file that can't be read or written, or an internal fault, 130 interrupted.
    """


@cli.command(short_help="Report what is wrong in files and directories.")
@_paths
@settings_options
@_run_options
@click.option("--add-noqa", is_flag=True, help="Write a `# noqa` comment for every finding instead of reporting it.")
def check(**options: Any) -> int:
    """Check Python files and directories (by default the current one; `-` reads standard input)."""
    from amplint import commands

    request = _request(options)
    if request.add_noqa and commands.STDIN in request.paths:
        raise click.UsageError("--add-noqa writes files, and standard input is none")
    return commands.check(request)


@cli.command(short_help="Print a diff of the fixes, or write them with --apply.")
@_paths
@settings_options
@_run_options
@click.option("--apply", is_flag=True, help="Write the fixed files instead of printing a diff.")
@click.option("--unsafe-fixes", is_flag=True, help="Make also fixes that rest on an assumption.")
@click.option(
    "--exit-non-zero-on-fix", is_flag=True, help="Exit with 1 if anything was fixed, even if nothing remains."
)
def fix(**options: Any) -> int:
    """Fix what can be fixed: print a diff, or write the files with --apply.

    The fixed text of standard input (`-`) goes to standard output.
    """
    from amplint import commands
    from amplint.commands import STDIN

    request = _request(options)
    if not request.apply and any(file is None for _, file in request.formats):
        shown, other = ("fixed code", "") if STDIN in request.paths else ("diff", ", or --apply")
        raise click.UsageError(f"standard output is for the {shown}; use --output-format FORMAT=FILE{other}")
    if request.apply and commands.STDIN in request.paths:
        raise click.UsageError("--apply writes files, and standard input is none")
    return commands.fix(request)


def overrides(options: dict[str, Any]) -> dict[str, object]:
    """Take the options that are settings out of `options`, by the keys of the settings file."""
    found: dict[str, object] = {}
    for key in ("select", "ignore", "extend-select", "extend-ignore", "exclude", "extend-exclude"):
        values = options.pop(key.replace("-", "_"))
        if values:
            found[key] = list(values)
    ignores: dict[str, list[str]] = {}
    for pattern, rules in options.pop("per_file_ignores"):
        ignores.setdefault(pattern, []).extend(rules)
    if ignores:
        found["per-file-ignores"] = ignores
    for key in ("target-torch", "fail-level"):
        value = options.pop(key.replace("-", "_"))
        if value is not None:
            found[key] = value
    return found


def _request(options: dict[str, Any]) -> Request:
    from amplint.commands import STDIN, Request

    settings = overrides(options)
    request = Request(overrides=settings, **{**options, "jobs": options["jobs"] or 0})
    if STDIN in request.paths and len(request.paths) > 1:
        raise click.UsageError("`-` (standard input) can't be combined with other paths")
    if request.stdin_filename is not None and STDIN not in request.paths:
        raise click.UsageError("--stdin-filename needs the path `-`")
    if sum(file is None for _, file in request.formats) > 1:
        raise click.UsageError("only one --output-format can go to standard output; give the others a FORMAT=FILE")
    files = [file for _, file in request.formats if file is not None]
    if len(set(files)) < len(files):
        raise click.UsageError("two --output-format can't go to the same file")
    return request


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return the exit code."""
    try:
        result = cli.main(arguments, prog_name="amplint", standalone_mode=False)
    except click.ClickException as error:
        error.show()
        return FAILED
    except (click.Abort, KeyboardInterrupt):
        sys.stderr.write("amplint: interrupted\n")
        return INTERRUPTED
    except Exception as error:
        from amplint.settings import SettingsError

        if isinstance(error, SettingsError):
            sys.stderr.write(f"amplint: {error}\n")
        else:
            import traceback

            from amplint.rule import ISSUES_URL

            traceback.print_exc()
            sys.stderr.write(f"amplint: internal fault; please report this at {ISSUES_URL}\n")
        return FAILED
    return result if isinstance(result, int) else 0
