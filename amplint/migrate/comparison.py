"""What a migration changed: the lines that differ, and what amplint finds in the new text only."""

from __future__ import annotations

from typing import TYPE_CHECKING

from amplint.model import Edit, Span

if TYPE_CHECKING:
    from amplint.modules import Project
    from amplint.source import SourceFile


def new_faults(file: SourceFile, new: str, project: Project | None = None) -> list[tuple[str, str]]:
    """What the rules have against the new text that they did not have against the old one: codes and reasons.

    `project` gives the other files that the new text may import from.
    """
    from amplint.check import check_source

    settings = file.settings._replace(
        select=("DEFAULT",), ignore=(), extend_select=(), extend_ignore=(), per_file_ignores=()
    )
    before = {(d.code, d.message) for d in check_source(file.text, file.filename, settings)}
    return [
        (found.code, f"the result would have a fault, {found.code} {found.name}: {found.message}")
        for found in check_source(new, file.filename, settings, project=project)
        if (found.code, found.message) not in before
    ]


def edits_between(old: str, new: str) -> tuple[Edit, ...]:
    """The change from one text to another in whole lines, as byte spans of the old one."""
    from difflib import SequenceMatcher

    before, after = old.splitlines(keepends=True), new.splitlines(keepends=True)
    starts = [0]
    for line in before:
        starts.append(starts[-1] + len(line.encode("utf-8", "surrogatepass")))
    found = []
    for tag, i, j, k, m in SequenceMatcher(None, before, after, autojunk=False).get_opcodes():
        if tag != "equal":
            found.append(Edit(Span(starts[i], starts[j]), "".join(after[k:m])))
    return tuple(found)
