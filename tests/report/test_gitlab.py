from __future__ import annotations

import json

from amplint.report import render
from tests.report.samples import CLIP, CONTEXT, IMPORT, MILD, SOURCE, diagnostic


def test_issues() -> None:
    issues = json.loads(render("gitlab", [CLIP, IMPORT, MILD], CONTEXT))
    fingerprints = [issue.pop("fingerprint") for issue in issues]
    assert issues == [
        {
            "description": "AMP604 something is wrong",
            "check_name": "AMP604",
            "severity": "info",
            "location": {"path": "lib/a b.py", "lines": {"begin": 6, "end": 8}},
        },
        {
            "description": "AMP001 `torch.cuda.amp.autocast` is deprecated",
            "check_name": "AMP001",
            "severity": "minor",
            "location": {"path": "train.py", "lines": {"begin": 6, "end": 6}},
        },
        {
            "description": "AMP301 gradients are clipped while they are scaled",
            "check_name": "AMP301",
            "severity": "major",
            "location": {"path": "train.py", "lines": {"begin": 9, "end": 9}},
        },
    ]
    assert len(set(fingerprints)) == 3


def test_fingerprints_are_unique_over_files_and_lines() -> None:
    found = [diagnostic((5, 1), filename=name) for name in ("a.py", "a.py", "b.py", "b.py")]
    context = CONTEXT._replace(sources=lambda name: SOURCE)
    assert len({issue["fingerprint"] for issue in json.loads(render("gitlab", found, context))}) == 4


def test_nothing_found() -> None:
    assert render("gitlab", [], CONTEXT) == "[]\n"
