"""Patterns decide as git does."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from amplint.patterns import Patterns


@pytest.mark.parametrize(
    ("lines", "path", "is_directory", "verdict"),
    [
        (["a.py"], "a.py", False, True),
        (["a.py"], "deep/down/a.py", False, True),
        (["a.py"], "b.py", False, None),
        (["/a.py"], "a.py", False, True),
        (["/a.py"], "deep/a.py", False, None),
        (["deep/a.py"], "deep/a.py", False, True),
        (["deep/a.py"], "very/deep/a.py", False, None),
        (["out/"], "out", True, True),
        (["out/"], "out", False, None),
        (["out/"], "out/a.py", False, None),
        (["*.py"], "x/y.py", False, True),
        (["*.py"], "x.pyi", False, None),
        (["x/*.py"], "x/y.py", False, True),
        (["x/*.py"], "x/y/z.py", False, None),
        (["x/**/z.py"], "x/z.py", False, True),
        (["x/**/z.py"], "x/y/y/z.py", False, True),
        (["**/z.py"], "z.py", False, True),
        (["x/**"], "x", True, None),
        (["x/**"], "x/y", False, True),
        (["*.py", "!keep.py"], "keep.py", False, False),
        (["!keep.py", "*.py"], "keep.py", False, True),
        (["?.py"], "ab.py", False, None),
        (["[!a].py"], "b.py", False, True),
        (["[!a].py"], "a.py", False, None),
        (["[]x].py"], "].py", False, True),
        (["[b-d].py"], "c.py", False, True),
        (["[[:digit:]].py"], "7.py", False, True),
        (["[[:digits:]].py"], "7.py", False, None),
        (["a[/]b"], "a/b", False, None),
        (["[a.py"], "[a.py", False, None),
        (["a\\"], "a", False, None),
        (["#a.py"], "#a.py", False, None),
        (["\\#a.py"], "#a.py", False, True),
        (["\\!a.py"], "!a.py", False, True),
        (["a.py   "], "a.py", False, True),
        (["a\\ "], "a ", False, True),
        (["a.py\r\n"], "a.py", False, True),
        (["", "/", "!"], "a.py", False, None),
    ],
)
def test_the_last_matching_pattern_decides(
    lines: list[str], path: str, is_directory: bool, verdict: bool | None
) -> None:
    assert Patterns(lines).decide(path, is_directory) is verdict


@pytest.mark.parametrize(
    ("lines", "path", "covered"),
    [
        (["tests"], "tests/deep/a.py", True),
        (["tests/*"], "tests/deep/a.py", True),
        (["tests/"], "tests", False),
        (["tests/", "!tests/a.py"], "tests/a.py", True),
        (["tests/*", "!tests/a.py"], "tests/a.py", False),
        (["tests/*", "!tests/a.py"], "tests/b.py", True),
        ([], "a.py", False),
    ],
)
def test_a_file_is_covered_through_its_directories(lines: list[str], path: str, covered: bool) -> None:
    assert Patterns(lines).covers(path) is covered


def test_patterns_are_true_when_there_are_any() -> None:
    assert not Patterns(["", "# nothing", "[a"])
    assert Patterns(["a"])


@given(st.lists(st.text("ab*?/[]!-^\\ #:.", max_size=8), max_size=4), st.text("ab./", min_size=1, max_size=8))
def test_no_pattern_raises(lines: list[str], path: str) -> None:
    assert Patterns(lines).decide(path, False) in (True, False, None)


GIT_LINES = [
    ["*.py", "!a/*.py"],
    ["/a"],
    ["a/b"],
    ["**/b"],
    ["a/**/c.py"],
    ["**"],
    ["b/", "!b"],
    ["?"],
    ["[ab]/[!c].py"],
    ["a/***"],
    ["*c*"],
    ["[z-a].py", "[a-]"],
    ["a/", "!a/c.py"],
    ["/*", "!/a", "/a/*", "!/a/b"],
]


def test_git_agrees(tmp_path: Path) -> None:
    files = ["a/c.py", "a/b/c.py", "a/b/z.py", "b/a/c.py", "b/d.py", "c.py", "z.py", "x", "ab"]
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    for number, lines in enumerate(GIT_LINES):
        for file in files:
            path = tmp_path / str(number) / file
            path.parent.mkdir(parents=True, exist_ok=True)
            path.touch()
        (tmp_path / str(number) / ".gitignore").write_text("\n".join(lines))
    asked = [f"{number}/{file}" for number in range(len(GIT_LINES)) for file in files]
    answer = subprocess.run(
        ["git", "check-ignore", "--no-index", "--stdin"],
        cwd=tmp_path,
        input="\n".join(asked),
        text=True,
        capture_output=True,
        check=True,
    )
    ours = [
        f"{number}/{file}" for number, lines in enumerate(GIT_LINES) for file in files if Patterns(lines).covers(file)
    ]
    assert ours == answer.stdout.splitlines()
