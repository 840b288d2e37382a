"""Workflow commands of GitHub Actions, which become annotations in the changes of a pull request."""

from __future__ import annotations

from collections.abc import Sequence

from amplint.model import Diagnostic, Level
from amplint.report import ReportContext
from amplint.report.places import display_path
from amplint.report.wording import full_message

_COMMANDS = {Level.ERROR: "error", Level.WARNING: "warning", Level.INFO: "notice"}


def render(diagnostics: Sequence[Diagnostic], context: ReportContext) -> str:
    """The findings, one command a line; empty when there are none."""
    commands = [_command(found, context.root) for found in diagnostics]
    commands += [
        f"::error file={_property(display_path(filename, context.root))},title=amplint::{_data(reason)}"
        for filename, reason in context.errors
    ]
    return "".join(f"{command}\n" for command in commands).encode("utf-8", "backslashreplace").decode()


def _command(found: Diagnostic, root: str) -> str:
    (row, column), (end_row, end_column) = found.location, found.end_location
    place = f"line={row},endLine={end_row}"
    if row == end_row:
        # GitHub ignores columns, with a warning in the log, where a place has several lines.
        place = f"line={row},col={column},endLine={end_row},endColumn={end_column}"
    title = _property(f"{found.code} {found.name}")
    file = _property(display_path(found.filename, root))
    return f"::{_COMMANDS[found.level]} file={file},{place},title={title}::{_data(full_message(found))}"


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")
