"""What is wrong with a device given to the AMP API."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from amplint.calls import kinds as k
from amplint.calls.call_faults import Call, Fault
from amplint.calls.device_hint import device_hint
from amplint.model import Fix
from amplint.torch_api import AUTOCAST_DEVICES, INDEXED_DEVICE_SINCE

_DEVICE_WORDS = {"gpu": "cuda", "cud": "cuda", "cude": "cuda", "cuad": "cuda", "cudaa": "cuda", "nvidia": "cuda"}


def unknown_device_keyword(call: Call, keyword: ast.keyword, fix: Fix | None, instead: str) -> Fault:
    """A device by keyword for a deprecated class, which takes none; `instead` is the class that does."""
    return Fault(
        keyword,
        f"`{call.api.name}` has no parameter `{keyword.arg}`, its device is always "
        f'"{call.api.device}": the call raises TypeError',
        fix,
        help=f"use `{instead}`, which takes a device",
        foreign=True,
    )


def missing_device_type(call: Call, *, by_keyword: bool) -> Fault:
    """A call without the device type that it needs; the fix gives it first, or by keyword."""
    hint = device_hint(call.file)
    arguments = call.arguments()
    edits = arguments.append(f'device_type="{hint.device}"') if by_keyword else arguments.prepend(f'"{hint.device}"')
    return Fault(
        call.callee,
        f"`{call.api.name}` needs `device_type`: the call raises TypeError",
        call.fix(f'Give the device type "{hint.device}"', edits, safe=hint.certain),
        foreign=True,
    )


def device_faults(call: Call, node: ast.expr) -> Iterator[Fault]:
    """A device object, a string with an index, or a word that is no device type."""
    found = call.kinds.of(node)
    texts = k.strings(found)
    for text in texts:
        meant = _meant_device(text)
        if meant:
            literal = isinstance(node, ast.Constant)
            fix = call.fix(
                f'Spell it "{meant}"', call.arguments().replace(argument_of(call, node), _quoted(call, node, meant))
            )
            yield Fault(
                node,
                f'there is no device type "{text}", it is "{meant}": the call raises RuntimeError',
                fix if literal else None,
            )
            return
    if k.DEVICE in k.names(found):
        certain = k.only(found, k.DEVICE)
        yield Fault(
            node,
            f"`{call.text(node)}` {'is' if certain else 'can be'} a torch.device, but the device type must be a "
            "string: the call raises ValueError",
            _device_type_fix(call, node, certain),
            help="pass `.type` of the device",
        )
        return
    indexed = [] if _is_compared(call, node) else [text for text in texts if ":" in text]
    floor = call.file.settings.target_torch
    if indexed and (floor is None or floor < INDEXED_DEVICE_SINCE):
        since = ".".join(map(str, INDEXED_DEVICE_SINCE))
        place = (
            f'"{indexed[0]}"'
            if isinstance(node, ast.Constant)
            else f'`{call.text(node)}`, which can be "{indexed[0]}",'
        )
        yield Fault(
            node,
            f"{place} names a device with an index where a device type is needed: this raises RuntimeError before "
            f"torch {since}, which takes it but does not check that the device is there and supports the dtype",
            _device_type_fix(call, node, False),
            help="pass the device type without an index",
        )


def _is_compared(call: Call, node: ast.expr) -> bool:
    """Whether a call runs only where its device equals something, as in `if device == "cuda":`."""
    own = ast.dump(node)
    child: ast.AST = call.written
    parent = call.file.parent(child)
    while parent is not None:
        test = parent.test if isinstance(parent, (ast.If, ast.IfExp)) else None
        if test is not None and child is not test and any(_compares(part, own) for part in ast.walk(test)):
            return True
        child, parent = parent, call.file.parent(parent)
    return False


def _compares(test: ast.AST, own: str) -> bool:
    """Whether a node compares the whole of an expression, given as its dump, with something."""
    if not isinstance(test, ast.Compare):
        return False
    left, right = ast.dump(test.left), ast.dump(test.comparators[0])
    if isinstance(test.ops[0], (ast.Eq, ast.NotEq)):
        return own in (left, right)
    return isinstance(test.ops[0], ast.In) and own == left


def _meant_device(text: str) -> str:
    """The device type that a wrong word stands for, "" where the word may be right."""
    word = text.split(":", 1)[0].strip()
    if word in AUTOCAST_DEVICES:
        return word if text != text.strip() else ""
    lowered = word.lower()
    return lowered if lowered in AUTOCAST_DEVICES else _DEVICE_WORDS.get(lowered, "")


def _device_type_fix(call: Call, node: ast.expr, certain: bool) -> Fix | None:
    argument = argument_of(call, node)
    arguments = call.arguments()
    title = "Pass the device type"
    if isinstance(node, ast.Constant):
        text = str(node.value).split(":", 1)[0]
        return call.fix(title, arguments.replace(argument, _quoted(call, node, text)))
    source = call.file.segment(node)
    if certain:
        simple = isinstance(node, (ast.Name, ast.Attribute, ast.Call, ast.Subscript))
        text = f"{source}.type" if simple else f"({source}).type"
    else:
        torch = torch_name(call, node)
        if not torch:
            return None
        text = f"{torch}.device({source}).type"
    return call.fix(title, arguments.replace(argument, keyword_text(argument, text)))


def argument_of(call: Call, node: ast.expr) -> ast.expr | ast.keyword:
    """The argument that holds a value: the value itself, or the keyword that names it."""
    return next((keyword for keyword in call.node.keywords if keyword.value is node), node)


def keyword_text(argument: ast.expr | ast.keyword, text: str) -> str:
    return f"{argument.arg}={text}" if isinstance(argument, ast.keyword) and argument.arg else text


def _quoted(call: Call, node: ast.expr, text: str) -> str:
    """A text in the quotes that a literal has in the file."""
    quote = "'" if call.file.segment(node).startswith("'") else '"'
    return keyword_text(argument_of(call, node), f"{quote}{text}{quote}")


def torch_name(call: Call, node: ast.expr) -> str:
    """The name by which torch can be reached at a place, "" where there is none."""
    for link, candidates in zip(call.ref.chain, call.ref.names, strict=True):
        if candidates == ("torch",) and isinstance(link, ast.Name):
            return link.id
    for name, bindings in call.file.names.module.bindings.items():
        if len(bindings) == 1 and bindings[0].kind == "import" and bindings[0].target == "torch":
            scope = call.file.scope(node)
            while scope.parent is not None and name not in scope.bindings:
                scope = scope.parent
            return name if scope.parent is None else ""
    return ""
