"""Colours and links of terminals (ANSI SGR, OSC 8); without them text stays as it is."""

from __future__ import annotations

from amplint.model import Level

_CODES = {"bold": "1", "dim": "2", "red": "31", "green": "32", "yellow": "33", "blue": "34", "cyan": "36"}

LEVEL_COLORS = {Level.ERROR: "red", Level.WARNING: "yellow", Level.INFO: "cyan"}


class Style:
    """Decorates text where that is allowed. The text must have no escape sequences of its own."""

    def __init__(self, color: bool, hyperlinks: bool) -> None:
        self._color = color
        self._hyperlinks = hyperlinks

    def paint(self, text: str, *names: str) -> str:
        """The text in colours and weights such as `bold` and `red`."""
        if not self._color or not text:
            return text
        return f"\033[{';'.join(_CODES[name] for name in names)}m{text}\033[0m"

    def link(self, text: str, url: str) -> str:
        """The text as a link that terminals with OSC 8 open."""
        return f"\033]8;;{url}\033\\{text}\033]8;;\033\\" if self._hyperlinks and url else text
