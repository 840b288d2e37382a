"""AMP110: an inner region goes back to the default dtype."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from amplint.calls.call_edits import Arguments
from amplint.facts.contexts import OFF, Autocast
from amplint.facts.regions import Region
from amplint.model import Applicability, Finding, Fix, Label, Level
from amplint.rule import rule
from amplint.source import SourceFile


@rule("AMP110", "nested-autocast-drops-dtype", level=Level.WARNING, fix=Applicability.UNSAFE, triggers=("autocast",))
def nested_autocast_drops_dtype(file: SourceFile) -> Iterator[Finding]:
    """
    `torch.cuda.amp.autocast()` without a dtype means float16, also inside a bfloat16 region: that part runs with the
    range of float16 and without a scaler. The new class takes the dtype of the region around it, but only where it is
    constructed there: as a decorator or in a variable it has the default of its device.

    ```python bad
    import torch


    @torch.autocast("cuda")
    def project(head, x):
        return head(x)


    def forward(model, head, x):
        with torch.autocast("cuda", dtype=torch.bfloat16):
            return project(head, model(x))
    ```

    ```python good
    import torch


    @torch.autocast("cuda", dtype=torch.bfloat16)
    def project(head, x):
        return head(x)


    def forward(model, head, x):
        with torch.autocast("cuda", dtype=torch.bfloat16):
            return project(head, model(x))
    ```

    The fix is unsafe since the inner region may be entered from elsewhere too.
    """
    for region in file.regions.all:
        autocast = region.autocasts[0]
        if not region.certain or not autocast.valid or region.enabled == OFF or autocast.dtype is not None:
            continue
        if not autocast.legacy and (region.inline or file.regions.at(autocast.call) is not None):
            continue
        for outer in _around(file, region):
            if _drops(region, autocast, outer):
                yield _finding(file, region, outer)
                break


def _around(file: SourceFile, region: Region) -> list[Region]:
    if region.outer is not None:
        return [region.outer]
    return [outer for outer, _ in file.regions.callers(region.function)] if region.function is not None else []


def _drops(region: Region, autocast: Autocast, outer: Region) -> bool:
    if outer is region or outer.enabled == OFF or not outer.certain or outer.autocasts[0].dtype is None:
        return False
    same_device = len(region.devices) == 1 and region.devices == outer.devices
    return same_device and len(outer.dtypes) == 1 and len(autocast.dtypes) == 1 and autocast.dtypes != outer.dtypes


def _finding(file: SourceFile, region: Region, outer: Region) -> Finding:
    autocast, wanted = region.autocasts[0], outer.autocasts[0].dtype
    default, around = next(iter(autocast.dtypes)), next(iter(outer.dtypes))
    fix = None
    if wanted is not None and isinstance(wanted, ast.Attribute) and len(file.resolve(wanted)) == 1:
        edits = tuple(Arguments(file, autocast.call).append(f"dtype={file.segment(wanted)}"))
        fix = Fix(f"Ask for {around} here too", edits, Applicability.UNSAFE)
    return Finding(
        "AMP110",
        file.span(autocast.call),
        f"without a dtype this region runs in {default} inside one in {around}",
        (Label(file.span(outer.expression), f"the region around it runs in {around}"),),
        fix,
    )
