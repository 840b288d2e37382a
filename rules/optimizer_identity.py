"""AMP213: one object is unscaled and another one stepped."""

from __future__ import annotations

from collections.abc import Iterator

from amplint.model import Finding, Level
from amplint.rewrite.protocol_fixes import finding, named
from amplint.rule import rule
from amplint.source import SourceFile


@rule(
    "AMP213",
    "optimizer-identity",
    level=Level.ERROR,
    triggers=("unscale_", ".step("),
)
def optimizer_identity(file: SourceFile) -> Iterator[Finding]:
    """
    The scaler keeps its state per optimizer object. `unscale_` on a wrapper and `step` on what it wraps are two objects
    with the same parameters: the step unscales once more, and the update is divided by the square of the scale.

    ```python bad
    import torch


    class Wrapped:
        def __init__(self, optimizer):
            self.optimizer = optimizer
            self.param_groups = optimizer.param_groups


    def train(model, loader, optimizer):
        wrapped = Wrapped(optimizer)
        scaler = torch.amp.GradScaler("cuda")
        for x in loader:
            optimizer.zero_grad()
            with torch.autocast("cuda", dtype=torch.float16):
                loss = model(x).mean()
            scaler.scale(loss).backward()
            scaler.unscale_(wrapped)
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            scaler.step(wrapped.optimizer)
            scaler.update()
    ```

    ```python good
    import torch


    class Wrapped:
        def __init__(self, optimizer):
            self.optimizer = optimizer
            self.param_groups = optimizer.param_groups


    def train(model, loader, optimizer):
        wrapped = Wrapped(optimizer)
        scaler = torch.amp.GradScaler("cuda")
        for x in loader:
            optimizer.zero_grad()
            with torch.autocast("cuda", dtype=torch.float16):
                loss = model(x).mean()
            scaler.scale(loss).backward()
            scaler.unscale_(wrapped.optimizer)
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            scaler.step(wrapped.optimizer)
            scaler.update()
    ```
    """
    for violation in file.violations("optimizer-identity"):
        optimizer = named(violation.optimizer or "this optimizer")
        message = f"{optimizer} and what is stepped are two objects for the scaler, so gradients are unscaled twice"
        yield finding("AMP213", violation, message, help="give the same object to `unscale_` and `step`")
