"""What the tests of the reports share: a small file and findings in it."""

from __future__ import annotations

from amplint.model import Applicability, Diagnostic, FixInfo, Level, Location, RelatedPlace, TextEdit
from amplint.report import ReportContext

SOURCE = """\
import torch
from torch.cuda.amp import autocast

def train(scaler):
    for x in loader:
        with autocast(True):
            loss = model(x)
        scaler.scale(loss).backward()
        clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
"""

CONTEXT = ReportContext(sources={"train.py": SOURCE}.get, root="/project", version="1.2.3")


def diagnostic(
    start: tuple[int, int] = (1, 1),
    end: tuple[int, int] = (1, 2),
    related: tuple[tuple[str, tuple[int, int], tuple[int, int]], ...] = (),
    fix: FixInfo | None = None,
    message: str = "something is wrong",
    filename: str = "train.py",
    level: Level = Level.ERROR,
    code: str = "AMP301",
    help: str = "",
) -> Diagnostic:
    """A finding of the rule clip-before-unscale unless the code says otherwise."""
    name = {"AMP301": "clip-before-unscale", "AMP001": "deprecated-amp-api"}.get(code, "other-rule")
    places = tuple(RelatedPlace(text, Location(*first), Location(*last)) for text, first, last in related)
    url = f"https://example.org/{code}"
    return Diagnostic(code, name, level, message, filename, Location(*start), Location(*end), places, fix, url, help)


def fix(title: str, *edits: tuple[tuple[int, int], tuple[int, int], str], safe: bool = True) -> FixInfo:
    """A fix from places and new contents."""
    applicability = Applicability.SAFE if safe else Applicability.UNSAFE
    return FixInfo(applicability, title, tuple(TextEdit(Location(*a), Location(*b), text) for a, b, text in edits))


CLIP = diagnostic(
    (9, 9),
    (9, 24),
    (("scaled here", (8, 9), (8, 38)),),
    fix("Call `scaler.unscale_(optimizer)` before the clip", ((9, 1), (9, 1), "        scaler.unscale_(optimizer)\n")),
    "gradients are clipped while they are scaled",
)
IMPORT = diagnostic(
    (6, 14),
    (6, 22),
    (("imported here", (2, 28), (2, 36)),),
    fix(
        "Use `torch.amp.autocast`",
        ((2, 6), (2, 20), "torch.amp"),
        ((6, 23), (6, 27), '"cuda", enabled=True'),
        safe=False,
    ),
    "`torch.cuda.amp.autocast` is deprecated",
    level=Level.WARNING,
    code="AMP001",
    help="the device is a guess",
)
MILD = diagnostic((6, 9), (8, 38), level=Level.INFO, code="AMP604", filename="lib/a b.py")
