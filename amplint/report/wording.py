"""The words that several reports share: what can be done about a finding, and the last line."""

from __future__ import annotations

from collections.abc import Sequence

from amplint.model import Applicability, Diagnostic, Level


def advice(diagnostic: Diagnostic) -> list[str]:
    """What the user can do: `help: ...`, `fix available: ... [*]` (`(unsafe)` where it needs `--unsafe-fixes`)."""
    lines = []
    if diagnostic.help:
        lines.append(f"help: {diagnostic.help}")
    if diagnostic.fix is not None:
        mark = "[*]" if diagnostic.fix.applicability == Applicability.SAFE else "(unsafe)"
        lines.append(f"fix available: {diagnostic.fix.message} {mark}")
    return lines


def full_message(diagnostic: Diagnostic) -> str:
    """The message and, on further lines, the advice."""
    return "\n".join([diagnostic.message, *advice(diagnostic)])


def summary(diagnostics: Sequence[Diagnostic]) -> str:
    """The last line: how many findings of each level, and how many of them `amplint fix` can mend."""
    if not diagnostics:
        return "All checks passed!"
    counts = [(level, sum(d.level == level for d in diagnostics)) for level in sorted(Level, reverse=True)]
    found = ", ".join(f"{count} {level.label}{'s' * (count > 1)}" for level, count in counts if count)
    fixes = [d.fix.applicability for d in diagnostics if d.fix is not None]
    safe, unsafe = fixes.count(Applicability.SAFE), fixes.count(Applicability.UNSAFE)
    if safe and unsafe:
        fixable = f" ({safe} fixable with `amplint fix`, {unsafe} more with --unsafe-fixes)"
    elif safe:
        fixable = f" ({safe} fixable with `amplint fix`)"
    elif unsafe:
        fixable = f" ({unsafe} fixable with `amplint fix --unsafe-fixes`)"
    else:
        fixable = ""
    return f"Found {found}{fixable}."
