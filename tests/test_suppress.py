from __future__ import annotations

import ast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from amplint import check_source
from amplint.add_noqa import add_noqa
from amplint.edits import apply_fixes
from amplint.model import Applicability, Finding, Span
from amplint.suppress import Suppressions

NAMES = {
    "AMP000": "unreadable-file",
    "AMP001": "deprecated-amp-api",
    "AMP201": "missing-update",
    "AMP202": "update-skipped-on-path",
    "AMP301": "clip-before-unscale",
    "AMP302": "grad-read-before-unscale",
    "AMP900": "unused-suppression",
    "XYZ001": "rule-of-a-plugin",
}
ALL = frozenset(NAMES)


def suppressed(text: str, row: int = 1) -> list[str]:
    """The codes that are suppressed for findings that start in a row."""
    return [code for code in NAMES if Suppressions(text, NAMES).suppresses(code, row)]


def finding(text: str, code: str, at: str) -> Finding:
    """A finding at the first occurrence of some words."""
    start = len(text[: text.index(at)].encode())
    return Finding(code, Span(start, start + len(at.encode())), "wrong")


def shown(text: str, findings: list[Finding]) -> list[tuple[str, str]]:
    """The blamed text of each finding and its message."""
    assert {found.code for found in findings} <= {"AMP900"}
    encoded = text.encode()
    return [(encoded[found.span.start : found.span.end].decode(), found.message) for found in findings]


def fixed(text: str, findings: list[Finding], least: Applicability = Applicability.SAFE) -> str:
    """The text after those fixes that are at least so safe."""
    return apply_fixes(text, [f.fix for f in findings if f.fix is not None and f.fix.applicability >= least]).text


def without_unused(text: str, used: list[tuple[str, int]] | None = None) -> str:
    """The text after the fixes for suppressions that were of no use."""
    suppressions = Suppressions(text, NAMES)
    for code, row in used or []:
        assert suppressions.suppresses(code, row)
    return fixed(text, suppressions.unused(ALL))


EVERYTHING_ON_A_LINE = [code for code in NAMES if code != "AMP000"]


class TestNoqa:
    @pytest.mark.parametrize(
        ("comment", "codes"),
        [
            ("# noqa", EVERYTHING_ON_A_LINE),
            ("#noqa", EVERYTHING_ON_A_LINE),
            ("# NoQA", EVERYTHING_ON_A_LINE),
            ("# noqa:", EVERYTHING_ON_A_LINE),
            ("# noqa: because it is right", EVERYTHING_ON_A_LINE),
            ("# noqa: AMP301", ["AMP301"]),
            ("# noqa:AMP301", ["AMP301"]),
            ("# noqa : amp301", ["AMP301"]),
            ("# noqa: AMP301, AMP302", ["AMP301", "AMP302"]),
            ("# noqa: AMP301,AMP302", ["AMP301", "AMP302"]),
            ("# noqa: AMP301 AMP302", ["AMP301", "AMP302"]),
            ("# noqa: F401, AMP301", ["AMP301"]),
            ("# noqa: AMP3", ["AMP301", "AMP302"]),
            ("# noqa: AMP", EVERYTHING_ON_A_LINE[:-1]),
            ("# noqa: clip-before-unscale", ["AMP301"]),
            ("# noqa: AMP201, clip-before-unscale, E501", ["AMP201", "AMP301"]),
            ("# noqa: XYZ001", ["XYZ001"]),
            ("# noqa: AMP301 well-known", ["AMP301"]),
            ("# noqa: AMP301: it is right", ["AMP301"]),
            ("# noqa: AMP301. AMP302", ["AMP301"]),
            ("# type: ignore  # noqa: AMP301", ["AMP301"]),
            ("# noqa: AMP301  # noqa: AMP302", ["AMP301", "AMP302"]),
            ("# noqa: F401", []),
            ("# noqa: AMP000", []),
            ("# noqa: AMP999", []),
            ("# noqa-like", []),
            ("# flake8: noqa", []),
            ("# ruff: noqa: AMP301", []),
            ("# noqable", []),
        ],
    )
    def test_what_is_suppressed(self, comment: str, codes: list[str]) -> None:
        assert suppressed(f"x = 1  {comment}\n") == codes

    def test_only_its_own_line(self) -> None:
        text = "x = 1  # noqa: AMP301\ny = 2\n"
        assert [suppressed(text, row) for row in (1, 2, 3)] == [["AMP301"], [], []]

    def test_alone_on_a_line_it_speaks_of_no_other(self) -> None:
        text = "# noqa: AMP301\ny = 2\n"
        assert [suppressed(text, row) for row in (1, 2)] == [["AMP301"], []]

    def test_at_the_end_of_a_statement_it_speaks_of_all_its_rows(self) -> None:
        text = "f(\n    1,  # noqa: AMP301\n    2,\n)  # noqa: AMP201\ng()\n"
        assert [suppressed(text, row) for row in range(1, 6)] == [
            ["AMP201"],
            ["AMP201", "AMP301"],
            ["AMP201"],
            ["AMP201"],
            [],
        ]

    def test_at_the_end_of_a_header_it_does_not_speak_of_the_body(self) -> None:
        text = "with f(\n    1\n):  # noqa: AMP201\n    pass\n"
        assert [suppressed(text, row) for row in range(1, 5)] == [["AMP201"], ["AMP201"], ["AMP201"], []]

    def test_behind_a_string_and_a_continuation(self) -> None:
        text = "x = '''a\nb'''  # noqa: AMP301\ny = 1 + \\\n    2  # noqa: AMP201\n"
        assert [suppressed(text, row) for row in range(1, 5)] == [["AMP301"], ["AMP301"], ["AMP201"], ["AMP201"]]

    def test_never_in_strings(self) -> None:
        assert suppressed("x = '# noqa'\n") == []
        assert suppressed("x = '''\n# noqa: AMP301\n'''\n", 2) == []


class TestIgnore:
    @pytest.mark.parametrize(
        ("comment", "codes"),
        [
            ("# amplint: ignore", EVERYTHING_ON_A_LINE),
            ("# amplint: ignore[AMP301]", ["AMP301"]),
            ("#amplint:ignore[amp301]", ["AMP301"]),
            ("# amplint: ignore [AMP301]", ["AMP301"]),
            ("# amplint: ignore[AMP301, missing-update] because", ["AMP201", "AMP301"]),
            ("# amplint: ignore[AMP2 AMP301]", ["AMP201", "AMP202", "AMP301"]),
            ("# type: ignore # amplint: ignore[AMP301]", ["AMP301"]),
            ("# amplint: ignore[]", []),
            ("# amplint: ignore[AMP301", []),
            ("# amplint: ignored[AMP301]", []),
            ("# amplint: ignore[AMP000]", []),
        ],
    )
    def test_what_is_suppressed(self, comment: str, codes: list[str]) -> None:
        assert suppressed(f"x = 1  {comment}\n") == codes

    def test_alone_on_a_line_it_speaks_of_the_next_statement(self) -> None:
        text = "# amplint: ignore[AMP301]\n# more\n\nf(\n  1)\ng()\n"
        assert [suppressed(text, row) for row in range(1, 7)] == [["AMP301"], [], [], ["AMP301"], ["AMP301"], []]

    def test_alone_before_a_compound_statement_it_speaks_of_the_header(self) -> None:
        text = "if x:\n    # amplint: ignore[AMP301]\n    for i in y:\n        z()\n"
        assert [suppressed(text, row) for row in (3, 4)] == [["AMP301"], []]

    def test_alone_inside_brackets_it_speaks_of_the_next_row(self) -> None:
        text = "f(\n    # amplint: ignore[AMP301]\n    1,\n    2,\n)\n"
        assert [suppressed(text, row) for row in (1, 3, 4, 5)] == [[], ["AMP301"], [], []]


class TestIgnoreFile:
    def test_everything(self) -> None:
        text = "# amplint: ignore-file\nx = 1\n"
        assert suppressed(text, 2) == list(NAMES)

    def test_some(self) -> None:
        text = "x = 1\ny = 2  # amplint: ignore-file[AMP001, AMP3]\n"
        assert suppressed(text, 1) == ["AMP001", "AMP301", "AMP302"]

    def test_an_unreadable_file(self) -> None:
        assert suppressed("# amplint: ignore-file[AMP000]\nf(\n") == ["AMP000"]
        assert [found.code for found in check_source("f(  # noqa\n")] == ["AMP000"]
        assert check_source("# amplint: ignore-file\nf(\n") == []


class TestFilter:
    def test_keeps_order_and_everything_not_named(self) -> None:
        text = "\u00e9 = one  # noqa: AMP301\n\U0001f600 = two\nx = (\n  three)  # amplint: ignore[AMP001]\n"
        found = [
            finding(text, "AMP001", "one"),
            finding(text, "AMP301", "one"),
            finding(text, "AMP301", "two"),
            finding(text, "AMP001", "x ="),
            finding(text, "AMP001", "three"),
        ]
        assert Suppressions(text, NAMES).filter(found) == [found[0], found[2]]

    def test_without_comments_everything_stays(self) -> None:
        text = "one\n"
        assert Suppressions(text, NAMES).filter([finding(text, "AMP301", "one")]) == [finding(text, "AMP301", "one")]

    @pytest.mark.parametrize("newline", ["\r\n", "\r"])
    def test_line_ends(self, newline: str) -> None:
        text = newline.join(["zero", "one  # noqa: AMP301", "two", ""])
        found = [finding(text, "AMP301", word) for word in ("zero", "one", "two")]
        assert Suppressions(text, NAMES).filter(found) == [found[0], found[2]]

    def test_comments_before_the_place_where_python_breaks_count(self) -> None:
        text = "one  # noqa: AMP301\nf(\n"
        assert Suppressions(text, NAMES).filter([finding(text, "AMP301", "one")]) == []

    def test_all_rules_are_known_by_default(self) -> None:
        text = "one  # noqa: unused-suppression\n"
        assert Suppressions(text).filter([finding(text, "AMP900", "one")]) == []


class TestUnused:
    def test_named_and_of_no_use(self) -> None:
        text = "x = 1  # noqa: AMP301\ny = 2  # amplint: ignore[AMP201, clip-before-unscale]\n"
        assert shown(text, Suppressions(text, NAMES).unused(ALL)) == [
            ("# noqa: AMP301", "this suppression of `AMP301` hides no finding and would hide a later one"),
            (
                "# amplint: ignore[AMP201, clip-before-unscale]",
                "this suppression of `AMP201`, `clip-before-unscale` hides no finding and would hide a later one",
            ),
        ]

    def test_partly_of_use(self) -> None:
        text = "x = 1  # noqa: E501, AMP301, AMP201\n"
        suppressions = Suppressions(text, NAMES)
        assert suppressions.suppresses("AMP301", 1)
        assert [(f.fix and f.fix.title, *shown(text, [f])) for f in suppressions.unused(ALL)] == [
            (
                "Remove `AMP201` from the suppression",
                ("AMP201", "this suppression of `AMP201` hides no finding and would hide a later one"),
            )
        ]

    def test_of_use(self) -> None:
        text = "x = 1  # noqa: AMP3\n# amplint: ignore[AMP301]\ny = 2\n# amplint: ignore-file[AMP001]\n"
        suppressions = Suppressions(text, NAMES)
        assert suppressions.suppresses("AMP302", 1)
        assert suppressions.suppresses("AMP301", 3)
        assert suppressions.suppresses("AMP001", 3)
        assert suppressions.unused(ALL) == []

    def test_all_comments_that_hide_the_same_finding_are_of_use(self) -> None:
        text = "# amplint: ignore-file[AMP301]\nx = 1  # noqa: AMP301  # amplint: ignore[AMP301]\n"
        suppressions = Suppressions(text, NAMES)
        assert suppressions.suppresses("AMP301", 2)
        assert suppressions.unused(ALL) == []

    @pytest.mark.parametrize(
        "comment",
        [
            "# noqa",
            "# noqa: E501",
            "# noqa: AMP999",
            "# amplint: ignore",
            "# amplint: ignore-file",
            "# amplint: ignore[nothing-of-ours]",
        ],
    )
    def test_what_names_no_rule_is_never_unused(self, comment: str) -> None:
        assert Suppressions(f"x = 1  {comment}\n", NAMES).unused(ALL) == []

    def test_rules_that_did_not_run_are_left_alone(self) -> None:
        text = "x = 1  # noqa: AMP301\ny = 2  # noqa: AMP3\n"
        assert Suppressions(text, NAMES).unused(ALL - {"AMP301"}) == []
        assert [f.span for f in Suppressions(text, NAMES).unused(ALL - {"AMP302"})] == [(7, 21)]
        assert Suppressions(text, NAMES).unused(ALL - {"AMP900"}) == []

    def test_nothing_is_unused_in_what_cannot_be_read(self) -> None:
        assert Suppressions("x = 1  # noqa: AMP301\nf(\n", NAMES).unused(ALL) == []

    def test_can_itself_be_suppressed(self) -> None:
        text = "x = 1  # noqa: AMP301, AMP900\ny = 2  # noqa: AMP900\n# amplint: ignore-file[AMP201]\n"
        assert [f.span for f in Suppressions(text, NAMES).unused(ALL)] == [(37, 51), (52, 82)]
        assert Suppressions(f"# amplint: ignore-file\n{text}", NAMES).unused(ALL) == []
        assert Suppressions("x = 1  # noqa: AMP900  # noqa\n", NAMES).unused(ALL) == []

    def test_message_of_an_empty_list(self) -> None:
        text = "x = 1  # amplint: ignore[]\n"
        assert shown(text, Suppressions(text, NAMES).unused(ALL)) == [
            ("# amplint: ignore[]", "this suppression lists no rule, so it hides nothing")
        ]


class TestFixOfUnused:
    @pytest.mark.parametrize(
        ("before", "after"),
        [
            ("x = 1  # noqa: AMP301\n", "x = 1\n"),
            ("x = 1  # noqa: AMP301", "x = 1"),
            ("x = 1\t# noqa: AMP301, AMP201  \r\ny\r\n", "x = 1\r\ny\r\n"),
            ("x = 1  # noqa: F401, AMP301\n", "x = 1  # noqa: F401\n"),
            ("x = 1  # noqa: AMP301, F401\n", "x = 1  # noqa: F401\n"),
            ("x = 1  # noqa:AMP301,F401,AMP201,E501\n", "x = 1  # noqa:F401,E501\n"),
            ("x = 1  # noqa: F401 AMP301 E501\n", "x = 1  # noqa: F401 E501\n"),
            ("x = 1  # noqa: AMP301 because\n", "x = 1  # because\n"),
            ("x = 1  # noqa: AMP301 -- because\n", "x = 1  # because\n"),
            ("x = 1  # noqa: AMP301, F401 because\n", "x = 1  # noqa: F401 because\n"),
            ("x = 1  # noqa: AMP301  # type: ignore\n", "x = 1  # type: ignore\n"),
            ("x = 1  # type: ignore  # noqa: AMP301\n", "x = 1  # type: ignore\n"),
            ("x = 1  # why  # noqa: AMP301 because  # z\n", "x = 1  # why  # because  # z\n"),
            ("x = '\u65e5\u672c'  # \u00e9  # noqa: AMP301\n", "x = '\u65e5\u672c'  # \u00e9\n"),
            ("if x:\n    # amplint: ignore[AMP301]\n    y\n", "if x:\n    y\n"),
            ("x\n# amplint: ignore[AMP301]", "x\n"),
            ("# why\r\n# amplint: ignore[AMP301] z\r\nx\r\n", "# why\r\n# z\r\nx\r\n"),
            ("# why # amplint: ignore[AMP301]\nx\n", "# why\nx\n"),
            ("# amplint: ignore[AMP301] # why\nx\n", "# why\nx\n"),
            ("x  # amplint: ignore[ AMP301 , nothing-of-ours ]\n", "x  # amplint: ignore[ nothing-of-ours ]\n"),
            ("x  # amplint: ignore[]\n", "x\n"),
            ("# amplint: ignore-file[AMP301]\nx\n", "x\n"),
            ("x  # noqa: AMP301, AMP301\n", "x\n"),
            ("x  # noqa: AMP301  # amplint: ignore[AMP301]\n", "x\n"),
        ],
    )
    def test_removes_what_is_idle_and_nothing_else(self, before: str, after: str) -> None:
        once = without_unused(before)
        assert without_unused(once) == after

    def test_keeps_what_is_of_use(self) -> None:
        before = "x  # noqa: AMP301, AMP201, clip-before-unscale\n"
        assert without_unused(before, [("AMP201", 1)]) == "x  # noqa: AMP201\n"


class TestUnknown:
    @pytest.mark.parametrize(
        ("comment", "blamed", "help_text", "corrected"),
        [
            ("# noqa: AMP3001", "AMP3001", "did you mean `AMP301` (clip-before-unscale)?", "# noqa: AMP301"),
            ("# noqa: AMP2xx, E5", "AMP2xx", "did you mean `AMP2`?", "# noqa: AMP2, E5"),
            (
                "# noqa: clip-before-unscaled",
                "clip-before-unscaled",
                "did you mean `clip-before-unscale` (AMP301)?",
                "# noqa: clip-before-unscale",
            ),
            (
                "# amplint: ignore[clip_before_unscale]",
                "clip_before_unscale",
                "did you mean `clip-before-unscale` (AMP301)?",
                "# amplint: ignore[clip-before-unscale]",
            ),
            (
                "# amplint: ignore[APM301]",
                "APM301",
                "did you mean `AMP301` (clip-before-unscale)?",
                "# amplint: ignore[AMP301]",
            ),
            ("# noqa: AMP303", "AMP303", "did you mean `AMP301` (clip-before-unscale)?", "# noqa: AMP303"),
        ],
    )
    def test_near_to_something(self, comment: str, blamed: str, help_text: str, corrected: str) -> None:
        text = f"x = 1  {comment}\n"
        found = Suppressions(text, NAMES).unknown()
        message = f"`{blamed}` is no rule of amplint, so this suppression of it hides nothing"
        assert shown(text, found) == [(blamed, message)]
        assert [f.help for f in found] == [help_text]
        assert fixed(text, found) == text
        assert fixed(text, found, Applicability.UNSAFE) == f"x = 1  {corrected}\n"

    @pytest.mark.parametrize(
        ("comment", "blamed", "corrected"),
        [
            ("  # amplint: ignore[E501]", "E501", ""),
            ("  # amplint: ignore[AMP301, whatever]", "whatever", "  # amplint: ignore[AMP301]"),
        ],
    )
    def test_near_to_nothing_is_removed(self, comment: str, blamed: str, corrected: str) -> None:
        text = f"x = 1{comment}\n"
        found = Suppressions(text, NAMES).unknown()
        message = f"`{blamed}` is no rule of amplint, so this suppression of it hides nothing"
        assert shown(text, found) == [(blamed, message)]
        assert [f.help for f in found] == [""]
        assert fixed(text, found) == f"x = 1{corrected}\n"

    @pytest.mark.parametrize(
        ("comment", "blamed", "correction"),
        [
            ("# amplint: ignroe[AMP301]", "ignroe", "ignore"),
            ("# amplint: disable", "disable", "ignore"),
            ("# amplint: noqa", "noqa", "ignore"),
            ("# amplint: ignore-files", "ignore-files", "ignore-file"),
            ("# amplint: ignore[AMP301", "[AMP301", "[AMP301]"),
        ],
    )
    def test_comments_that_are_written_wrongly(self, comment: str, blamed: str, correction: str) -> None:
        text = f"x = 1  {comment}\n"
        found = Suppressions(text, NAMES).unknown()
        message = f"`{blamed}` is not what amplint understands, so this comment suppresses nothing"
        assert shown(text, found) == [(blamed, message)]
        assert [f.help for f in found] == [f"did you mean `{correction}`?"]
        assert fixed(text, found, Applicability.UNSAFE) == f"x = 1  {comment.replace(blamed, correction)}\n"

    @pytest.mark.parametrize(
        "comment",
        [
            "# noqa: F401, E501",
            "# noqa: some-other-tool",
            "# noqa: AMP301 well-known",
            "# amplint: see the manual",
            "# amplint is a linter",
            "# amplint: ignore[AMP3, AMP301, clip-before-unscale]",
        ],
    )
    def test_nothing_unknown(self, comment: str) -> None:
        assert Suppressions(f"x = 1  {comment}\n", NAMES).unknown() == []


CODE = st.sampled_from(
    ["x = 1", "if x: y", "f(\n  1,{0}\n\n  2)", "y = 1 + \\\n  2", "z = f'''a\n{{x}} # noqa: AMP301\n'''", "", "\f"]
)
LISTED = st.sampled_from(["AMP301", "amp2", "F401", "clip-before-unscale", "AMP999", "why", "AMP900", ","])
COMMENT = st.builds(
    "{}{} {}{}".format,
    st.sampled_from(["", "  # \u00e9"]),
    st.sampled_from(["  # noqa:", "# noqa", "\t# amplint: ignore[", "# amplint: ignore-file["]),
    st.lists(LISTED, max_size=4).map(" ".join),
    st.sampled_from(["", "]", "]  # type: ignore", " \\"]),
)
LINE = st.builds(lambda code, inner, last: code.format(inner) + last, CODE, COMMENT, COMMENT | st.just(""))
TEXT = st.lists(LINE, max_size=6).map("\n".join)


class TestAnyText:
    @given(TEXT, st.sampled_from(["\n", "\r\n", "\r"]))
    def test_fixes_change_comments_only_and_converge(self, text: str, newline: str) -> None:
        text = text.replace("\n", newline)
        current = text
        for _ in range(10):
            suppressions = Suppressions(current, NAMES)
            following = fixed(current, suppressions.unknown() + suppressions.unused(ALL))
            if following == current:
                break
            current = following
        assert following == current
        assert ast.dump(ast.parse(current)) == ast.dump(ast.parse(text))

    @given(TEXT, st.sampled_from(["\n", "\r\n"]))
    def test_added_comments_suppress_and_change_nothing_else(self, text: str, newline: str) -> None:
        text = text.replace("\n", newline)
        rows = {row: ["AMP201", "AMP001"] for row in range(1, text.count("\n") + 2)}
        result = add_noqa(text, rows, NAMES)
        assert (result.added, result.messages) == (2 * len(rows), [])
        assert ast.dump(ast.parse(result.text)) == ast.dump(ast.parse(text))
        assert add_noqa(result.text, rows, NAMES) == result
