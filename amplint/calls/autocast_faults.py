"""What is wrong with a call of an autocast class, and with a device given to the AMP API."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

from amplint.calls import kinds as k
from amplint.calls.call_faults import Call, Fault, unexpected
from amplint.calls.device_faults import (
    argument_of,
    device_faults,
    keyword_text,
    missing_device_type,
    torch_name,
    unknown_device_keyword,
)
from amplint.calls.device_hint import device_hint
from amplint.calls.signatures import Argument
from amplint.model import Fix

_OLD_ORDER = ("enabled", "dtype", "cache_enabled")
_NEW_ORDER = ("dtype", "enabled", "cache_enabled")
_WORDS = {"true": "True", "false": "False", "1": "True", "0": "False"}
_DTYPE_WORDS = {
    "float16": "float16",
    "fp16": "float16",
    "half": "float16",
    "bfloat16": "bfloat16",
    "bf16": "bfloat16",
    "torch.float16": "float16",
    "torch.bfloat16": "bfloat16",
}


def find(call: Call) -> Iterator[Fault]:
    """The faults of a call of an autocast class, current or deprecated."""
    positions = list(_misplaced_on_old(call) if call.api.device else _misplaced(call))
    yield from positions
    blamed = {fault.node for fault in positions}
    if not positions:
        yield from unexpected(call, {"device": "device_type"} if not call.api.device else {})
        if "device_type" in call.bound.missing:
            yield missing_device_type(call, by_keyword=False)
    device = call.bound.arguments.get("device_type")
    if device is not None and device.value not in blamed:
        yield from device_faults(call, device.value)
    if not positions:
        yield from _wrong_values(call)


def find_in_query(call: Call) -> Iterator[Fault]:
    """The faults of `is_autocast_available(device_type)`."""
    yield from unexpected(call, {"device": "device_type"})
    device = call.bound.value("device_type")
    if device is not None:
        yield from device_faults(call, device)


# -- places -----------------------------------------------------------------------------------------------------------


def _misplaced(call: Call) -> Iterator[Fault]:
    """A flag or dtype in the place of the device, or a flag in the place of the dtype."""
    given = list(call.node.args)
    device = call.bound.arguments.get("device_type")
    if device is not None and device.keyword is None:
        wrong = _is_no_device(call, device.value)
        if wrong is not None:
            hint = device_hint(call.file)
            yield Fault(
                device.value,
                f"`{call.text(device.value)}` lands in `device_type`, which must be a string such as "
                f'"{hint.device}": the call raises ValueError',
                _by_keyword(call, given, insert=hint.device, safe=wrong and hint.certain),
                help="give the device first and the rest by keyword",
                foreign=True,
            )
            return
    dtype = call.bound.arguments.get("dtype")
    if dtype is None or dtype.keyword is not None or dtype.value not in given:
        return
    certain = _is_no_dtype(call, dtype.value)
    if certain is not None:
        rest = given[given.index(dtype.value) :]
        yield Fault(
            dtype.value,
            f"`{call.text(dtype.value)}` lands in `dtype`, which must be a torch.dtype: entering the region raises "
            "TypeError, even where the flag is False",
            _by_keyword(call, rest, safe=certain),
            help="pass the flag as `enabled=`",
        )


def _misplaced_on_old(call: Call) -> Iterator[Fault]:
    """Arguments of the current class, given to the deprecated one: a device, or the dtype first."""
    for keyword in call.bound.unknown:
        if keyword.arg in ("device_type", "device"):
            fix = _without_device(call, keyword, keyword.value, [])
            yield unknown_device_keyword(call, keyword, fix, "torch.amp.autocast")
            return
    first = call.bound.arguments.get("enabled")
    given = list(call.node.args)
    if first is None or first.keyword is not None:
        return
    found = call.kinds.of(first.value)
    like_device = k.names(found) == {k.UNKNOWN} and k.is_named_like_a_device(first.value)
    if k.only(found, k.STRING, k.DEVICE) or like_device:
        yield Fault(
            first.value,
            f"`{call.text(first.value)}` lands in `enabled`, since `{call.api.name}` takes no device: entering the "
            "region raises TypeError",
            _without_device(call, first.value, first.value, given[1:], safe=not like_device),
            help="use `torch.amp.autocast`, which takes a device",
            foreign=True,
        )
        return
    like_dtype = k.names(found) == {k.UNKNOWN} and k.is_named_like_a_dtype(first.value)
    if k.only(found, k.DTYPE) or like_dtype:
        yield Fault(
            first.value,
            f"`{call.text(first.value)}` lands in `enabled`, the first parameter of `{call.api.name}`: entering the "
            "region raises TypeError",
            _by_keyword(call, given, safe=not like_dtype),
            help="pass the dtype as `dtype=`",
            foreign=True,
        )


def _is_no_device(call: Call, node: ast.expr) -> bool | None:
    """Whether a value in the place of the device is none: True for certain, False by its name, None if it may be."""
    found = call.kinds.of(node)
    if k.only(found, k.BOOL, k.DTYPE, k.NUMBER):
        return True
    named = k.is_named_like_a_switch(node) or k.is_named_like_a_dtype(node)
    return False if named and k.names(found) == {k.UNKNOWN} else None


def _is_no_dtype(call: Call, node: ast.expr) -> bool | None:
    found = call.kinds.of(node)
    if k.only(found, k.BOOL, k.NUMBER):
        return True
    return False if k.is_named_like_a_switch(node) and k.names(found) == {k.UNKNOWN} else None


def _by_keyword(call: Call, given: Sequence[ast.expr], *, insert: str = "", safe: bool = True) -> Fix | None:
    """A fix that names positional arguments by what they are, and gives a device in front of them."""
    names = _names_by_kind(call, given)
    if names is None:
        return None
    arguments = call.arguments()
    edits = [arguments.prepend(f'"{insert}"')] if insert else []
    edits += [arguments.name(value, name) for value, name in zip(given, names, strict=True)]
    return call.fix(f"Pass `{names[0]}` by keyword", *edits, safe=safe)


def _names_by_kind(call: Call, given: Sequence[ast.expr]) -> list[str] | None:
    """The parameters that positional arguments are meant for, None where two would claim the same."""
    if any(isinstance(value, ast.Starred) for value in given):
        return None
    order = _NEW_ORDER
    names: list[str] = []
    for index, value in enumerate(given):
        found = call.kinds.of(value)
        is_switch = k.only(found, k.BOOL, k.NUMBER) or k.is_named_like_a_switch(value)
        if index == 0 and is_switch:
            order = _OLD_ORDER
        if is_switch:
            names.append("cache_enabled" if "enabled" in names else "enabled")
        elif k.only(found, k.DTYPE, k.NONE) or k.is_named_like_a_dtype(value):
            names.append("dtype")
        elif index < len(order):
            names.append(order[index])
        else:
            return None
    taken = {keyword.arg for keyword in call.node.keywords}
    return names if len(set(names)) == len(names) and not taken & set(names) else None


def _without_device(
    call: Call, node: ast.expr | ast.keyword, device: ast.expr, rest: Sequence[ast.expr], *, safe: bool = True
) -> Fix | None:
    """A fix that takes the device out of a call of a deprecated class, or names the current class where it differs."""
    names = _names_by_kind(call, rest)
    if names is None:
        return None
    arguments = call.arguments()
    named = [arguments.name(value, name) for value, name in zip(rest, names, strict=True)]
    texts = [text.split(":", 1)[0] for text in k.strings(call.kinds.of(device))]
    if isinstance(device, ast.Constant) and texts == [call.api.device]:
        return call.fix(f"Remove the device, which is always {call.api.device}", arguments.remove(node), *named)
    callee = call.modern_callee()
    if not callee:
        return None
    if isinstance(node, ast.keyword) and node.arg == "device":
        named.append(arguments.name(node, "device_type"))
    return call.fix("Use the class that takes a device", callee, *named, safe=safe)


def _wrong_values(call: Call) -> Iterator[Fault]:
    dtype = call.bound.arguments.get("dtype")
    if dtype is not None and k.only(call.kinds.of(dtype.value), k.BOOL, k.STRING, k.NUMBER, k.DEVICE):
        is_flag = k.only(call.kinds.of(dtype.value), k.BOOL)
        yield Fault(
            dtype.value,
            f"`{call.text(dtype.value)}` is not a torch.dtype: entering the region raises TypeError",
            _rename(call, dtype, "enabled") if is_flag else _dtype_fix(call, dtype.value),
            help="pass a torch.dtype such as `torch.float16`",
        )
    enabled = call.bound.arguments.get("enabled")
    wrong = (k.NUMBER, k.STRING, k.NONE, k.DTYPE, k.DEVICE)
    if enabled is not None and k.only(call.kinds.of(enabled.value), *wrong):
        is_dtype = k.only(call.kinds.of(enabled.value), k.DTYPE)
        yield Fault(
            enabled.value,
            f"`{call.text(enabled.value)}` is not a bool, and `enabled` must be True or False: entering the region "
            "raises TypeError",
            _rename(call, enabled, "dtype") if is_dtype else _flag_fix(call, enabled.value),
            help="pass True or False, or wrap it in `bool(...)`",
        )


def _rename(call: Call, argument: Argument, parameter: str) -> Fix | None:
    """A fix that gives a value to the parameter that its kind fits, if that is free."""
    if argument.keyword is None or parameter in call.bound.arguments:
        return None
    return call.fix(f"Pass it as `{parameter}`", call.arguments().name(argument.keyword, parameter), safe=False)


def _dtype_fix(call: Call, node: ast.expr) -> Fix | None:
    torch = torch_name(call, node)
    word = (
        _DTYPE_WORDS.get(node.value.lower(), "")
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
        else ""
    )
    if not word or not torch:
        return None
    argument = argument_of(call, node)
    return call.fix(
        f"Pass `{torch}.{word}`", call.arguments().replace(argument, keyword_text(argument, f"{torch}.{word}"))
    )


def _flag_fix(call: Call, node: ast.expr) -> Fix | None:
    argument = argument_of(call, node)
    if isinstance(node, ast.Constant):
        text = "False" if node.value is None else _WORDS.get(str(node.value).lower(), "")
        if not text:
            return None
        return call.fix(
            f"Pass {text}",
            call.arguments().replace(argument, keyword_text(argument, text)),
            safe=node.value is not None,
        )
    if not k.only(call.kinds.of(node), k.NUMBER):
        return None
    text = f"bool({call.file.segment(node)})"
    return call.fix("Make it a bool", call.arguments().replace(argument, keyword_text(argument, text)))
