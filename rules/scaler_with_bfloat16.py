"""AMP402: a loss scale for a dtype that has the range of float32."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from amplint.facts.contexts import OFF, ON, Autocast
from amplint.facts.regions import Region
from amplint.facts.training import scale_calls, scaler_constructors, scaler_origins
from amplint.model import Applicability, Finding, Fix, Label, Level
from amplint.rewrite.scaler_removal import remove_scaler
from amplint.rule import rule
from amplint.source import SourceFile


@rule("AMP402", "scaler-with-bfloat16", level=Level.INFO, fix=Applicability.UNSAFE, triggers=("GradScaler",))
def scaler_with_bfloat16(file: SourceFile) -> Iterator[Finding]:
    """
    bfloat16 has the exponent range of float32, so its gradients need no scaling: after 100 steps the weights are
    bitwise the same with and without a scaler, which costs a synchronisation with the device at every step.

    ```python bad
    import torch


    def train(model, loader, optimizer):
        scaler = torch.amp.GradScaler("cuda")
        for x, y in loader:
            optimizer.zero_grad()
            with torch.autocast("cuda", dtype=torch.bfloat16):
                loss = (model(x) - y).pow(2).mean()
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
    ```

    ```python good
    import torch


    def train(model, loader, optimizer):
        for x, y in loader:
            optimizer.zero_grad()
            with torch.autocast("cuda", dtype=torch.bfloat16):
                loss = (model(x) - y).pow(2).mean()
            loss.backward()
            optimizer.step()
    ```

    Silent where the dtype may also be float16 or comes from a parameter, and where the scaler has a flag of its own.
    The fix is unsafe since checkpoints with the scaler's state then hold an entry that nothing loads.
    """
    calls = scale_calls(file)
    for constructor in scaler_constructors(file):
        scaled = [call for call in calls if _is_made_by(file, call, constructor)]
        regions = _regions(file, scaled)
        if not regions or not all(_is_bfloat16(file, region) for region in regions):
            continue
        enabled = _enabled(constructor)
        if enabled is not None and not all(_same_flag(enabled, entry) for r in regions for entry in r.autocasts):
            continue
        yield _finding(file, constructor, scaled, regions)


def _is_made_by(file: SourceFile, call: ast.Call, constructor: ast.Call) -> bool:
    return isinstance(call.func, ast.Attribute) and constructor in scaler_origins(file, call.func.value)


def _regions(file: SourceFile, scaled: list[ast.Call]) -> list[Region]:
    """The regions in the functions that scale a loss; all regions of the file where those have none."""
    if not scaled:
        return []
    functions = {file.values.enclosing_function(call) for call in scaled}
    on = [region for region in file.regions.all if region.enabled != OFF]
    return [region for region in on if region.function in functions] or on


def _is_bfloat16(file: SourceFile, region: Region) -> bool:
    """Whether a region runs in bfloat16 whatever a caller asks for."""
    return region.dtypes == {"bfloat16"} and not any(
        file.values.is_open(argument)
        for entry in region.autocasts
        for argument in (entry.device if entry.dtype is None else entry.dtype,)
        if argument is not None
    )


def _enabled(constructor: ast.Call) -> ast.expr | None:
    """The flag of a scaler, None where it is always on."""
    for keyword in constructor.keywords:
        if keyword.arg == "enabled":
            always = isinstance(keyword.value, ast.Constant) and keyword.value.value is True
            return None if always else keyword.value
        if keyword.arg is None:
            return keyword.value
    return constructor.args[-1] if len(constructor.args) > 4 else None


def _same_flag(enabled: ast.expr, autocast: Autocast) -> bool:
    if autocast.enabled == ON and autocast.enabled_by is None:
        return False
    return autocast.enabled_by is not None and ast.unparse(autocast.enabled_by) == ast.unparse(enabled)


def _finding(file: SourceFile, constructor: ast.Call, scaled: list[ast.Call], regions: list[Region]) -> Finding:
    edits = remove_scaler(file, constructor)
    return Finding(
        "AMP402",
        file.span(constructor),
        "bfloat16 needs no loss scale: with the scaler the weights are bitwise the same after 100 steps",
        (
            Label(file.span(regions[0].expression), "the region runs in bfloat16"),
            Label(file.span(scaled[0]), "the loss is scaled here"),
        ),
        None if edits is None else Fix("Remove the scaler", edits, Applicability.UNSAFE),
    )
