"""AMP212: on some path the scaler is None, or was never made."""

from __future__ import annotations

from collections.abc import Iterator

from amplint.model import Finding, Level
from amplint.rewrite.protocol_fixes import finding, named
from amplint.rule import rule
from amplint.source import SourceFile


@rule(
    "AMP212",
    "scaler-maybe-unbound",
    level=Level.ERROR,
    triggers=("GradScaler",),
)
def scaler_maybe_unbound(file: SourceFile) -> Iterator[Finding]:
    """
    The scaler is made on one path only and called on all: with the flag off, the first iteration raises AttributeError
    or NameError. A scaler needs no such paths: `GradScaler("cuda", enabled=use_amp)` passes everything through while it
    is switched off.

    ```python bad
    import torch


    def train(model, loader, optimizer, use_amp):
        scaler = None
        if use_amp:
            scaler = torch.amp.GradScaler("cuda")
        for x in loader:
            optimizer.zero_grad()
            with torch.autocast("cuda", dtype=torch.float16, enabled=use_amp):
                loss = model(x).mean()
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
    ```

    ```python good
    import torch


    def train(model, loader, optimizer, use_amp):
        scaler = torch.amp.GradScaler("cuda", enabled=use_amp)
        for x in loader:
            optimizer.zero_grad()
            with torch.autocast("cuda", dtype=torch.float16, enabled=use_amp):
                loss = model(x).mean()
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
    ```

    Under a test, a call is reported only where the scaler is None on every way there: in the `else:` of `if scaler:`.
    """
    for violation in file.violations("scaler-maybe-unbound"):
        message = f"{named(violation.scaler or 'the scaler')} is None or unbound on a path that calls it"
        hint = "make it always and switch it off with `enabled=`, or test it before the call"
        yield finding("AMP212", violation, message, help=hint)
