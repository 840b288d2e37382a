"""AMP901: a training loop that runs in plain float32."""

from __future__ import annotations

from collections.abc import Iterator

from amplint.model import Applicability, Finding, Level
from amplint.rule import rule
from amplint.source import SourceFile


@rule(
    "AMP901",
    "fp32-training-loop",
    level=Level.INFO,
    fix=Applicability.UNSAFE,
    default=False,
    gated=False,
    triggers=("backward",),
)
def fp32_training_loop(file: SourceFile) -> Iterator[Finding]:
    """
    A training loop runs in float32. On a GPU with tensor cores, mixed precision often halves its time and its memory
    for activations; on a machine without one the migrated loop does what it did.

    ```python bad
    import torch
    from torch import nn


    def train(model, loader, device):
        criterion = nn.CrossEntropyLoss()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for images, labels in loader:
            images, labels = images.to(device), labels.to(device)
            optimizer.zero_grad()
            outputs = model(images)
            loss = criterion(outputs, labels)
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
    ```

    ```python good
    import torch
    from torch import nn


    def train(model, loader, device):
        criterion = nn.CrossEntropyLoss()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        scaler = torch.amp.GradScaler("cuda", enabled=torch.device(device).type == "cuda")
        for images, labels in loader:
            images, labels = images.to(device), labels.to(device)
            optimizer.zero_grad()
            with torch.autocast(
                device_type=torch.device(device).type, dtype=torch.float16, enabled=scaler.is_enabled()
            ):
                outputs = model(images)
                loss = criterion(outputs, labels)
            scaler.scale(loss).backward()
            scaler.unscale_(optimizer)
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            scaler.step(optimizer)
            scaler.update()
    ```

    The fix is what `amplint migrate` writes, evaluation loops included; all loops of a file change together. Where the
    migration is refused the finding has no fix and says why. It is unsafe: losses change within what mixed precision
    rounds, and only a run on your data shows whether that matters.
    """
    from amplint.migrate import opportunities  # a large room, for a rule that is off by default

    return opportunities.training_loops(file, "AMP901")
