"""One JSON object a line for each finding, for programs that read as they go; see `Diagnostic.to_json` for its keys."""

from __future__ import annotations

import json
from collections.abc import Sequence

from amplint.model import Diagnostic
from amplint.report import ReportContext


def render(diagnostics: Sequence[Diagnostic], context: ReportContext) -> str:
    """The findings, one JSON object a line; empty when there are none."""
    return "".join(json.dumps(found.to_json()) + "\n" for found in diagnostics)
