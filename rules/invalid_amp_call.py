"""AMP004: calls of the AMP API that torch refuses or takes for something else."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

from amplint.calls.call_faults import Fault, call_faults
from amplint.calls.scaler_methods import method_faults
from amplint.model import Applicability, Finding, Label, Level
from amplint.rule import AMP_TRIGGERS, rule
from amplint.source import SourceFile

TRIGGERS = (*AMP_TRIGGERS, "custom_fwd", "custom_bwd", "caler.")


@rule("AMP004", "invalid-amp-call", level=Level.ERROR, fix=Applicability.SAFE, triggers=TRIGGERS)
def invalid_amp_call(file: SourceFile) -> Iterator[Finding]:
    """
    A call of autocast, GradScaler or one of their relatives does not fit the signature, so it raises, or an argument
    lands in another parameter than the one it is meant for and is silently ignored.

    The signatures are those of the torch versions that the project supports. The usual causes are an import that was
    moved from `torch.cuda.amp` to `torch.amp` without its calls, or a call that was moved without its import.

    A flag in the place of the dtype raises TypeError when the region is entered, even where it is False:

    ```python bad
    import torch


    def forward(model, x, use_amp=False):
        with torch.autocast("cuda", use_amp):
            return model(x)
    ```

    ```python good
    import torch


    def forward(model, x, use_amp=False):
        with torch.autocast("cuda", enabled=use_amp):
            return model(x)
    ```

    The current autocast needs a device type, and it must be a string:

    ```python bad
    import torch

    device = torch.device("cuda")

    with torch.autocast(device, dtype=torch.float16), torch.amp.autocast(enabled=False):
        pass
    ```

    ```python good
    import torch

    device = torch.device("cuda")

    with torch.autocast(device.type, dtype=torch.float16), torch.amp.autocast("cuda", enabled=False):
        pass
    ```

    The first parameter of `torch.amp.GradScaler` is the device. A flag or a scale in its place is ignored:

    ```python bad
    import torch

    scaler = torch.amp.GradScaler(2.0**10)
    disabled = torch.amp.GradScaler(False)
    ```

    ```python good
    import torch

    scaler = torch.amp.GradScaler("cuda", 2.0**10)
    disabled = torch.amp.GradScaler(enabled=False)
    ```

    Methods that a scaler does not have, or that are given the wrong thing:

    ```python bad
    import torch


    def train(model, loader, optimizer):
        scaler = torch.amp.GradScaler("cuda")
        for x, y in loader:
            optimizer.zero_grad()
            with torch.autocast("cuda"):
                loss = (model(x) - y).pow(2).mean()
            scaler.backward(loss)
            scaler.unscale(optimizer)
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            scaler.step(optimizer.step())
            scaler.update()
    ```

    ```python good
    import torch


    def train(model, loader, optimizer):
        scaler = torch.amp.GradScaler("cuda")
        for x, y in loader:
            optimizer.zero_grad()
            with torch.autocast("cuda"):
                loss = (model(x) - y).pow(2).mean()
            scaler.scale(loss).backward()
            scaler.unscale_(optimizer)
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            scaler.step(optimizer)
            scaler.update()
    ```
    """
    for ref in file.refs:
        faults = call_faults(file, ref)
        if faults:
            yield _finding(file, ref.call or ref.node, faults)
    for call, fault in method_faults(file):
        yield _finding(file, call, [fault])


def _finding(file: SourceFile, node: ast.AST, faults: Sequence[Fault]) -> Finding:
    """One finding for a call: what is wrong first, the rest beside it; the fixes are made one after the other."""
    first = next((fault for fault in faults if fault.fix is not None), faults[0])
    others = [fault for fault in faults if fault is not first]
    labels = [Label(file.span(fault.node), fault.message) for fault in others]
    return Finding(
        "AMP004",
        file.span(node),
        first.message,
        tuple(labels),
        first.fix,
        help="" if first.fix else first.help,
    )
