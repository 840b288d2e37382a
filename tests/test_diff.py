"""What `unified_diff` prints, `git apply` takes."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from amplint.diff import unified_diff


def git_apply(directory: Path, diff: str) -> None:
    subprocess.run(
        ["git", "apply", "--whitespace=nowarn", "-"],
        input=diff.encode(),
        cwd=directory,
        check=True,
        capture_output=True,
    )


def test_equal_texts_have_no_diff() -> None:
    assert unified_diff("x = 1\n", "x = 1\n", "a.py") == ""


def test_the_change_stands_between_three_lines_of_context() -> None:
    old = "".join(f"line {n}\n" for n in range(1, 21))
    new = old.replace("line 10\n", "line ten\n")
    assert unified_diff(old, new, "pkg/a.py") == (
        "--- a/pkg/a.py\n+++ b/pkg/a.py\n@@ -7,7 +7,7 @@\n line 7\n line 8\n line 9\n-line 10\n+line ten\n line 11\n"
        " line 12\n line 13\n"
    )


def test_far_changes_are_hunks_of_their_own() -> None:
    old = "".join(f"{n}\n" for n in range(1, 31))
    new = "0\n" + old.replace("20\n", "")
    first = "@@ -1,3 +1,4 @@\n+0\n 1\n 2\n 3\n"
    second = "@@ -17,7 +18,6 @@\n 17\n 18\n 19\n-20\n 21\n 22\n 23\n"
    assert unified_diff(old, new, "a.py") == "--- a/a.py\n+++ b/a.py\n" + first + second


def test_a_missing_newline_at_the_end_is_marked() -> None:
    assert unified_diff("a\nb", "a\nc\n", "a.py") == (
        "--- a/a.py\n+++ b/a.py\n@@ -1,2 +1,2 @@\n a\n-b\n\\ No newline at end of file\n+c\n"
    )


def test_carriage_returns_belong_to_the_lines() -> None:
    assert unified_diff("a\r\nb\r\n", "a\r\nc\r\n", "a.py") == (
        "--- a/a.py\n+++ b/a.py\n@@ -1,2 +1,2 @@\n a\r\n-b\r\n+c\r\n"
    )


@pytest.mark.parametrize(
    ("old", "new", "header"),
    [("", "a\nb\n", "@@ -0,0 +1,2 @@"), ("a\n", "", "@@ -1 +0,0 @@"), ("a\n", "b\n", "@@ -1 +1 @@")],
)
def test_ranges_are_counted_as_git_counts_them(old: str, new: str, header: str) -> None:
    assert unified_diff(old, new, "a.py").splitlines()[2] == header


@pytest.mark.parametrize(
    ("filename", "line"),
    [
        ("a b.py", "--- a/a b.py\t"),
        ("/abs/a.py", "--- a/abs/a.py"),
        ('quo"te.py', '--- "a/quo\\"te.py"'),
        ("tab\t.py", '--- "a/tab\\t.py"'),
        ("bad\udcff.py", '--- "a/bad\\377.py"'),
        ("ä.py", "--- a/ä.py"),
    ],
)
def test_odd_file_names_are_written_as_git_does(filename: str, line: str) -> None:
    assert unified_diff("x\n", "y\n", filename).split("\n")[0] == line


@pytest.mark.parametrize(
    "filename", ["a.py", "a b.py", "ä.py", 'quo"te.py', "back\\slash.py", "tab\t.py", "sub dir/x.py"]
)
def test_git_finds_the_file(tmp_path: Path, filename: str) -> None:
    path = tmp_path / filename
    path.parent.mkdir(exist_ok=True)
    path.write_text("x\n")
    git_apply(tmp_path, unified_diff("x\n", "y\n", filename))
    assert path.read_text() == "y\n"


_TEXTS = st.lists(
    st.sampled_from(
        ["a\n", "b\n", "c\r\n", "\n", "\r\n", "x\ry\n", "\x0c\n", "é\u2028\n", "end", "+++ b\n", "@@ -1 +1 @@\n"]
    ),
    max_size=25,
).map("".join)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(old=_TEXTS, new=_TEXTS)
def test_git_turns_the_old_text_into_the_new(tmp_path: Path, old: str, new: str) -> None:
    path = tmp_path / "a.py"
    path.write_bytes(old.encode())
    if old != new:
        git_apply(tmp_path, unified_diff(old, new, "a.py"))
    assert path.read_bytes() == new.encode()
