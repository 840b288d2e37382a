"""Writes `# noqa` comments for findings: how a project with many of them starts, silent about what it has today."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from amplint.comments import Layout, read_layout
from amplint.directives import Directive, read_directives
from amplint.suppress import UNREADABLE_FILE, Suppressions, rule_names


class NoqaResult(NamedTuple):
    """The new text, how many findings it suppresses, and why others could not be suppressed."""

    text: str
    added: int
    messages: list[str]


def add_noqa(
    text: str, findings_by_row: Mapping[int, Iterable[str]], names: Mapping[str, str] | None = None
) -> NoqaResult:
    """Suppress findings with `# noqa` comments, merged into those that are there; all other bytes stay.

    `findings_by_row` gives the codes by the row (from 1) in which the findings start. A comment goes to the end of that
    row, or to the end of its statement where the row ends in a continuation or inside a string. `names` maps the codes
    of the rules to their names; all rules by default.
    """
    names = names if names is not None else rule_names()
    layout = read_layout(text)
    codes_by_row = {row: sorted(set(codes)) for row, codes in sorted(findings_by_row.items())}
    messages: list[str] = []
    wanted: dict[int, set[str]] = {}
    for row, codes in codes_by_row.items():
        target = _target(layout, row)
        for code in codes:
            if code == UNREADABLE_FILE or target is None:
                messages.append(f"line {row}: {code} can't be suppressed with a comment there")
            else:
                wanted.setdefault(target, set()).add(code)
    noqa_by_row = {
        directive.comment.row: directive
        for directive in reversed(read_directives(text, layout.comments, names)[0])
        if directive.keyword == "noqa" and directive.items is not None
    }
    # From the last row to the first, so that the offsets of those still to come stay right.
    for row in sorted(wanted, reverse=True):
        place, insertion = _insertion(layout, row, wanted[row], noqa_by_row.get(row))
        text = text[:place] + insertion + text[place:]
    # No line was added, so the rows are still the same.
    suppressions = Suppressions(text, names)
    added = sum(suppressions.suppresses(code, row) for row, codes in codes_by_row.items() for code in codes)
    return NoqaResult(text, added, messages)


def _target(layout: Layout, row: int) -> int | None:
    """The row whose end can carry a comment for a finding in `row`, None where there is none."""
    if not layout.complete or not 1 <= row <= len(layout.lines):
        return None
    last_row = layout.logical_lines.get(row, (row, row))[1]
    return next((each for each in (row, last_row) if each not in layout.closed_rows), None)


def _insertion(layout: Layout, row: int, codes: set[str], noqa: Directive | None) -> tuple[int, str]:
    if noqa is None:
        return layout.end_of(row), f"  # noqa: {', '.join(sorted(codes))}"
    listed = {code for item in noqa.items or () for code in item.codes}
    return noqa.end, "".join(f", {code}" for code in sorted(codes - listed))
