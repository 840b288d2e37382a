"""Fixes compose without getting in each other's way, and what comes out is checked."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from amplint.edits import apply_fixes, fix_to_fixpoint, merged_edits, parses, verify
from amplint.model import Applicability, Edit, Fix, Span

REPORT = "please report this with the file"


def edit(start: int, end: int, text: str) -> Edit:
    return Edit(Span(start, end), text)


def safe(title: str, *edits: Edit) -> Fix:
    return Fix(title, edits, Applicability.SAFE)


def unsafe(title: str, *edits: Edit) -> Fix:
    return Fix(title, edits, Applicability.UNSAFE)


def test_edits_are_byte_spans_of_utf8() -> None:
    text = 'name = "Zoë"; x = 1\n'
    start = len('name = "Zoë"; '.encode())
    assert apply_fixes(text, [safe("rename", edit(start, start + 1, "ü"))]).text == 'name = "Zoë"; ü = 1\n'


def test_a_fix_is_applied_with_all_its_edits() -> None:
    fix = safe("both", edit(0, 1, "A"), edit(4, 5, "C"))
    assert apply_fixes("a, b, c", [fix]) == ("A, bC c", [fix], [])


def test_fixes_that_touch_different_places_are_applied_together() -> None:
    first, second = safe("first", edit(0, 1, "A")), safe("second", edit(2, 3, "B"))
    assert apply_fixes("a b", [second, first]) == ("A B", [second, first], [])


def test_equal_edits_of_two_fixes_are_applied_once() -> None:
    first = safe("first", edit(0, 0, "import torch\n"), edit(0, 1, "A"))
    second = safe("second", edit(0, 0, "import torch\n"), edit(2, 3, "B"))
    assert apply_fixes("a b", [first, second]) == ("import torch\nA B", [first, second], [])


def test_two_findings_may_carry_the_same_fix() -> None:
    fix = safe("shared", edit(0, 0, "import torch\n"))
    assert apply_fixes("a", [fix, fix]) == ("import torch\na", [fix, fix], [])


@pytest.mark.parametrize(
    ("first", "second"),
    [
        pytest.param(edit(0, 3, "x"), edit(2, 5, "y"), id="crossing"),
        pytest.param(edit(0, 6, "x"), edit(2, 4, "y"), id="nested"),
        pytest.param(edit(0, 3, "x"), edit(0, 3, "y"), id="same place, other text"),
        pytest.param(edit(0, 3, ""), edit(0, 4, ""), id="two deletions"),
        pytest.param(edit(2, 2, "x"), edit(2, 2, "y"), id="two insertions at one place"),
        pytest.param(edit(1, 4, "x"), edit(2, 2, "y"), id="insertion inside a replacement"),
    ],
)
def test_conflicting_fixes_wait(first: Edit, second: Edit) -> None:
    one, two = safe("one", first), safe("two", second)
    composition = apply_fixes("abcdef", [one, two])
    assert composition.applied == [one]
    assert composition.deferred == [two]
    assert composition.text == apply_fixes("abcdef", [one]).text
    assert apply_fixes("abcdef", [two, one]) == (composition.text, [one], [two])


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        pytest.param(edit(0, 2, "x"), edit(2, 4, "y"), "xyef", id="adjacent"),
        pytest.param(edit(2, 2, "x"), edit(2, 4, "y"), "abxyef", id="insertion before a replacement"),
        pytest.param(edit(2, 4, "x"), edit(4, 4, "y"), "abxyef", id="insertion after a replacement"),
    ],
)
def test_edits_that_only_meet_are_applied_together(first: Edit, second: Edit, expected: str) -> None:
    for order in itertools.permutations([safe("one", first), safe("two", second)]):
        assert apply_fixes("abcdef", order).text == expected


def test_one_conflicting_edit_defers_the_whole_fix() -> None:
    one = safe("one", edit(0, 1, "A"))
    two = safe("two", edit(0, 1, "B"), edit(4, 5, "C"))
    assert apply_fixes("a, b, c", [two, one]) == ("A, b, c", [one], [two])


def test_safe_fixes_go_before_unsafe_ones() -> None:
    early, late = unsafe("early", edit(0, 3, "x")), safe("late", edit(2, 5, "y"))
    assert apply_fixes("abcdef", [early, late]) == ("abyf", [late], [early])


def test_insertions_of_one_fix_at_one_place_keep_their_order() -> None:
    fix = safe("two lines", edit(0, 0, "b\n"), edit(0, 0, "a\n"))
    assert apply_fixes("c\n", [fix]).text == "b\na\nc\n"


@pytest.mark.parametrize(
    "fix",
    [
        pytest.param(safe("overlaps itself", edit(0, 2, "x"), edit(1, 3, "y")), id="overlaps itself"),
        pytest.param(safe("outside", edit(2, 9, "x")), id="beyond the end"),
        pytest.param(safe("negative", edit(-1, 1, "x")), id="before the start"),
        pytest.param(safe("backwards", edit(3, 1, "x")), id="backwards"),
        pytest.param(safe("splits", edit(1, 2, "x")), id="inside a character"),
        pytest.param(safe("empty"), id="without edits"),
    ],
)
def test_impossible_fixes_are_never_applied(fix: Fix) -> None:
    assert apply_fixes("äbcd", [fix]) == ("äbcd", [], [fix])


_SPANS = st.tuples(st.integers(0, 12), st.integers(0, 12)).map(lambda pair: Span(min(pair), max(pair)))
_EDITS = st.builds(Edit, _SPANS, st.sampled_from(["", "x", "yy"]))
_FIXES = st.builds(
    Fix, st.sampled_from("abcdef"), st.lists(_EDITS, min_size=1, max_size=3).map(tuple), st.sampled_from(Applicability)
)


@given(st.lists(_FIXES, max_size=6), st.randoms())
def test_the_outcome_does_not_depend_on_the_order_of_the_fixes(fixes: list[Fix], random: object) -> None:
    text = "abcdefghijkl"
    shuffled = fixes.copy()
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    assert apply_fixes(text, shuffled).text == apply_fixes(text, fixes).text


@given(st.lists(_FIXES, max_size=6))
def test_untouched_text_survives_and_nothing_is_lost(fixes: list[Fix]) -> None:
    text = "abcdefghijkl"
    composition = apply_fixes(text, fixes)
    assert sorted([*composition.applied, *composition.deferred]) == sorted(fixes)
    assert verify(text, composition.text, merged_edits(composition.applied), parses=lambda _: True) is None


def test_verify_accepts_what_apply_fixes_makes() -> None:
    fixes = [safe("one", edit(0, 1, "y")), safe("two", edit(4, 5, "2 + z"))]
    assert verify("x = 1\n", "y = 2 + z\n", merged_edits(fixes)) is None


@pytest.mark.parametrize(
    ("new", "reason"),
    [
        ("y  = 2\n", "the result changes text outside the fix"),
        ("y = 3\n", "the result does not contain what the fix writes"),
        ("y = 2", "the result changes text outside the fix"),
    ],
)
def test_verify_finds_changes_that_no_edit_makes(new: str, reason: str) -> None:
    assert verify("x = 1\n", new, [edit(0, 1, "y"), edit(4, 5, "2")]) == reason


def test_verify_finds_invalid_python() -> None:
    assert verify("x = 1\n", "x = (\n", [edit(4, 5, "(")]) == "the result is not valid Python"


def test_verify_does_not_ask_for_python_where_there_was_none() -> None:
    assert verify("x = )\n", "x = (\n", [edit(4, 5, "(")]) is None


@pytest.mark.parametrize("text", ["x = (", "x = 1\0", "print 'x'", "  x = 1"])
def test_parses_says_no_without_raising(text: str) -> None:
    assert parses(text) is False


@pytest.mark.filterwarnings("error")
def test_parses_shows_no_warning() -> None:
    assert parses("pattern = '\\d'\n") is True


def test_deferred_fixes_are_applied_in_later_passes() -> None:
    def find(text: str) -> list[Fix]:
        """Every `old(` becomes `new(`; the fixes of nested calls cover each other."""
        starts = [i for i in range(len(text)) if text.startswith("old(", i)]
        return [safe(f"call {i}", edit(i, len(text) - 1, "new" + text[i + 3 : -1])) for i in starts]

    result = fix_to_fixpoint("x = old(old(1))\n", find)
    assert result.text == "x = new(new(1))\n"
    assert [[fix.title for fix in fixes] for fixes in result.passes] == [["call 4"], ["call 8"]]
    assert result.messages == []


def test_nothing_to_fix_leaves_the_text() -> None:
    assert fix_to_fixpoint("x = 1\n", lambda _: []) == ("x = 1\n", [], [])


def test_a_fix_that_breaks_the_file_is_dropped_and_the_others_are_made() -> None:
    def find(text: str) -> list[Fix]:
        fixes = [safe("break it", edit(0, 1, "("))]
        return fixes + [safe("good", edit(i, i + 1, "2")) for i in range(len(text)) if text[i] == "1"]

    result = fix_to_fixpoint("x = 1, 1, 1\n", find)
    assert result.text == "x = 2, 2, 2\n"
    assert [[fix.title for fix in fixes] for fixes in result.passes] == [["good", "good", "good"]]
    assert result.messages == [
        "internal fault: the fix 'break it' was dropped: the result is not valid Python; " + REPORT
    ]


def test_fixes_that_only_break_the_file_together_are_made_one_after_the_other() -> None:
    def find(text: str) -> list[Fix]:
        """Delete each of the two statements of a block; a block may not end up empty."""
        body = [line for line in text.splitlines(keepends=True) if line.startswith("    d")]
        if len(body) == 1:
            start = text.index(body[0])
            return [safe("last", edit(start + 4, start + len(body[0]) - 1, "pass"))]
        return [safe(line, edit(text.index(line), text.index(line) + len(line), "")) for line in body]

    result = fix_to_fixpoint("if x:\n    d1\n    d2\n", find)
    assert result.text == "if x:\n    pass\n"
    assert result.messages == []


def test_fixes_that_undo_one_another_are_a_fault_and_change_nothing() -> None:
    def find(text: str) -> list[Fix]:
        return [safe("flip", edit(0, 1, "y" if text.startswith("x") else "x"))]

    assert fix_to_fixpoint("x = 1\n", find) == (
        "x = 1\n",
        [],
        ["internal fault: fixes undo one another, so none was applied (last: 'flip'); " + REPORT],
    )


def test_a_fix_that_changes_nothing_is_a_fault() -> None:
    result = fix_to_fixpoint("x = 1\n", lambda _: [safe("idle", edit(0, 1, "x"))])
    assert result.text == "x = 1\n"
    assert result.messages == ["internal fault: fixes undo one another, so none was applied (last: 'idle'); " + REPORT]


def test_fixes_that_never_end_are_a_fault_and_change_nothing() -> None:
    calls: list[str] = []

    def find(text: str) -> list[Fix]:
        calls.append(text)
        return [safe("grow", edit(0, 0, "x = 1\n"))]

    assert fix_to_fixpoint("", find, max_passes=3) == (
        "",
        [],
        ["internal fault: fixes are not done after 3 passes, so none was applied (last: 'grow'); " + REPORT],
    )
    assert calls == ["", "x = 1\n", "x = 1\n" * 2, "x = 1\n" * 3]


def test_a_fix_that_overlaps_itself_is_dropped_with_a_message() -> None:
    result = fix_to_fixpoint("x = 1\n", lambda _: [safe("crooked", edit(0, 3, "y"), edit(2, 4, "z"))])
    assert result == (
        "x = 1\n",
        [],
        ["internal fault: the fix 'crooked' was dropped: its edits overlap or lie outside the text; " + REPORT],
    )
