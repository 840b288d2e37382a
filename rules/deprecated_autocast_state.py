"""AMP002: functions of the autocast state that have a device in their name."""

from __future__ import annotations

from collections.abc import Iterator

from amplint.model import Applicability, Finding, Level
from amplint.rule import rule
from amplint.source import SourceFile


@rule("AMP002", "deprecated-autocast-state", level=Level.WARNING, fix=Applicability.SAFE)
def deprecated_autocast_state(file: SourceFile) -> Iterator[Finding]:
    """
    Functions such as `torch.get_autocast_gpu_dtype` and `torch.is_autocast_cpu_enabled` are deprecated since torch 2.4.
    Python hides their DeprecationWarning outside of `__main__`, so nothing tells of them until they are gone.

    The functions that take their place are told the device:

    ```python bad
    import torch


    def low_precision(x):
        if torch.is_autocast_cpu_enabled():
            return x.to(torch.get_autocast_cpu_dtype())
        return x.to(torch.get_autocast_gpu_dtype())
    ```

    ```python good
    import torch


    def low_precision(x):
        if torch.is_autocast_enabled("cpu"):
            return x.to(torch.get_autocast_dtype("cpu"))
        return x.to(torch.get_autocast_dtype("cuda"))
    ```

    `torch.is_autocast_enabled()` without a device is not deprecated. Nothing is reported where the project supports
    torch before 2.4 (`target-torch`), and version tests and fallbacks are left alone.
    """
    from amplint.modernize.findings import findings
    from amplint.modernize.moves import deprecated_state

    yield from findings(file, deprecated_state(file.settings))
