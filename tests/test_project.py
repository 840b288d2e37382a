"""Where a project begins, and how its TOML files are read."""

from __future__ import annotations

from pathlib import Path

import pytest

from amplint.project import parse_toml, path_from, repository_root


def test_the_nearest_repository_wins(tmp_path: Path) -> None:
    inner = tmp_path / "outer" / "inner"
    (inner / "src").mkdir(parents=True)
    (tmp_path / "outer" / ".git").mkdir()
    assert repository_root(str(inner / "src")) == str(tmp_path / "outer")
    (inner / ".git").write_text("gitdir: elsewhere")
    assert repository_root(str(inner / "src")) == str(inner)
    assert repository_root(str(inner)) == str(inner)


def test_there_may_be_no_repository(tmp_path: Path) -> None:
    assert repository_root(str(tmp_path)) is None


def test_paths_are_named_from_a_directory() -> None:
    assert path_from("/a", "/a/b/setup.cfg") == "b/setup.cfg"
    assert path_from("/a/b", "/a/base.txt") == "../base.txt"


def test_toml_may_start_with_a_byte_order_mark() -> None:
    assert parse_toml(b'\xef\xbb\xbfa = "\xc3\xa4"\r\n') == {"a": "\u00e4"}


@pytest.mark.parametrize("data", [b"a = ", b"a = '\xff'", b"a = " + b"[" * 100_000])
def test_what_is_not_toml_is_a_value_error(data: bytes) -> None:
    with pytest.raises(ValueError, match=r"Invalid value \(at|can't decode byte|nested too deeply|Expected|Unclosed"):
        parse_toml(data)
