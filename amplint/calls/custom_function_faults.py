"""What is wrong with a use of `custom_fwd` and `custom_bwd`."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from amplint.calls import kinds as k
from amplint.calls.call_faults import SAFE, UNSAFE, Call, Fault, unexpected
from amplint.calls.device_faults import device_faults, missing_device_type
from amplint.calls.device_hint import device_hint
from amplint.model import Edit, Fix, Span
from amplint.source import Ref, SourceFile
from amplint.torch_api import Api, Signature


def bare(file: SourceFile, ref: Ref, api: Api, signature: Signature) -> Iterator[Fault]:
    """The fault of a bare decorator that needs arguments: `@torch.amp.custom_fwd`."""
    if "device_type" not in signature.required or not api.kind.startswith("custom_"):
        return
    assert isinstance(ref.node, ast.expr)
    hint = device_hint(file)
    end = file.span(ref.node).end
    yield Fault(
        ref.node,
        f"`{api.name}` needs `device_type`: the decorator raises TypeError",
        Fix(
            f'Give the device type "{hint.device}"',
            (Edit(Span(end, end), f'(device_type="{hint.device}")'),),
            SAFE if hint.certain else UNSAFE,
        ),
        foreign=True,
    )


def find(call: Call) -> Iterator[Fault]:
    """The faults of a call of one of the two decorators, current or deprecated."""
    if call.api.device:
        yield from _find_on_old(call)
        return
    device = call.bound.arguments.get("device_type")
    first = call.node.args[0] if call.node.args else None
    if device is None and first is not None and k.only(call.kinds.of(first), k.STRING, k.DEVICE):
        yield Fault(
            first,
            f"`{call.text(first)}` lands in `{_function(call)}`: `device_type` of `{call.api.name}` can be given by "
            "keyword only, and the call raises TypeError",
            call.fix("Pass `device_type` by keyword", call.arguments().name(first, "device_type")),
            foreign=True,
        )
        return
    faults = list(unexpected(call, {"device": "device_type"}))
    yield from faults
    if not faults and "device_type" in call.bound.missing:
        yield missing_device_type(call, by_keyword=True)
    if device is not None:
        yield from device_faults(call, device.value)


def _find_on_old(call: Call) -> Iterator[Fault]:
    first = call.node.args[0] if call.node.args else None
    if first is not None and k.only(call.kinds.of(first), k.STRING, k.DEVICE):
        yield _foreign_device(call, first)
        return
    for keyword in call.bound.unknown:
        if keyword.arg in ("device_type", "device"):
            yield _foreign_device(call, keyword)
            return
    yield from unexpected(call, {})
    if call.bound.missing:
        decorates = _is_decorator(call)
        yield Fault(
            call.callee,
            f"`{call.api.name}` can't be called without a function: the call raises TypeError",
            call.fix("Remove the parentheses", call.arguments().remove_parentheses()) if decorates else None,
            foreign=True,
        )


def _foreign_device(call: Call, node: ast.expr | ast.keyword) -> Fault:
    value = node.value if isinstance(node, ast.keyword) else node
    texts = [text.split(":", 1)[0] for text in k.strings(call.kinds.of(value))]
    arguments = call.arguments()
    fix = None
    if texts == [call.api.device]:
        alone = arguments.count == 1 and _is_decorator(call)
        edit = arguments.remove_parentheses() if alone else arguments.remove(node)
        fix = call.fix(f"Remove the device, which is always {call.api.device}", edit)
    return Fault(
        node,
        f'`{call.api.name}` takes no device, it is always "{call.api.device}": '
        + ("the call raises TypeError" if isinstance(node, ast.keyword) else f"this lands in `{_function(call)}`"),
        fix,
        help="use the function of the same name in `torch.amp`, which takes `device_type`",
        foreign=True,
    )


def _function(call: Call) -> str:
    return "fwd" if call.api.kind == "custom_fwd" else "bwd"


def _is_decorator(call: Call) -> bool:
    owner = call.file.parent(call.written)
    return isinstance(owner, (ast.FunctionDef, ast.AsyncFunctionDef)) and call.written in owner.decorator_list
