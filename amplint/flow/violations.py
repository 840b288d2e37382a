"""What the engine hands to the rules."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from amplint.model import Label, Span

if TYPE_CHECKING:
    from amplint.source import SourceFile


class Violation(NamedTuple):
    """One misuse on a path, ready to be worded and fixed by the rule of the same name.

    `kind` is the name of a rule of the catalogue (`clip-before-unscale`). `span` is the blamed expression: the call
    that is wrong or, where the wrong call happens inside a helper, the call of the helper in the function that also
    holds the other half of the story. `place` is the wrong call itself (equal to `span` without a helper; no place of
    this file where the helper is imported).

    `certain`: every way to reach the place is wrong, in the first round of the loops around it or in the next;
    otherwise some ways are right, and `path` holds the decisions that lead to the wrong one. `raises`: torch raises
    there.

    `labels` are the related places in the order of events, worded ("gradients are scaled here"); `path` the decisions
    on the way, worded ("when `norm > limit`").

    Facts for fixes, all as source text that is valid in the function of `span`; empty where there is none: `scaler`
    is the scaler's expression, `optimizer` the optimizer meant, `optimizers` all those that the scaler steps in this
    function. `related` is the other place that the rule's message names (the scaled backward, the earlier step, the
    update that is passed over, ...). `threshold` is the literal bound of a clip, None where it is computed. `again`
    (step-in-autocast): another backward runs in the same region afterwards. `optimizer_class` is the last name of the
    optimizer's class where it is made in view (`SGD`). `per_iteration` (scaler-in-loop): the loop is the one that
    steps.
    """

    kind: str
    span: Span
    place: Span
    certain: bool
    raises: bool
    labels: tuple[Label, ...] = ()
    path: tuple[Label, ...] = ()
    scaler: str = ""
    optimizer: str = ""
    optimizers: tuple[str, ...] = ()
    related: Span | None = None
    threshold: float | None = None
    again: bool = False
    optimizer_class: str = ""
    per_iteration: bool = False


KINDS = (
    "backward-in-autocast",
    "step-in-autocast",
    "missing-update",
    "update-skipped-on-path",
    "update-before-step",
    "update-between-optimizers",
    "scaler-step-twice",
    "step-bypasses-scaler",
    "double-step",
    "unscaled-backward",
    "update-in-accumulation",
    "scaler-in-loop",
    "scaler-maybe-unbound",
    "optimizer-identity",
    "no-gradients-at-step",
    "clip-before-unscale",
    "grad-read-before-unscale",
    "unscale-twice",
    "unscale-after-step",
    "unscale-in-accumulation",
    "zero-grad-missing-on-path",
    "clip-after-step",
)
"""The kinds that the engine can find."""


class Analysis(NamedTuple):
    """What the engine made of a file: the violations in the order of the text, and the functions it left alone.

    `unfinished` names the functions that were beyond the engine's budget, on which nothing is reported.
    """

    violations: list[Violation]
    unfinished: list[str]


_OBJECTS = re.compile(
    r"\.autocast\b|\bimport\b[^\n#]*\bautocast\b|^[ \t]+autocast\b[ \t]*(?:,|as\b|$)"
    r"|GradScaler|\.scale\(|\.unscale_\(|caler\.(?:step|update)\(|\b(?:loss_|grad_|amp_)?scaler\(|Scaler\(",
    re.MULTILINE,
)
"""What stands in every file that has a region or a scaler, under whatever name the scaler goes."""

_EVENTS = (".backward(", ".step(", "unscale_", "caler.", "caler(", "autograd.grad", "clip_grad")
"""One of these stands in every file that takes part in the protocol; most files with autocast are models and do not."""


def _has_objects(file: SourceFile) -> bool:
    wrappers = (wrapper.rsplit(".", 1)[-1] for wrapper in file.settings.wrappers)
    return _OBJECTS.search(file.text) is not None or any(wrapper in file.text for wrapper in wrappers)


def analyse(file: SourceFile) -> Analysis:
    """Run the engine on a file. Raises what `file.tree` raises."""
    if not any(word in file.text for word in _EVENTS) or not _has_objects(file):
        return Analysis([], [])
    from amplint.flow.engine import Engine
    from amplint.flow.lower import lower

    engine = Engine(lower(file))
    found = engine.run()
    return Analysis(found, engine.unfinished)


def find(file: SourceFile) -> list[Violation]:
    """All violations of the protocol in a file, in the order of the text. Raises what `file.tree` raises."""
    return analyse(file).violations
