"""JUnit XML, which most CI systems show as tests: a suite for each file, a test case for each finding."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

from amplint.model import Diagnostic
from amplint.report import ReportContext
from amplint.report.places import display_path
from amplint.report.wording import advice


def render(diagnostics: Sequence[Diagnostic], context: ReportContext) -> str:
    """The findings as test cases; those below the fail level pass and say so in their output.

    A run without findings is one test case that passes: systems that read the report reject it when it is empty.
    """
    suites = []
    for filename, found in groupby(diagnostics, key=lambda each: each.filename):
        cases = [(each.level >= context.fail_level, _case(each, context)) for each in found]
        failures = sum(fails for fails, _ in cases)
        suites.append(_suite(display_path(filename, context.root), [case for _, case in cases], failures, 0))
    for filename, reason in context.errors:
        body = f"<error{_attributes(message=reason)}/>"
        suites.append(_suite(display_path(filename, context.root), [_test_case("amplint", filename, body)], 0, 1))
    failing = sum(found.level >= context.fail_level for found in diagnostics)
    tests = len(diagnostics) + len(context.errors)
    if not suites:
        suites, tests = [_suite("amplint", [_test_case("amplint", "amplint", "")], 0, 0)], 1
    counts = _attributes(name="amplint", tests=tests, failures=failing, errors=len(context.errors))
    report = f'<?xml version="1.0" encoding="UTF-8"?>\n<testsuites{counts}>\n{"".join(suites)}</testsuites>\n'
    return report.encode("ascii", "xmlcharrefreplace").decode()


def _suite(name: str, cases: Sequence[str], failures: int, errors: int) -> str:
    counts = _attributes(name=name, tests=len(cases), failures=failures, errors=errors)
    return f"  <testsuite{counts}>\n{''.join(cases)}  </testsuite>\n"


def _case(found: Diagnostic, context: ReportContext) -> str:
    path = display_path(found.filename, context.root)
    place = f"{path}:{found.location.row}:{found.location.column}"
    text = "\n".join([f"{place}: {found.code} {found.message}", *advice(found), found.url])
    if found.level >= context.fail_level:
        attributes = _attributes(message=found.message, type=found.level.label)
        body = f"<failure{attributes}>{_escape(text)}</failure>"
    else:
        body = f"<system-out>{_escape(text)}</system-out>"
    return _test_case(f"{found.code} {found.name}", path, body, line=found.location.row)


def _test_case(name: str, path: str, body: str, **more: int) -> str:
    attributes = _attributes(name=name, classname=path, **more)
    return f"    <testcase{attributes}>{body}</testcase>\n" if body else f"    <testcase{attributes}/>\n"


def _attributes(**values: str | int) -> str:
    return "".join(f' {name}="{_escape(str(value), _IN_ATTRIBUTE)}"' for name, value in values.items())


_IN_TEXT = {"&": "&amp;", "<": "&lt;", ">": "&gt;", "\r": "&#13;"}
_IN_ATTRIBUTE = {**_IN_TEXT, '"': "&quot;", "\n": "&#10;", "\t": "&#9;"}


def _escape(text: str, replacements: dict[str, str] = _IN_TEXT) -> str:
    """Escape for XML 1.0; characters that it can't have at all are shown as Python writes them."""
    return "".join(
        replacements.get(character) or (character if _is_xml(character) else _python_escape(character))
        for character in text
    )


def _is_xml(character: str) -> bool:
    """Whether XML 1.0 (section 2.2, `Char`) allows a character."""
    return (
        character in "\t\n\r"
        or " " <= character <= "\ud7ff"
        or "\ue000" <= character <= "\ufffd"
        or character >= "\U00010000"
    )


def _python_escape(character: str) -> str:
    return character.encode("unicode_escape").decode("ascii")
