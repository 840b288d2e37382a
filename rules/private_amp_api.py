"""AMP007: underscore names and other internals of torch.amp."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from amplint.facts.scalers import Scalers
from amplint.model import Finding, Level
from amplint.private_api import SCALER_MEMBERS, TELLTALE, what_became
from amplint.rule import AMP_TRIGGERS, rule
from amplint.source import Ref, SourceFile
from amplint.versions.guard_steps import Attempt

TRIGGERS = (*AMP_TRIGGERS, "torch.amp", "autocast_mode", *sorted(TELLTALE))


@rule("AMP007", "private-amp-api", level=Level.WARNING, triggers=TRIGGERS)
def private_amp_api(file: SourceFile) -> Iterator[Finding]:
    """
    The code reaches into the internals of torch.amp, which move and disappear between versions without notice:
    `_refresh_per_optimizer_state` and `_MultiDeviceReplicator` left `torch.cuda.amp.grad_scaler` in torch 2.3, so the
    import raises there; `_cast` of `torch.cuda.amp.autocast_mode` warns since 2.4; the module `torch.autocast_mode`
    was there in 1.10 and 1.11 only. Private members of a scaler (`_scale`, `_per_optimizer_states`) have public
    counterparts for most purposes. A subclass of GradScaler that uses the members it inherits isn't reported, nor is a
    fallback in an `except ImportError:`.

    ```python bad
    from torch.cuda.amp.grad_scaler import _refresh_per_optimizer_state

    states = _refresh_per_optimizer_state()
    ```

    ```python good
    from torch.amp import GradScaler

    scaler = GradScaler("cuda")
    ```

    The scale is a tensor that is made at the first use, None before it:

    ```python bad
    import torch

    scaler = torch.amp.GradScaler("cuda")
    print(scaler._scale.item())
    ```

    ```python good
    import torch

    scaler = torch.amp.GradScaler("cuda")
    print(scaler.get_scale())
    ```
    """
    for ref in file.refs:
        found = _internal(ref)
        if found is not None and not _is_fallback(file, found[0]):
            node, name, fate = found
            reason = fate or "an internal, which may move or disappear in any version"
            yield Finding("AMP007", file.span(node), f"`{name}` is {reason}")
    scalers = Scalers(file)
    for member, public in SCALER_MEMBERS.items():
        for node in file.names.attributes.get(member, ()):
            if scalers.is_scaler(node.value) or (member in TELLTALE and _is_called_scaler(node.value)):
                text = f"`{member}` is an internal of GradScaler, which may move or disappear in any version"
                yield Finding("AMP007", file.span(node), text, help=f"use {public}" if public else "")


def _internal(ref: Ref) -> tuple[ast.alias | ast.expr, str, str] | None:
    """The innermost part of a reference that is internal, its name and what became of it; an import stands for all
    later uses of the name that it binds."""
    if ref.context == "import":
        fate = what_became(ref.candidates[0])
        return None if fate is None else (ref.node, ref.candidates[0], fate)
    for link, names in zip(ref.chain[1:], ref.names[1:], strict=True):
        for name in names:
            fate = what_became(name)
            if fate is not None:
                return None if what_became(name.rpartition(".")[0]) is not None else (link, name, fate)
    return None


def _is_fallback(file: SourceFile, node: ast.AST) -> bool:
    """Whether a node runs where another name, reported or public, was found missing."""
    return any(isinstance(step, Attempt) and step.handler is not None for step in file.guards.steps(node))


def _is_called_scaler(node: ast.expr) -> bool:
    name = node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")
    return "scaler" in name.lower()
