"""SARIF 2.1.0, the format of code scanning services (OASIS standard, with errata 01)."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from amplint.model import Diagnostic, Level, Location
from amplint.report import ReportContext
from amplint.report.places import fingerprints, relative_path, uri
from amplint.report.wording import full_message

_SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
_HOME = "https://github.com/amplint/amplint"
_LEVELS = {Level.ERROR: "error", Level.WARNING: "warning", Level.INFO: "note"}
_ACRONYMS = {"amp", "api", "bce", "fp32", "fsdp"}
_ROOT = "%SRCROOT%"


def render(diagnostics: Sequence[Diagnostic], context: ReportContext) -> str:
    """The findings as a SARIF log with one run; the same findings give the same bytes on every machine.

    Files under `context.root` have URIs relative to it. Places count Unicode characters.
    """
    codes = sorted({found.code for found in diagnostics})
    hashes = fingerprints(diagnostics, context)
    run = {
        "tool": {
            "driver": {
                "name": "amplint",
                "version": context.version,
                "semanticVersion": context.version,
                "informationUri": _HOME,
                "rules": [_rule(next(found for found in diagnostics if found.code == code)) for code in codes],
            }
        },
        "invocations": [_invocation(context)],
        "columnKind": "unicodeCodePoints",
        "newlineSequences": ["\r\n", "\n", "\r"],
        "originalUriBaseIds": {_ROOT: {"description": {"text": "The directory in which amplint was run."}}},
        "results": [
            _result(found, codes.index(found.code), fingerprint, context)
            for found, fingerprint in zip(diagnostics, hashes, strict=True)
        ],
    }
    return json.dumps({"$schema": _SCHEMA, "version": "2.1.0", "runs": [run]}, indent=2) + "\n"


def _rule(found: Diagnostic) -> dict[str, Any]:
    """What there is to know about the rule of a finding; without a page for the rules of a version that is gone."""
    from amplint.pages import body
    from amplint.rule import all_rules

    rule = all_rules().get(found.code)
    level = found.level if rule is None else rule.level
    page = f"See {found.url}." if rule is None else body(rule)
    why = " ".join(page.split("\n\n", 1)[0].split())
    return {
        "id": found.code,
        "name": found.name,
        "shortDescription": {"text": _title(found.name)},
        "fullDescription": {"text": why},
        "help": {"text": page, "markdown": page},
        "helpUri": found.url,
        "defaultConfiguration": {"level": _LEVELS[level], "enabled": rule is None or rule.default},
        "properties": {
            "tags": ["pytorch", "mixed-precision"],
            "problem.severity": "recommendation" if level == Level.INFO else level.label,
            "fix": "none" if rule is None or rule.fix is None else rule.fix.label,
        },
    }


def _title(name: str) -> str:
    """The name of a rule as a heading: `clip-before-unscale` is "Clip before unscale"."""
    words = [word.upper() if word in _ACRONYMS else word for word in name.split("-")]
    return " ".join([words[0][0].upper() + words[0][1:], *words[1:]])


def _invocation(context: ReportContext) -> dict[str, Any]:
    notifications = [
        {
            "level": "error",
            "message": {"text": reason},
            "locations": [{"physicalLocation": {"artifactLocation": _artifact(filename, context)}}],
        }
        for filename, reason in context.errors
    ]
    invocation: dict[str, Any] = {"executionSuccessful": not notifications}
    if notifications:
        invocation["toolExecutionNotifications"] = notifications
    return invocation


def _result(found: Diagnostic, rule_index: int, fingerprint: str, context: ReportContext) -> dict[str, Any]:
    artifact = _artifact(found.filename, context)

    def place(start: Location, end: Location) -> dict[str, Any]:
        return {"artifactLocation": artifact, "region": _region(start, end)}

    result: dict[str, Any] = {
        "ruleId": found.code,
        "ruleIndex": rule_index,
        "level": _LEVELS[found.level],
        "message": {"text": full_message(found)},
        "locations": [{"physicalLocation": place(found.location, found.end_location)}],
        "partialFingerprints": {"codeAndLine/v1": fingerprint},
    }
    if found.related:
        result["relatedLocations"] = [
            {
                "id": number,
                "message": {"text": related.message},
                "physicalLocation": place(related.location, related.end_location),
            }
            for number, related in enumerate(found.related)
        ]
    if found.fix is not None and found.fix.edits:
        replacements = [
            {"deletedRegion": _region(edit.location, edit.end_location), "insertedContent": {"text": edit.content}}
            for edit in found.fix.edits
        ]
        result["fixes"] = [
            {
                "description": {"text": found.fix.message},
                "artifactChanges": [{"artifactLocation": artifact, "replacements": replacements}],
                "properties": {"applicability": found.fix.applicability.label},
            }
        ]
    return result


def _artifact(filename: str, context: ReportContext) -> dict[str, str]:
    base = {} if relative_path(filename, context.root) is None else {"uriBaseId": _ROOT}
    return {"uri": uri(filename, context.root), **base}


def _region(start: Location, end: Location) -> dict[str, int]:
    return {"startLine": start.row, "startColumn": start.column, "endLine": end.row, "endColumn": end.column}
