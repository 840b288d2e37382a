"""A JSON list with one object for each finding; see `Diagnostic.to_json` for its keys."""

from __future__ import annotations

import json
from collections.abc import Sequence

from amplint.model import Diagnostic
from amplint.report import ReportContext


def render(diagnostics: Sequence[Diagnostic], context: ReportContext) -> str:
    """The findings as a JSON list, `[]` when there are none."""
    return json.dumps([found.to_json() for found in diagnostics], indent=2) + "\n"
