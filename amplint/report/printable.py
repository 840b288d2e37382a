"""Text that is safe on a terminal and in a log: control characters become visible, widths are known."""

from __future__ import annotations

TAB_WIDTH = 4
"""Tabs in source lines are shown as blanks up to the next multiple of this."""


def cells(line: str) -> list[tuple[str, int]]:
    """What is shown for each character of a line, and how many columns of a terminal that takes (0 to 10)."""
    shown: list[tuple[str, int]] = []
    column = 0
    for character in line:
        if " " <= character <= "~":
            cell = (character, 1)
        elif character == "\t":
            blanks = TAB_WIDTH - column % TAB_WIDTH
            cell = (" " * blanks, blanks)
        else:
            cell = _cell(character)
        shown.append(cell)
        column += cell[1]
    return shown


def printable(text: str) -> str:
    """A text on one line: what is no graphic character, line ends and lone surrogates included, is escaped.

    So are characters that change the direction of writing, which can make code look like other code.
    """
    if text.isascii() and text.isprintable():
        return text
    return "".join(character if " " <= character <= "~" else _cell(character)[0] for character in text)


def _cell(character: str) -> tuple[str, int]:
    import unicodedata

    category = unicodedata.category(character)
    if category in ("Mn", "Me"):
        return character, 0
    if category[0] == "C" or category in ("Zl", "Zp"):
        escaped = character.encode("unicode_escape").decode("ascii")
        return escaped, len(escaped)
    return character, 2 if unicodedata.east_asian_width(character) in "WF" else 1
