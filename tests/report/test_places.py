from __future__ import annotations

import pytest

from amplint.model import Diagnostic
from amplint.report import ReportContext
from amplint.report.places import display_path, file_fingerprints, fingerprints, relative_path, uri
from tests.report.samples import diagnostic


@pytest.mark.parametrize(
    ("filename", "relative"),
    [
        ("a.py", "a.py"),
        ("./lib/../a.py", "a.py"),
        ("/project/lib/a.py", "lib/a.py"),
        ("/project", "."),
        ("..a.py", "..a.py"),
        ("../a.py", None),
        ("/elsewhere/a.py", None),
        ("/projects/a.py", None),
        ("<stdin>", "<stdin>"),
    ],
)
def test_relative_path(filename: str, relative: str | None) -> None:
    assert relative_path(filename, "/project") == relative


def test_display_path() -> None:
    assert display_path("/project/a.py", "/project") == "a.py"
    assert display_path("/elsewhere/a.py", "/project") == "/elsewhere/a.py"


@pytest.mark.parametrize(
    ("filename", "expected"),
    [
        ("lib/a.py", "lib/a.py"),
        ("a b#c?d%e:f.py", "a%20b%23c%3Fd%25e%3Af.py"),
        ("\u65e5.py", "%E6%97%A5.py"),
        ("\udcff.py", "%FF.py"),
        ("\ud800.py", "%5Cud800.py"),
        ("<stdin>", "%3Cstdin%3E"),
        ("/elsewhere/a b.py", "file:///elsewhere/a%20b.py"),
        ("../a.py", "file:///a.py"),
    ],
)
def test_uri(filename: str, expected: str) -> None:
    assert uri(filename, "/project") == expected


def hashes(source: str, *found: Diagnostic) -> list[str]:
    return fingerprints(found, ReportContext(sources=lambda name: source))


class TestFingerprints:
    ONE = hashes("\tstep( a )\n", diagnostic((1, 1)))

    def test_value_is_pinned(self) -> None:
        # Half of the SHA-256 of the code, the line and the number, with zero bytes between them.
        assert self.ONE == ["030b955be5662d9f825246fae78642f9"]

    def test_survive_moved_and_reindented_lines(self) -> None:
        assert hashes("new\n\n        step(a)  \n", diagnostic((3, 1))) == self.ONE

    def test_do_not_depend_on_message_column_or_file(self) -> None:
        assert hashes("\tstep( a )\n", diagnostic((1, 4), message="other", filename="b.py")) == self.ONE

    def test_depend_on_code_and_line(self) -> None:
        others = [hashes("\tstep( a )\n", diagnostic((1, 1), code="AMP302")), hashes("step(b)\n", diagnostic((1, 1)))]
        assert len({self.ONE[0], *(other for each in others for other in each)}) == 3

    def test_count_equal_lines_in_each_file(self) -> None:
        found = [diagnostic((row, 1), filename=name) for name in ("a.py", "b.py") for row in (1, 2)]
        first, second, third, fourth = hashes("x\nx\n", *found)
        assert (first, second) == (third, fourth)
        assert first != second

    def test_without_source(self) -> None:
        found = [diagnostic((1, 1)), diagnostic((2, 1))]
        assert len(set(fingerprints(found, ReportContext()))) == 2

    def test_file_fingerprints_differ_between_files(self) -> None:
        found = [diagnostic((1, 1), filename=name) for name in ("a.py", "b.py")]
        assert len(set(file_fingerprints(found, ReportContext(sources=lambda name: "x")))) == 2
