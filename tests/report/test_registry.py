from __future__ import annotations

import pytest

from amplint.report import FORMATS, ReportContext, in_order, render
from tests.report.samples import CLIP, CONTEXT, IMPORT, MILD, diagnostic


def test_formats() -> None:
    assert FORMATS == ("text", "concise", "json", "json-lines", "sarif", "github", "gitlab", "junit")


def test_unknown_format() -> None:
    with pytest.raises(ValueError, match=r"^unknown output format 'jsn'$"):
        render("jsn", [], CONTEXT)


def test_order_is_that_of_files_places_and_codes() -> None:
    other = diagnostic((9, 9), (9, 20), code="AMP302")
    assert in_order([CLIP, other, IMPORT, MILD]) == [MILD, IMPORT, CLIP, other]


@pytest.mark.parametrize("output_format", FORMATS)
class TestEveryFormat:
    def test_order_of_the_input_does_not_matter(self, output_format: str) -> None:
        found = [CLIP, IMPORT, MILD]
        assert render(output_format, found, CONTEXT) == render(output_format, found[::-1], CONTEXT)

    def test_takes_anything(self, output_format: str) -> None:
        odd = "\ud800 \udcff \x00\x1b[31m \x7f \ufffe \u202e\u2028 \"<&>'%\r\n\t,: \U0001f600"
        found = diagnostic(
            (0, 0), (99, 99), ((odd, (5, 1), (4, 1)),), CLIP.fix, odd, filename=odd, code="AMP999", help=odd
        )
        context = ReportContext(
            sources=lambda name: odd * 3, color=True, hyperlinks=True, width=1, errors=((odd, odd),)
        )
        report = render(output_format, [found, found], context)
        report.encode()
        assert report.endswith("\n")
        if output_format not in ("text", "concise", "github"):
            assert report.isascii()

    def test_takes_missing_source(self, output_format: str) -> None:
        assert "AMP301" in render(output_format, [CLIP], ReportContext())
