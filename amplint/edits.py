"""Edits become text: composing fixes, checking the result, repeating to a fixed point.

Text is decoded source without a byte order mark, line ends as in the file. Spans are byte offsets in its UTF-8 form.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
from typing import NamedTuple

from amplint.model import Edit, Fix, Span

MAX_PASSES = 10
"""Fixes that wait for one another need a pass each; real files need two or three."""

_UNSOUND = "its edits overlap or lie outside the text"


class Composition(NamedTuple):
    """What one pass did: the new text, the fixes that made it, and those that must wait for the next pass."""

    text: str
    applied: list[Fix]
    deferred: list[Fix]


class FixpointResult(NamedTuple):
    """What `fix_to_fixpoint` did.

    `passes` holds the fixes that each call of `find` gave and that were applied, in order of the calls. `messages` are
    sentences for the user: fixes that had to be dropped, fixes that never settle.
    """

    text: str
    passes: list[list[Fix]]
    messages: list[str]


def apply_fixes(text: str, fixes: Iterable[Fix]) -> Composition:
    """Apply as many fixes as do not get in each other's way, each completely or not at all.

    Equal edits of several fixes are applied once. Two edits get in each other's way when they replace a common byte,
    when both insert at one place, or when one inserts strictly inside what the other replaces. Safe fixes go first,
    then those that start earlier, so the outcome does not depend on the order of `fixes`. A fix whose own edits
    overlap, lie outside the text or split a character is never applied.
    """
    encoded = text.encode()
    fixes = list(fixes)
    accepted: list[Edit] = []
    applied: set[Fix] = set()
    for fix in sorted(set(fixes), key=_precedence):
        new = _normalised(fix.edits)
        if _is_sound(new, encoded) and not any(_conflicts(accepted, edit) for edit in new):
            for edit in new:
                if edit not in _neighbours(accepted, edit):
                    insort(accepted, edit)
            applied.add(fix)
    return Composition(
        _apply_sorted(encoded, accepted).decode() if accepted else text,
        [fix for fix in fixes if fix in applied],
        [fix for fix in fixes if fix not in applied],
    )


def merged_edits(fixes: Iterable[Fix]) -> list[Edit]:
    """All edits of fixes that `apply_fixes` applied together: each once, in the order of their place."""
    return sorted({edit for fix in fixes for edit in _normalised(fix.edits)})


def parses(text: str) -> bool:
    """Whether the running interpreter takes `text` for a module; warnings about it are not shown."""
    import ast
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            ast.parse(text)
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            return False
    return True


def verify(old: str, new: str, edits: Iterable[Edit], parses: Callable[[str], bool] = parses) -> str | None:
    """Say what is wrong with `new` as the outcome of `edits` on `old`, or None when nothing is.

    `new` must parse if `old` did, and every byte outside the edits must be the same.
    """
    before, after = old.encode(), new.encode()
    at_old = at_new = 0
    for edit in sorted(set(edits)):
        kept = edit.span.start - at_old
        content = edit.text.encode()
        if before[at_old : edit.span.start] != after[at_new : at_new + kept]:
            return "the result changes text outside the fix"
        at_new += kept
        if after[at_new : at_new + len(content)] != content:
            return "the result does not contain what the fix writes"
        at_old, at_new = edit.span.end, at_new + len(content)
    if before[at_old:] != after[at_new:]:
        return "the result changes text outside the fix"
    if not parses(new) and parses(old):
        return "the result is not valid Python"
    return None


def fix_to_fixpoint(
    text: str,
    find: Callable[[str], Sequence[Fix]],
    *,
    parses: Callable[[str], bool] = parses,
    max_passes: int = MAX_PASSES,
) -> FixpointResult:
    """Call `find` on the text and apply the fixes it gives, until it gives none that can be applied.

    A fix whose result fails `verify` is dropped with a message. Fixes that bring back a text seen before, or that are
    not done after `max_passes`, are an internal fault: the text stays as it came and a message says so.
    """
    original, seen = text, {text}
    passes: list[list[Fix]] = []
    for _ in range(max_passes):
        fixes = find(text)
        composition, dropped = _apply_verified(text, fixes, parses)
        if not composition.applied:
            unusable = [*dropped.items(), *((fix, _UNSOUND) for fix in composition.deferred)]
            messages = dict.fromkeys(_fault(f"the fix {fix.title!r} was dropped: {why}") for fix, why in unusable)
            return FixpointResult(text, passes, list(messages))
        passes.append(composition.applied)
        text = composition.text
        if text in seen:
            return FixpointResult(original, [], [_unsettled("undo one another", passes)])
        seen.add(text)
    if not find(text):
        return FixpointResult(text, passes, [])
    return FixpointResult(original, [], [_unsettled(f"are not done after {max_passes} passes", passes)])


def _precedence(fix: Fix) -> tuple[int, list[Edit], str]:
    return -fix.applicability, _normalised(fix.edits), fix.title


def _normalised(edits: Iterable[Edit]) -> list[Edit]:
    """Sort the edits of one fix; several insertions at one place become one, in the order given."""
    insertions: dict[int, str] = {}
    result = set()
    for edit in dict.fromkeys(edits):
        if edit.span.start == edit.span.end:
            insertions[edit.span.start] = insertions.get(edit.span.start, "") + edit.text
        else:
            result.add(edit)
    result.update(Edit(Span(offset, offset), text) for offset, text in insertions.items())
    return sorted(result)


def _is_sound(edits: Sequence[Edit], encoded: bytes) -> bool:
    if not edits or edits[0].span.start < 0:
        return False
    if any(edit.span.start > edit.span.end for edit in edits) or any(
        _splits_character(encoded, offset) for edit in edits for offset in edit.span
    ):
        return False
    return not any(_overlap(a.span, b.span) for a, b in pairwise(edits))


def _splits_character(encoded: bytes, offset: int) -> bool:
    if offset >= len(encoded):
        return offset > len(encoded)
    return encoded[offset] & 0xC0 == 0x80  # a continuation byte of UTF-8


def _neighbours(accepted: Sequence[Edit], edit: Edit) -> Sequence[Edit]:
    """The edits among the sorted, conflict-free `accepted` that could touch `edit`: one before, one after."""
    index = bisect_left(accepted, edit)
    return accepted[max(index - 1, 0) : index + 1]


def _conflicts(accepted: Sequence[Edit], edit: Edit) -> bool:
    return any(_overlap(other.span, edit.span) for other in _neighbours(accepted, edit) if other != edit)


def _overlap(a: Span, b: Span) -> bool:
    if a.start == a.end and b.start == b.end:
        return a == b
    return a.start < b.end and b.start < a.end


def _apply_sorted(encoded: bytes, edits: Sequence[Edit]) -> bytes:
    parts: list[bytes] = []
    position = 0
    for edit in edits:
        parts += encoded[position : edit.span.start], edit.text.encode()
        position = edit.span.end
    parts.append(encoded[position:])
    return b"".join(parts)


def _apply_verified(
    text: str, fixes: Sequence[Fix], parses: Callable[[str], bool]
) -> tuple[Composition, dict[Fix, str]]:
    """Apply `fixes` but for those that spoil the result; the second value says why each of those was dropped."""
    composition = apply_fixes(text, fixes)
    if not composition.applied or verify(text, composition.text, merged_edits(composition.applied), parses) is None:
        return composition, {}
    good: list[Fix] = []
    dropped: dict[Fix, str] = {}
    # Few fixes spoil a result, so halve the list instead of trying them one by one.
    pending = [sorted(set(composition.applied), key=_precedence)]
    while pending:
        batch = pending.pop()
        attempt = apply_fixes(text, [*good, *batch])
        reason = verify(text, attempt.text, merged_edits(attempt.applied), parses)
        if reason is None:
            good += batch
        elif len(batch) == 1:
            dropped[batch[0]] = reason
        else:
            middle = len(batch) // 2
            pending += batch[middle:], batch[:middle]
    kept = set(good)
    waiting = [fix for fix in fixes if fix not in kept and fix not in dropped]
    return Composition(apply_fixes(text, good).text, [fix for fix in fixes if fix in kept], waiting), dropped


def _unsettled(what: str, passes: Sequence[Sequence[Fix]]) -> str:
    titles = ", ".join(sorted({repr(fix.title) for fix in passes[-1]}))
    return _fault(f"fixes {what}, so none was applied (last: {titles})")


def _fault(what: str) -> str:
    return f"internal fault: {what}; please report this with the file"
