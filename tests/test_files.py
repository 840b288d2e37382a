"""Files are read as Python reads them and written so that nothing can damage them."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from amplint.files import (
    FileChangedError,
    FileError,
    UndecodableError,
    UnencodableError,
    decode,
    read,
    write_atomically,
    write_together,
)


@pytest.mark.parametrize(
    ("data", "text", "encoding", "bom"),
    [
        pytest.param(b"", "", "utf-8", False, id="empty"),
        pytest.param("x = 'ä'\r\n".encode(), "x = 'ä'\r\n", "utf-8", False, id="utf-8 and CRLF"),
        pytest.param(b"\xef\xbb\xbfx\n", "x\n", "utf-8", True, id="byte order mark"),
        pytest.param(b"# coding: latin-1\n'\xe4'\n", "# coding: latin-1\n'ä'\n", "iso-8859-1", False, id="latin-1"),
        pytest.param(
            b"#!/bin/x\n# -*- coding: cp1252 -*-\n'\x80'\n",
            "#!/bin/x\n# -*- coding: cp1252 -*-\n'€'\n",
            "cp1252",
            False,
            id="second line",
        ),
        pytest.param(b"\xef\xbb\xbf# coding: utf-8\n", "# coding: utf-8\n", "utf-8", True, id="mark and cookie"),
        pytest.param(
            b"x = 1\ny = 'coding: latin-1'\n\xc3\xa4\n",
            "x = 1\ny = 'coding: latin-1'\nä\n",
            "utf-8",
            False,
            id="no cookie after code",
        ),
        pytest.param(b"a\x0cb\rc\x85".replace(b"\x85", b""), "a\x0cb\rc", "utf-8", False, id="odd white space"),
    ],
)
def test_decode(data: bytes, text: str, encoding: str, bom: bool) -> None:
    decoded = decode(data)
    assert decoded == (text, encoding, bom)
    assert decoded.encode(decoded.text) == data


@pytest.mark.parametrize(
    ("data", "message", "row", "column"),
    [
        pytest.param(
            b"x = 1\ny = 'ab\xe4'\n",
            "the file can't be decoded: byte 0xe4 is not utf-8, and no encoding is declared",
            2,
            8,
            id="latin-1 without cookie",
        ),
        pytest.param(
            "'ä".encode() + b"\xff",
            "the file can't be decoded: byte 0xff is not utf-8, and no encoding is declared",
            1,
            3,
            id="columns count characters",
        ),
        pytest.param(
            b"\xef\xbb\xbf'\xe4'", "the file can't be decoded: byte 0xe4 is not utf-8", 1, 2, id="after a mark"
        ),
        pytest.param(
            b"# coding: ascii\n'\xe4'", "the file can't be decoded: byte 0xe4 is not ascii", 2, 2, id="cookie"
        ),
        pytest.param(
            b"# coding: nonsense\n", "the file can't be decoded: unknown encoding: nonsense", 1, 1, id="unknown"
        ),
        pytest.param(
            b"\n# coding: nonsense\n", "the file can't be decoded: unknown encoding: nonsense", 2, 1, id="row 2"
        ),
        pytest.param(
            b"# coding: hex\n", "the file can't be decoded: hex is not a text encoding", 1, 1, id="not of text"
        ),
        pytest.param(
            b"\xef\xbb\xbf# coding: latin-1\n",
            "the file can't be decoded: encoding problem: utf-8",
            1,
            1,
            id="mark against cookie",
        ),
        pytest.param(b"x\n\x7fELF\0", "the file is not Python source: it holds a NUL byte", 2, 5, id="binary"),
        pytest.param("x = 1\n".encode("utf-16"), "the file is not Python source: it is UTF-16", 1, 4, id="UTF-16"),
    ],
)
def test_bytes_that_are_no_source_are_refused_with_their_place(
    data: bytes, message: str, row: int, column: int
) -> None:
    with pytest.raises(UndecodableError) as caught:
        decode(data)
    assert (caught.value.message, caught.value.row, caught.value.column) == (message, row, column)


@given(st.binary(max_size=200))
def test_any_bytes_are_decoded_exactly_or_refused(data: bytes) -> None:
    try:
        decoded = decode(data)
    except UndecodableError as error:
        refused_at: tuple[int, int] | None = (error.row, error.column)
    else:
        refused_at = None
        assert decoded.encode(decoded.text) == data
    assert refused_at is None or min(refused_at) >= 1


def test_a_character_that_the_encoding_lacks_is_refused() -> None:
    with pytest.raises(UnencodableError, match="'€' does not exist in the file's encoding iso-8859-1"):
        decode(b"# coding: latin-1\n").encode("# coding: latin-1\n'€'\n")


def test_read_says_why_it_cannot(tmp_path: Path) -> None:
    with pytest.raises(FileError, match=r"^can't be read: no such file or directory$"):
        read(str(tmp_path / "missing.py"))
    with pytest.raises(FileError, match=r"^can't be read: is a directory$"):
        read(str(tmp_path))


def test_write_replaces_the_content_and_keeps_the_mode(tmp_path: Path) -> None:
    path = tmp_path / "a.py"
    path.write_bytes(b"old")
    path.chmod(0o751)
    write_atomically(str(path), b"new", expected=b"old")
    assert path.read_bytes() == b"new"
    assert stat.S_IMODE(path.stat().st_mode) == 0o751
    assert os.listdir(tmp_path) == ["a.py"]


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="only root may give files away")
def test_write_keeps_the_owner(tmp_path: Path) -> None:
    path = tmp_path / "a.py"
    path.write_bytes(b"old")
    os.chown(path, 65534, 65534)
    write_atomically(str(path), b"new")
    assert (path.stat().st_uid, path.stat().st_gid) == (65534, 65534)


def test_symbolic_links_stay_links(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    target = tmp_path / "real" / "a.py"
    target.write_bytes(b"old")
    (tmp_path / "middle.py").symlink_to("real/a.py")
    (tmp_path / "link.py").symlink_to("middle.py")
    write_atomically(str(tmp_path / "link.py"), b"new")
    assert os.readlink(tmp_path / "link.py") == "middle.py"
    assert os.readlink(tmp_path / "middle.py") == "real/a.py"
    assert target.read_bytes() == b"new"
    assert os.listdir(tmp_path / "real") == ["a.py"]


def test_a_file_that_changed_since_it_was_read_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "a.py"
    path.write_bytes(b"changed")
    with pytest.raises(FileChangedError, match=r"^changed on disk while it was being fixed; not written$"):
        write_atomically(str(path), b"new", expected=b"old")
    assert path.read_bytes() == b"changed"


def test_a_file_that_vanished_is_not_made_again(tmp_path: Path) -> None:
    with pytest.raises(FileError, match=r"^can't be written: no such file or directory$"):
        write_atomically(str(tmp_path / "a.py"), b"new")
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("failing", ["write", "fsync", "replace", "chmod"])
def test_a_failure_at_any_step_leaves_the_file_and_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failing: str
) -> None:
    path = tmp_path / "a.py"
    path.write_bytes(b"old")

    def fail(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, failing, fail)
    with pytest.raises(FileError, match=r"^can't be written: no space left on device$"):
        write_atomically(str(path), b"new")
    monkeypatch.undo()
    assert path.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["a.py"]


def test_an_interrupt_leaves_no_temporary_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.py"
    path.write_bytes(b"old")

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "fsync", interrupt)
    with pytest.raises(KeyboardInterrupt):
        write_atomically(str(path), b"new")
    assert path.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["a.py"]


def test_short_writes_are_continued(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.py"
    path.write_bytes(b"old")
    write = os.write
    monkeypatch.setattr(os, "write", lambda descriptor, data: write(descriptor, data[:3]))
    write_atomically(str(path), b"0123456789")
    assert path.read_bytes() == b"0123456789"


def test_the_temporary_file_is_no_python_source_and_stands_beside_the_target(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / ("long" * 60 + ".py")
    path.write_bytes(b"old")
    seen: list[str] = []
    monkeypatch.setattr(os, "fsync", lambda _: seen.extend(name for name in os.listdir(tmp_path) if name != path.name))
    write_atomically(str(path), b"new")
    assert len(seen) == 1
    assert seen[0].startswith(".amplint-")
    assert not seen[0].endswith(".py")


def test_a_read_only_file_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.py"
    path.write_bytes(b"old")
    monkeypatch.setattr(os, "access", lambda *_: False)
    with pytest.raises(FileError, match=r"^can't be written: it is read-only$"):
        write_atomically(str(path), b"new")
    assert path.read_bytes() == b"old"


def test_several_files_are_written_together(tmp_path: Path) -> None:
    names = [str(tmp_path / name) for name in ("a.py", "b.py")]
    for name in names:
        Path(name).write_bytes(b"old")
    write_together([(name, b"new", b"old") for name in names])
    assert [Path(name).read_bytes() for name in names] == [b"new", b"new"]


def test_of_several_files_none_is_written_where_one_changed(tmp_path: Path) -> None:
    names = [str(tmp_path / name) for name in ("a.py", "b.py")]
    Path(names[0]).write_bytes(b"old")
    Path(names[1]).write_bytes(b"other")
    with pytest.raises(FileChangedError, match=r"b\.py changed on disk"):
        write_together([(name, b"new", b"old") for name in names])
    assert [Path(name).read_bytes() for name in names] == [b"old", b"other"]


def test_of_several_files_those_written_get_their_content_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names = [str(tmp_path / name) for name in ("a.py", "b.py")]
    for name in names:
        Path(name).write_bytes(b"old")
    replace = os.replace

    def fails(source: str, target: str) -> None:
        if target.endswith("b.py"):
            raise OSError(errno.ENOSPC, "No space left on device")
        replace(source, target)

    monkeypatch.setattr(os, "replace", fails)
    with pytest.raises(FileError, match=r"b\.py can't be written: no space left on device; none of its group"):
        write_together([(name, b"new", b"old") for name in names])
    assert [Path(name).read_bytes() for name in names] == [b"old", b"old"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.py", "b.py"]
