"""AMP902: an evaluation loop in plain float32, of a model that trains under automatic mixed precision."""

from __future__ import annotations

from collections.abc import Iterator

from amplint.model import Applicability, Finding, Level
from amplint.rule import rule
from amplint.source import SourceFile


@rule(
    "AMP902",
    "fp32-evaluation-loop",
    level=Level.INFO,
    fix=Applicability.UNSAFE,
    default=False,
    gated=False,
    triggers=("autocast",),
)
def fp32_evaluation_loop(file: SourceFile) -> Iterator[Finding]:
    """
    A model trains under mixed precision and is evaluated in float32, which takes more time and memory than training
    does. Autocast needs no scaler here.

    ```python bad
    import torch
    from torch.nn import functional as F


    def train(model, loader, optimizer, scaler, device: torch.device):
        for x, y in loader:
            optimizer.zero_grad()
            with torch.autocast(device_type=device.type, dtype=torch.float16, enabled=scaler.is_enabled()):
                loss = F.cross_entropy(model(x.to(device)), y.to(device))
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()


    @torch.no_grad()
    def evaluate(model, loader, device: torch.device):
        correct = 0
        for x, y in loader:
            output = model(x.to(device))
            correct += (output.argmax(1) == y.to(device)).sum().item()
        return correct
    ```

    ```python good
    import torch
    from torch.nn import functional as F


    def train(model, loader, optimizer, scaler, device: torch.device):
        for x, y in loader:
            optimizer.zero_grad()
            with torch.autocast(device_type=device.type, dtype=torch.float16, enabled=scaler.is_enabled()):
                loss = F.cross_entropy(model(x.to(device)), y.to(device))
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()


    @torch.no_grad()
    def evaluate(model, loader, device: torch.device):
        correct = 0
        for x, y in loader:
            with torch.autocast(device_type=device.type, dtype=torch.float16, enabled=device.type == "cuda"):
                output = model(x.to(device))
            correct += (output.argmax(1) == y.to(device)).sum().item()
        return correct
    ```

    Reported only where the model's output goes to a loss, a maximum or an order, which half precision does not change
    beyond rounding; a threshold on probabilities or a sum of outputs stays in float32. The fix is unsafe: reported
    losses change within what mixed precision rounds.
    """
    from amplint.migrate import opportunities  # a large room, for a rule that is off by default

    return opportunities.evaluation_loops(file, "AMP902")
