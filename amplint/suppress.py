"""Which findings the comments of a file suppress, which comments suppress nothing, and what is wrong in them."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Set
from functools import cached_property

from amplint.comments import Layout, read_layout
from amplint.directives import (
    Directive,
    Item,
    Malformed,
    matching_rules,
    possible_comments,
    read_directives,
    suggestion,
)
from amplint.model import Applicability, Edit, Finding, Fix, Span

UNUSED_SUPPRESSION = "AMP900"
UNREADABLE_FILE = "AMP000"
_WELL_FORMED = re.compile(r"AMP[0-9]{3}", re.IGNORECASE)
_NO_LAYOUT = Layout([], [], [], {}, frozenset(), True)


def rule_names() -> dict[str, str]:
    """The name of every rule by its code."""
    from amplint.rule import all_rules

    return {code: rule.name for code, rule in all_rules().items()}


class Suppressions:
    """The suppressing comments of one text, and which of them were of use so far.

    A comment applies to findings that start in the rows of which it speaks (see `amplint.comments.Comment`). `text` is
    decoded, without a byte order mark. `names` maps the codes of the rules to their names; all rules by default. Where
    `tokenize` can't read the text, the comments up to that place count and none is reported as unused.
    """

    def __init__(self, text: str, names: Mapping[str, str] | None = None) -> None:
        self._text = text
        self._names = names if names is not None else rule_names()
        directives, malformed = read_directives(text, possible_comments(text), self._names)
        self._names_something = bool(malformed) or any(_names_ours(directive) for directive in directives)
        self._says_something = self._names_something or any(directive.items is None for directive in directives)
        self._used: set[tuple[int, int]] = set()

    @cached_property
    def _layout(self) -> Layout:
        return read_layout(self._text) if self._says_something else _NO_LAYOUT

    @cached_property
    def _read(self) -> tuple[list[Directive], list[Malformed]]:
        return read_directives(self._text, self._layout.comments, self._names)

    @property
    def _directives(self) -> list[Directive]:
        return self._read[0]

    @cached_property
    def _file_wide(self) -> list[int]:
        return [index for index, directive in enumerate(self._directives) if directive.keyword == "ignore-file"]

    @cached_property
    def _by_row(self) -> dict[int, list[int]]:
        by_row: dict[int, list[int]] = {}
        for index, directive in enumerate(self._directives):
            for row in _rows(directive):
                by_row.setdefault(row, []).append(index)
        return by_row

    def suppresses(self, code: str, row: int) -> bool:
        """Whether a finding that starts in a row (from 1) is suppressed; marks all comments that do it as used.

        A file that can't be read (AMP000) has no trustworthy lines, so only the whole file can be suppressed for it.
        """
        suppressed = False
        candidates = self._file_wide if code == UNREADABLE_FILE else self._file_wide + self._by_row.get(row, [])
        for index in candidates:
            items = self._directives[index].items
            if items is None:
                suppressed = True
                continue
            for position, item in enumerate(items):
                if code in item.codes:
                    self._used.add((index, position))
                    suppressed = True
        return suppressed

    def filter(self, findings: Iterable[Finding]) -> list[Finding]:
        """The findings that no comment suppresses, in their order."""
        if not self._says_something:
            return list(findings)
        return [found for found in findings if not self.suppresses(found.code, self._row(found.span.start))]

    def unknown(self) -> list[Finding]:
        """A finding (AMP900) for every code or name that is no rule's and every comment that is written wrongly."""
        if not self._names_something:
            return []
        found = [
            self._unknown_item(directive, item)
            for directive in self._directives
            for item in directive.items or ()
            if item.ours and not item.codes
        ]
        found.extend(map(self._malformed_comment, self._read[1]))
        return sorted(found, key=lambda finding: finding.span)

    def unused(self, enabled: Set[str]) -> list[Finding]:
        """A finding (AMP900) for every comment that names rules of ours and suppressed none of their findings.

        To be called after `filter`. Rules that are not among the `enabled` codes are left alone: another run may enable
        them. A comment that names no rule, such as a bare `# noqa`, is never reported: other tools may need it.
        """
        if UNUSED_SUPPRESSION not in enabled or not self._names_something or not self._layout.complete:
            return []
        reported: list[Finding] = []
        # AMP900 may itself be suppressed, so what names it can be judged only after everything else.
        for index, directive in enumerate(self._directives):
            idle = [item for item in self._idle_items(index, enabled) if UNUSED_SUPPRESSION not in item.codes]
            if (idle or directive.items == ()) and not self.suppresses(UNUSED_SUPPRESSION, directive.comment.row):
                reported.append(self._unused_finding(directive, idle))
        for index, directive in enumerate(self._directives):
            idle = [item for item in self._idle_items(index, enabled) if UNUSED_SUPPRESSION in item.codes]
            if idle and not self._everything_suppressed(directive.comment.row):
                reported.append(self._unused_finding(directive, idle))
        return sorted(reported, key=lambda finding: finding.span)

    def _everything_suppressed(self, row: int) -> bool:
        return any(self._directives[index].items is None for index in self._file_wide + self._by_row.get(row, []))

    def _idle_items(self, index: int, enabled: Set[str]) -> list[Item]:
        return [
            item
            for position, item in enumerate(self._directives[index].items or ())
            if item.codes and item.codes <= enabled and (index, position) not in self._used
        ]

    def _unused_finding(self, directive: Directive, idle: list[Item]) -> Finding:
        listed = ", ".join(f"`{item.text}`" for item in idle)
        whole = len(idle) == len(directive.items or ())
        place = (directive.start, directive.end) if whole else (idle[0].start, idle[-1].end)
        title = "Remove the unused suppression" if whole else f"Remove {listed} from the suppression"
        message = f"this suppression of {listed} hides no finding and would hide a later one"
        start, end, kept = self._without(directive, idle)
        return Finding(
            UNUSED_SUPPRESSION,
            self._span(*place),
            message if idle else "this suppression lists no rule, so it hides nothing",
            fix=Fix(title, (Edit(self._span(start, end), kept),), Applicability.SAFE),
        )

    def _without(self, directive: Directive, idle: list[Item]) -> tuple[int, int, str]:
        """What to replace, and by what, to take items out of a list or, with the last one, the whole suppression."""
        items = directive.items or ()
        kept = ""
        for position, item in enumerate(items):
            if item not in idle:
                kept += (self._text[items[position - 1].end : item.start] if kept else "") + item.text
        if kept:
            return items[0].start, items[-1].end, kept
        return self._without_directive(directive)

    def _without_directive(self, directive: Directive) -> tuple[int, int, str]:
        text, comment = self._text, directive.comment
        start, end = directive.start, comment.end
        before, after = text[comment.start : start], text[directive.end : end]
        rest = after.lstrip()
        if rest.startswith("#"):
            return start, end - len(rest), ""
        if prose := rest.lstrip(" \t,.;:-"):
            return start, end - len(prose), "# "
        line_start = self._layout.starts[comment.row - 1]
        if comment.own_line and not before:
            return line_start, self._after_line(comment.row), ""
        return line_start + len(text[line_start:start].rstrip()), end, ""

    def _after_line(self, row: int) -> int:
        return self._layout.starts[row] if row < len(self._layout.starts) else len(self._text)

    def _unknown_item(self, directive: Directive, item: Item) -> Finding:
        near = suggestion(item.text, self._names)
        message = f"`{item.text}` is no rule of amplint, so this suppression of it hides nothing"
        if near is None:
            start, end, kept = self._without(directive, [item])
            fix = Fix(f"Remove `{item.text}`", (Edit(self._span(start, end), kept),), Applicability.SAFE)
            return Finding(UNUSED_SUPPRESSION, self._span(item.start, item.end), message, fix=fix)
        span = self._span(item.start, item.end)
        # A code of the right form may come from another version: a guess would hide what nobody asked to hide.
        guessed = None if _WELL_FORMED.fullmatch(item.text) else self._replacement(span, item.text, near)
        return Finding(UNUSED_SUPPRESSION, span, message, fix=guessed, help=f"did you mean {self._named(near)}?")

    def _malformed_comment(self, malformed: Malformed) -> Finding:
        span = self._span(malformed.start, malformed.end)
        message = f"`{malformed.text}` is not what amplint understands, so this comment suppresses nothing"
        fix = self._replacement(span, malformed.text, malformed.correction)
        return Finding(UNUSED_SUPPRESSION, span, message, fix=fix, help=f"did you mean `{malformed.correction}`?")

    def _replacement(self, span: Span, wrong: str, right: str) -> Fix:
        return Fix(f"Replace `{wrong}` by `{right}`", (Edit(span, right),), Applicability.UNSAFE)

    def _named(self, near: str) -> str:
        """A code with its name, a name with its code; a prefix as it is."""
        if near in self._names:
            return f"`{near}` ({self._names[near]})"
        codes = matching_rules(near, self._names)
        return f"`{near}` ({min(codes)})" if near in self._names.values() else f"`{near}`"

    @cached_property
    def _byte_starts(self) -> list[int]:
        starts = [0]
        for here, following in zip(self._layout.starts, self._layout.starts[1:], strict=False):
            starts.append(starts[-1] + _size(self._text[here:following]))
        return starts

    def _row(self, offset: int) -> int:
        return bisect_right(self._byte_starts, offset)

    def _span(self, start: int, end: int) -> Span:
        first = self._byte_offset(start)
        return Span(first, first + _size(self._text[start:end]))

    def _byte_offset(self, position: int) -> int:
        row = bisect_right(self._layout.starts, position)
        return self._byte_starts[row - 1] + _size(self._text[self._layout.starts[row - 1] : position])


def _names_ours(directive: Directive) -> bool:
    return directive.items == () or any(item.ours for item in directive.items or ())


def _rows(directive: Directive) -> Iterable[int]:
    comment = directive.comment
    if directive.keyword == "ignore-file":
        return ()
    if directive.keyword == "noqa" and comment.own_line:
        return (comment.row,)
    if comment.own_line:
        return (comment.row, *range(comment.first_row, comment.last_row + 1))
    return range(comment.first_row, comment.last_row + 1)


def _size(text: str) -> int:
    return len(text.encode("utf-8", "surrogatepass"))
