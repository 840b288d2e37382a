"""What is wrong with the construction of a GradScaler."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from amplint.calls import kinds as k
from amplint.calls.call_faults import Call, Fault, unexpected
from amplint.calls.device_faults import unknown_device_keyword
from amplint.calls.device_hint import device_hint
from amplint.model import Fix


def find(call: Call) -> Iterator[Fault]:
    """The faults of a call of a scaler class: torch.amp's, the deprecated ones, FSDP's."""
    places = list(_misplaced(call))
    yield from places
    if not places:
        yield from _unknown_keywords(call)
    yield from _factors(call)


def _misplaced(call: Call) -> Iterator[Fault]:
    if call.api.device:
        yield from _device_on_old(call)
        return
    device = call.bound.arguments.get("device")
    if device is None or device.keyword is not None:
        yield from _flag_as_scale(call)
        return
    found = call.kinds.of(device.value)
    unknown = k.names(found) == {k.UNKNOWN}
    is_switch = k.only(found, k.BOOL) or (unknown and k.is_named_like_a_switch(device.value))
    is_scale = k.only(found, k.NUMBER) or (unknown and k.is_named_like_a_scale(device.value))
    if not is_switch and not is_scale:
        yield from _flag_as_scale(call)
        return
    meant = "enabled" if is_switch else "init_scale"
    harm = "the flag is ignored and the scaler is enabled" if is_switch else "it is ignored and the scale is 65536"
    yield Fault(
        device.value,
        f"`{call.text(device.value)}` lands in `device`, the first parameter of `{call.api.name}`: {harm}",
        _with_device(call, device.value, meant, safe=not unknown),
        help=f"give the device first, or pass `{meant}=`",
    )


def _with_device(call: Call, value: ast.expr, meant: str, *, safe: bool) -> Fix | None:
    """A fix that puts the device first where the rest is in the order of the deprecated class, or names the value."""
    hint = device_hint(call.file)
    arguments = call.arguments()
    if meant == "init_scale" and "ShardedGradScaler" not in call.api.name:
        title = f'Give the device "{hint.device}" first'
        return call.fix(title, arguments.prepend(f'"{hint.device}"'), safe=safe and hint.certain)
    if len(call.node.args) > 1 or meant in call.bound.arguments:
        return None
    return call.fix(f"Pass `{meant}` by keyword", arguments.name(value, meant), safe=safe)


def _device_on_old(call: Call) -> Iterator[Fault]:
    for keyword in call.bound.unknown:
        if keyword.arg in ("device", "device_type"):
            fix = _without_device(call, keyword, keyword.value)
            yield unknown_device_keyword(call, keyword, fix, "torch.amp.GradScaler")
            return
    scale = call.bound.arguments.get("init_scale")
    if scale is None or scale.keyword is not None:
        yield from _flag_as_scale(call)
        return
    found = call.kinds.of(scale.value)
    like_device = k.names(found) == {k.UNKNOWN} and k.is_named_like_a_device(scale.value)
    if k.only(found, k.STRING, k.DEVICE) or like_device:
        yield Fault(
            scale.value,
            f"`{call.text(scale.value)}` lands in `init_scale`, since `{call.api.name}` takes no device: the first "
            "`scale()` raises TypeError",
            _without_device(call, scale.value, scale.value, safe=not like_device),
            help="use `torch.amp.GradScaler`, which takes a device",
            foreign=True,
        )
        return
    yield from _flag_as_scale(call)


def _without_device(call: Call, node: ast.expr | ast.keyword, device: ast.expr, *, safe: bool = True) -> Fix | None:
    """A fix that takes the device out of a call of a deprecated class, or names the current class where it differs."""
    arguments = call.arguments()
    texts = [text.split(":", 1)[0] for text in k.strings(call.kinds.of(device))]
    if isinstance(device, ast.Constant) and texts == [call.api.device]:
        return call.fix(f"Remove the device, which is always {call.api.device}", arguments.remove(node))
    callee = call.modern_callee()
    if not callee:
        return None
    renamed = [arguments.name(node, "device")] if isinstance(node, ast.keyword) and node.arg != "device" else []
    return call.fix("Use the class that takes a device", callee, *renamed, safe=safe)


def _flag_as_scale(call: Call) -> Iterator[Fault]:
    """A flag as the initial scale: torch takes True for 1.0 and False for 0.0, which zeroes every gradient."""
    scale = call.bound.arguments.get("init_scale")
    if scale is None or scale.keyword is not None:
        return
    found = call.kinds.of(scale.value)
    unknown = k.names(found) == {k.UNKNOWN}
    if not k.only(found, k.BOOL) and not (unknown and k.is_named_like_a_switch(scale.value)):
        return
    last = call.node.args[-1] is scale.value and "enabled" not in call.bound.arguments
    fix = call.fix("Pass `enabled` by keyword", call.arguments().name(scale.value, "enabled"), safe=not unknown)
    yield Fault(
        scale.value,
        f"`{call.text(scale.value)}` lands in `init_scale`: the scaler is enabled with a scale of 1, or of 0, which "
        "zeroes every gradient",
        fix if last else None,
        help="pass the flag as `enabled=`",
    )


def _unknown_keywords(call: Call) -> Iterator[Fault]:
    for fault in unexpected(call, {"device_type": "device"} if not call.api.device else {}):
        keyword = fault.node
        if not isinstance(keyword, ast.keyword) or keyword.arg not in ("dtype", "cache_enabled"):
            yield fault
            continue
        yield fault._replace(
            message=f"`{call.api.name}` has no parameter `{keyword.arg}`, which belongs to autocast: the call raises "
            "TypeError",
            fix=call.fix(f"Remove `{keyword.arg}`", call.arguments().remove(keyword), safe=False),
            help=f"give `{keyword.arg}` to autocast",
        )


def _factors(call: Call) -> Iterator[Fault]:
    """Constants that the constructor refuses."""
    enabled = call.bound.value("enabled")
    if isinstance(enabled, ast.Constant) and enabled.value is False:
        return
    for parameter, allowed in (("growth_factor", "above"), ("backoff_factor", "below")):
        value = call.bound.value(parameter)
        factor = value.value if isinstance(value, ast.Constant) else None
        if value is None or isinstance(factor, bool) or not isinstance(factor, (int, float)):
            continue
        if factor <= 1.0 if allowed == "above" else factor >= 1.0:
            yield Fault(value, f"`{parameter}` must be {allowed} 1.0, {factor} raises AssertionError at construction")
