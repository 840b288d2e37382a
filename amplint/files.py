"""Bytes become text and text becomes bytes again, exactly; files are replaced atomically.

The encoding is found as Python finds it: byte order mark, then the cookie of PEP 263, then UTF-8.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from typing import NamedTuple

_BOM = b"\xef\xbb\xbf"
_TEMPORARY_PREFIX = ".amplint-"  # with this prefix and without `.py` no tool takes a leftover for source


class FileError(Exception):
    """A file that could not be read or written; the message says why and begins with no file name."""


class FileChangedError(FileError):
    """The file no longer holds what was read; it was not written."""


class UnencodableError(FileError):
    """The new text holds a character that the file's encoding does not have; nothing was written."""


class UndecodableError(Exception):
    """The bytes are not Python source text; `row` and `column` (from 1, in characters) say from where on."""

    def __init__(self, message: str, row: int = 1, column: int = 1) -> None:
        super().__init__(message)
        self.message = message
        self.row = row
        self.column = column


class Decoded(NamedTuple):
    """Text without its byte order mark, and what is needed to write it back."""

    text: str
    encoding: str
    bom: bool

    def encode(self, text: str) -> bytes:
        """Turn `text` into bytes as the file has them; raises `UnencodableError`."""
        try:
            return (_BOM if self.bom else b"") + text.encode(self.encoding)
        except UnicodeEncodeError as error:
            character = text[error.start]
            raise UnencodableError(f"{character!r} does not exist in the file's encoding {self.encoding}") from None


def decode(data: bytes) -> Decoded:
    """Turn the bytes of a source file into text, line ends kept; raises `UndecodableError`."""
    nul = data.find(b"\0")
    if nul >= 0:
        reason = "it is UTF-16" if data[:2] in (b"\xff\xfe", b"\xfe\xff") else "it holds a NUL byte"
        raise UndecodableError(f"the file is not Python source: {reason}", *_place(data, nul))
    bom = data.startswith(_BOM)
    content = data[len(_BOM) :] if bom else data
    encoding = _declared_encoding(data)
    try:
        return Decoded(content.decode(encoding), encoding, bom)
    except UnicodeDecodeError as error:
        message = f"the file can't be decoded: byte 0x{content[error.start]:02x} is not {encoding}"
        if encoding == "utf-8" and not bom:
            message += ", and no encoding is declared"
        raise UndecodableError(message, *_place(content, error.start, encoding)) from None
    except (LookupError, UnicodeError, ValueError):
        raise UndecodableError(f"the file can't be decoded: {encoding} is not a text encoding") from None


def read(path: str) -> bytes:
    """The bytes of a file; raises `FileError`."""
    try:
        with open(path, "rb", buffering=0) as file:
            return file.readall()
    except OSError as error:
        raise FileError(f"can't be read: {reason(error)}") from error


def write_atomically(path: str, data: bytes, *, expected: bytes | None = None) -> None:
    """Replace the content of a file so that at every moment it is the old or the new content, completely.

    The data goes to a temporary file in the same directory, to the disk, and then over the target. A symbolic link
    stays one: its target is replaced. The mode is kept, the owner where the system lets us; other hard links keep the
    old content. With `expected`, the file must still hold just that. Raises `FileChangedError`, or `FileError` where
    the file or its directory can't be written; the file is then as it was and no temporary file remains.
    """
    target = os.path.realpath(path)
    if expected is not None and read(target) != expected:
        raise FileChangedError("changed on disk while it was being fixed; not written")
    try:
        status = os.stat(target)
        if not os.access(target, os.W_OK):
            raise FileError("can't be written: it is read-only")
        temporary, descriptor = _open_temporary(os.path.dirname(target))
        try:
            try:
                _write_all(descriptor, data)
                _copy_ownership(status, temporary)
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
            os.replace(temporary, target)
        except BaseException:
            with suppress(OSError):
                os.unlink(temporary)
            raise
    except OSError as error:
        raise FileError(f"can't be written: {reason(error)}") from error
    _sync_directory(os.path.dirname(target))


def reason(error: OSError) -> str:
    """The system's own words for what went wrong, without the path."""
    return (error.strerror or type(error).__name__).lower()


def write_together(changes: Sequence[tuple[str, bytes, bytes]]) -> None:
    """Replace the content of several files, given as path, new and old content, or of none of them.

    What can be known before is looked at before the first file is written: that each still holds the old content and
    can be written. Where one fails all the same, those before it get their old content back. Raises `FileError`, which
    then names the file, or `FileChangedError`.
    """
    for path, _, old in changes:
        target = os.path.realpath(path)
        if read(target) != old:
            raise FileChangedError(f"{path} changed on disk while it was being fixed; none of its group was written")
        if not os.access(target, os.W_OK) or not os.access(os.path.dirname(target), os.W_OK):
            raise FileError(f"{path} can't be written: it is read-only; none of its group was written")
    done: list[tuple[str, bytes, bytes]] = []
    for change in changes:
        path, new, old = change
        try:
            write_atomically(path, new, expected=old)
        except FileError as error:
            for written, current, before in reversed(done):
                with suppress(FileError):
                    write_atomically(written, before, expected=current)
            raise FileError(f"{path} {error}; none of its group was written") from error
        done.append(change)


def _declared_encoding(data: bytes) -> str:
    """The encoding by byte order mark or cookie, else UTF-8."""
    head = data.split(b"\n", 2)[:2]
    if not any(b"coding" in line for line in head):
        return "utf-8"
    import io
    import tokenize

    try:
        encoding, _ = tokenize.detect_encoding(io.BytesIO(data).readline)
    except SyntaxError as error:
        row = 1 if b"coding" in head[0] else 2
        raise UndecodableError(f"the file can't be decoded: {error.msg}", row) from None
    return "utf-8" if encoding == "utf-8-sig" else encoding


def _place(data: bytes, offset: int, encoding: str = "utf-8") -> tuple[int, int]:
    """The row and column (from 1, in characters) of a byte offset."""
    row = data.count(b"\n", 0, offset) + 1
    head = data[data.rfind(b"\n", 0, offset) + 1 : offset]
    return row, len(head.decode(encoding, "replace")) + 1


def _open_temporary(directory: str) -> tuple[str, int]:
    while True:
        path = os.path.join(directory, f"{_TEMPORARY_PREFIX}{os.getpid()}-{os.urandom(4).hex()}.tmp")
        try:
            return path, os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0), 0o600)
        except FileExistsError:
            continue


def _write_all(descriptor: int, data: bytes) -> None:
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(descriptor, rest) :]


def _copy_ownership(status: os.stat_result, path: str) -> None:
    """Give a file the owner, if we may, and the mode of another; the mode last, for a new owner clears parts of it."""
    if hasattr(os, "chown"):
        with suppress(OSError):
            os.chown(path, status.st_uid, status.st_gid)
    os.chmod(path, status.st_mode & 0o7777)


def _sync_directory(directory: str) -> None:
    """Make a rename last through a power cut, where the system can do that; the file is whole either way."""
    with suppress(OSError):
        descriptor = os.open(directory, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
