from __future__ import annotations

import pytest

from amplint.model import Diagnostic, Level
from amplint.report.wording import advice, full_message, summary
from tests.report.samples import CLIP, IMPORT, diagnostic

PLAIN = diagnostic()
UNSAFE = diagnostic(fix=IMPORT.fix)


@pytest.mark.parametrize(
    ("found", "words"),
    [
        ([], "All checks passed!"),
        ([PLAIN], "Found 1 error."),
        ([PLAIN, PLAIN], "Found 2 errors."),
        ([diagnostic(level=Level.INFO)] * 2, "Found 2 infos."),
        ([CLIP, PLAIN], "Found 2 errors (1 fixable with `amplint fix`)."),
        ([UNSAFE], "Found 1 error (1 fixable with `amplint fix --unsafe-fixes`)."),
        (
            [CLIP, CLIP, UNSAFE, diagnostic(level=Level.WARNING)],
            "Found 3 errors, 1 warning (2 fixable with `amplint fix`, 1 more with --unsafe-fixes).",
        ),
    ],
)
def test_summary(found: list[Diagnostic], words: str) -> None:
    assert summary(found) == words


def test_advice() -> None:
    assert advice(PLAIN) == []
    assert advice(CLIP) == ["fix available: Call `scaler.unscale_(optimizer)` before the clip [*]"]
    assert advice(IMPORT) == ["help: the device is a guess", "fix available: Use `torch.amp.autocast` (unsafe)"]


def test_full_message() -> None:
    assert full_message(PLAIN) == "something is wrong"
    assert full_message(diagnostic(help="do this")) == "something is wrong\nhelp: do this"
