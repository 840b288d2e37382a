"""AMP006: an API that the oldest supported torch lacks, and version tests that let such a torch in."""

from __future__ import annotations

from collections.abc import Iterator

from amplint.model import Applicability, Finding, Label, Level
from amplint.rule import AMP_TRIGGERS, rule
from amplint.source import SourceFile
from amplint.torch_api import Version
from amplint.versions.gate_fixes import GateFixes
from amplint.versions.releases import range_of
from amplint.versions.version_gates import GateFault, gate_faults

TRIGGERS = (*AMP_TRIGGERS, "torch.amp", "custom_fwd", "custom_bwd")


@rule("AMP006", "amp-api-too-new", level=Level.ERROR, fix=Applicability.SAFE, triggers=TRIGGERS)
def amp_api_too_new(file: SourceFile) -> Iterator[Finding]:
    """
    The code reaches a name on a torch that does not have it, and raises AttributeError or ImportError there.
    `torch.autocast` exists since torch 1.10, `torch.amp.autocast` since 1.12, `torch.amp.GradScaler` since 2.3,
    `torch.amp.custom_fwd`, `custom_bwd` and the state functions that take a device since 2.4.

    Two things are reported. A name that is newer than the oldest torch of the project (`target-torch`, or what the
    project says of its dependencies) and stands outside any guard. And, whatever the project supports, a test that does
    not fit what it guards: it lets in a torch without the name, is the wrong way round, asks for something older than
    the name, or compares versions as texts.

    The package `torch.amp` is older than most of what is in it, so its existence says nothing of the rest:

    ```python bad
    import torch

    if hasattr(torch, "amp"):
        custom_fwd = torch.amp.custom_fwd
    else:
        custom_fwd = torch.cuda.amp.custom_fwd
    ```

    ```python good
    import torch

    if hasattr(torch.amp, "custom_fwd"):
        custom_fwd = torch.amp.custom_fwd
    else:
        custom_fwd = torch.cuda.amp.custom_fwd
    ```

    A version must be at least the one that brought the name:

    ```python bad
    import torch
    from packaging import version

    if version.parse(torch.__version__) >= version.parse("1.13"):
        scaler = torch.amp.GradScaler("cuda")
    else:
        scaler = torch.cuda.amp.GradScaler()
    ```

    ```python good
    import torch
    from packaging import version

    if version.parse(torch.__version__) >= version.parse("2.3"):
        scaler = torch.amp.GradScaler("cuda")
    else:
        scaler = torch.cuda.amp.GradScaler()
    ```

    Cut into texts, "2.10" sorts before "2.4", and as a number it is 2.1. `torch.__version__` itself compares as a
    version since torch 1.10, also with a plain text:

    ```python bad
    import torch

    NEW = torch.__version__.split("+")[0] >= "2.4"
    scaler = torch.amp.GradScaler("cuda") if NEW else torch.cuda.amp.GradScaler()
    ```

    ```python good
    import torch

    NEW = torch.__version__ >= "2.4"
    scaler = torch.amp.GradScaler("cuda") if NEW else torch.cuda.amp.GradScaler()
    ```

    A test that is the wrong way round fails on every torch:

    ```python bad
    import torch


    def make_scaler():
        if torch.__version__ < (2, 3):
            return torch.amp.GradScaler("cuda")
        return torch.cuda.amp.GradScaler()
    ```

    ```python good
    import torch


    def make_scaler():
        if torch.__version__ >= (2, 3):
            return torch.amp.GradScaler("cuda")
        return torch.cuda.amp.GradScaler()
    ```
    """
    faults = gate_faults(file)
    fixes = GateFixes(file, faults)
    for fault in faults:
        labels: tuple[Label, ...] = ()
        if fault.guard is not None and fault.kind in ("early", "inverted"):
            labels = (Label(file.span(fault.guard.test), f"this lets in {_releases(fault.allowed)}"),)
        elif fault.kind in ("existence", "text"):
            labels = (Label(file.span(fault.ref.node), "guarded here"),)
        fix = fixes.of(fault)
        help_text = "" if fix is not None else _help(fault)
        yield Finding("AMP006", file.span(fault.node), _message(file, fault), labels, fix, None, help_text)


def _message(file: SourceFile, fault: GateFault) -> str:
    name = f"`{fault.name}`"
    needed = _version(fault.needed)
    if fault.name.endswith("autocast_enabled"):
        name += " with a device"
    if fault.kind == "floor":
        floor = file.settings.target_torch
        assert floor is not None, "there is no such fault without a floor"
        source = file.settings.target_torch_source
        said = f" ({source})" if source else ""
        return f"{name} needs torch {needed}, but the project supports torch {_version(floor)}{said}"
    if fault.kind == "early":
        return f"{name} needs torch {needed}, but the test around it lets in {_releases(fault.allowed)}"
    if fault.kind == "inverted":
        return f"{name} needs torch {needed}, but stands in the arm for older versions: the test is the wrong way round"
    if fault.kind == "existence":
        asked = " ".join(file.segment(fault.node).split())
        return f"`{asked}` lets in {_releases(fault.allowed)}, but {name} needs torch {needed}"
    first = range_of(fault.allowed).low
    example = "an old torch" if first is None else f"torch {_version(first)}"
    return f"this cuts the version into text or numbers before it compares, so the answer for {example} is wrong"


def _help(fault: GateFault) -> str:
    if fault.kind == "floor":
        return f"raise the oldest supported torch to {_version(fault.needed)}, or test the version around the use"
    if fault.kind == "text":
        return "compare `torch.__version__` itself, or `packaging.version.parse(torch.__version__)`"
    if fault.kind == "inverted":
        return "swap the two arms"
    return f"test for torch {_version(fault.needed)}"


def _releases(mask: int) -> str:
    """The releases of a mask in words: `torch 1.13 to 2.2`."""
    low, high = range_of(mask)
    if low is None:
        return "every torch" if high is None else f"torch before {_version(high)}"
    if high is None:
        return f"torch {_version(low)} and later"
    before = (high[0], high[1] - 1)
    if before <= low or not high[1]:
        return f"torch {_version(low)}"
    return f"torch {_version(low)} to {_version(before)}"


def _version(version: Version) -> str:
    return f"{version[0]}.{version[1]}"
