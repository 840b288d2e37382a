from __future__ import annotations

from amplint.report import render
from tests.report.samples import CLIP, CONTEXT, IMPORT, MILD, diagnostic


def test_lines_and_summary() -> None:
    assert render("concise", [CLIP, IMPORT, MILD], CONTEXT) == (
        "lib/a b.py:6:9: AMP604 something is wrong\n"
        "train.py:6:14: AMP001 `torch.cuda.amp.autocast` is deprecated\n"
        "train.py:9:9: AMP301 [*] gradients are clipped while they are scaled\n"
        "Found 1 error, 1 warning, 1 info (1 fixable with `amplint fix`, 1 more with --unsafe-fixes).\n"
    )


def test_nothing_found() -> None:
    assert render("concise", [], CONTEXT) == "All checks passed!\n"


def test_names_and_messages_stay_on_one_line() -> None:
    found = diagnostic(message="two\nlines \x1b[31m", filename="a\nb.py")
    assert render("concise", [found], CONTEXT).splitlines()[0] == "a\\nb.py:1:1: AMP301 two\\nlines \\x1b[31m"


def test_color_and_links() -> None:
    context = CONTEXT._replace(color=True, hyperlinks=True)
    assert render("concise", [CLIP], context).splitlines()[0] == (
        "\x1b[1mtrain.py\x1b[0m:9:9: "
        "\x1b]8;;https://example.org/AMP301\x1b\\\x1b[1;31mAMP301\x1b[0m\x1b]8;;\x1b\\ "
        "\x1b[36m[*]\x1b[0m gradients are clipped while they are scaled"
    )
