"""Examples in text files: a name, a text, and what becomes of it."""

from __future__ import annotations

import re
from pathlib import Path

_SECTION = re.compile(r"^=== (\w+)\n(.*?)^--- \w+\n(.*?)(?=^=== |\Z)", re.MULTILINE | re.DOTALL)


def sections(file_name: str) -> dict[str, tuple[str, str]]:
    """The examples of a file beside this one: by name, the text and what stands below it."""
    text = (Path(__file__).parent / file_name).read_text(encoding="utf-8")
    found = {name: (before, after) for name, before, after in _SECTION.findall(text)}
    assert len(found) == text.count("=== ")
    return found
