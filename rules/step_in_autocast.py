"""AMP102: the optimizer steps inside an autocast region."""

from __future__ import annotations

from collections.abc import Iterator

from amplint.model import Applicability, Finding, Level
from amplint.rewrite.protocol_fixes import call_at, enter_in_loop, finding
from amplint.rule import rule
from amplint.source import SourceFile


@rule(
    "AMP102",
    "step-in-autocast",
    level=Level.ERROR,
    fix=Applicability.SAFE,
    triggers=("autocast",),
)
def step_in_autocast(file: SourceFile) -> Iterator[Finding]:
    """
    Autocast keeps the low-precision copies of the weights until the outermost region ends. A forward that runs in the
    region after a step sees the old weights: the loss stayed at 0.64943 for 60 steps while the weights drifted to a
    true loss of 597.

    ```python bad
    import torch


    def train(model, loader, optimizer):
        with torch.autocast("cuda", dtype=torch.bfloat16):
            for x in loader:
                loss = model(x).mean()
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
    ```

    ```python good
    import torch


    def train(model, loader, optimizer):
        for x in loader:
            with torch.autocast("cuda", dtype=torch.bfloat16):
                loss = model(x).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    ```

    Reported where a loop stands inside a region, and where a training function is decorated. A step at the end of a
    region that holds one iteration does no harm and is left to AMP101. `cache_enabled=False` avoids the harm too.
    """
    for violation in file.violations("step-in-autocast"):
        call = call_at(file, violation.place)
        fix = None if call is None or violation.place != violation.span else enter_in_loop(file, call)
        message = "the next forward in this region still sees the weights of before the step: the loss freezes"
        hint = "" if fix else "put the region inside the loop, round the forward and the loss only"
        level = Level.ERROR if violation.again else Level.INFO
        yield finding("AMP102", violation, message, fix, level=level, help=hint)
