"""GitLab's Code Quality report, a subset of the CodeClimate format (GitLab documentation, "Code Quality")."""

from __future__ import annotations

import json
from collections.abc import Sequence

from amplint.model import Diagnostic, Level
from amplint.report import ReportContext
from amplint.report.places import display_path, file_fingerprints

_SEVERITIES = {Level.ERROR: "major", Level.WARNING: "minor", Level.INFO: "info"}


def render(diagnostics: Sequence[Diagnostic], context: ReportContext) -> str:
    """The findings as a JSON list, `[]` when there are none; fingerprints are unique and survive moved lines."""
    issues = [
        {
            "description": f"{found.code} {found.message}",
            "check_name": found.code,
            "fingerprint": fingerprint,
            "severity": _SEVERITIES[found.level],
            "location": {
                "path": display_path(found.filename, context.root),
                "lines": {"begin": found.location.row, "end": found.end_location.row},
            },
        }
        for found, fingerprint in zip(diagnostics, file_fingerprints(diagnostics, context), strict=True)
    ]
    return json.dumps(issues, indent=2) + "\n"
