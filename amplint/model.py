"""The values that travel between the rooms: spans, edits, fixes, findings, diagnostics.

Rules speak in byte offsets (`Span`), because that is what edits need. What leaves the library speaks in rows and
columns (`Location`), because that is what people and other programs need; `Diagnostic` is a finding in that form.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Any, NamedTuple


class Level(IntEnum):
    """How bad a finding is: `ERROR` raises or trains wrongly on the path shown, `INFO` is true and mild."""

    INFO = 0
    WARNING = 1
    ERROR = 2

    @property
    def label(self) -> str:
        """The word used in output and settings: `info`, `warning` or `error`."""
        return self.name.lower()

    @classmethod
    def parse(cls, word: str) -> Level:
        """Turn `info`, `warning` or `error` into a level; raises `ValueError` for any other word."""
        try:
            return cls[word.upper()]
        except KeyError:
            raise ValueError(f"unknown level {word!r}") from None


class Applicability(IntEnum):
    """Whether a fix may be applied unasked: `SAFE` rests on nothing the tool could not see."""

    UNSAFE = 0
    SAFE = 1

    @property
    def label(self) -> str:
        """The word used in output: `safe` or `unsafe`."""
        return self.name.lower()


class Span(NamedTuple):
    """A half-open range of byte offsets in the UTF-8 text of a file (without a byte order mark)."""

    start: int
    end: int


class Edit(NamedTuple):
    """Replace `span` by `text`; an empty span inserts, an empty text deletes."""

    span: Span
    text: str


class Label(NamedTuple):
    """A related place and what happened there, such as "scaled here"."""

    span: Span
    message: str


class Fix(NamedTuple):
    """Edits that are applied together or not at all.

    `title` says in the imperative what the fix does ("Use `torch.amp.autocast`"). Equal edits of two fixes are
    applied once, so several findings may each carry the import change that they all need.
    """

    title: str
    edits: tuple[Edit, ...]
    applicability: Applicability


class Finding(NamedTuple):
    """What a rule found, in byte offsets.

    `message` is lower case without a full stop and says what is wrong and why it hurts. `labels` are related places,
    in the order in which a reader should meet them. `level` overrides the rule's level where the catalogue gives two.
    `help` says what to do where there is no fix, or why there is none.
    """

    code: str
    span: Span
    message: str
    labels: tuple[Label, ...] = ()
    fix: Fix | None = None
    level: Level | None = None
    help: str = ""


class Location(NamedTuple):
    """A place in a file: row and column count from 1, columns in characters."""

    row: int
    column: int


class RelatedPlace(NamedTuple):
    """A `Label` in rows and columns."""

    message: str
    location: Location
    end_location: Location


class TextEdit(NamedTuple):
    """An `Edit` in rows and columns; `end_location` is the first position that is kept."""

    location: Location
    end_location: Location
    content: str


class FixInfo(NamedTuple):
    """A `Fix` in rows and columns."""

    applicability: Applicability
    message: str
    edits: tuple[TextEdit, ...]


class Diagnostic(NamedTuple):
    """A finding as it leaves the library: complete, in rows and columns, made of plain values only."""

    code: str
    name: str
    level: Level
    message: str
    filename: str
    location: Location
    end_location: Location
    related: tuple[RelatedPlace, ...]
    fix: FixInfo | None
    url: str
    help: str = ""

    def to_json(self) -> dict[str, Any]:
        """The object of `--output-format json`: `code`, `name`, `level`, `message`, `filename`, `location`, ..."""
        return {
            "code": self.code,
            "name": self.name,
            "level": self.level.label,
            "message": self.message,
            "filename": self.filename,
            "location": self.location._asdict(),
            "end_location": self.end_location._asdict(),
            "related": [
                {
                    "message": place.message,
                    "location": place.location._asdict(),
                    "end_location": place.end_location._asdict(),
                }
                for place in self.related
            ],
            "fix": None
            if self.fix is None
            else {
                "applicability": self.fix.applicability.label,
                "message": self.fix.message,
                "edits": [
                    {
                        "location": edit.location._asdict(),
                        "end_location": edit.end_location._asdict(),
                        "content": edit.content,
                    }
                    for edit in self.fix.edits
                ],
            },
            "url": self.url,
        }
