"""The device that a call means which does not name one: what the rest of the file says."""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING, NamedTuple

from amplint.calls.kinds import is_named_like_a_dtype, is_named_like_a_switch
from amplint.calls.signatures import apis, bind
from amplint.torch_api import CURRENT

if TYPE_CHECKING:
    from amplint.source import SourceFile

_CUDA = re.compile(r"\bcuda\b")
_OTHERS = re.compile(r"\b(?:mps|xpu|npu|hpu|xla|mtia)\b")


_KNOWN = frozenset(("cuda", "cpu", "xpu", "mps", "npu", "hpu", "xla", "mtia", "ipu", "privateuseone", "mlu", "musa"))


class DeviceHint(NamedTuple):
    """A device type, and whether the file leaves no doubt about it."""

    device: str
    certain: bool


def device_hint(file: SourceFile) -> DeviceHint:
    """The device type that the other autocast regions and scalers of a file name, `cuda` where they name none."""
    named: set[str] = set()
    computed = False
    for ref in file.refs:
        for api in apis(ref.candidates) if ref.call is not None else ():
            if api.device:
                named.add(api.device)
                continue
            signature = api.signature(CURRENT)
            if ref.call is None or signature is None:
                continue
            bound = bind(ref.call, signature)
            value = bound.value("device_type") or bound.value("device")
            if isinstance(value, ast.Constant):
                named.update(_device_of(value.value))
            elif value is not None:
                computed = computed or not (is_named_like_a_switch(value) or is_named_like_a_dtype(value))
            elif bound.starred or bound.unpacked:
                computed = True
            elif api.kind == "scaler":
                named.add("cuda")
    if len(named) == 1:
        return DeviceHint(named.pop(), not computed)
    if named:
        return DeviceHint("cuda" if "cuda" in named else sorted(named)[0], False)
    return DeviceHint("cuda", not computed and bool(_CUDA.search(file.text)) and not _OTHERS.search(file.text))


def _device_of(value: object) -> set[str]:
    """The device type that a constant names, none where it isn't one."""
    device = value.split(":", 1)[0] if isinstance(value, str) else ""
    return {device} & _KNOWN
