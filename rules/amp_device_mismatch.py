"""AMP407: scaler, autocast and tensors on different devices."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from amplint.calls.call_edits import Arguments
from amplint.calls.signatures import apis, bind
from amplint.facts.contexts import OFF
from amplint.facts.regions import Region
from amplint.facts.training import roots, scale_calls, scaler_constructors, scaler_origins
from amplint.facts.values import path_of
from amplint.model import Applicability, Edit, Finding, Fix, Label, Level
from amplint.rule import rule
from amplint.source import SourceFile
from amplint.torch_api import CURRENT

_MOVES = ("to", "cuda", "cpu", "xpu")


@rule("AMP407", "amp-device-mismatch", level=Level.WARNING, fix=Applicability.UNSAFE)
def amp_device_mismatch(file: SourceFile) -> Iterator[Finding]:
    """
    `GradScaler()` means CUDA: beside autocast on another device it switches itself off with a warning where there is no
    CUDA, and float16 gradients go unscaled. Autocast on a device that the tensors never go to does nothing at all:
    everything stays float32.

    ```python bad
    import torch


    def train(model, loader, optimizer):
        scaler = torch.amp.GradScaler()
        for x, y in loader:
            optimizer.zero_grad()
            with torch.autocast("xpu", dtype=torch.float16):
                loss = (model(x) - y).pow(2).mean()
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
    ```

    ```python good
    import torch


    def train(model, loader, optimizer):
        scaler = torch.amp.GradScaler("xpu")
        for x, y in loader:
            optimizer.zero_grad()
            with torch.autocast("xpu", dtype=torch.float16):
                loss = (model(x) - y).pow(2).mean()
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
    ```

    Only devices that are written out are compared. The fix is unsafe since it takes the region's device for the right
    one.
    """
    yield from _scalers(file)
    yield from _regions(file)


def _scalers(file: SourceFile) -> Iterator[Finding]:
    calls = scale_calls(file)
    for constructor in scaler_constructors(file):
        device = _device_of(file, constructor)
        functions = {
            file.values.enclosing_function(call)
            for call in calls
            if isinstance(call.func, ast.Attribute) and constructor in scaler_origins(file, call.func.value)
        }
        regions = [r for r in file.regions.all if r.function in functions and r.enabled != OFF and r.is_low_precision]
        devices = frozenset().union(*(region.devices for region in regions))
        if len(device) != 1 or len(devices) != 1 or device == devices:
            continue
        if not all(_is_written_out(file, region) for region in regions):
            continue
        yield _scaler_finding(file, constructor, next(iter(device)), next(iter(devices)), regions[0])


def _device_of(file: SourceFile, constructor: ast.Call) -> frozenset[str]:
    found = apis(file.resolve(constructor.func))
    if len({api.device for api in found}) != 1:
        return frozenset()
    if found[0].device:
        return frozenset((found[0].device,))
    signature = found[0].signature(file.settings.target_torch or CURRENT)
    bound = None if signature is None else bind(constructor, signature)
    if bound is None or not bound.fits or bound.starred or bound.unpacked:
        return frozenset()
    device = bound.value("device")
    if device is not None and file.values.is_open(device):
        return frozenset()
    return frozenset(("cuda",)) if device is None else file.regions.reader.devices(device)


def _is_written_out(file: SourceFile, region: Region) -> bool:
    """Whether the device of a region is known whatever a caller asks for."""
    arguments = [entry.device for entry in region.autocasts if entry.device is not None]
    return bool(region.devices) and not any(file.values.is_open(argument) for argument in arguments)


def _scaler_finding(file: SourceFile, constructor: ast.Call, device: str, wanted: str, region: Region) -> Finding:
    return Finding(
        "AMP407",
        file.span(constructor),
        f"this scaler is for {device} and the region for {wanted}: without {device} the scaler switches itself off and "
        "gradients go unscaled",
        (Label(file.span(region.expression), f"autocast runs on {wanted}"),),
        _scaler_fix(file, constructor, wanted),
    )


def _scaler_fix(file: SourceFile, constructor: ast.Call, wanted: str) -> Fix | None:
    if any(api.device for api in apis(file.resolve(constructor.func))):
        return None
    given = next((keyword.value for keyword in constructor.keywords if keyword.arg == "device"), None)
    given = constructor.args[0] if constructor.args else given
    if given is None:
        edits = tuple(Arguments(file, constructor).prepend(f'"{wanted}"'))
    elif isinstance(given, ast.Constant):
        edits = (Edit(file.span(given), f'"{wanted}"'),)
    else:
        return None
    return Fix(f"Make a scaler for {wanted}", edits, Applicability.UNSAFE)


def _regions(file: SourceFile) -> Iterator[Finding]:
    """Regions on a device while every tensor and module of the function is moved to another."""
    moves = _moves(file)
    for region in file.regions.all:
        if region.enabled == OFF or region.function is None or len(region.devices) != 1 or not region.certain:
            continue
        if not _is_written_out(file, region):
            continue
        here = [move for move in moves if _comes_before(file, move, region)]
        everywhere = frozenset().union(*(devices for _, devices in here))
        if not here or not all(devices for _, devices in here) or len(everywhere) != 1:
            continue
        device, wanted = next(iter(region.devices)), next(iter(everywhere))
        if device == wanted or wanted in ("meta", "auto"):
            continue
        yield Finding(
            "AMP407",
            file.span(region.expression),
            f"autocast is asked for on {device} while the tensors go to {wanted}: the region stays float32",
            (Label(file.span(here[0][0]), f"moved to {wanted} here"),),
            _region_fix(file, region, device, wanted),
        )


def _comes_before(file: SourceFile, move: tuple[ast.Call, frozenset[str]], region: Region) -> bool:
    """Whether a move brings something into the region; what goes to the CPU elsewhere are results of something."""
    call, devices = move
    if file.values.enclosing_function(call) is not region.function or not isinstance(call.func, ast.Attribute):
        return False
    before = call.lineno < region.expression.lineno
    if devices == {"cpu"}:
        used = frozenset().union(*(roots(statement) for statement in region.body))
        return before and path_of(call.func.value) in used
    return before or call.lineno <= (region.body[-1].end_lineno or 0)


def _moves(file: SourceFile) -> list[tuple[ast.Call, frozenset[str]]]:
    """The calls that move something to a device, with the devices that can be seen (empty: unknown)."""
    found: list[tuple[ast.Call, frozenset[str]]] = []
    for name in _MOVES:
        for use in file.names.attributes.get(name, ()):
            call = file.parent(use)
            if not isinstance(call, ast.Call) or call.func is not use or file.resolve(use):
                continue
            if name != "to":
                found.append((call, frozenset((name,))))
                continue
            given = [*call.args[:1], *(keyword.value for keyword in call.keywords if keyword.arg == "device")]
            if given and not any(part.startswith("torch.") for part in file.resolve(given[0])):
                open_ = file.values.is_open(given[0])
                found.append((call, frozenset() if open_ else file.regions.reader.devices(given[0])))
    return found


def _region_fix(file: SourceFile, region: Region, device: str, wanted: str) -> Fix | None:
    autocast = region.autocasts[0]
    given = [*autocast.call.args[:1], *(k.value for k in autocast.call.keywords if k.arg == "device_type")]
    if autocast.legacy or not given or not isinstance(given[0], ast.Constant) or given[0].value != device:
        return None
    return Fix(f"Run autocast on {wanted}", (Edit(file.span(given[0]), f'"{wanted}"'),), Applicability.UNSAFE)
