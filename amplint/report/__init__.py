"""One module a format; each turns diagnostics into text and knows nothing else."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol, cast

from amplint._version import VERSION
from amplint.model import Diagnostic, Level

_MODULES = {
    "text": "text",
    "concise": "concise",
    "json": "json",
    "json-lines": "json_lines",
    "sarif": "sarif",
    "github": "github",
    "gitlab": "gitlab",
    "junit": "junit",
}
FORMATS = tuple(_MODULES)
"""The names of the output formats, the default first."""


def no_source(filename: str) -> str | None:
    """The text of a file where none is at hand."""
    return None


class ReportContext(NamedTuple):
    """What a report may need besides the diagnostics.

    `sources` gives the decoded text of a file by its name as it stands in the diagnostics, None where there is none any
    more. `root` is the directory that relative names start from and that published paths are relative to. `color` and
    `hyperlinks` allow escape sequences of terminals; `width` is that of the terminal in columns. Findings below
    `fail_level` don't fail a run. `errors` are files that could not be checked, with the reason.
    """

    sources: Callable[[str], str | None] = no_source
    root: str = "."
    color: bool = False
    hyperlinks: bool = False
    width: int = 120
    version: str = VERSION
    fail_level: Level = Level.WARNING
    errors: tuple[tuple[str, str], ...] = ()


class _Format(Protocol):
    def render(self, diagnostics: Sequence[Diagnostic], context: ReportContext) -> str: ...


def render(output_format: str, diagnostics: Sequence[Diagnostic], context: ReportContext) -> str:
    """The report in one of `FORMATS`, in the order of files and places, ended by a line feed unless it is empty.

    The text can be encoded in UTF-8 whatever is in the diagnostics; `json`, `json-lines`, `sarif`, `gitlab` and `junit`
    are even ASCII. Raises `ValueError` for a format that does not exist.
    """
    from importlib import import_module

    if output_format not in _MODULES:
        raise ValueError(f"unknown output format {output_format!r}")
    module = cast(_Format, import_module(f"amplint.report.{_MODULES[output_format]}"))
    return module.render(in_order(diagnostics), context)


def in_order(diagnostics: Sequence[Diagnostic]) -> list[Diagnostic]:
    """Diagnostics by file, place and code; the order of equal ones is kept."""
    return sorted(diagnostics, key=lambda found: (found.filename, found.location, found.code, found.end_location))
