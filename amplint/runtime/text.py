"""The monitor's report for people."""

from __future__ import annotations

import os

from amplint.runtime.places import Place
from amplint.runtime.results import GradientReport, Report, ScalerReport, Violation


def render(report: Report, directory: str) -> str:
    """The report as lines of text: first what is wrong, then what AMP did. Files are named from `directory`."""
    lines = [_violation(violation, directory) for violation in report.violations]
    if lines:
        lines.append("")
    lines.append(_verdict(report))
    for region in report.regions:
        state = region.dtype if region.enabled else "off"
        where = _at(region.place, directory)
        lines.append(f"autocast at {where}: {region.device}, {state}, entered {_times(region.entries)}")
    lines.append(_backwards(report))
    lines.extend(_scaler(scaler, directory) for scaler in report.scalers)
    if report.plain_steps:
        lines.append(f"optimizer steps without a scaler: {report.plain_steps}")
    for product in report.products or ():
        lines.append(
            f"{product.operation} in {product.dtype}: {_times(product.calls)}, {product.with_gradients} with gradients"
        )
    if report.gradients is not None:
        lines.extend(_gradients(report.gradients))
    count = len(report.violations)
    lines.append(f"{count} violation{'s' * (count != 1)} of the protocol" if count else "the protocol was kept")
    return "\n".join(lines) + "\n"


def _verdict(report: Report) -> str:
    if report.effective:
        return "AMP took effect: matrix products ran in low precision"
    if report.effective is None:
        return "AMP may have taken effect: autocast was on, but no matrix product was seen (none in compiled code is)"
    if not report.regions:
        return "AMP did nothing: no autocast region was entered"
    if not any(region.enabled for region in report.regions):
        return "AMP did nothing: autocast was switched off in all regions"
    return "AMP did nothing: autocast was on, but the matrix products ran in float32"


def _violation(violation: Violation, directory: str) -> str:
    details = [f"see {_at(violation.related, directory)}"] if violation.related else []
    details += [_times(violation.times)] if violation.times > 1 else []
    details += ["torch raised"] if violation.raised else []
    return (
        f"{_at(violation.place, directory)}: {violation.level}: {violation.code} {violation.kind}: {violation.message}"
        f"{' (' + '; '.join(details) + ')' if details else ''}"
    )


def _backwards(report: Report) -> str:
    counts = report.backward
    mixed = f", {counts.mixed} of partly scaled ones" if counts.mixed else ""
    inside = f"; {counts.in_autocast} under autocast" if counts.in_autocast else ""
    return f"backward: {counts.scaled} of scaled losses, {counts.plain} of plain ones{mixed}{inside}"


def _scaler(scaler: ScalerReport, directory: str) -> str:
    if not scaler.enabled:
        return f"scaler at {_at(scaler.place, directory)}: switched off, by enabled=False or for want of its device"
    first, last = scaler.history[0].scale, scaler.history[-1].scale
    lowest = min(change.scale for change in scaler.history)
    dip = f" (lowest {lowest:g})" if lowest < min(first, last) else ""
    went = f"{first:g} -> {last:g}{dip}" if len(scaler.history) > 1 else f"{first:g}"
    line = (
        f"scaler at {_at(scaler.place, directory)}: {scaler.steps} steps, {scaler.skipped} skipped{_share(scaler)}, "
        f"{scaler.updates} updates, scale {went}"
    )
    return f"{line}; not checked: {scaler.unchecked}" if scaler.unchecked else line


def _share(scaler: ScalerReport) -> str:
    return f" ({scaler.skipped / scaler.steps:.1%})" if scaler.skipped else ""


def _gradients(counts: GradientReport) -> list[str]:
    if not counts.values:
        return ["gradients: none"]
    lines = [
        f"gradients lost to underflow: {_lost(counts)}",
        f"gradients after backward: {counts.zero / counts.values:.2%} of {counts.values} values 0, "
        f"{counts.subnormal / counts.values:.2%} below the normal numbers of float16",
    ]
    if counts.values_at_step:
        lines.append(
            f"gradients at the scaler's steps: {counts.zero_at_step / counts.values_at_step:.2%} of "
            f"{counts.values_at_step} values 0, {counts.nonfinite_at_step / counts.values_at_step:.2%} inf or nan"
        )
    return lines


def _lost(counts: GradientReport) -> str:
    if counts.lost is None:
        return "unknown, no backward could be looked at closely"
    return f"{counts.lost:.2%} of {counts.compared} values that are not 0 in float32, at least"


def _at(place: Place, directory: str) -> str:
    path = place.file
    if os.path.isabs(path):
        relative = os.path.relpath(path, directory)
        path = path if relative.startswith("..") else relative
    return f"{path}:{place.line}"


def _times(count: int) -> str:
    return f"{count} time{'s' * (count != 1)}"
