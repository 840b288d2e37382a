"""Reasons to leave a whole file alone: mixed precision of other kinds, frameworks, what a scaler can't follow."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable
from typing import TYPE_CHECKING

from amplint.facts.values import path_of
from amplint.migrate.facts import Facts
from amplint.migrate.gradients import leaves
from amplint.migrate.model import RefusalError
from amplint.migrate.numerics import precision

if TYPE_CHECKING:
    from amplint.source import SourceFile

_AMP = re.compile(r"(?:^|\.)(?:autocast|GradScaler|custom_fwd|custom_bwd)$|^apex(?:\.|$)|\bamp\b")
_FRAMEWORKS = {
    "accelerate": "Accelerate: give it `mixed_precision=`",
    "pytorch_lightning": "Lightning: give its Trainer `precision=`",
    "lightning": "Lightning: give its Trainer or Fabric `precision=`",
    "lightning_fabric": "Fabric: give it `precision=`",
    "deepspeed": "DeepSpeed: switch on fp16 or bf16 in its configuration",
    "apex": "apex: `amplint fix --select AMP003 --unsafe-fixes` moves it to torch.amp",
    "fairscale": "fairscale, which has a scaler of its own",
    "colossalai": "ColossalAI, which has mixed precision of its own",
    "composer": "Composer: give its Trainer `precision=`",
    "ignite": "Ignite: give its trainer `amp_mode=`",
    "catalyst": "Catalyst: give its engine `fp16=`",
    "higher": "higher: gradients of inner loops can't be unscaled in one place",
    "learn2learn": "learn2learn: gradients of inner loops can't be unscaled in one place",
    "functorch": "functorch: its gradients do not pass through a scaler",
    "horovod": "Horovod, whose optimizer must be synchronized by hand under a scaler",
    "opacus": "Opacus, which changes gradients in backward hooks",
    "torchdiffeq": "an adaptive ODE solver, whose error control does not hold in half precision",
    "torch_geometric": "a graph library whose kernels do not all take half precision",
    "torch_scatter": "a graph library whose kernels do not all take half precision",
    "torch_sparse": "a graph library whose kernels do not all take half precision",
    "dgl": "a graph library whose kernels do not all take half precision",
    "MinkowskiEngine": "a sparse library whose kernels do not all take half precision",
    "spconv": "a sparse library whose kernels do not all take half precision",
    "mpi4py": "MPI: gradients travel between processes while they are scaled",
}
_NAMES = {
    "torch.func": "torch.func: its gradients do not pass through a scaler",
    "torch.distributed.rpc": "RPC has its own way of going backward",
    "torch.distributed.autograd": "distributed autograd has its own way of going backward",
    "torch.distributed.fsdp": "FSDP has its own mixed precision: give it a MixedPrecision policy",
    "torch.distributed._composable": "FSDP2 has its own mixed precision: give it a MixedPrecisionPolicy",
    "torch.distributed.tensor": "tensor parallelism has not been tried under a scaler",
    "torch.distributed.pipelining": "pipelines go backward themselves",
    "torch.autograd.functional": "Hessian and Jacobian products do not pass through a scaler",
    "torch.optim.LBFGS": "LBFGS evaluates the model several times a step, which GradScaler can't follow",
    "torch.sparse": "sparse products have no half-precision kernel on CUDA",
    "torch.spmm": "sparse products have no half-precision kernel on CUDA",
    "torch.sparse_coo_tensor": "sparse products have no half-precision kernel on CUDA",
    "torch.sparse_csr_tensor": "sparse products have no half-precision kernel on CUDA",
    "torch.sparse_csc_tensor": "sparse products have no half-precision kernel on CUDA",
    "torch.sparse_compressed_tensor": "sparse products have no half-precision kernel on CUDA",
    "torch.multiprocessing.Process": "several processes share a model and its gradients",
    "torch.jit.ScriptModule": "scripted code does not see autocast that is switched at run time",
    "torch.jit.script_method": "scripted code does not see autocast that is switched at run time",
    "torch.ao.quantization.prepare_qat": "quantization-aware training rounds values that must be float32",
    "torch.quantization.prepare_qat": "quantization-aware training rounds values that must be float32",
    "torch.ao.quantization.quantize_fx": "quantization-aware training rounds values that must be float32",
    "torch.cuda.CUDAGraph": "CUDA graphs record a fixed sequence of kernels",
    "torch.cuda.graph": "CUDA graphs record a fixed sequence of kernels",
}
_METHODS = {
    "register_hook": "a hook sees gradients while they are scaled",
    "register_full_backward_hook": "a hook sees gradients while they are scaled",
    "register_backward_hook": "a hook sees gradients while they are scaled",
    "register_post_accumulate_grad_hook": "a hook sees gradients while they are scaled",
    "retain_grad": "the gradient of an inner tensor is read, which `unscale_` does not reach",
    "first_step": "the optimizer evaluates the model twice a step, which GradScaler can't follow",
    "to_sparse": "sparse products have no half-precision kernel on CUDA",
    "to_sparse_coo": "sparse products have no half-precision kernel on CUDA",
    "to_sparse_csr": "sparse products have no half-precision kernel on CUDA",
    "to_sparse_csc": "sparse products have no half-precision kernel on CUDA",
    "to_sparse_bsr": "sparse products have no half-precision kernel on CUDA",
    "share_memory": "several processes share a model and its gradients",
    "hvp": "Hessian-vector products do not pass through a scaler",
}
_FLOATS = frozenset(("torch.float32", "torch.float"))
_WRAPPER = re.compile(r"^(?:SAM|GSAM|ASAM|PCGrad|Lookahead|NoamOpt|ScheduledOptim|LARC|SWA)$")


def screen(facts: Facts) -> None:
    """Raise `RefusalError` where something in a file rules a migration out."""
    file = facts.file
    check_imports(file)
    for ref in file.refs:
        for name in ref.candidates:
            if _AMP.search(name) and not name.startswith("torch.nn."):
                raise RefusalError(ref.node, "the code already runs under automatic mixed precision")
    check_uses(file, _uses(file))
    check_methods(file, [method for name in _METHODS for method in file.names.attributes.get(name, ())])
    for hidden in facts.hidden_backwards:
        raise RefusalError(
            hidden,
            "what goes backward here is no plain `loss.backward()`; call it on one loss, in a statement of its own",
        )
    _classes(file)
    _moved_gradients(file)
    _by_hand(facts)
    _compiled(facts)
    _compared_dtypes(file)
    precision.check(facts)
    leaves.check(facts)


def _scales(hook: ast.expr) -> bool:
    """Whether a hook multiplies gradients by something else, which does not ask how they are scaled themselves:
    `lambda grad: grad * 0.5`."""
    if not isinstance(hook, ast.Lambda) or len(hook.args.args) != 1:
        return False
    name, body = hook.args.args[0].arg, hook.body
    if isinstance(body, ast.UnaryOp) and isinstance(body.op, ast.USub):
        return isinstance(body.operand, ast.Name) and body.operand.id == name
    if not isinstance(body, ast.BinOp) or not isinstance(body.op, (ast.Mult, ast.Div)):
        return False
    sides = [body.left] if isinstance(body.op, ast.Div) else [body.left, body.right]
    used = [node for node in ast.walk(body) if isinstance(node, ast.Name) and node.id == name]
    return len(used) == 1 and used[0] in sides


def check_uses(file: SourceFile, nodes: Iterable[ast.AST]) -> None:
    """Raise `RefusalError` where one of the nodes names what half precision or a scaler can't follow."""
    for use in nodes:
        for name in file.resolve(use) if isinstance(use, (ast.Name, ast.Attribute)) else ():
            for prefix, reason in _NAMES.items():
                if name == prefix or name.startswith(prefix + "."):
                    raise RefusalError(use, reason)


def is_wrapper_name(name: str) -> bool:
    """Whether a name is that of a wrapper around optimizers which can't be scaled."""
    return bool(_WRAPPER.match(name))


def watched_gradients(file: SourceFile) -> ast.Call | None:
    """The call of `wandb.watch` by whose hooks gradients are logged while they are scaled, which changes no training:
    its `log` is "gradients" by default."""
    for call in file.names.calls:
        if "wandb.watch" in file.resolve(call.func):
            given = [*call.args[2:3], *(k.value for k in call.keywords if k.arg == "log")]
            if not given or not isinstance(given[0], ast.Constant) or given[0].value in ("gradients", "all"):
                return call
    return None


def _moved_gradients(file: SourceFile) -> None:
    """Gradients that come from another model would be unscaled at the wrong place, or not at all."""
    reason = "gradients are moved from one model to another, so that there is no single point for `unscale_`"
    for use in file.names.attributes.get("_grad", ()):
        raise RefusalError(use, reason)
    for use in file.names.attributes.get("grad", ()):
        parent = file.parent(use)
        if isinstance(use.ctx, ast.Store) and isinstance(parent, (ast.Assign, ast.AugAssign)):
            sources = [n for n in ast.walk(parent.value) if isinstance(n, ast.Attribute) and n.attr == "grad"]
            value = file.segment(parent.value)
            is_none = value == "None" or ".zero_(" in value or "zeros" in value
            if not is_none and any(ast.dump(n.value) != ast.dump(use.value) for n in sources):
                raise RefusalError(use, reason)
            if not is_none and not sources and isinstance(parent, ast.Assign):
                raise RefusalError(use, "gradients are set by hand, so that they may never have been scaled")
        while isinstance(parent, ast.Attribute):
            if parent.attr in ("copy_", "set_"):
                raise RefusalError(use, reason)
            parent = file.parent(parent)


def check_methods(file: SourceFile, nodes: Iterable[ast.AST]) -> None:
    """Raise `RefusalError` where one of the nodes is a method, being called, that a scaler can't follow."""
    for method in nodes:
        call = file.parent(method)
        if (
            isinstance(method, ast.Attribute)
            and method.attr in _METHODS
            and isinstance(call, ast.Call)
            and call.func is method
            and not file.resolve(method)
            and not (method.attr == "register_hook" and call.args and _scales(call.args[0]))
        ):
            raise RefusalError(method, _METHODS[method.attr])


def check_imports(file: SourceFile) -> None:
    """Raise `RefusalError` where a file imports what trains in a way of its own."""
    for node in file.names.imports:
        modules = [node.module or ""] if isinstance(node, ast.ImportFrom) else [alias.name for alias in node.names]
        for module in modules:
            framework = _FRAMEWORKS.get(module.split(".", 1)[0])
            if framework and not (isinstance(node, ast.ImportFrom) and node.level):
                raise RefusalError(node, f"the code is built on {framework}")
            for prefix, reason in _NAMES.items():
                if module == prefix or module.startswith(prefix + "."):
                    raise RefusalError(node, reason)
        if isinstance(node, ast.ImportFrom):
            for alias in node.names:
                full = f"{node.module}.{alias.name}"
                if full in _NAMES:
                    raise RefusalError(node, _NAMES[full])


def _uses(file: SourceFile) -> list[ast.expr]:
    found: list[ast.expr] = []
    for ref in file.refs:
        if not isinstance(ref.node, ast.alias):
            found.append(ref.node)
    return found


def _classes(file: SourceFile) -> None:
    for node in file.names.scopes:
        if not isinstance(node, ast.ClassDef):
            continue
        for base in node.bases:
            names = file.resolve(base) or (path_of(base),)
            if any(name.endswith("LightningModule") for name in names):
                raise RefusalError(node, "the code is built on Lightning: give its Trainer `precision=`")


def _compiled(facts: Facts) -> None:
    """A compiled function that trains would compile the scaler too, which torch does not do."""
    file = facts.file
    reason = "a compiled function trains; compile the model instead"
    for function in facts.trainers:
        for decorator in function.decorator_list:
            target = decorator.func if isinstance(decorator, ast.Call) else decorator
            if any(name in ("torch.compile", "torch.jit.script") for name in file.resolve(target)):
                raise RefusalError(decorator, reason)
    for ref in file.refs:
        compiled = ref.call.args[:1] if ref.call is not None and "torch.compile" in ref.candidates else []
        if any(value in facts.trainers for argument in compiled for value in file.values.of(argument)):
            raise RefusalError(ref.node, reason)


def _by_hand(facts: Facts) -> None:
    file = facts.file
    for call in file.names.calls:
        name = path_of(call.func).rsplit(".", 1)[-1]
        is_torch = any(n.startswith("torch.") for n in file.resolve(call.func))
        if _WRAPPER.match(name) and not is_torch and not facts.wrappers.made(call):
            raise RefusalError(
                call, f"the optimizer is wrapped in `{name}`, and its inner optimizer must be given to the scaler"
            )
        for keyword in call.keywords:
            if keyword.arg == "fused" and not _is_off(keyword.value) and facts.is_optimizer(call.func):
                raise RefusalError(call, "a fused optimizer leaves its gradients scaled")
            if keyword.arg == "create_graph" and not _is_off(keyword.value):
                _check_create_graph(file, call)


def _check_create_graph(file: SourceFile, call: ast.Call) -> None:
    """`create_graph` is for penalties (`autograd.grad`), which are handled elsewhere."""
    if "torch.autograd.grad" not in file.resolve(call.func):
        raise RefusalError(call, "backward() through a backward can't be scaled right")


def _compared_dtypes(file: SourceFile) -> None:
    """A comparison with float32 says no more what it said once outputs of autocast come to it."""
    for use in file.names.attributes.get("dtype", ()):
        parent = file.parent(use)
        compared = parent if isinstance(parent, ast.Compare) else file.parent(parent) if parent is not None else None
        if not isinstance(compared, ast.Compare):
            continue
        for node in ast.walk(compared):
            is_other = isinstance(node, ast.Attribute) and node.attr == "dtype" and node is not use
            if isinstance(node, (ast.Name, ast.Attribute)) and (is_other or set(file.resolve(node)) & _FLOATS):
                raise RefusalError(compared, "dtypes are compared here, and outputs of autocast are no longer float32")


def _is_off(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value in (False, None)
