"""The pure functions: text in, findings or new text out. They read no file and keep no state.

The pool, the command line and other programs call these; a job on a cluster can map them over millions of files.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple

from amplint.model import (
    Applicability,
    Diagnostic,
    Finding,
    Fix,
    FixInfo,
    Level,
    RelatedPlace,
    Span,
    TextEdit,
)
from amplint.rule import Rule, all_rules
from amplint.settings import DEFAULT, Settings, enabled_codes
from amplint.source import SourceFile

if TYPE_CHECKING:
    from amplint.modules import Project

UNPARSABLE = "AMP000"
UNUSED_SUPPRESSION = "AMP900"


_PYTHON = f"{sys.version_info[0]}.{sys.version_info[1]}"
_NEWER_PYTHON = f"run amplint under a newer Python than {_PYTHON} to have all of the file checked and fixed"


class RuleError(Exception):
    """A rule raised on a file; `code` names the rule, the cause is chained."""

    def __init__(self, code: str, filename: str, cause: BaseException) -> None:
        super().__init__(f"rule {code} failed on {filename}: {type(cause).__name__}: {cause}")
        self.code = code
        self.filename = filename


class FixResult(NamedTuple):
    """What `fix_source` did: the new text, what was fixed, what remains in it, and what could not be done and why."""

    text: str
    applied: list[Diagnostic]
    remaining: list[Diagnostic]
    messages: list[str]


def check_source(
    text: str,
    filename: str = "<stdin>",
    settings: Settings = DEFAULT,
    *,
    faults: list[RuleError] | None = None,
    project: Project | None = None,
    analysed: list[SourceFile] | None = None,
) -> list[Diagnostic]:
    """Find everything that the enabled rules report in a text, in the order of the text.

    `text` is decoded and without a byte order mark; `filename` decides per-file ignores and stands in the result. Text
    that does not parse gives one AMP000. Raises `RuleError` when a rule fails, which is a fault of amplint; given a
    list of `faults`, adds the error to it and goes on with the other rules. `project` gives the other files from which
    this one may import; without it none is looked into. The file as it was analysed is added to `analysed`.
    """
    file = SourceFile(text, filename, settings, project)
    if analysed is not None:
        analysed.append(file)
    return [diagnostic(file, finding) for finding in findings_in(file, faults)]


def fix_source(
    text: str,
    filename: str = "<stdin>",
    settings: Settings = DEFAULT,
    *,
    unsafe: bool = False,
    faults: list[RuleError] | None = None,
    project: Project | None = None,
    analysed: list[SourceFile] | None = None,
) -> FixResult:
    """Apply the safe fixes (and with `unsafe` the others) until nothing more changes.

    Returns the text unchanged where it does not parse. What is left is as for `check_source`.
    """
    from amplint.edits import fix_to_fixpoint

    least = Applicability.UNSAFE if unsafe else Applicability.SAFE
    seen: list[list[tuple[Fix, Diagnostic]]] = []
    latest: list[Diagnostic] = []
    latest_text = ""

    def find(current: str) -> list[Fix]:
        nonlocal latest, latest_text
        file = SourceFile(current, filename, settings, project)
        if analysed is not None:
            analysed[:] = [file]
        findings = findings_in(file, faults)
        latest, latest_text = [diagnostic(file, finding) for finding in findings], current
        wanted = [
            (finding.fix, found)
            for finding, found in zip(findings, latest, strict=True)
            if finding.fix is not None and finding.fix.applicability >= least
        ]
        seen.append(wanted)
        return [fix for fix, _ in wanted]

    outcome = fix_to_fixpoint(text, find)
    applied: list[Diagnostic] = []
    for fixes, wanted in zip(outcome.passes, seen, strict=False):
        done = set(fixes)
        applied.extend(fixed for fix, fixed in wanted if fix in done)
    if latest_text != outcome.text:
        latest = check_source(outcome.text, filename, settings, faults=faults, project=project)
    return FixResult(outcome.text, applied, latest, outcome.messages)


def findings_in(file: SourceFile, faults: list[RuleError] | None = None) -> list[Finding]:
    """What the enabled rules find in a file, suppressions taken into account, in the order of the text."""
    enabled = enabled_codes(file.settings, file.filename)
    parse_fault = unreadable(file)
    if parse_fault is not None:
        return _suppressed(file, [parse_fault], frozenset())
    found: list[Finding] = []
    too_deep: list[str] = []
    for code, rule in all_rules().items():
        if code in enabled and any(trigger in file.text for trigger in rule.triggers):
            found.extend(_run(rule, file, faults, too_deep))
    if too_deep:
        found.append(_too_deep(too_deep))
    if file.unseen_rows:
        found = [_without_fix(finding) for finding in found]
        found.append(_partly_read(file))
    # What suppresses a rule that failed is not unused.
    judged = enabled.difference(too_deep, (fault.code for fault in faults or ()))
    found = _suppressed(file, _unique(found), judged)
    found.sort(key=lambda finding: (finding.span, finding.code))
    return found


def unreadable(file: SourceFile) -> Finding | None:
    """The AMP000 of a file that does not parse, None for one that does."""
    try:
        _ = file.tree
    except SyntaxError as error:
        row = min(max(error.lineno or 1, 1), len(file.line_starts))
        line = file.line_span(row)
        head = file.segment(line)[: max((error.offset or 1) - 1, 0)].rstrip("\r\n")
        start = line.start + len(head.encode("utf-8", "surrogatepass"))
        return Finding(UNPARSABLE, Span(start, start), f"the file does not parse: {error.msg}")
    except (ValueError, RecursionError, MemoryError) as error:
        reason = "it is nested too deeply" if not isinstance(error, ValueError) else str(error)
        return Finding(UNPARSABLE, Span(0, 0), f"the file does not parse: {reason}")
    return None


def _partly_read(file: SourceFile) -> Finding:
    """The AMP000, of level info, of a file whose newer syntax was left out."""
    line = file.line_span(file.unseen_rows[0])
    rows = ", ".join(str(row) for row in file.unseen_rows[:5]) + (", ..." if len(file.unseen_rows) > 5 else "")
    message = f"the statements at these lines were not checked, their syntax is newer than Python {_PYTHON}: {rows}"
    start = line.start + len(file.segment(line)) - len(file.segment(line).lstrip())
    return Finding(UNPARSABLE, Span(start, start), message, level=Level.INFO, help=_NEWER_PYTHON)


def _too_deep(codes: list[str]) -> Finding:
    """The AMP000, of level info, of a file in which some rules ran out of stack."""
    message = f"expressions are nested too deeply to be checked for {', '.join(codes)}"
    return Finding(UNPARSABLE, Span(0, 0), message, level=Level.INFO)


def _without_fix(finding: Finding) -> Finding:
    """A fix could overlook uses in what was not read."""
    return finding if finding.fix is None else finding._replace(fix=None, help=_NEWER_PYTHON)


def _run(rule: Rule, file: SourceFile, faults: list[RuleError] | None, too_deep: list[str]) -> list[Finding]:
    """What a rule finds; the code of one that meets the limit of recursion is added to `too_deep`."""
    try:
        return list(rule.check(file))
    except RecursionError:
        too_deep.append(rule.code)
        return []
    except Exception as error:
        fault = RuleError(rule.code, file.filename, error)
        if faults is None:
            raise fault from error
        fault.__cause__ = error
        faults.append(fault)
        return []


def _unique(found: Iterable[Finding]) -> list[Finding]:
    """A code stands once at a place, and the first is kept."""
    by_place: dict[tuple[str, Span], Finding] = {}
    for finding in found:
        by_place.setdefault((finding.code, finding.span), finding)
    return list(by_place.values())


def _suppressed(file: SourceFile, found: list[Finding], enabled: frozenset[str]) -> list[Finding]:
    if "noqa" not in file.text.lower() and "amplint:" not in file.text:
        return found
    from amplint.suppress import Suppressions

    suppressions = Suppressions(file.text)
    kept = suppressions.filter(found)
    if UNUSED_SUPPRESSION in enabled:
        kept.extend(suppressions.unused(enabled))
    return kept


def diagnostic(file: SourceFile, finding: Finding) -> Diagnostic:
    """Turn a finding into rows and columns and complete it with what its rule says."""
    rule = all_rules()[finding.code]
    return Diagnostic(
        finding.code,
        rule.name,
        rule.level if finding.level is None else Level(finding.level),
        finding.message,
        file.filename,
        file.location(finding.span.start),
        file.location(finding.span.end),
        tuple(
            RelatedPlace(label.message, file.location(label.span.start), file.location(label.span.end))
            for label in finding.labels
        ),
        None if finding.fix is None else _fix_info(file, finding.fix),
        rule.url,
        finding.help,
    )


def _fix_info(file: SourceFile, fix: Fix) -> FixInfo:
    edits = tuple(
        TextEdit(file.location(edit.span.start), file.location(edit.span.end), edit.text) for edit in fix.edits
    )
    return FixInfo(fix.applicability, fix.title, edits)
