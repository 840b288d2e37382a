"""What the tests of single rules share."""

from __future__ import annotations

from textwrap import dedent

from amplint import check_source, fix_source
from amplint.settings import Settings

HEADER = "import torch\nimport torch.nn.functional as F\nfrom torch import nn\n"
"""Stands above every snippet; rows count from the line after it."""


def rows(code: str, snippet: str, settings: Settings | None = None) -> list[int]:
    """The rows of a snippet at which one rule reports something; the first line of the snippet is row 1."""
    chosen = (settings or Settings())._replace(select=(code,))
    found = check_source(HEADER + dedent(snippet).lstrip("\n"), "snippet.py", chosen)
    assert all(diagnostic.code == code for diagnostic in found)
    return [diagnostic.location.row - HEADER.count("\n") for diagnostic in found]


def fixed(code: str, snippet: str, settings: Settings | None = None) -> str:
    """The snippet after the fixes of one rule, unsafe ones too."""
    chosen = (settings or Settings())._replace(select=(code,))
    text = fix_source(HEADER + dedent(snippet).lstrip("\n"), "snippet.py", chosen, unsafe=True).text
    assert text.startswith(HEADER)
    return text[len(HEADER) :]


def lines(snippet: str) -> str:
    """A snippet as `fixed` returns it."""
    return dedent(snippet).lstrip("\n")
