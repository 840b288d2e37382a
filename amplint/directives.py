"""The comments that suppress findings: `# noqa: AMP301`, `# amplint: ignore[AMP301]`, `# amplint: ignore-file`."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from amplint.comments import Comment

_HINT = re.compile("noqa|amplint:", re.IGNORECASE)
_NOQA = re.compile(r"#\s*noqa(?![\w-])(?P<colon>\s*:)?", re.IGNORECASE)
_AMPLINT = re.compile(r"#\s*amplint:\s*(?P<word>[A-Za-z][\w-]*)(?P<list>\s*\[(?P<items>[^\]#]*)(?P<close>\]?))?")
_SEPARATOR = re.compile(r"[\s,]*")
_CODE = re.compile(r"[A-Za-z]+[0-9]\w*|AMP")
_NAME = re.compile(r"[A-Za-z0-9]+(?:-[A-Za-z0-9]+)+")
_ITEM = re.compile(r"[^\s,]+")
_END_OF_ITEM = re.compile(r"(?=[\s,.;:)#]|$)")
_OUR_CODE = re.compile(r"AMP(?:[0-9]\w*)?", re.IGNORECASE)
_OUR_WILDCARD = re.compile(r"(AMP[0-9]*)X+", re.IGNORECASE)
_KEYWORDS = ("ignore", "ignore-file")
_FOREIGN_KEYWORDS = {
    "disable": "ignore",
    "noqa": "ignore",
    "off": "ignore",
    "skip": "ignore",
    "skip-file": "ignore-file",
}


class Item(NamedTuple):
    """One code, prefix or name in a list, its place in characters, and the rules that it stands for.

    `codes` is empty when it is another tool's (`ours` is False) or names no rule.
    """

    text: str
    start: int
    end: int
    codes: frozenset[str]
    ours: bool


class Directive(NamedTuple):
    """A suppression: `keyword` is `noqa`, `ignore` or `ignore-file`.

    `start` and `end` bound it in characters, from its `#` to the end of its list; `comment` is the comment in which it
    stands. `items` is None where it lists nothing and so suppresses everything.
    """

    keyword: str
    start: int
    end: int
    comment: Comment
    items: tuple[Item, ...] | None


class Malformed(NamedTuple):
    """A comment for amplint that suppresses nothing because of how it is written: where, in characters, and what to do.

    `text` is replaced by `correction` in a comment that works.
    """

    text: str
    start: int
    end: int
    correction: str


def read_directives(
    text: str, comments: Iterable[Comment], names: Mapping[str, str]
) -> tuple[list[Directive], list[Malformed]]:
    """Every suppression in comments of a text, in their order; `names` maps the codes of the rules to their names."""
    directives: list[Directive] = []
    malformed: list[Malformed] = []
    for comment in comments:
        for match in _NOQA.finditer(text, comment.start, comment.end):
            directives.append(_noqa(text, match, comment, names))
        for match in _AMPLINT.finditer(text, comment.start, comment.end):
            read = _ignore(match, comment, names)
            if isinstance(read, Directive):
                directives.append(read)
            elif read is not None:
                malformed.append(read)
    directives.sort(key=lambda directive: directive.start)
    return directives, malformed


def possible_comments(text: str) -> Iterator[Comment]:
    """Everything in a text that may be a comment with a suppression, without regard to strings and rows.

    This costs next to nothing, while to find the true comments costs about a second for a megabyte.
    """
    end = 0
    for match in _HINT.finditer(text):
        if match.start() >= end:
            start = text.find("#", text.rfind("\n", 0, match.start()) + 1, match.start())
            end = text.find("\n", match.end()) + 1 or len(text) + 1
            if start >= 0:
                yield Comment(1, start, end - 1, False, 1, 1)


def suggestion(word: str, names: Mapping[str, str]) -> str | None:
    """The code, prefix or name that was probably meant by an unknown one, None where nothing is near."""
    wildcard = _OUR_WILDCARD.fullmatch(word)
    if wildcard and matching_rules(wildcard[1], names):
        return wildcard[1].upper()
    if "-" in word or "_" in word:
        return _closest(word.lower().replace("_", "-"), names.values())
    return _closest(word.upper(), names)


def matching_rules(word: str, names: Mapping[str, str]) -> frozenset[str]:
    """The codes of the rules for which a code, a prefix of ours (`AMP2`) or a name stands."""
    upper = word.upper()
    if upper in names:
        return frozenset({upper})
    if _OUR_CODE.fullmatch(word):
        return frozenset(code for code in names if code.startswith(upper))
    return frozenset(code for code, name in names.items() if name == word.lower())


def _closest(word: str, words: Iterable[str]) -> str | None:
    """The nearest word, None where none is near; among equals the one that agrees longest from the start."""
    from difflib import SequenceMatcher

    def nearness(other: str) -> tuple[float, int]:
        agreeing = next((i for i, (a, b) in enumerate(zip(word, other, strict=False)) if a != b), len(word))
        return SequenceMatcher(None, word, other).ratio(), agreeing

    best = max(sorted(words), key=nearness, default="")
    return best if nearness(best)[0] >= 0.75 else None


def _noqa(text: str, match: re.Match[str], comment: Comment, names: Mapping[str, str]) -> Directive:
    """Read the list after `noqa:` up to the first word that is neither a code nor one of our names.

    As in flake8, a colon with no list behind it is as good as none: everything is suppressed.
    """
    items: list[Item] = []
    end = match.end()
    while match["colon"] and (item := _noqa_item(text, end, comment.end, names)):
        items.append(item)
        end = item.end
    return Directive("noqa", match.start(), end, comment, tuple(items) or None)


def _noqa_item(text: str, position: int, end: int, names: Mapping[str, str]) -> Item | None:
    separator = _SEPARATOR.match(text, position, end)
    start = separator.end() if separator else position
    match = _CODE.match(text, start, end) or _NAME.match(text, start, end)
    if match is None or not _END_OF_ITEM.match(text, match.end(), end):
        return None
    word = match.group()
    codes = matching_rules(word, names)
    ours = bool(codes or _OUR_CODE.fullmatch(word))
    if not ours and "-" in word:
        # Prose ("well-known") ends the list; a near miss of a name does not.
        ours = suggestion(word, names) is not None
        if not ours:
            return None
    return Item(word, start, match.end(), codes, ours)


def _ignore(match: re.Match[str], comment: Comment, names: Mapping[str, str]) -> Directive | Malformed | None:
    """Read what follows `# amplint:`; everything in its brackets is meant for us. None for prose."""
    word = match["word"]
    if word not in _KEYWORDS:
        meant = _FOREIGN_KEYWORDS.get(word.lower()) or _closest(word.lower(), _KEYWORDS)
        return Malformed(word, match.start("word"), match.end("word"), meant) if meant else None
    if match["list"] is None:
        return Directive(word, match.start(), match.end("word"), comment, None)
    if not match["close"]:
        content = match["list"].strip()
        start = match.start("list") + match["list"].index("[")
        return Malformed(content, start, start + len(content), content + "]")
    items = tuple(
        Item(found.group(), found.start(), found.end(), matching_rules(found.group(), names), True)
        for found in _ITEM.finditer(match.string, match.start("items"), match.end("items"))
    )
    return Directive(word, match.start(), match.end("list"), comment, items)
