"""Each file under tests/cases says in its header what must be found in it: exactly that is found, and nothing else."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from amplint import check_source, fix_source

CASES = sorted((Path(__file__).parent / "cases").glob("*.py"))
EXPECT = re.compile(r"^# expect: (\d+) (AMP\d{3})$", re.MULTILINE)


def expected(text: str) -> list[tuple[int, str]]:
    """The (line, code) pairs of a header."""
    return sorted({(int(line), code) for line, code in EXPECT.findall(text)})


@pytest.mark.parametrize("path", CASES, ids=lambda path: path.stem)
def test_case(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    found = sorted({(d.location.row, d.code) for d in check_source(text, path.name)})
    assert found == expected(text)


@pytest.mark.parametrize("path", CASES, ids=lambda path: path.stem)
def test_fixing_twice_changes_nothing_more(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    once = fix_source(text, path.name, unsafe=True)
    twice = fix_source(once.text, path.name, unsafe=True)
    assert twice.text == once.text
    assert once.messages == []


# The two gates of this pair are merged into one by hand, which is no tool's business; each is right after the fix.
MERGED_BY_HAND = {"dep_gate_hasattr_and_string"}
PAIRS = [path for path in CASES if path.with_name(f"{path.stem}_fixed.py").exists() and path.stem.startswith("dep_")]


def body(text: str) -> str:
    """The text without its header comments."""
    return re.sub(r"\A(?:#.*\n)+", "", text)


@pytest.mark.parametrize("path", PAIRS, ids=lambda path: path.stem)
def test_deprecated_api_is_fixed_as_the_pair_says(path: Path) -> None:
    got = fix_source(path.read_text(encoding="utf-8"), path.name).text
    if path.stem in MERGED_BY_HAND:
        assert check_source(got, path.name) == []
        return
    assert body(got) == body(path.with_name(f"{path.stem}_fixed.py").read_text(encoding="utf-8"))
