"""Names of files as other programs want them, and fingerprints that find a finding again after lines have moved."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Sequence
from hashlib import sha256

from amplint.lines import split_lines
from amplint.model import Diagnostic
from amplint.report import ReportContext


def relative_path(filename: str, root: str) -> str | None:
    """The path of a file from `root` with forward slashes, None for one elsewhere; relative names start at `root`."""
    base = os.path.abspath(root)
    path = os.path.normpath(os.path.join(base, filename))
    try:
        relative = os.path.relpath(path, base)
    except ValueError:  # another drive on Windows
        return None
    relative = relative.replace(os.sep, "/")
    return None if relative == ".." or relative.startswith("../") else relative


def display_path(filename: str, root: str) -> str:
    """The path from `root` with forward slashes, or the name as it is for a file elsewhere."""
    return relative_path(filename, root) or filename.replace(os.sep, "/")


def uri(filename: str, root: str) -> str:
    """A percent-encoded URI: relative for a file under `root`, absolute (`file:`) otherwise."""
    from urllib.parse import quote

    relative = relative_path(filename, root)
    if relative is not None:
        return quote(_path_bytes(relative))
    path = os.path.abspath(os.path.join(root, filename)).replace(os.sep, "/")
    return "file://" + quote(_path_bytes(path if path.startswith("/") else f"/{path}"), safe="/:")


def _path_bytes(path: str) -> bytes:
    """The bytes of a path as the file system has them; names that it can't have are escaped."""
    try:
        return path.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        return path.encode("utf-8", "backslashreplace")


def fingerprints(diagnostics: Sequence[Diagnostic], context: ReportContext) -> list[str]:
    """For each finding a hash of its code, its line without regard to white space, and its number among equal ones.

    Rows are not part of it, so it stays the same when lines are added above. Those of two files may be equal.
    """
    result: list[str] = []
    filename: str | None = None
    lines: list[str] = []
    seen: Counter[tuple[str, str]] = Counter()
    for found in diagnostics:
        if found.filename != filename:
            filename = found.filename
            lines = split_lines(context.sources(filename) or "")
            seen.clear()
        line = lines[found.location.row - 1] if found.location.row <= len(lines) else ""
        key = (found.code, re.sub(r"\s+", "", line))
        seen[key] += 1
        result.append(_digest(*key, str(seen[key])))
    return result


def file_fingerprints(diagnostics: Sequence[Diagnostic], context: ReportContext) -> list[str]:
    """`fingerprints` that are also unique over all files."""
    return [
        _digest(display_path(found.filename, context.root), fingerprint)
        for found, fingerprint in zip(diagnostics, fingerprints(diagnostics, context), strict=True)
    ]


def _digest(*parts: str) -> str:
    return sha256("\0".join(parts).encode("utf-8", "backslashreplace")).hexdigest()[:32]
