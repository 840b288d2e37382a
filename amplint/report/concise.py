"""One line for each finding, `path:row:column: CODE [*] message`, which editors and `grep` understand."""

from __future__ import annotations

from collections.abc import Sequence

from amplint.model import Applicability, Diagnostic
from amplint.report import ReportContext
from amplint.report.printable import printable
from amplint.report.style import LEVEL_COLORS, Style
from amplint.report.wording import summary


def render(diagnostics: Sequence[Diagnostic], context: ReportContext) -> str:
    """The findings, one a line, and the summary; `[*]` marks those that have a safe fix."""
    style = Style(context.color, context.hyperlinks)
    lines = [_line(found, style) for found in diagnostics]
    return "".join(f"{line}\n" for line in [*lines, summary(diagnostics)])


def _line(found: Diagnostic, style: Style) -> str:
    row, column = found.location
    code = style.link(style.paint(found.code, "bold", LEVEL_COLORS[found.level]), found.url)
    safe = found.fix is not None and found.fix.applicability == Applicability.SAFE
    mark = style.paint("[*]", "cyan") + " " if safe else ""
    return f"{style.paint(printable(found.filename), 'bold')}:{row}:{column}: {code} {mark}{printable(found.message)}"
