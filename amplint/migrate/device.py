"""On which device a loop runs, as an expression of the script: `device.type`, `"cuda"`, the model's own device."""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING, NamedTuple

from amplint.calls.kinds import BOOL, DEVICE, Classifier, only
from amplint.facts.values import path_of, returns
from amplint.migrate.tree import FUNCTIONS, position, walk
from amplint.rewrite.statements import siblings

if TYPE_CHECKING:
    from amplint.migrate.facts import Facts
    from amplint.source import SourceFile

_DEVICE = re.compile(r"(?:^|[._])(?:device|dev)$|^DEVICE$|\.DEVICE$|Device$", re.I)
_NO_DEVICE = re.compile(r"(?:^|[._])(?:to|per|num|n|multi)_?device$", re.I)
"""Names that end like those of devices and are functions or counts: `to_device`, `batch_size_per_device`."""
_OBJECTS = frozenset(("torch.device", "torch.accelerator.current_accelerator"))
_DEFAULTS = frozenset(("torch.set_default_tensor_type", "torch.set_default_device"))
_CPU_SCALER_SINCE = (2, 3)
"""The first torch in which a scaler works on tensors of the CPU, should the script keep them there although there is
a GPU: scaling is exact in float32, and a region for CUDA does nothing to them."""
_DEPTH = 3
_ASKS = re.compile(r"cuda|gpu|device|accel", re.I)


class Device(NamedTuple):
    """`kind` is the expression of the device type for `device_type=`, `on_cuda` that of being on CUDA, empty where the
    script runs on nothing else."""

    kind: str
    on_cuda: str


NAMED = ("cuda", "cpu", "mps", "xpu")
"""The device types that a user can name: those for which upstream torch has autocast and a scaler."""
_AVAILABLE = {
    "cuda": "torch.cuda.is_available()",
    "cpu": "",
    "mps": "torch.backends.mps.is_available()",
    "xpu": "torch.xpu.is_available()",
}
_SINCE = {
    # device: (autocast in float16, autocast in bfloat16, GradScaler)
    "cpu": ((2, 2), (1, 10), (2, 3)),
    "mps": ((2, 5), (2, 6), (2, 8)),
    "xpu": ((2, 4), (2, 4), (2, 4)),
}
"""The first releases of torch with each: 2.1 switches float16 off on the CPU; before 2.8 unscaling needs float64, which
MPS lacks."""


def fixed(device: str) -> Device:
    """The device that the user named, one of `NAMED`."""
    return Device(f'"{device}"', _AVAILABLE[device])


def too_old(device: str, dtype: str, floor: tuple[int, int] | None) -> str:
    """Why a named device can't be used from `floor` on, empty where it can; `dtype` is `float16` or `bfloat16`."""
    if device not in _SINCE or floor is None:
        return ""
    in_float16, in_bfloat16, scaler = _SINCE[device]
    needed = max(in_float16, scaler) if dtype == "float16" else in_bfloat16
    if floor >= needed:
        return ""
    return f"{dtype} on {device} needs torch {needed[0]}.{needed[1]}; raise --target-torch"


def find(facts: Facts, at: ast.stmt, module: str) -> Device | None:
    """The device of the code at a statement; `module` is the path of a model or tensor in view there, or empty."""
    file = facts.file
    owner = file.values.enclosing_function(at) or file.tree
    expression = _named(file, owner, at)
    if expression is not None:
        return _of_name(file, expression)
    if _always_cuda(file):
        return Device('"cuda"', "")
    if asked := _question(file, at):
        return Device('"cuda"', asked)
    floor = file.settings.target_torch
    if floor is None or floor >= _CPU_SCALER_SINCE:
        return Device('"cuda"', "torch.cuda.is_available()")
    if module:
        return Device(f"next({module}.parameters()).device.type", f"next({module}.parameters()).is_cuda")
    return None


def made_behind(facts: Facts, at: ast.stmt) -> ast.stmt | None:
    """The statement behind another one of the same function that first gives the device its value, as an attribute."""
    file = facts.file
    owner = file.values.enclosing_function(at) or file.tree
    expression = _named(file, owner, at)
    path = path_of(expression).split(".") if expression is not None else []
    cls = file.values.enclosing_class(at)
    if len(path) < 2 or path[0] != "self" or cls is None:
        return None
    made = [file.statement(value) for value in file.values.assigned(cls, path[1]) if value is not None]
    if any(file.values.enclosing_function(s) is owner and position(s) <= position(at) for s in made):
        return None
    return min((s for s in made if file.values.enclosing_function(s) is owner), key=position, default=None)


def named_behind(facts: Facts, at: ast.stmt) -> ast.stmt | None:
    """The statement behind another one of its block that gives the device its name, where none is in view before."""
    file = facts.file
    owner = file.values.enclosing_function(at) or file.tree
    if _named(file, owner, at) is not None:
        return None
    for target in _targets(owner):
        bindings = file.names.lookup(target) if isinstance(target, ast.Name) else ()
        if len(bindings) == 1 and not isinstance(bindings[0].node, ast.arg):
            made = file.statement(bindings[0].node)
            if made in siblings(file, at) and position(made) > position(at):
                return made
    return None


def _targets(owner: ast.AST) -> list[ast.expr]:
    """The names of devices that tensors and models go to in a function or a module."""
    used: list[ast.expr] = []
    for node in walk(owner) if not isinstance(owner, ast.Module) else ast.walk(owner):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "to" and node.args:
            used.append(node.args[0])
        elif isinstance(node, ast.keyword) and node.arg == "device":
            used.append(node.value)
    return [target for target in used if path_of(target) and _DEVICE.search(path_of(target))]


def _named(file: SourceFile, owner: ast.AST, at: ast.stmt) -> ast.expr | None:
    """The expression of the device that is in view at a statement: what tensors go to, or a name that says so."""
    for expression in _targets(owner):
        if _visible(file, expression, at):
            return expression
    for name, uses in file.names.loads.items():
        if _DEVICE.search(name):
            for use in uses:
                if _visible(file, use, at) and not _is_of_main(file, use, at):
                    return use
    if isinstance(owner, FUNCTIONS):
        return next(
            (
                node
                for node in ast.walk(file.tree)
                if isinstance(node, ast.Attribute)
                and isinstance(node.ctx, ast.Load)
                and path_of(node)
                and _DEVICE.search(path_of(node))
                and not file.resolve(node)
                and _visible(file, node, at)
                and not _is_of_main(file, node, at)
            ),
            None,
        )
    return None


def _is_of_main(file: SourceFile, expression: ast.expr, at: ast.stmt) -> bool:
    """Whether a name is bound under `if __name__ == "__main__":` and a function would see it only by chance."""
    root: ast.expr = expression
    while isinstance(root, ast.Attribute):
        root = root.value
    if not isinstance(root, ast.Name) or file.values.enclosing_function(at) is None:
        return False
    for binding in file.names.lookup(root):
        current = file.parent(binding.node)
        while current is not None and not isinstance(current, FUNCTIONS):
            if isinstance(current, ast.If) and "__name__" in file.segment(current.test):
                return True
            current = file.parent(current)
    return False


def _visible(file: SourceFile, expression: ast.expr, at: ast.stmt) -> bool:
    """Whether an expression that stands elsewhere means the same at a statement, and may be a device."""
    call = file.parent(expression)
    if (isinstance(call, ast.Call) and call.func is expression) or _NO_DEVICE.search(path_of(expression)):
        return False
    root: ast.expr = expression
    while isinstance(root, ast.Attribute):
        root = root.value
    if not isinstance(root, ast.Name) or file.resolve(root):
        return False
    if any(isinstance(v, ast.Constant) and v.value is None for v in file.values.of(expression)):
        return False  # a parameter that nobody need give
    if root.id == "self":
        here, there = file.values.enclosing_class(at), file.values.enclosing_class(expression)
        if here is None or here is not there or not isinstance(expression, ast.Attribute):
            return False
        made = any(file.values.assigned(cls, expression.attr) for cls in file.values.lineage(here))
        return made or expression.value is not root
    # A tensor's `x.device`; only settings (`args.device`) are taken.
    if (
        isinstance(root, ast.Name)
        and isinstance(expression, ast.Attribute)
        and expression.attr == "device"
        and not re.search(r"arg|opt|cfg|conf|param|setting|flag|hp", root.id, re.I)
    ):
        return False
    there_bindings = file.names.lookup(root)
    here_bindings = _lookup(file, root.id, at)
    if not here_bindings or {b.node for b in here_bindings} != {b.node for b in there_bindings}:
        return False
    if expression is root and any(isinstance(b.node, (*FUNCTIONS, ast.ClassDef)) for b in here_bindings):
        return False
    scope = here_bindings[0].node
    same_scope = file.values.enclosing_function(scope) is file.values.enclosing_function(at)
    if isinstance(scope, ast.arg):
        return True
    # A name that the statement itself gives a value is there behind it.
    return not same_scope or all(position(b.node) <= position(at) for b in here_bindings)


def _lookup(file: SourceFile, name: str, at: ast.stmt) -> tuple:  # type: ignore[type-arg]
    """What a name would mean at the end of a statement."""
    probe = ast.Name(id=name, ctx=ast.Load(), lineno=at.lineno, col_offset=at.col_offset)
    file.names.parents[probe] = at
    if isinstance(at, (*FUNCTIONS, ast.ClassDef)):
        file.names.parents[probe] = file.names.parents[at]
    try:
        return file.names.lookup(probe)
    finally:
        del file.names.parents[probe]


def lookup(file: SourceFile, name: str, at: ast.stmt) -> tuple:  # type: ignore[type-arg]
    """The bindings that a name would have at a statement where it does not stand."""
    return _lookup(file, name, at)


def _of_name(file: SourceFile, expression: ast.expr) -> Device:
    text = file.segment(expression)
    values = file.values.of(expression)
    if isinstance(expression, ast.Attribute) and all(value in (None, expression) for value in values):
        made = [cls for cls in file.values.constructed(expression.value) if isinstance(cls, ast.ClassDef)]
        values = tuple(value for cls in made for value in file.values.assigned(cls, expression.attr))
    if any(isinstance(v, ast.Call) and _may_be_none(file, v) for v in values):
        text = f'torch.device({text} or "cpu")'
    is_object = bool(values) and all(_is_object(file, value) for value in values)
    if is_object or only(Classifier(file).of(expression), DEVICE):
        return Device(f"{text}.type", f'{text}.type == "cuda"')
    if values and all(_is_type(file, v) for v in values):
        if all(isinstance(v, ast.Constant) and v.value == "cuda" for v in values):
            return Device(text, "")
        return Device(text, f'{text} == "cuda"')
    return Device(f"torch.device({text}).type", f'torch.device({text}).type == "cuda"')


def _is_object(file: SourceFile, value: ast.AST | None, depth: int = 0) -> bool:
    """Whether a value is a `torch.device`, made here or by a function of the file."""
    if not isinstance(value, ast.Call) or depth > 2:
        return False
    if set(file.resolve(value.func)) & _OBJECTS:
        return True
    given = [result for function in file.values.functions(value) for result in returns(function)]
    return bool(given) and all(_is_object(file, v, depth + 1) for result in given for v in file.values.of(result))


def _is_type(file: SourceFile, value: ast.AST | None) -> bool:
    """Whether a value is a device's type, without a number: a string, or `current_accelerator().type`."""
    if isinstance(value, ast.Constant):
        return value.value in ("cuda", "cpu", "mps", "xpu")
    if not isinstance(value, ast.Attribute) or value.attr != "type" or not isinstance(value.value, ast.Call):
        return False
    return "torch.accelerator.current_accelerator" in file.resolve(value.value.func)


def _may_be_none(file: SourceFile, call: ast.Call) -> bool:
    """Whether a call asks for the accelerator without having made sure that there is one."""
    if "torch.accelerator.current_accelerator" not in file.resolve(call.func):
        return False
    child, current = call, file.parent(call)
    while current is not None:
        if isinstance(current, (ast.If, ast.IfExp)) and child is not current.test:
            tests = [current.test, *(v for v in file.values.of(current.test) if isinstance(v, ast.expr))]
            if any("is_available" in file.segment(test) for test in tests):
                return False
        child, current = current, file.parent(current)  # type: ignore[assignment]
    return True


def _always_cuda(file: SourceFile) -> bool:
    """Whether the script puts its model or data on a GPU without asking whether there is one."""
    found = False
    for move in _moves(file):
        if _is_asked(file, move):
            return False
        found = True
    for use in file.names.attributes.get("to", ()):
        call = file.parent(use)
        if isinstance(call, ast.Call) and call.func is use and call.args:
            target = call.args[0]
            if isinstance(target, ast.Constant) and str(target.value).startswith("cuda"):
                found = True
            if re.search(r"(?:^|[._])(?:rank|local_rank|gpu|gpu_id|local_gpu)$", path_of(target)):
                found = True
    return found


def _moves(file: SourceFile) -> list[ast.Call]:
    """The calls that put things on a GPU: `x.cuda()`, or a default for all tensors."""
    uses = (use for use in file.names.attributes.get("cuda", ()) if not file.resolve(use))
    calls = [call for use in uses if isinstance(call := file.parent(use), ast.Call) and call.func is use]
    for ref in file.refs:
        if ref.call is not None and ref.call.args and set(ref.candidates) & _DEFAULTS:
            given = ref.call.args[0]
            names = (*file.resolve(given), given.value if isinstance(given, ast.Constant) else "")
            if any(str(name).startswith(("cuda", "torch.cuda")) for name in names):
                calls.append(ref.call)
    return calls


def uses_gpu(file: SourceFile) -> bool:
    """Whether a script may run on a GPU: it names CUDA, an accelerator, or a device that comes from elsewhere."""
    if _is_moved(file) or _always_cuda(file) or "accelerator" in file.text:
        return True
    return any(_DEVICE.search(name) for name in (*file.names.loads, *file.names.attributes))


def _is_moved(file: SourceFile) -> bool:
    """Whether anything in the file is put on a GPU."""
    calls = (file.parent(use) for use in file.names.attributes.get("cuda", ()))
    if any(isinstance(call, ast.Call) and not file.resolve(call.func) for call in calls):
        return True
    return any("cuda" in str(text.value) for text in file.names.strings)


def _question(file: SourceFile, at: ast.stmt) -> str:
    """The condition under which the script puts things on a GPU, where it is one and in view at a statement."""
    tests: list[tuple[ast.expr, bool]] = [test for call in _moves(file) if (test := _asks(file, call)) is not None]
    if len({(path_of(test).rsplit(".", 1)[-1] or file.segment(test), holds) for test, holds in tests}) != 1:
        return ""
    return next((text for test, holds in tests if (text := _condition(file, test, holds, at))), "")


def _asks(file: SourceFile, call: ast.Call) -> tuple[ast.expr, bool] | None:
    """The outermost test of a GPU around a call in its function, and whether it holds there."""
    found = None
    child: ast.AST = call
    current = file.parent(call)
    while current is not None and not isinstance(current, (ast.Module, *FUNCTIONS)):
        if isinstance(current, (ast.If, ast.IfExp)) and _ASKS.search(file.segment(current.test)):
            test, holds = current.test, child not in _members(current.orelse)
            while isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
                test, holds = test.operand, not holds
            found = test, holds
        child, current = current, file.parent(current)
    return found


def _members(arm: list[ast.stmt] | ast.expr) -> list[ast.AST]:
    return list(arm) if isinstance(arm, list) else [arm]


def _condition(file: SourceFile, test: ast.expr, holds: bool, at: ast.stmt, depth: int = 0) -> str:
    text = file.segment(test) if holds else f"not {file.segment(test)}"
    if isinstance(test, ast.Call) and file.resolve(test.func) == ("torch.cuda.is_available",):
        return text
    if path_of(test) and not _visible(file, test, at):
        outside = _given(file, test) if depth < _DEPTH else []
        return next((text for given in outside if (text := _condition(file, given, holds, at, depth + 1))), "")
    if not path_of(test):
        return ""
    return text if not holds or only(Classifier(file).of(test), BOOL) else f"bool({text})"


def _given(file: SourceFile, test: ast.expr) -> list[ast.expr]:
    """What a parameter stands for by which a helper moves things (`cuda(x, use_cuda)`), where all calls agree on it."""
    function = file.values.enclosing_function(test)
    if not isinstance(test, ast.Name) or function is None:
        return []
    given = [file.values.argument(call, function, test.id) for call in file.values.calls(function)]
    paths = {path_of(value) if value is not None else "" for value in given}
    return [value for value in given if value is not None] if len(paths) == 1 and paths != {""} else []


def _is_asked(file: SourceFile, node: ast.AST) -> bool:
    current = file.parent(node)
    while current is not None and not isinstance(current, ast.Module):
        if isinstance(current, (ast.If, ast.IfExp)) and _ASKS.search(file.segment(current.test)):
            return True
        current = file.parent(current)
    return False
