"""AMP108: an autograd.Function that autocast does not know of."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from amplint.calls.signatures import apis
from amplint.facts.contexts import OFF
from amplint.facts.values import Function, path_of
from amplint.model import Applicability, Edit, Finding, Fix, Label, Level
from amplint.rewrite import statements
from amplint.rule import rule
from amplint.source import SourceFile
from amplint.torch_api import APIS, CURRENT

_BASES = frozenset(("torch.autograd.Function", "torch.autograd.function.Function"))
_MATMULS = frozenset(
    (
        "addbmm",
        "addmm",
        "addmv",
        "baddbmm",
        "bmm",
        "einsum",
        "linear",
        "matmul",
        "mm",
        "mv",
        "conv1d",
        "conv2d",
        "conv3d",
    )
)


@rule(
    "AMP108",
    "custom-function-without-custom-fwd",
    level=Level.WARNING,
    fix=Applicability.UNSAFE,
    triggers=("autograd",),
)
def custom_function_without_custom_fwd(file: SourceFile) -> Iterator[Finding]:
    """
    The backward of an `autograd.Function` runs outside autocast. Without `custom_fwd` and `custom_bwd` a matmul in it
    meets a half-precision gradient and a float32 tensor and raises `expected m1 and m2 to have the same dtype`;
    `custom_bwd` alone raises an AttributeError in every backward.

    ```python bad
    import torch


    class Project(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, w):
            ctx.save_for_backward(x, w)
            return x.mm(w)

        @staticmethod
        def backward(ctx, grad):
            x, w = ctx.saved_tensors
            return grad.mm(w.t()), x.t().mm(grad)


    def forward(x, w):
        with torch.autocast("cuda", dtype=torch.float16):
            return Project.apply(x, w)
    ```

    ```python good
    import torch


    class Project(torch.autograd.Function):
        @staticmethod
        @torch.amp.custom_fwd(device_type="cuda")
        def forward(ctx, x, w):
            ctx.save_for_backward(x, w)
            return x.mm(w)

        @staticmethod
        @torch.amp.custom_bwd(device_type="cuda")
        def backward(ctx, grad):
            x, w = ctx.saved_tensors
            return grad.mm(w.t()), x.t().mm(grad)


    def forward(x, w):
        with torch.autocast("cuda", dtype=torch.float16):
            return Project.apply(x, w)
    ```

    Functions that multiply no matrices are silent, and so are those that aren't applied inside a region of the same
    file, unless they have one of the two decorators. The fix is unsafe since a function may need
    `cast_inputs=torch.float32` instead.
    """
    for scope in file.names.scopes.values():
        cls = scope.node
        if not isinstance(cls, ast.ClassDef) or not any(_BASES & set(file.resolve(base)) for base in cls.bases):
            continue
        forward, backward = file.values.method(cls, "forward"), file.values.method(cls, "backward")
        if forward is None or backward is None:
            continue
        finding = _finding(file, cls, forward, backward)
        if finding is not None:
            yield finding


def _finding(file: SourceFile, cls: ast.ClassDef, forward: Function, backward: Function) -> Finding | None:
    fwd, bwd = _decorator(file, forward, "custom_fwd"), _decorator(file, backward, "custom_bwd")
    applied = _applied(file, cls)
    labels = tuple(Label(file.span(call), "applied inside a region here") for call in applied[:1])
    if bwd is not None and fwd is None:
        message = "custom_bwd without custom_fwd raises an AttributeError in every backward"
        return Finding("AMP108", file.span(bwd), message, labels, _fix(file, [(forward, "custom_fwd")], _device(bwd)))
    if not _multiplies(file, forward) and not _multiplies(file, backward):
        return None
    if fwd is not None and bwd is None:
        if any(keyword.arg == "cast_inputs" for keyword in getattr(fwd, "keywords", ())):
            return None
        message = "custom_fwd without custom_bwd: the backward runs outside autocast and its matmul meets two dtypes"
        return Finding("AMP108", file.span(fwd), message, labels, _fix(file, [(backward, "custom_bwd")], _device(fwd)))
    if fwd is not None or not applied or not _multiplies(file, backward):
        return None
    message = "without custom_fwd and custom_bwd the backward runs outside autocast and its matmul meets two dtypes"
    devices = file.regions.active(applied[0])[0][0].devices
    device = next(iter(devices)) if len(devices) == 1 else ""
    both = [(forward, "custom_fwd"), (backward, "custom_bwd")]
    return Finding("AMP108", file.span(applied[0]), message, _defined(file, cls), _fix(file, both, device))


def _defined(file: SourceFile, cls: ast.ClassDef) -> tuple[Label, ...]:
    start = file.span(cls)
    return (Label(start._replace(end=file.line_span(cls.lineno).end), "the function is defined here"),)


def _decorator(file: SourceFile, function: Function, kind: str) -> ast.expr | None:
    for decorator in function.decorator_list:
        target = decorator.func if isinstance(decorator, ast.Call) else decorator
        if any(_is_decorator(file, value, kind) for value in (target, *file.values.of(target))):
            return decorator
    return None


def _is_decorator(file: SourceFile, value: ast.AST | None, kind: str) -> bool:
    """Whether a value is one of torch's decorators or one of the project's that is called so, also in a partial."""
    if isinstance(value, ast.Call):
        if any(name in ("functools.partial", "partial") for name in file.resolve(value.func)) and value.args:
            return _is_decorator(file, value.args[0], kind)
        return _is_decorator(file, value.func, kind)
    if not isinstance(value, (ast.Name, ast.Attribute)):
        return False
    return any(api.kind == kind for api in apis(file.resolve(value))) or kind in path_of(value).rsplit(".", 1)[-1]


def _device(decorator: ast.expr) -> str:
    """The device type that a decorator names, `cuda` for the deprecated ones."""
    for keyword in getattr(decorator, "keywords", ()):
        if keyword.arg == "device_type":
            return str(keyword.value.value) if isinstance(keyword.value, ast.Constant) else ""
    return "cuda"


def _multiplies(file: SourceFile, function: Function) -> bool:
    """Whether a method multiplies matrices in a way that autocast would cast."""
    for node in ast.walk(function):
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.MatMult):
            return True
        if isinstance(node, ast.Call) and isinstance(node.func, (ast.Attribute, ast.Name)):
            last = node.func.attr if isinstance(node.func, ast.Attribute) else node.func.id
            if last in _MATMULS:
                return True
    return False


def _applied(file: SourceFile, cls: ast.ClassDef) -> list[ast.Call]:
    """The calls `Cls.apply(...)`, also by another name, that run inside an active region."""
    found = []
    for call in file.names.calls:
        applies = (v for v in file.values.of(call.func) if isinstance(v, ast.Attribute) and v.attr == "apply")
        if not any(cls in file.values.of(value.value) for value in applies):
            continue
        if any(region.enabled != OFF for region, _ in file.regions.active(call)):
            found.append(call)
    return found


def _fix(file: SourceFile, missing: list[tuple[Function, str]], device: str) -> Fix | None:
    edits = []
    for function, kind in missing:
        text = _decorator_text(file, kind, device)
        edit = None if text is None else _decorate(file, function, text)
        if edit is None:
            return None
        edits.append(edit)
    names = " and ".join(f"`{kind}`" for _, kind in missing)
    return Fix(f"Add {names}", tuple(edits), Applicability.UNSAFE)


def _decorator_text(file: SourceFile, kind: str, device: str) -> str | None:
    if "torch" not in file.names.module.bindings or not device:
        return None
    if APIS[f"torch.amp.{kind}"].signature(file.settings.target_torch or CURRENT) is not None:
        return f'@torch.amp.{kind}(device_type="{device}")'
    return f"@torch.cuda.amp.{kind}" if device == "cuda" else None


def _decorate(file: SourceFile, function: Function, text: str) -> Edit | None:
    """Put a decorator directly above the `def`, below the others."""
    start = statements.line_start(file.encoded, file.span(function).start)
    span = file.span(function)._replace(start=start, end=start)
    return Edit(span, f"{file.indentation(function)}{text}{file.newline}")
