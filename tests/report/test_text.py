from __future__ import annotations

import pytest

from amplint.model import Diagnostic, Level
from amplint.report import ReportContext, render
from tests.report.samples import CLIP, CONTEXT, IMPORT, SOURCE, diagnostic, fix

HEAD = "train.py:{}:{}: AMP301 clip-before-unscale [error] something is wrong\n"


def shown(source: str | None, found: Diagnostic, width: int = 80) -> str:
    """The report without its first line and summary."""
    report = render("text", [found], ReportContext(sources=lambda name: source, width=width))
    head = HEAD.format(*found.location)
    assert report.startswith(head)
    return report.removeprefix(head)[: report.rindex("\nFound") - len(head)]


def test_whole_report() -> None:
    assert render("text", [CLIP, IMPORT], CONTEXT) == (
        "train.py:6:14: AMP001 deprecated-amp-api [warning] `torch.cuda.amp.autocast` is deprecated\n"
        "  |\n"
        "2 | from torch.cuda.amp import autocast\n"
        "  |                            -------- imported here\n"
        "...\n"
        "6 |         with autocast(True):\n"
        "  |              ^^^^^^^^\n"
        "  |\n"
        "  = help: the device is a guess\n"
        "  = fix available: Use `torch.amp.autocast` (unsafe)\n"
        "2 - from torch.cuda.amp import autocast\n"
        "2 + from torch.amp import autocast\n"
        "6 -         with autocast(True):\n"
        '6 +         with autocast("cuda", enabled=True):\n'
        "\n"
        "train.py:9:9: AMP301 clip-before-unscale [error] gradients are clipped while they are scaled\n"
        "  |\n"
        "8 |         scaler.scale(loss).backward()\n"
        "  |         ----------------------------- scaled here\n"
        "9 |         clip_grad_norm_(model.parameters(), 1.0)\n"
        "  |         ^^^^^^^^^^^^^^^\n"
        "  |\n"
        "  = fix available: Call `scaler.unscale_(optimizer)` before the clip [*]\n"
        "9 +         scaler.unscale_(optimizer)\n"
        "\n"
        "Found 1 error, 1 warning (1 fixable with `amplint fix`, 1 more with --unsafe-fixes).\n"
    )


def test_nothing_found() -> None:
    assert render("text", [], CONTEXT) == "All checks passed!\n"
    assert render("text", [], CONTEXT._replace(color=True)) == "\x1b[32mAll checks passed!\x1b[0m\n"


def test_color() -> None:
    found = diagnostic((9, 9), (9, 24), (("scaled here", (2, 1), (2, 5)),), level=Level.WARNING)
    assert render("text", [found], CONTEXT._replace(color=True)) == (
        "\x1b[1mtrain.py\x1b[0m:9:9: \x1b[1;33mAMP301\x1b[0m \x1b[1mclip-before-unscale\x1b[0m"
        " \x1b[33m[warning]\x1b[0m something is wrong\n"
        "\x1b[34m  |\x1b[0m\n"
        "\x1b[34m2 |\x1b[0m from torch.cuda.amp import autocast\n"
        "\x1b[34m  |\x1b[0m \x1b[1;34m---- scaled here\x1b[0m\n"
        "\x1b[34m...\x1b[0m\n"
        "\x1b[34m9 |\x1b[0m         clip_grad_norm_(model.parameters(), 1.0)\n"
        "\x1b[34m  |\x1b[0m         \x1b[1;33m^^^^^^^^^^^^^^^\x1b[0m\n"
        "\x1b[34m  |\x1b[0m\n"
        "\n"
        "\x1b[1mFound 1 warning.\x1b[0m\n"
    )


class TestFrame:
    def test_a_gap_of_one_line_is_shown(self) -> None:
        found = diagnostic((8, 9), (8, 15), (("entered here", (6, 14), (6, 28)),))
        assert shown(SOURCE, found) == (
            "  |\n"
            "6 |         with autocast(True):\n"
            "  |              -------------- entered here\n"
            "7 |             loss = model(x)\n"
            "8 |         scaler.scale(loss).backward()\n"
            "  |         ^^^^^^\n"
            "  |\n"
        )

    def test_numbers_are_aligned(self) -> None:
        found = diagnostic((9, 9), (9, 15), (("stepped here", (10, 9), (10, 20)),))
        assert shown(SOURCE, found) == (
            "   |\n"
            " 9 |         clip_grad_norm_(model.parameters(), 1.0)\n"
            "   |         ^^^^^^\n"
            "10 |         scaler.step(optimizer)\n"
            "   |         ----------- stepped here\n"
            "   |\n"
        )

    def test_several_places_on_a_line(self) -> None:
        found = diagnostic((1, 7), (1, 12), (("first", (1, 1), (1, 4)), ("second", (1, 8), (1, 9))))
        assert shown("one = three\n", found) == (
            "  |\n1 | one = three\n  | --- first\n  |       ^^^^^\n  |        - second\n  |\n"
        )

    def test_label_at_the_blamed_place(self) -> None:
        found = diagnostic((1, 1), (1, 4), (("here", (1, 1), (1, 4)), ("again", (1, 1), (1, 4))))
        assert shown("one\n", found) == "  |\n1 | one\n  | ^^^ here, again\n  |\n"

    def test_path_that_leads_up_again_is_numbered(self) -> None:
        related = (("scaled here", (2, 1), (2, 2)), ("next iteration", (1, 1), (1, 2)))
        assert shown("a\nb\nc\n", diagnostic((3, 1), (3, 2), related)) == (
            "  |\n1 | a\n  | - (2) next iteration\n2 | b\n  | - (1) scaled here\n3 | c\n  | ^\n  |\n"
        )

    def test_several_lines(self) -> None:
        source = "with f(\n    a,\n    b,\n    c,\n): pass\n"
        assert shown(source, diagnostic((1, 6), (5, 2), (("arguments", (2, 5), (4, 7)),))) == (
            "  |\n"
            "1 | with f(\n"
            "  |      ^^\n"
            "2 |     a,\n"
            "  |     --\n"
            "3 |     b,\n"
            "4 |     c,\n"
            "  |     -- arguments\n"
            "5 | ): pass\n"
            "  | ^\n"
            "  |\n"
        )

    def test_whole_line_with_its_end(self) -> None:
        assert shown("one\ntwo\n", diagnostic((1, 1), (2, 1))) == "  |\n1 | one\n  | ^^^\n  |\n"

    def test_tabs(self) -> None:
        found = diagnostic((1, 3), (1, 6), (("x", (1, 7), (1, 8)),))
        assert shown("\t\tone\tx\n", found) == "  |\n1 |         one x\n  |         ^^^\n  |             - x\n  |\n"

    def test_wide_and_combining_characters(self) -> None:
        found = diagnostic((1, 6), (1, 8))
        assert shown("\u65e5\u672c = \u8a9e\u8a9e\n", found) == (
            "  |\n1 | \u65e5\u672c = \u8a9e\u8a9e\n  |        ^^^^\n  |\n"
        )
        found = diagnostic((1, 3), (1, 4))
        assert shown("e\u0301x\n", found) == "  |\n1 | e\u0301x\n  |  ^\n  |\n"

    def test_control_characters(self) -> None:
        found = diagnostic((1, 4), (1, 5))
        assert shown("\x1b[2m\u202e\n", found) == "  |\n1 | \\x1b[2m\\u202e\n  |       ^\n  |\n"

    @pytest.mark.parametrize(
        ("source", "place", "frame"),
        [
            ("one\n", (2, 1), "  |\n2 |\n  | ^\n  |\n"),
            ("one", (1, 4), "  |\n1 | one\n  |    ^\n  |\n"),
            ("", (1, 1), "  |\n1 |\n  | ^\n  |\n"),
            ("one\n", (7, 3), "  |\n2 |\n  | ^\n  |\n"),
            ("one\n", (1, 9), "  |\n1 | one\n  |    ^\n  |\n"),
        ],
    )
    def test_places_at_and_behind_the_end(self, source: str, place: tuple[int, int], frame: str) -> None:
        assert shown(source, diagnostic(place, place)) == frame

    def test_line_ends(self) -> None:
        assert shown("one\r\ntwo\rthree\x0cx\n", diagnostic((3, 1), (3, 6))) == (
            "  |\n3 | three\\x0cx\n  | ^^^^^\n  |\n"
        )

    def test_missing_source(self) -> None:
        found = CLIP._replace(message="something is wrong")
        assert render("text", [found], ReportContext()) == (
            HEAD.format(9, 9) + "  = note: train.py:8:9: scaled here\n"
            "  = fix available: Call `scaler.unscale_(optimizer)` before the clip [*]\n"
            "\n"
            "Found 1 error (1 fixable with `amplint fix`).\n"
        )


class TestLongLines:
    LINE = "abcdefghij" * 10

    @pytest.mark.parametrize(
        ("start", "end", "line", "marks"),
        [
            (1, 4, "abcdefghijabcdefghijabcdefghi...", "^^^"),
            (21, 25, "abcdefghijabcdefghijabcdefghi...", "                    ^^^^"),
            (50, 53, "...jabcdefghijabcdefghijabcde...", "             ^^^"),
            (98, 101, "...hijabcdefghij", "             ^^^"),
            (101, 101, "...abcdefghij", "             ^"),
            (20, 90, "abcdefghijabcdefghijabcdefghi...", "                   ^^^^^^^^^^"),
        ],
    )
    def test_the_blamed_place_stays_in_sight(self, start: int, end: int, line: str, marks: str) -> None:
        found = diagnostic((1, start), (1, end))
        assert shown(self.LINE, found, width=36) == f"  |\n1 | {line}\n  | {marks}\n  |\n"

    def test_labels_out_of_sight_stand_at_the_cut(self) -> None:
        found = diagnostic((1, 50), (1, 53), (("before", (1, 1), (1, 4)), ("behind", (1, 90), (1, 95))))
        assert shown(self.LINE, found, width=36) == (
            "  |\n"
            "1 | ...jabcdefghijabcdefghijabcde...\n"
            "  |    - before\n"
            "  |              ^^^\n"
            "  |                              - behind\n"
            "  |\n"
        )

    def test_wide_characters(self) -> None:
        found = diagnostic((1, 30), (1, 33))
        assert shown("\u65e5" * 60, found, width=36) == (
            "  |\n1 | ..." + "\u65e5" * 13 + "...\n  |              ^^^^^^\n  |\n"
        )

    def test_width_has_a_lower_bound(self) -> None:
        assert shown(self.LINE, diagnostic(), width=0) == "  |\n1 | abcdefghijabcdefg...\n  | ^\n  |\n"

    def test_line_that_just_fits(self) -> None:
        assert shown("a" * 32, diagnostic(), width=36) == f"  |\n1 | {'a' * 32}\n  | ^\n  |\n"


class TestFix:
    def test_change_far_to_the_right(self) -> None:
        found = diagnostic(fix=fix("Do", ((1, 70), (1, 71), "XYZ")))
        assert shown("abcdefghij" * 10, found, width=36) == (
            "  |\n"
            "1 | abcdefghijabcdefghijabcdefghi...\n"
            "  | ^\n"
            "  |\n"
            "  = fix available: Do [*]\n"
            "1 - ...jabcdefghijabcdefghijabcde...\n"
            "1 + ...jabcdefghiXYZabcdefghijabc...\n"
        )

    def test_many_lines_are_cut(self) -> None:
        found = diagnostic(fix=fix("Do", ((1, 1), (21, 1), "x\n")))
        assert shown("a\n" * 20, found) == (
            "   |\n"
            " 1 | a\n"
            "   | ^\n"
            "   |\n"
            "   = fix available: Do [*]\n"
            + "".join(f"{row:>2} - a\n" for row in range(1, 16))
            + "   ... 6 more changed lines\n"
        )

    def test_without_edits(self) -> None:
        found = diagnostic(fix=fix("Do", safe=False))
        assert shown("a\n", found) == "  |\n1 | a\n  | ^\n  |\n  = fix available: Do (unsafe)\n"
