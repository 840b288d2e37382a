"""AMP008: an autocast class where a context manager or decorator is needed, and one that nothing runs under."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from amplint.calls.device_hint import device_hint
from amplint.calls.signatures import NO_CONTEXT_EITHER, apis, is_unentered_autocast
from amplint.facts.values import is_self
from amplint.model import Applicability, Edit, Finding, Fix, Level, Span
from amplint.rule import rule
from amplint.source import Ref, SourceFile
from amplint.torch_api import Api

_PROBES = re.compile(r"raises|warns|assert", re.IGNORECASE)


@rule("AMP008", "autocast-not-entered", level=Level.ERROR, fix=Applicability.SAFE)
def autocast_not_entered(file: SourceFile) -> Iterator[Finding]:
    """
    The autocast class itself stands where one of its instances is needed, or an instance is made and never entered, so
    the code raises or runs in full precision.

    `with torch.autocast:` raises TypeError. A bare `@torch.autocast` raises ValueError, and a bare
    `@torch.cuda.amp.autocast` raises when the function is called; up to torch 2.11 the call returns a function instead.

    ```python bad
    import torch


    @torch.autocast
    def evaluate(model, x):
        return model(x.cuda())


    def train_step(model, x):
        with torch.amp.autocast:
            return model(x.cuda()).mean()
    ```

    ```python good
    import torch


    @torch.autocast("cuda")
    def evaluate(model, x):
        return model(x.cuda())


    def train_step(model, x):
        with torch.amp.autocast("cuda"):
            return model(x.cuda()).mean()
    ```

    A call as a statement of its own has no effect either. There is no fix, since only you know what should run under
    it: put that in a `with` block.
    """
    for ref in file.refs:
        if is_unentered_autocast(file, ref):
            found = apis(tuple(name for name in ref.candidates if name not in NO_CONTEXT_EITHER))
            fix = _call_it(file, ref.node, found) if ref.fixable else None
            yield Finding("AMP008", file.span(ref.node), _harm(ref.context, found), fix=fix)
        elif ref.call is not None and _is_thrown_away(file, ref):
            yield Finding(
                "AMP008",
                file.span(ref.call),
                "autocast is made and thrown away, so nothing runs under it",
                help="put the forward pass and the loss in a `with` block",
            )
    yield from _held_by_self(file)


def _held_by_self(file: SourceFile) -> Iterator[Finding]:
    """`with self.context:` where the file assigns nothing but autocast classes to it."""
    stored = any(ref.context == "value" and is_autocast(apis(ref.candidates)) for ref in file.refs)
    attributes = file.names.attributes.values() if stored else ()
    for node in (node for nodes in attributes for node in nodes):
        item = file.parent(node)
        if not isinstance(item, ast.withitem) or item.context_expr is not node or not is_self(node.value):
            continue
        values = file.values.of(node)
        found = [apis(file.resolve(v)) if isinstance(v, (ast.Name, ast.Attribute)) else () for v in values]
        if values and all(is_autocast(candidates) for candidates in found):
            together = tuple(api for candidates in found for api in candidates)
            yield Finding("AMP008", file.span(node), _harm("with", together), fix=_call_it(file, node, together))


def is_autocast(found: tuple[Api, ...]) -> bool:
    """Whether candidates are autocast classes and nothing else."""
    return bool(found) and all(api.kind == "autocast" for api in found)


def _harm(context: str, found: tuple[Api, ...]) -> str:
    if context != "decorator":
        return "the class is entered and not an instance of it, which raises TypeError: autocast must be called"
    if any(not api.device for api in found):
        return "the function lands in `device_type` of autocast, which raises ValueError: the decorator must be called"
    return (
        "the function lands in `enabled` of autocast, so calling it raises TypeError, or returns a function up to "
        "torch 2.11: the decorator must be called"
    )


def _call_it(file: SourceFile, node: ast.AST, found: tuple[Api, ...]) -> Fix | None:
    """A fix that adds the call, None where the candidates need different arguments."""
    takes_device = {not api.device for api in found}
    if len(takes_device) > 1:
        return None
    end = file.span(node).end
    if not takes_device.pop():
        return Fix("Call it", (Edit(Span(end, end), "()"),), Applicability.SAFE)
    hint = device_hint(file)
    applicability = Applicability.SAFE if hint.certain else Applicability.UNSAFE
    return Fix(
        f'Call it with the device type "{hint.device}"', (Edit(Span(end, end), f'("{hint.device}")'),), applicability
    )


def _is_thrown_away(file: SourceFile, ref: Ref) -> bool:
    """Whether a call of autocast is a statement of its own, and no test of whether it raises."""
    found = apis(ref.candidates)
    assert ref.call is not None
    statement = file.parent(ref.call)
    if not is_autocast(found) or not isinstance(statement, ast.Expr):
        return False
    around = file.parent(statement)
    if isinstance(around, ast.With):
        return not any(_PROBES.search(file.segment(item.context_expr)) for item in around.items)
    return not isinstance(around, ast.Try)
