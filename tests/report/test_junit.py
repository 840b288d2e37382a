from __future__ import annotations

from xml.etree import ElementTree

from amplint.model import Level
from amplint.report import render
from tests.report.samples import CLIP, CONTEXT, IMPORT, MILD, diagnostic


def test_suites_and_cases() -> None:
    assert render("junit", [CLIP, IMPORT, MILD], CONTEXT) == (
        '<?xml version="1.0" encoding="UTF-8"?>\n'
        '<testsuites name="amplint" tests="3" failures="2" errors="0">\n'
        '  <testsuite name="lib/a b.py" tests="1" failures="0" errors="0">\n'
        '    <testcase name="AMP604 other-rule" classname="lib/a b.py" line="6">'
        "<system-out>lib/a b.py:6:9: AMP604 something is wrong\n"
        "https://example.org/AMP604</system-out></testcase>\n"
        "  </testsuite>\n"
        '  <testsuite name="train.py" tests="2" failures="2" errors="0">\n'
        '    <testcase name="AMP001 deprecated-amp-api" classname="train.py" line="6">'
        '<failure message="`torch.cuda.amp.autocast` is deprecated" type="warning">'
        "train.py:6:14: AMP001 `torch.cuda.amp.autocast` is deprecated\n"
        "help: the device is a guess\n"
        "fix available: Use `torch.amp.autocast` (unsafe)\n"
        "https://example.org/AMP001</failure></testcase>\n"
        '    <testcase name="AMP301 clip-before-unscale" classname="train.py" line="9">'
        '<failure message="gradients are clipped while they are scaled" type="error">'
        "train.py:9:9: AMP301 gradients are clipped while they are scaled\n"
        "fix available: Call `scaler.unscale_(optimizer)` before the clip [*]\n"
        "https://example.org/AMP301</failure></testcase>\n"
        "  </testsuite>\n"
        "</testsuites>\n"
    )


def test_nothing_found_is_a_test_that_passes() -> None:
    assert render("junit", [], CONTEXT) == (
        '<?xml version="1.0" encoding="UTF-8"?>\n'
        '<testsuites name="amplint" tests="1" failures="0" errors="0">\n'
        '  <testsuite name="amplint" tests="1" failures="0" errors="0">\n'
        '    <testcase name="amplint" classname="amplint"/>\n'
        "  </testsuite>\n"
        "</testsuites>\n"
    )


def test_fail_level_decides_what_fails() -> None:
    report = render("junit", [CLIP, IMPORT, MILD], CONTEXT._replace(fail_level=Level.ERROR))
    assert [suite.get("failures") for suite in ElementTree.fromstring(report)] == ["0", "1"]
    report = render("junit", [CLIP, IMPORT, MILD], CONTEXT._replace(fail_level=Level.INFO))
    assert [suite.get("failures") for suite in ElementTree.fromstring(report)] == ["1", "2"]


def test_files_that_could_not_be_checked() -> None:
    context = CONTEXT._replace(errors=(("a.py", "permission denied"),))
    root = ElementTree.fromstring(render("junit", [], context))
    assert root.attrib == {"name": "amplint", "tests": "1", "failures": "0", "errors": "1"}
    assert root[0].attrib == {"name": "a.py", "tests": "1", "failures": "0", "errors": "1"}
    assert [element.attrib for element in root[0][0]] == [{"message": "permission denied"}]


def test_every_character_survives_or_is_shown() -> None:
    odd = "<&>\"' \n\r\t\x00\x1b\x7f\x85 \ud800\ufffe\u00e9\u65e5\U0001f600 ]]>"
    root = ElementTree.fromstring(render("junit", [diagnostic(message=odd, filename="<&>.py")], CONTEXT))
    case = root[0][0]
    seen = "<&>\"' \n\r\t\\x00\\x1b\x7f\x85 \\ud800\\ufffe\u00e9\u65e5\U0001f600 ]]>"
    assert case[0].get("message") == seen
    assert case[0].text == f"<&>.py:1:1: AMP301 {seen}\nhttps://example.org/AMP301"
    assert case.get("classname") == "<&>.py"
