"""AMP900: suppressing comments that suppress nothing."""

from __future__ import annotations

from collections.abc import Iterator

from amplint.model import Applicability, Finding, Level
from amplint.rule import AMP_TRIGGERS, rule
from amplint.source import SourceFile
from amplint.suppress import Suppressions


@rule(
    "AMP900",
    "unused-suppression",
    level=Level.WARNING,
    fix=Applicability.SAFE,
    triggers=("amplint:", "noqa: AMP", *AMP_TRIGGERS),
)
def unused_suppression(file: SourceFile) -> Iterator[Finding]:
    """
    A comment suppresses a rule that reports nothing there, or names no rule at all. The first was left behind when the
    code was mended and will hide the next mistake on that line; the second never hid anything.

    Findings are suppressed on a line by `# noqa: AMP301` or `# amplint: ignore[AMP301]`, where codes, their beginnings
    (`AMP3`) and names (`clip-before-unscale`) are understood, and at the end of a statement for all of its lines. A
    comment `# amplint: ignore[AMP301]` on a line of its own speaks of the statement below it, and
    `# amplint: ignore-file` or `# amplint: ignore-file[AMP301]` of the whole file.

    The codes of other tools in a `# noqa` are left alone, and a bare `# noqa` is never reported. Neither is a comment
    for a rule that is not enabled in the run. The fix takes the idle codes out of the list, and the comment away when
    nothing is left of it. A misspelt name is replaced by the one that was probably meant, but as an unsafe fix.

    ```python bad
    from torch.cuda.amp import autocast  # amplint: ignore[deprecated-amp-apis]
    ```

    ```python good
    from torch.cuda.amp import autocast  # amplint: ignore[deprecated-amp-api]
    ```
    """
    yield from Suppressions(file.text).unknown()
