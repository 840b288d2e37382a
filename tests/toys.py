"""Rules and files for tests of the machinery, so that these don't depend on what the real rules find."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

import pytest

from amplint import prefilter, selectors
from amplint import rule as registry
from amplint.model import Applicability, Edit, Finding, Fix, Level, Span
from amplint.rule import AMP_TRIGGERS, Rule, all_rules
from amplint.source import SourceFile

SOURCE = "autocast = old, risky, plain\n"
"""A file with one finding of each kind."""

FIXED = "autocast = new, risky, plain\n"
UNSAFELY_FIXED = "autocast = new, better, plain\n"


def _word(
    code: str, word: str, replacement: str | None, applicability: Applicability
) -> Callable[..., Iterator[Finding]]:
    def check(file: SourceFile) -> Iterator[Finding]:
        """Find a word."""
        for match in re.finditer(rf"\b{word}\b".encode(), file.encoded):
            span = Span(*match.span())
            fix = replacement and Fix(f"Write {replacement}", (Edit(span, replacement),), applicability)
            yield Finding(code, span, f"{word} is found", fix=fix or None)

    return check


def _crash(file: SourceFile) -> Iterator[Finding]:
    """Fail, or run out of stack, where a file says so."""
    if b"too_deep" in file.encoded:
        raise RecursionError("maximum recursion depth exceeded")
    if b"crash" in file.encoded:
        raise ValueError("the toy broke")
    yield from ()


TOYS = (
    Rule("TOY001", "toy-safe", Level.WARNING, _word("TOY001", "old", "new", Applicability.SAFE), Applicability.SAFE),
    Rule("TOY002", "toy-crash", Level.ERROR, _crash),
    Rule(
        "TOY003",
        "toy-unsafe",
        Level.ERROR,
        _word("TOY003", "risky", "better", Applicability.UNSAFE),
        Applicability.UNSAFE,
    ),
    Rule("TOY004", "toy-plain", Level.INFO, _word("TOY004", "plain", None, Applicability.SAFE)),
    Rule("TOY005", "toy-off", Level.ERROR, _word("TOY005", "quiet", None, Applicability.SAFE), None, False, ("quiet",)),
    Rule("TOY006", "toy-breaks", Level.WARNING, _word("TOY006", "broken", "(", Applicability.SAFE), Applicability.SAFE),
)


CACHES = (all_rules, selectors.canonical, selectors.selected_codes)


def registry_of_toys() -> dict[str, Rule]:
    """The toys and AMP000, in the form of the registry."""
    return {"AMP000": all_rules()["AMP000"]} | {toy.code: toy for toy in TOYS}


@pytest.fixture
def toys(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Put the toys in the place of all rules but AMP000."""
    monkeypatch.setattr(registry, "_registered", registry_of_toys())
    monkeypatch.setattr(prefilter, "_WORDS", TOY_WORDS)
    for cache in CACHES:
        cache.cache_clear()
    yield
    monkeypatch.undo()
    for cache in CACHES:
        cache.cache_clear()


TOY_WORDS = re.compile(rb"autocast|GradScaler|\.amp\b")
"""The toys' texts use no torch, so the words alone must do."""


def install_toys() -> None:
    """Do for good, in a process of its own, what the fixture does."""
    registry._registered = registry_of_toys()
    prefilter._WORDS = TOY_WORDS
    for cache in CACHES:
        cache.cache_clear()


assert "autocast" in AMP_TRIGGERS
