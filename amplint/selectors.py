"""Which rules a list of selectors stands for: codes, prefixes of codes, names, `ALL` and `DEFAULT`."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache

from amplint.rule import all_rules

UNREADABLE_FILE = "AMP000"
"""The code of files that do not parse or decode; no setting turns it off."""

_GROUPS = ("ALL", "DEFAULT")
_DIGITS = "0123456789"


@lru_cache(maxsize=1024)
def canonical(selector: str) -> str | None:
    """The code for a name, every other valid selector as it is, None for one that stands for no rule."""
    if selector in _GROUPS or selector in (UNREADABLE_FILE, "unreadable-file"):
        return UNREADABLE_FILE if selector == "unreadable-file" else selector
    letters = selector.rstrip(_DIGITS)
    for code, rule in all_rules().items():
        if rule.name == selector:
            return code
        if code.startswith(selector) and letters == code.rstrip(_DIGITS):
            return selector
    return None


def is_part_of(selector: str, other: str) -> bool:
    """Whether every rule that a selector stands for is also one of another's; both are canonical."""
    return other in ("ALL", selector) or (selector not in _GROUPS and selector.startswith(other))


def nearest(word: str, candidates: Iterable[str]) -> str:
    """The words `, did you mean ...?` with the candidate that is most like a word, empty when none is."""
    import difflib

    spelled = {candidate.lower().replace("_", "-"): candidate for candidate in candidates}
    close = difflib.get_close_matches(word.lower().replace("_", "-"), spelled, n=1)
    return f", did you mean `{spelled[close[0]]}`?" if close else ""


def unknown_rule(selector: str) -> str:
    """What is wrong with a selector that stands for no rule, with a near match where there is one."""
    rules = all_rules().values()
    return f"unknown rule `{selector}`" + nearest(
        selector, [*_GROUPS, *(rule.name for rule in rules), *(rule.code for rule in rules)]
    )


@lru_cache(maxsize=256)
def selected_codes(select: tuple[str, ...], ignore: tuple[str, ...]) -> frozenset[str]:
    """The codes that are selected and not ignored, where the longest selector wins and ignoring wins between equals.

    Raises `ValueError` for a selector that stands for no rule.
    """
    verdicts: dict[str, tuple[int, bool]] = {}
    for selectors, wanted in ((select, True), (ignore, False)):
        for selector in selectors:
            canonical_selector = canonical(selector)
            if canonical_selector is None:
                raise ValueError(unknown_rule(selector))
            rank = 0 if canonical_selector in _GROUPS else len(canonical_selector)
            for code in _members(canonical_selector):
                if rank >= verdicts.get(code, (0, False))[0]:
                    verdicts[code] = (rank, wanted)
    return frozenset([UNREADABLE_FILE, *(code for code, (_, wanted) in verdicts.items() if wanted)])


def _members(selector: str) -> list[str]:
    return [
        code
        for code, rule in all_rules().items()
        if selector == "ALL" or (rule.default if selector == "DEFAULT" else code.startswith(selector))
    ]
