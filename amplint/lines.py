"""A text as lines, split as Python itself does: `str.splitlines` also splits at form feeds and other characters."""

from __future__ import annotations

import re

_LINE_END = re.compile(r"\r\n|\n|\r")


def split_lines(text: str) -> list[str]:
    """The lines of a text without their ends (LF, CRLF, CR); a text that ends in a line end has an empty last line."""
    return _LINE_END.split(text)


def line_starts(text: str) -> list[int]:
    """The offset, in characters, at which each line of `split_lines` starts."""
    return [0, *(match.end() for match in _LINE_END.finditer(text))]
