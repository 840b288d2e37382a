from __future__ import annotations

import pytest

from amplint.add_noqa import NoqaResult, add_noqa

NAMES = {"AMP000": "unreadable-file", "AMP001": "deprecated-amp-api", "AMP301": "clip-before-unscale"}


@pytest.mark.parametrize(
    ("before", "rows", "after"),
    [
        ("x = 1\ny = 2\n", {2: ["AMP301"]}, "x = 1\ny = 2  # noqa: AMP301\n"),
        ("x = 1", {1: ["AMP301", "AMP001", "AMP301"]}, "x = 1  # noqa: AMP001, AMP301"),
        ("x = 1\r\ny = 2\r\n", {1: ["AMP301"], 2: ["AMP001"]}, "x = 1  # noqa: AMP301\r\ny = 2  # noqa: AMP001\r\n"),
        ("x = 1 \t\ny\n", {1: ["AMP301"]}, "x = 1  # noqa: AMP301 \t\ny\n"),
        ("x = 1  # why\n", {1: ["AMP301"]}, "x = 1  # why  # noqa: AMP301\n"),
        ("x = 1  # noqa: F401\n", {1: ["AMP301"]}, "x = 1  # noqa: F401, AMP301\n"),
        ("x = 1  # noqa: F401 why # z\n", {1: ["AMP301"]}, "x = 1  # noqa: F401, AMP301 why # z\n"),
        ("x = 1  # noqa: AMP001\n", {1: ["AMP001", "AMP301"]}, "x = 1  # noqa: AMP001, AMP301\n"),
        ("x = 1  # noqa: deprecated-amp-api\n", {1: ["AMP001"]}, "x = 1  # noqa: deprecated-amp-api\n"),
        (
            "x = 1  # amplint: ignore[AMP001]\n",
            {1: ["AMP301"]},
            "x = 1  # amplint: ignore[AMP001]  # noqa: AMP301\n",
        ),
        ("f(\n  1,\n  2)\n", {1: ["AMP301"], 2: ["AMP001"]}, "f(  # noqa: AMP301\n  1,  # noqa: AMP001\n  2)\n"),
        ("x = 1 + \\\n  2\n", {1: ["AMP301"]}, "x = 1 + \\\n  2  # noqa: AMP301\n"),
        ("x = '''\na\n'''\n", {1: ["AMP301"], 2: ["AMP001"]}, "x = '''\na\n'''  # noqa: AMP001, AMP301\n"),
        ("x = f'''{\n1\n} a\n'''\ny\n", {2: ["AMP301"]}, "x = f'''{\n1\n} a\n'''  # noqa: AMP301\ny\n"),
        ("x = '''\na'''  # noqa: E501\n", {1: ["AMP301"]}, "x = '''\na'''  # noqa: E501, AMP301\n"),
        ("x = '\u65e5'  # \U0001f600\ny\n", {1: ["AMP301"]}, "x = '\u65e5'  # \U0001f600  # noqa: AMP301\ny\n"),
        ("if x: y = 1\n", {1: ["AMP301"]}, "if x: y = 1  # noqa: AMP301\n"),
    ],
)
def test_adds_where_it_works(before: str, rows: dict[int, list[str]], after: str) -> None:
    added = sum(len(set(codes)) for codes in rows.values())
    assert add_noqa(before, rows, NAMES) == NoqaResult(after, added, [])
    assert add_noqa(after, rows, NAMES) == NoqaResult(after, added, [])


@pytest.mark.parametrize(
    ("before", "rows", "messages"),
    [
        ("x = 1\nf(\n", {1: ["AMP000"]}, ["line 1: AMP000 can't be suppressed with a comment there"]),
        ("x = 1\n", {9: ["AMP301"]}, ["line 9: AMP301 can't be suppressed with a comment there"]),
        ("x = 1\nf(\n", {1: ["AMP301"]}, ["line 1: AMP301 can't be suppressed with a comment there"]),
    ],
)
def test_says_what_cannot_be_suppressed(before: str, rows: dict[int, list[str]], messages: list[str]) -> None:
    assert add_noqa(before, rows, NAMES) == NoqaResult(before, 0, messages)


def test_nothing_to_add() -> None:
    assert add_noqa("x = 1\n", {}, NAMES) == NoqaResult("x = 1\n", 0, [])


def test_all_rules_are_known_by_default() -> None:
    assert add_noqa("x = 1  # noqa: E5\n", {1: ["AMP900"]}) == NoqaResult("x = 1  # noqa: E5, AMP900\n", 1, [])
