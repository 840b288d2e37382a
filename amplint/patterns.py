"""Patterns of paths as in a .gitignore file: which of them decides about a path.

Written out here because a tree of thousands of files asks for every file against every pattern: plain names are looked
up in a set and the rest is one regular expression, so that a path that no pattern matches costs about a microsecond.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

_CLASS = re.compile(r"\[([!^]?)((?:\]|(?!\]))(?:\\.|\[:[a-z]+:\]|\[(?!:[a-z]+:\])|[^\]\\\[])*)\]", re.DOTALL)
_CLASS_TOKEN = re.compile(r"\[:[a-z]+:\]|\\.|.", re.DOTALL)

_POSIX_CLASSES = {
    "[:alnum:]": "a-zA-Z0-9",
    "[:alpha:]": "a-zA-Z",
    "[:blank:]": r" \t",
    "[:cntrl:]": r"\x00-\x1f\x7f",
    "[:digit:]": "0-9",
    "[:graph:]": r"\x21-\x7e",
    "[:lower:]": "a-z",
    "[:print:]": r"\x20-\x7e",
    "[:punct:]": r"!-/:-@\[-`{-~",
    "[:space:]": r" \t\n\r\f\v",
    "[:upper:]": "A-Z",
    "[:xdigit:]": "0-9a-fA-F",
}


class Patterns:
    """The lines of one .gitignore file, or of a setting with the same syntax."""

    __slots__ = ("_any_anchored", "_any_name", "_ordered", "_plain_names")

    def __init__(self, lines: Iterable[str]) -> None:
        """Lines that are blank, comments or not valid patterns are left out, as git does."""
        self._plain_names: set[str] = set()
        self._ordered: list[tuple[re.Pattern[str], bool, bool, bool]] = []
        names: list[str] = []
        anchored: list[str] = []
        for line in lines:
            pattern = _strip(line)
            negated = pattern.startswith("!")
            pattern = pattern[negated:]
            for_directories = pattern.endswith("/")
            pattern = pattern.removesuffix("/")
            with_slash = "/" in pattern
            regex = _translate(pattern.removeprefix("/"))
            if not pattern or regex is None:
                continue
            self._ordered.append((re.compile(regex, re.DOTALL), with_slash, for_directories, not negated))
            if with_slash:
                anchored.append(regex)
            elif re.escape(pattern) == regex:
                self._plain_names.add(pattern)
            else:
                names.append(regex)
        self._ordered.reverse()
        self._any_name = _any_of(names)
        self._any_anchored = _any_of(anchored)

    def __bool__(self) -> bool:
        """Whether there is any pattern at all."""
        return bool(self._ordered)

    def decide(self, path: str, is_directory: bool) -> bool | None:
        """True when the last pattern that matches is a plain one, False when it starts with `!`, None without a match.

        `path` is relative to where the patterns stand and has forward slashes. Only the path itself is judged, not the
        directories that it lies in.
        """
        name = path[path.rfind("/") + 1 :]
        if not (
            name in self._plain_names
            or (self._any_name is not None and self._any_name.fullmatch(name))
            or (self._any_anchored is not None and self._any_anchored.fullmatch(path))
        ):
            return None
        for regex, with_slash, for_directories, verdict in self._ordered:
            if (is_directory or not for_directories) and regex.fullmatch(path if with_slash else name):
                return verdict
        return None

    def covers(self, path: str) -> bool:
        """Whether a file is matched, by itself or through one of the directories that it lies in."""
        end = path.find("/")
        while end != -1:
            if self.decide(path[:end], True):
                return True
            end = path.find("/", end + 1)
        return self.decide(path, False) is True


def _strip(line: str) -> str:
    """A line without its end, trailing blanks that are not escaped, and comment."""
    line = line.rstrip("\r\n")
    if line.startswith("#"):
        return ""
    stripped = line.rstrip(" ")
    if stripped != line and (len(stripped) - len(stripped.rstrip("\\"))) % 2:
        stripped += " "
    return stripped


def _any_of(regexes: list[str]) -> re.Pattern[str] | None:
    return re.compile("|".join(f"(?:{regex})" for regex in regexes), re.DOTALL) if regexes else None


def _translate(pattern: str) -> str | None:
    """The regular expression of a pattern without leading and trailing slash, None for one that can match nothing."""
    parts: list[str] = []
    position = 0
    while position < len(pattern):
        character = pattern[position]
        if character == "*":
            end = position + 1
            while pattern.startswith("*", end):
                end += 1
            whole_component = (
                end - position > 1 and pattern[:position][-1:] in ("", "/") and pattern[end : end + 1] in ("", "/")
            )
            if not whole_component:
                parts.append("[^/]*")
            elif end == len(pattern):
                parts.append(".+")
            else:
                parts.append("(?:.*/)?")
                end += 1
        elif character == "?":
            parts.append("[^/]")
            end = position + 1
        elif character == "[":
            match = _CLASS.match(pattern, position)
            regex = match and _translate_class(match[1] != "", match[2])
            if match is None or regex is None:
                return None
            parts.append(regex)
            end = match.end()
        elif character == "\\":
            if position + 1 == len(pattern):
                return None
            parts.append(re.escape(pattern[position + 1]))
            end = position + 2
        else:
            parts.append(re.escape(character))
            end = position + 1
        position = end
    return "".join(parts)


def _translate_class(negated: bool, body: str) -> str | None:
    """A bracket expression, which never matches a slash; None for an unknown named class."""
    tokens: list[str] = _CLASS_TOKEN.findall(body)
    parts: list[str] = []
    position = 0
    while position < len(tokens):
        token = tokens[position]
        if token.startswith("[:"):
            if token not in _POSIX_CLASSES:
                return None
            parts.append(_POSIX_CLASSES[token])
        elif tokens[position + 1 : position + 2] == ["-"] and position + 2 < len(tokens):
            first, last = token[-1], tokens[position + 2][-1]
            parts.append(f"{re.escape(first)}-{re.escape(max(first, last))}")
            position += 2
        else:
            parts.append(re.escape(token[-1]))
        position += 1
    return f"(?!/)[{'^' if negated else ''}{''.join(parts)}]"
