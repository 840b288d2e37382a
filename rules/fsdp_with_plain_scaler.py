"""AMP603: a model sharded by FSDP is stepped through a scaler that looks at one shard only."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from amplint.facts.training import in_other_arm
from amplint.model import Applicability, Edit, Finding, Fix, Label, Level
from amplint.rewrite import statements
from amplint.rule import rule
from amplint.source import Ref, SourceFile
from amplint.torch_api import APIS

_FSDP = frozenset(
    f"torch.distributed.fsdp.{name}"
    for name in ("FullyShardedDataParallel", "fully_sharded_data_parallel.FullyShardedDataParallel")
)
_SHARDED_MODULE = "torch.distributed.fsdp.sharded_grad_scaler"


@rule(
    "AMP603",
    "fsdp-with-plain-scaler",
    level=Level.ERROR,
    fix=Applicability.SAFE,
    triggers=("GradScaler",),
)
def fsdp_with_plain_scaler(file: SourceFile) -> Iterator[Finding]:
    """
    Under FullyShardedDataParallel each rank holds a shard of the gradients, and the plain scaler looks for infinities
    in that shard only. When one rank overflows it skips its step and lowers its scale while the others go on: the
    shards drift apart, and nothing reports it. `ShardedGradScaler` takes the decision for all ranks together.

    ```python bad
    import torch
    from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


    def train(module, batches):
        model = FSDP(module)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        scaler = torch.amp.GradScaler("cuda")
        for x in batches:
            with torch.autocast("cuda", dtype=torch.float16):
                loss = model(x).mean()
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
            optimizer.zero_grad()
    ```

    ```python good
    import torch
    from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
    from torch.distributed.fsdp.sharded_grad_scaler import ShardedGradScaler


    def train(module, batches):
        model = FSDP(module)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        scaler = ShardedGradScaler()
        for x in batches:
            with torch.autocast("cuda", dtype=torch.float16):
                loss = model(x).mean()
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
            optimizer.zero_grad()
    ```

    Silent in a file that uses `ShardedGradScaler` somewhere, where the plain scaler is the other choice, and for the
    strategy `NO_SHARD`.
    """
    if "FullyShardedDataParallel" not in file.text or "NO_SHARD" in file.text or "ShardedGradScaler" in file.text:
        return
    wrapped = [ref for ref in file.refs if ref.call is not None and _FSDP.intersection(ref.candidates)]
    for ref in file.refs:
        if ref.call is None or not _is_plain_scaler(ref):
            continue
        for model in wrapped:
            if _together(file, ref, model):
                message = (
                    "this scaler looks for infinities in one shard of the FSDP model, so ranks skip steps on their own "
                    "and drift apart"
                )
                label = Label(file.span(model.call or model.node), "the model is sharded here")
                yield Finding("AMP603", file.span(ref.call), message, (label,), _fix(file, ref, model))
                break


def _is_plain_scaler(ref: Ref) -> bool:
    known = [APIS.get(name) for name in ref.candidates]
    return bool(known) and all(api is not None and api.kind == "scaler" for api in known)


def _together(file: SourceFile, scaler: Ref, model: Ref) -> bool:
    """Whether scaler and sharded model belong to one function or class, and not to two arms of a test."""
    assert scaler.call is not None
    same = file.outermost_function(scaler.call) is file.outermost_function(model.node)
    owner = file.enclosing(scaler.call, ast.ClassDef)
    if not same and (owner is None or owner is not file.enclosing(model.node, ast.ClassDef)):
        return False
    return not in_other_arm(file, scaler.node, model.node)


def _fix(file: SourceFile, scaler: Ref, model: Ref) -> Fix | None:
    """Construct the sharded class; its parameters have another order, so positional ones beyond the device are left."""
    call = scaler.call
    binding = file.scope(model.chain[0]).module.bindings.get(getattr(model.chain[0], "id", ""), [])
    if call is None or not scaler.fixable or len(binding) != 1 or not isinstance(binding[0].node, ast.stmt):
        return None
    arguments = call.args[1:] if _takes_device(scaler) else call.args
    if arguments or any(keyword.arg in (None, "device") for keyword in call.keywords):
        return None
    imported = statements.insert_after(file, binding[0].node, f"from {_SHARDED_MODULE} import ShardedGradScaler")
    if imported is None:
        return None
    kept = [file.segment(keyword) for keyword in call.keywords]
    first = call.args[0] if call.args else None
    if first is not None and not (isinstance(first, ast.Constant) and first.value == "cuda"):
        kept.insert(0, file.segment(first))
    edit = Edit(file.span(call), f"ShardedGradScaler({', '.join(kept)})")
    return Fix("Use `ShardedGradScaler`", (imported, edit), Applicability.SAFE)


def _takes_device(scaler: Ref) -> bool:
    return all(not APIS[name].device for name in scaler.candidates)
