"""AMP405: constants that float16 can't hold."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from amplint.facts.contexts import OFF
from amplint.facts.regions import Region
from amplint.facts.training import is_float_cast, is_model_call, targets_of
from amplint.facts.values import path_of
from amplint.model import Applicability, Edit, Finding, Fix, Label, Level
from amplint.rule import rule
from amplint.source import SourceFile

_LARGEST = 65504.0
_SMALLEST = 6e-8
_FILLS = {"masked_fill": 1, "masked_fill_": 1, "clamp": 0, "clamp_": 0, "clamp_min": 0, "clamp_max": 0, "fill_": 0}
"""Methods that take a constant for the elements of their tensor, with the position of the constant."""

_HALF_OPERATIONS = frozenset(
    ("addmm", "baddbmm", "bmm", "conv1d", "conv2d", "conv3d", "einsum", "linear", "matmul", "mm", "mv")
)
"""Operations whose result is half precision in a region on every device."""

_KEEP = frozenset(
    (
        "abs", "add", "add_", "clone", "contiguous", "div", "div_", "dropout", "flatten", "gelu", "masked_fill", "mean",
        "mul", "mul_", "permute", "relu", "reshape", "sigmoid", "silu", "sqrt", "squeeze", "std", "tanh", "transpose",
        "unsqueeze", "var", "view",
    )
)  # fmt: skip
"""Operations whose result has the dtype of their input, on every device."""


@rule("AMP405", "float16-unsafe-constant", level=Level.WARNING, fix=Applicability.UNSAFE, triggers=("autocast",))
def float16_unsafe_constant(file: SourceFile) -> Iterator[Finding]:
    """
    float16 ends at 65504 and begins at 6e-8. `masked_fill(mask, -1e9)` on float16 scores raises `value cannot be
    converted to type c10::Half without overflow`, `torch.where` and `scores[mask] = -1e9` give -inf, and
    `log(p + 1e-8)` is `log(0)` again.

    ```python bad
    import torch


    def attention(q, k, mask):
        with torch.autocast("cuda", dtype=torch.float16):
            scores = torch.matmul(q, k)
            scores = scores.masked_fill(mask, -1e9)
            return scores.softmax(-1)
    ```

    ```python good
    import torch


    def attention(q, k, mask):
        with torch.autocast("cuda", dtype=torch.float16):
            scores = torch.matmul(q, k)
            scores = scores.masked_fill(mask, torch.finfo(scores.dtype).min)
            return scores.softmax(-1)
    ```

    Only tensors that are seen to be half precision are judged: results of matrix products and of models in a float16
    region. bfloat16 has the range of float32 and is silent. The fix is unsafe since the constant may matter elsewhere.
    """
    for node in file.names.parents:
        if isinstance(node, (ast.Call, ast.BinOp, ast.Assign)) and (use := _use(file, node)) is not None:
            tensor, constant, value = use
            region = next((r for r, _ in file.regions.active(node) if _is_float16(r)), None)
            if region is not None and _is_half(file, tensor):
                yield _finding(file, node, tensor, constant, value, region)


def _is_float16(region: Region) -> bool:
    return region.enabled != OFF and region.on_by_default and region.dtypes == {"float16"}


def _use(file: SourceFile, node: ast.Call | ast.BinOp | ast.Assign) -> tuple[ast.expr, ast.expr, float] | None:
    """A tensor, the constant that it meets and its value, where float16 can't hold that."""
    if isinstance(node, ast.BinOp):
        return _under_a_logarithm(file, node)
    if isinstance(node, ast.Assign):  # `scores[mask] = -1e9` stores -inf
        stored = [target for target in node.targets if isinstance(target, ast.Subscript)]
        return _too_large(file, stored[0].value, [node.value]) if len(stored) == len(node.targets) == 1 else None
    names = file.resolve(node.func)
    if names:
        if names == ("torch.where",) and len(node.args) == 3:
            for tensor, constant in ((node.args[1], node.args[2]), (node.args[2], node.args[1])):
                value = _number(file, constant)
                if value is not None and abs(value) > _LARGEST:
                    return tensor, constant, value
        if names in (("torch.masked_fill",), ("torch.full_like",), ("torch.clamp",)) and len(node.args) >= 2:
            return _too_large(file, node.args[0], node.args[1:] + [keyword.value for keyword in node.keywords])
        return None
    if not isinstance(node.func, ast.Attribute) or node.func.attr not in _FILLS:
        return None
    given = node.args[_FILLS[node.func.attr] :] + [keyword.value for keyword in node.keywords]
    return _too_large(file, node.func.value, given)


def _too_large(file: SourceFile, tensor: ast.expr, given: list[ast.expr]) -> tuple[ast.expr, ast.expr, float] | None:
    for constant in given:
        value = _number(file, constant)
        if value is not None and abs(value) > _LARGEST:
            return tensor, constant, value
    return None


def _under_a_logarithm(file: SourceFile, node: ast.BinOp) -> tuple[ast.expr, ast.expr, float] | None:
    """`log(x + 1e-8)`: the constant is there to keep a zero away, and is zero itself."""
    if not isinstance(node.op, ast.Add):
        return None
    for tensor, constant in ((node.left, node.right), (node.right, node.left)):
        value = _number(file, constant)
        if value is None or not 0 < value < _SMALLEST:
            continue
        parent = file.parent(node)
        divided = isinstance(parent, ast.BinOp) and isinstance(parent.op, ast.Div) and parent.right is node
        logarithm = (
            isinstance(parent, ast.Call)
            and parent.args[:1] == [node]
            and file.resolve(parent.func) in (("torch.log",), ("torch.sqrt",), ("torch.rsqrt",), ("torch.log2",))
        )
        method = isinstance(parent, ast.Attribute) and parent.attr in ("log", "sqrt", "rsqrt", "reciprocal")
        if divided or logarithm or method:
            return tensor, constant, value
    return None


def _number(file: SourceFile, node: ast.expr) -> float | None:
    """The value of a finite numeric literal, also negative or in a name; `float("...")` is none."""
    if isinstance(node, (ast.Name, ast.Attribute)):
        values = file.values.of(node)
        only = values[0] if len(values) == 1 else None
        return _number(file, only) if isinstance(only, (ast.Constant, ast.UnaryOp)) else None
    sign = 1.0
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        node, sign = node.operand, -1.0
    if isinstance(node, ast.Constant) and type(node.value) in (int, float):
        value = sign * float(node.value)  # type: ignore[arg-type]
        return value if abs(value) != float("inf") else None
    return None


def _is_half(file: SourceFile, node: ast.expr, depth: int = 0) -> bool:
    """Whether an expression is half precision in a float16 region, as far as the function shows."""
    if depth > 8 or is_float_cast(file, node):
        return False
    if isinstance(node, ast.BinOp):
        if isinstance(node.op, ast.MatMult):
            return True
        sides = [side for side in (node.left, node.right) if _number(file, side) is None and not _is_scalar(side)]
        arithmetic = isinstance(node.op, (ast.Add, ast.Sub, ast.Mult, ast.Div))
        return arithmetic and bool(sides) and all(_is_half(file, side, depth + 1) for side in sides)
    if isinstance(node, ast.Call):
        names = file.resolve(node.func)
        last = node.func.attr if isinstance(node.func, ast.Attribute) else ""
        if names:
            last = names[0].rsplit(".", 1)[-1] if all(name.startswith("torch.") for name in names) else ""
            if last in _KEEP and node.args:
                return _is_half(file, node.args[0], depth + 1)
        elif last in _KEEP and isinstance(node.func, ast.Attribute):
            return _is_half(file, node.func.value, depth + 1)
        return last in _HALF_OPERATIONS or is_model_call(file, node)
    path = path_of(node)
    value = _assigned_before(file, node, path) if path else None
    return value is not None and _is_half(file, value, depth + 1)


def _is_scalar(node: ast.expr) -> bool:
    """Whether an expression is surely a Python number by its name or form (`self.scale`, `math.sqrt(d)`)."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and path_of(node.func.value) == "math":
        return True
    return path_of(node).rsplit(".", 1)[-1] in ("scale", "temperature", "scaling", "scale_factor")


def _assigned_before(file: SourceFile, node: ast.expr, path: str) -> ast.expr | None:
    """What the last assignment above a use gives a name, in the same function."""
    function = file.values.enclosing_function(node)
    found: ast.stmt | None = None
    for other in file.values.body(function):
        if isinstance(other, (ast.Assign, ast.AnnAssign, ast.AugAssign)) and other.lineno < node.lineno:
            names = [path_of(target) for target in targets_of(other)]
            if path in names and (found is None or other.lineno > found.lineno):
                found = other
    if isinstance(found, ast.AugAssign):
        return None
    simple = isinstance(found, ast.AnnAssign) or (
        isinstance(found, ast.Assign) and [path_of(target) for target in found.targets] == [path]
    )
    return found.value if simple and isinstance(found, (ast.Assign, ast.AnnAssign)) else None


def _finding(
    file: SourceFile, node: ast.AST, tensor: ast.expr, constant: ast.expr, value: float, region: Region
) -> Finding:
    text = file.segment(constant)
    small = abs(value) < 1
    message = f"{text} is 0 in float16" if small else f"{text} does not fit into float16, which ends at 65504"
    return Finding(
        "AMP405",
        file.span(constant),
        message,
        (Label(file.span(region.expression), "runs in float16"),),
        _fix(file, tensor, constant, value),
    )


def _fix(file: SourceFile, tensor: ast.expr, constant: ast.expr, value: float) -> Fix | None:
    if abs(value) < 1:
        return Fix("Use 1e-6", (Edit(file.span(constant), "1e-6"),), Applicability.UNSAFE)
    if not path_of(tensor) or "torch" not in file.names.module.bindings:
        return None
    end = "min" if value < 0 else "max"
    text = f"torch.finfo({file.segment(tensor)}.dtype).{end}"
    return Fix(f"Use the {end}imum of the tensor's dtype", (Edit(file.span(constant), text),), Applicability.UNSAFE)
