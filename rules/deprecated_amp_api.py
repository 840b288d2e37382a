"""AMP001: autocast, GradScaler, custom_fwd and custom_bwd under their old names."""

from __future__ import annotations

from collections.abc import Iterator

from amplint.model import Applicability, Finding, Level
from amplint.rule import AMP_TRIGGERS, rule
from amplint.source import SourceFile

TRIGGERS = (*AMP_TRIGGERS, "custom_fwd", "custom_bwd", "cuda import", "cpu import")


@rule("AMP001", "deprecated-amp-api", level=Level.WARNING, fix=Applicability.SAFE, triggers=TRIGGERS)
def deprecated_amp_api(file: SourceFile) -> Iterator[Finding]:
    """
    `torch.cuda.amp` and `torch.cpu.amp` are deprecated since torch 2.4: every use warns, and the names are to go.
    What takes their place has another signature, so a plain change of the name gives a TypeError or, worse, silence.

    The old autocast takes `enabled` first, the new one the device and then the dtype. The new GradScaler takes the
    device first. The new `custom_fwd` and `custom_bwd` need the keyword `device_type`. The fix sees to all of that:

    ```python bad
    import torch
    from torch.cuda.amp import GradScaler, autocast


    def train(model, loader, optimizer, use_amp=True):
        scaler = GradScaler(2.0**10, enabled=use_amp)
        for x, y in loader:
            optimizer.zero_grad()
            with autocast(use_amp, torch.float16):
                loss = (model(x) - y).pow(2).mean()
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
    ```

    ```python good
    import torch


    def train(model, loader, optimizer, use_amp=True):
        scaler = torch.amp.GradScaler("cuda", 2.0**10, enabled=use_amp)
        for x, y in loader:
            optimizer.zero_grad()
            with torch.amp.autocast("cuda", enabled=use_amp, dtype=torch.float16):
                loss = (model(x) - y).pow(2).mean()
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
    ```

    An existing import from `torch.amp` is extended. Where `torch` is not imported, the old import becomes one of the
    new name:

    ```python bad
    from torch.cuda.amp import custom_bwd, custom_fwd


    @custom_fwd
    def forward(ctx, x):
        return x * 2


    @custom_bwd
    def backward(ctx, gradient):
        return gradient * 2
    ```

    ```python good
    from torch.amp import custom_bwd, custom_fwd


    @custom_fwd(device_type="cuda")
    def forward(ctx, x):
        return x * 2


    @custom_bwd(device_type="cuda")
    def backward(ctx, gradient):
        return gradient * 2
    ```

    An import and all uses of its name change together, or the finding says why they do not: the name has two meanings,
    it is handed on to code that can't be seen, TorchScript compiles it. Fallbacks for old versions of torch are left
    alone (`try: ... except ImportError:`, version tests, `hasattr`). A name that other files may import from here
    (`__all__`, `__init__.py`, `import X as X`) keeps its name, and the fix is unsafe: they may call it the old way.

    Nothing is reported for which the oldest torch that the project supports (`target-torch`) has no replacement:
    autocast needs 1.10, GradScaler 2.3, `custom_fwd` and `custom_bwd` 2.4. With `compat = "shim"` the fix imports the
    new name with the old one as a fallback. `autocast = "torch.autocast"` prefers the shorter spelling.

    The new autocast takes the dtype and the cache flag of an enclosing region of the same device where none is given;
    the old one always started from its own defaults.
    """
    from amplint.modernize.findings import findings
    from amplint.modernize.moves import deprecated_api

    yield from findings(file, deprecated_api(file.settings))
