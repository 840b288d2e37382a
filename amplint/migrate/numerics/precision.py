"""Other precisions, scripted code and debugging aids: refused where they may meet what trains, else left alone."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from amplint.facts.values import path_of
from amplint.migrate.facts import Facts
from amplint.migrate.model import RefusalError
from amplint.migrate.numerics.spread import Spread

if TYPE_CHECKING:
    from amplint.source import SourceFile

_DOUBLE = "double precision is used, which autocast leaves alone"
_HALF = "half precision is used by hand"
_BFLOAT16 = "bfloat16 is used by hand"
_SCRIPTED = "scripted code does not see autocast that is switched at run time"
_ANOMALY = "anomaly detection stops at the first overflow, which a scaler meets as a matter of course"
_DEFAULT = "the default type is changed, and autocast leaves double precision alone"

_NAMES = {
    "torch.float64": _DOUBLE,
    "torch.double": _DOUBLE,
    "torch.DoubleTensor": _DOUBLE,
    "torch.cuda.DoubleTensor": _DOUBLE,
    "torch.float16": _HALF,
    "torch.half": _HALF,
    "torch.HalfTensor": _HALF,
    "torch.cuda.HalfTensor": _HALF,
    "torch.bfloat16": _BFLOAT16,
    "torch.BFloat16Tensor": _BFLOAT16,
    "torch.cuda.BFloat16Tensor": _BFLOAT16,
    "torch.jit.script": _SCRIPTED,
    "torch.jit.trace": _SCRIPTED,
    "torch.jit.freeze": _SCRIPTED,
    "torch.jit.optimize_for_inference": _SCRIPTED,
}
_METHODS = {"double": _DOUBLE, "half": _HALF, "bfloat16": _BFLOAT16}
_OTHER_TYPES = ("DoubleTensor", "HalfTensor", "BFloat16Tensor")
_FLOAT32 = frozenset(
    ("torch.float", "torch.float32", "torch.FloatTensor", "torch.cuda.FloatTensor", "float", "float32")
)
_ENDS = frozenset(("float", "half", "double", "bfloat16"))


def check(facts: Facts) -> None:
    """Raise `RefusalError` where a value of another precision, or scripted code, may come to a model or a backward."""
    file = facts.file
    _defaults(file)
    for ref in file.refs:
        for name in ref.candidates:
            if isinstance(ref.node, ast.expr) and (reason := _NAMES.get(name)):
                _check_value(facts, ref.node, reason)
    for name, reason in _METHODS.items():
        for use in file.names.attributes.get(name, ()):
            call = file.parent(use)
            if isinstance(call, ast.Call) and call.func is use and not file.resolve(use):
                if _is_moved_whole(facts, call, use.value):
                    raise RefusalError(use, reason)
                _check_value(facts, call, reason, use)
    for call in file.names.calls:
        for keyword in call.keywords:
            is_double = isinstance(keyword.value, ast.Constant) and keyword.value.value == "float64"
            if keyword.arg == "dtype" and is_double and not _is_of_arrays(file, call):
                _check_value(facts, call, _DOUBLE)
    for text in file.names.strings:
        if str(text.value).startswith("torch.") and str(text.value).endswith(_OTHER_TYPES):
            _check_value(facts, text, _DOUBLE if "Double" in str(text.value) else _HALF)
    _anomaly(file)


def _check_value(facts: Facts, node: ast.expr, reason: str, place: ast.expr | None = None) -> None:
    """Follow a value; `node` is a dtype, a function of `torch.jit`, or the call that makes the value."""
    file = facts.file
    call = file.parent(node)
    start = call if reason is _SCRIPTED and isinstance(call, ast.Call) and call.func is node else node
    if isinstance(start, ast.expr) and Spread(facts, _ENDS).of([start]).meets_training() is not None:
        raise RefusalError(place or node, reason)


def _is_moved_whole(facts: Facts, call: ast.Call, receiver: ast.expr) -> bool:
    """Whether `x.double()` changes a module in place: what it returns is dropped, or a module is what it is called
    on."""
    if isinstance(facts.file.parent(call), ast.Expr) or path_of(receiver) == "self":
        return True
    return facts.is_module(receiver)


def _is_of_arrays(file: SourceFile, call: ast.Call) -> bool:
    return any(name.startswith(("numpy.", "pandas.")) for name in file.resolve(call.func))


def _defaults(file: SourceFile) -> None:
    """The default type may be float32 on any device."""
    for ref in file.refs:
        for name in ref.candidates:
            if name in ("torch.set_default_dtype", "torch.set_default_tensor_type"):
                given = ref.call.args[:1] if ref.call is not None else []
                if not any(_is_float32(file, argument) for argument in given):
                    raise RefusalError(ref.node, _DEFAULT)


def _is_float32(file: SourceFile, node: ast.expr) -> bool:
    if isinstance(node, ast.IfExp):
        return _is_float32(file, node.body) and _is_float32(file, node.orelse)
    if isinstance(node, ast.Constant):
        return node.value in _FLOAT32
    names = file.resolve(node)
    return bool(names) and set(names) <= _FLOAT32


def _anomaly(file: SourceFile) -> None:
    """Anomaly detection that the user has to ask for is the user's to switch off again."""
    for ref in file.refs:
        for name in ref.candidates:
            if name not in ("torch.autograd.set_detect_anomaly", "torch.autograd.detect_anomaly") or isinstance(
                ref.node, ast.alias
            ):
                continue
            if ref.call is None or not (_is_off(file, ref.call) or _is_on_demand(file, ref.call)):
                raise RefusalError(ref.node, _ANOMALY)


def _is_off(file: SourceFile, call: ast.Call) -> bool:
    given = [*call.args[:1], *(k.value for k in call.keywords if k.arg == "mode")]
    return (
        bool(given) and "set_detect_anomaly" in path_of(call.func) and all(_is_off_by_default(file, g) for g in given)
    )


def _is_on_demand(file: SourceFile, call: ast.Call) -> bool:
    child: ast.AST = call
    parent = file.parent(call)
    while parent is not None:
        if isinstance(parent, ast.If) and child in parent.body and _is_off_by_default(file, parent.test):
            return True
        child, parent = parent, file.parent(parent)
    return False


def _is_off_by_default(file: SourceFile, node: ast.expr) -> bool:
    """Whether a condition is false unless the user asks for it: a constant, or an option of the command line that
    stores true."""
    if isinstance(node, ast.Constant):
        return not node.value
    if isinstance(node, ast.Name) and (values := file.values.of(node)) != (None,):
        return all(isinstance(value, ast.Constant) and not value.value for value in values)
    if not isinstance(node, ast.Attribute):
        return False
    for use in file.names.attributes.get("add_argument", ()):
        call = file.parent(use)
        if not isinstance(call, ast.Call) or call.func is not use:
            continue
        named = {str(a.value).lstrip("-").replace("-", "_") for a in call.args if isinstance(a, ast.Constant)}
        if node.attr in named:
            given = {k.arg: ast.unparse(k.value) for k in call.keywords}
            return given.get("action") == "'store_true'" and given.get("default", "False") == "False"
    return False
