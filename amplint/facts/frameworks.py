"""Objects of frameworks that run mixed precision themselves: Accelerate, Fabric and Lightning.

Sources: Accelerate's documentation ("replace `loss.backward()` by `accelerator.backward(loss)`", `clip_grad_norm_`),
Lightning's ("Manual Optimization": `self.manual_backward(loss)`), Fabric's (`fabric.backward(loss)`).
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from amplint.source import SourceFile

ACCELERATE = "Accelerate"
FABRIC = "Fabric"

_CONSTRUCTORS = {
    "accelerate.Accelerator": ACCELERATE,
    "accelerate.accelerator.Accelerator": ACCELERATE,
    "lightning.Fabric": FABRIC,
    "lightning.fabric.Fabric": FABRIC,
    "lightning_fabric.Fabric": FABRIC,
}
_MODULES = frozenset(
    f"{package}.{name}"
    for package in ("lightning", "lightning.pytorch", "pytorch_lightning", "lightning.pytorch.core", "pl")
    for name in ("LightningModule", "core.LightningModule", "core.lightning.LightningModule")
)
_PREPARE = {ACCELERATE: ("prepare", "prepare_model", "prepare_optimizer"), FABRIC: ("setup", "setup_optimizers")}
_FULL_PRECISION = {"no", "32", "32-true", "bf16", "bf16-mixed", "bf16-true"}
_MIXED = {"fp16", "16", "16-mixed", "bf16", "bf16-mixed", "fp8"}
_PRECISION_KEYWORDS = {ACCELERATE: "mixed_precision", FABRIC: "precision"}

Function = ast.FunctionDef | ast.AsyncFunctionDef


class Holder(NamedTuple):
    """A name or attribute that holds an `Accelerator` or a `Fabric`.

    `text` is how it is written (`accelerator`, `self.fabric`), `owner` the module, function or class in which that
    means this object, `call` the constructor call, None where a parameter brings the object.
    """

    kind: str
    text: str
    owner: ast.AST
    call: ast.Call | None

    @property
    def precision(self) -> str | None:
        """The literal precision given to the constructor, None where there is none or it can't be seen."""
        return _literal(self.call, _PRECISION_KEYWORDS[self.kind])

    @property
    def scales_gradients(self) -> bool:
        """Whether `backward` must go through the object for the gradients to be right: it scales or accumulates."""
        steps = _keyword(self.call, "gradient_accumulation_steps")
        return self.precision not in _FULL_PRECISION or steps is not None

    @property
    def runs_autocast(self) -> bool:
        """Whether the text shows that prepared models run under the framework's own autocast."""
        return self.precision in _MIXED


def holders(file: SourceFile) -> Iterator[Holder]:
    """Every holder in a file, constructed there or taken as an annotated parameter."""
    if "Accelerator" not in file.text and "Fabric" not in file.text:
        return
    for call in file.names.calls:
        kind = _kind(file.resolve(call.func))
        parent = file.parent(call)
        if kind and isinstance(parent, ast.Assign) and len(parent.targets) == 1:
            target = parent.targets[0]
            if isinstance(target, ast.Name):
                yield Holder(kind, target.id, file.scope(target).node, call)
            elif isinstance(target, ast.Attribute) and isinstance(target.value, ast.Name):
                owner = file.enclosing(call, ast.ClassDef)
                if owner is not None and target.value.id == "self":
                    yield Holder(kind, file.segment(target), owner, call)
    for node in file.names.scopes:
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            for parameter in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs):
                kind = _kind(file.resolve(parameter.annotation)) if parameter.annotation is not None else ""
                if kind:
                    yield Holder(kind, parameter.arg, node, None)


def calls_on(file: SourceFile, holder: Holder, *methods: str) -> Iterator[ast.Call]:
    """The calls of methods of a holder, where it can be reached."""
    for call in file.names.calls:
        function = call.func
        if not isinstance(function, ast.Attribute) or function.attr not in methods:
            continue
        if reaches(file, holder, call) and file.segment(function.value) == holder.text:
            yield call


def reaches(file: SourceFile, holder: Holder, node: ast.AST) -> bool:
    """Whether the holder's text, written at a node, means that holder."""
    current: ast.AST | None = node
    while current is not None:
        if current is holder.owner:
            return True
        current = file.parent(current)
    return False


def prepared(file: SourceFile, holder: Holder) -> set[str]:
    """What was wrapped by `prepare` or `setup`, as written at the assignment."""
    found: set[str] = set()
    for call in calls_on(file, holder, *_PREPARE[holder.kind]):
        parent = file.parent(call)
        if isinstance(parent, ast.Assign):
            for target in parent.targets:
                parts = target.elts if isinstance(target, (ast.Tuple, ast.List)) else [target]
                found.update(file.segment(part) for part in parts)
    return found


def lightning_modules(file: SourceFile) -> Iterator[ast.ClassDef]:
    """The classes of a file that derive from LightningModule, directly or through a class of the file."""
    if "LightningModule" not in file.text:
        return
    found: dict[str, ast.ClassDef] = {}
    for node in file.names.scopes:
        if isinstance(node, ast.ClassDef):
            direct = any(name in _MODULES for base in node.bases for name in file.resolve(base))
            if direct or any(isinstance(base, ast.Name) and base.id in found for base in node.bases):
                found[node.name] = node
                yield node


def trainer_precision(file: SourceFile) -> str | None:
    """The literal precision of a `Trainer(precision=...)` in the file, None where there is none."""
    for call in file.names.calls:
        function = call.func
        name = function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")
        if name == "Trainer" and (precision := _literal(call, "precision")) is not None:
            return precision
    return None


def is_mixed(precision: str | None) -> bool:
    """Whether a precision literal turns on the framework's autocast."""
    return precision in _MIXED


def is_tensor_backward(call: ast.Call) -> bool:
    """Whether a call looks like `loss.backward()`: engines and strategies take the loss as an argument."""
    return isinstance(call.func, ast.Attribute) and call.func.attr == "backward" and not call.args


def _kind(candidates: tuple[str, ...]) -> str:
    kinds = {_CONSTRUCTORS.get(name, "") for name in candidates}
    return kinds.pop() if len(kinds) == 1 else ""


def _keyword(call: ast.Call | None, name: str) -> ast.expr | None:
    for keyword in call.keywords if call is not None else ():
        if keyword.arg == name:
            return keyword.value
    return None


def _literal(call: ast.Call | None, keyword: str) -> str | None:
    value = _keyword(call, keyword)
    return str(value.value) if isinstance(value, ast.Constant) else None
