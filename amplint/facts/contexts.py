"""Autocast contexts as values: what a call of autocast asks for, and which contexts an expression may stand for."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, NamedTuple

from amplint.calls.signatures import apis, bind
from amplint.facts.values import Function, default_of, inside, returns
from amplint.names import UNKNOWN
from amplint.torch_api import CURRENT, DEFAULT_DTYPES, Api

if TYPE_CHECKING:
    from amplint.source import SourceFile

ON = "on"
OFF = "off"
FLAG = "flag"

HALF_DTYPES = frozenset(("float16", "bfloat16"))

_DTYPES = {
    "torch.float16": "float16",
    "torch.half": "float16",
    "torch.bfloat16": "bfloat16",
    "torch.float32": "float32",
    "torch.float": "float32",
}
_NOTHING = ("contextlib.nullcontext", "contextlib.suppress", "contextlib.ExitStack")
_PARTIAL = ("functools.partial",)
_AVAILABLE = (".is_available", ".is_cuda_available")


class Autocast(NamedTuple):
    """One call of autocast, read statically.

    `devices` and `dtypes` are the candidates (`cuda`, `float16`), empty where nothing is known; the default of a
    parameter is taken for its value. `device`, `dtype` and `enabled_by` are the arguments themselves, None where they
    are left out. `enabled` is `on`, `off` or `flag` (only known when the program runs); `on_by_default` says that
    the flag is a parameter whose default is true. `cached` is False where the weight cache is switched off. `legacy`
    names the class that always falls back to the dtype of its device; the others take that of the region around them.
    `valid` is False for a call that torch refuses or that can't be read.
    """

    call: ast.Call
    valid: bool = True
    devices: frozenset[str] = frozenset()
    dtypes: frozenset[str] = frozenset()
    device: ast.expr | None = None
    dtype: ast.expr | None = None
    enabled: str = ON
    enabled_by: ast.expr | None = None
    on_by_default: bool = True
    cached: bool = True
    legacy: bool = False


class Contexts(NamedTuple):
    """The autocasts that an expression may stand for, and whether it may also be something else (`nullcontext`)."""

    autocasts: tuple[Autocast, ...] = ()
    others: bool = False


class ContextReader:
    """Reads expressions of one file as autocast contexts."""

    def __init__(self, file: SourceFile) -> None:
        self._file = file
        self._active: set[ast.AST] = set()

    def read(self, node: ast.expr) -> Contexts:
        """The contexts that an expression may stand for; without autocasts where it is none."""
        if isinstance(node, ast.Subscript) and isinstance(node.value, ast.Dict):
            return self._joined([self.read(value) for value in node.value.values])
        return self._joined([self._value(value) for value in self._file.values.of(node)])

    def _value(self, value: ast.AST | None) -> Contexts:
        if not isinstance(value, ast.Call):
            return Contexts((), True)
        if value in self._active:
            return Contexts((), True)
        self._active.add(value)
        try:
            return self._call(value)
        finally:
            self._active.discard(value)

    def _call(self, call: ast.Call) -> Contexts:
        names = self._file.resolve(call.func)
        if names:
            found = apis(tuple(name for name in names if name != UNKNOWN and name not in _NOTHING))
            if found and all(api.kind == "autocast" for api in found):
                plain = len(found) == len(names)
                return Contexts((self.autocast(call, found),), not plain)
            if not set(names) <= {UNKNOWN, *self._file.settings.wrappers}:
                return Contexts((), True)
        if self._is_wrapper(call.func):
            return Contexts((Autocast(call, valid=False, enabled=FLAG, on_by_default=False),), True)
        return self._joined([self._made_by(value, call) for value in self._file.values.of(call.func)])

    def _made_by(self, maker: ast.AST | None, call: ast.Call) -> Contexts:
        """What a call of `maker` gives: a lambda, a partial, a function that returns or wraps an autocast."""
        if isinstance(maker, ast.Lambda):
            return self.read(maker.body)
        if isinstance(maker, ast.Call):
            names = self._file.resolve(maker.func)
            if names and set(names) <= set(_PARTIAL) and maker.args:
                found = apis(self._file.resolve(maker.args[0]))
                if found and all(api.kind == "autocast" for api in found):
                    joined = ast.Call(maker.args[0], maker.args[1:] + call.args, _later_wins(maker, call))
                    return Contexts((self.autocast(ast.copy_location(joined, maker), found)._replace(call=maker),))
        if isinstance(maker, (ast.FunctionDef, ast.AsyncFunctionDef)) and maker not in self._active:
            self._active.add(maker)
            try:
                return self._function(maker)
            finally:
                self._active.discard(maker)
        return Contexts((), True)

    def _function(self, function: Function) -> Contexts:
        if is_context_manager(self._file, function):
            found = []
            for node in inside(function):
                if isinstance(node, (ast.With, ast.AsyncWith)) and any(isinstance(n, ast.Yield) for n in inside(node)):
                    found += [self.read(item.context_expr) for item in node.items]
            return Contexts(self._joined(found).autocasts, True)
        return self._joined([self.read(value) for value in returns(function)])

    def _is_wrapper(self, func: ast.expr) -> bool:
        last = func.attr if isinstance(func, ast.Attribute) else func.id if isinstance(func, ast.Name) else ""
        wanted = self._file.settings.wrappers
        return last in wanted or any(name in wanted for name in self._file.resolve(func))

    @staticmethod
    def _joined(parts: list[Contexts]) -> Contexts:
        autocasts = dict.fromkeys(entry for part in parts for entry in part.autocasts)
        return Contexts(tuple(autocasts), not parts or any(part.others for part in parts))

    # -- one call -----------------------------------------------------------------------------------------------------

    def autocast(self, call: ast.Call, found: tuple[Api, ...]) -> Autocast:
        """Read a call of one of the autocast classes in `found`."""
        unknown = Autocast(call, valid=False, enabled=FLAG, on_by_default=False)
        if len({(api.device, api.deprecated_since) for api in found}) != 1:
            return unknown
        api = found[0]
        signature = api.signature(max(self._file.settings.target_torch or CURRENT, (1, 11)))
        if signature is None:
            return unknown
        bound = bind(call, signature)
        if not bound.fits or bound.starred or bound.unpacked:
            return unknown
        dtype, enabled_by, cached = (bound.value(name) for name in ("dtype", "enabled", "cache_enabled"))
        if isinstance(dtype, ast.Constant):
            if dtype.value is not None:
                return unknown
            dtype = None
        device = bound.value("device_type")
        devices = frozenset((api.device,)) if device is None else self.devices(device)
        if dtype is not None:
            dtypes = self.dtypes(dtype)
        else:
            dtypes = frozenset(DEFAULT_DTYPES[name] for name in devices if name in DEFAULT_DTYPES)
        enabled, on_by_default = self._enabled(enabled_by)
        return Autocast(
            call,
            True,
            devices,
            dtypes,
            device,
            dtype,
            enabled,
            enabled_by,
            on_by_default,
            not (isinstance(cached, ast.Constant) and cached.value is False),
            api.deprecated_since is not None,
        )

    def devices(self, node: ast.expr) -> frozenset[str]:
        """The device types that an expression may be, by the constants in view (`cuda` for `"cuda:0"`)."""
        found: set[str] = set()
        for value in self._file.values.of(node):
            if self._asks_machine(value):
                return frozenset()
            if isinstance(value, ast.Constant) and isinstance(value.value, str):
                found.add(value.value.split(":")[0])
            elif isinstance(value, ast.JoinedStr) and value.values and isinstance(value.values[0], ast.Constant):
                head = str(value.values[0].value)
                found.update([head.split(":")[0]] if ":" in head else [])
            elif isinstance(value, ast.Attribute) and value.attr == "type":
                found |= self.devices(value.value)
            elif isinstance(value, ast.Call) and value.args and self._file.resolve(value.func) == ("torch.device",):
                found |= self.devices(value.args[0])
            elif isinstance(value, ast.Call) and "torch.cuda.current_device" in self._file.resolve(value.func):
                found.add("cuda")  # its number
        if isinstance(node, ast.Attribute) and node.attr == "type":
            found |= self.devices(node.value)
        return frozenset(found)

    def _asks_machine(self, value: ast.AST | None) -> bool:
        """Whether a device is whatever the machine has: `torch.accelerator.current_accelerator()`, or its type."""
        while isinstance(value, (ast.Attribute, ast.Call)):
            if isinstance(value, ast.Call):
                names = self._file.resolve(value.func)
                if "torch.accelerator.current_accelerator" in names:
                    return True
                value = value.args[0] if value.args and names == ("torch.device",) else None
            else:
                value = value.value
        return False

    def dtypes(self, node: ast.expr) -> frozenset[str]:
        """The dtypes that an expression may be, empty unless all of its values in view are dtypes."""
        found: set[str] = set()
        for value in self._file.values.of(node):
            names = self._file.resolve(value) if isinstance(value, ast.expr) else ()
            found.update(_DTYPES.get(name, UNKNOWN) for name in names or (UNKNOWN,))
        return frozenset() if UNKNOWN in found else frozenset(found)

    def _enabled(self, node: ast.expr | None) -> tuple[str, bool]:
        """Whether autocast is on for this argument, and whether it is on where nothing else is asked for."""
        if node is None:
            return ON, True
        if isinstance(node, ast.BoolOp) and isinstance(node.op, ast.And):
            parts = [self._enabled(value) for value in node.values]
            states = {state for state, _ in parts}
            return OFF if OFF in states else FLAG if FLAG in states else ON, all(default for _, default in parts)
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            state, _ = self._enabled(node.operand)
            return {ON: OFF, OFF: ON}.get(state, FLAG), state == OFF
        if self._asks_for_the_device(node):
            return ON, True
        if isinstance(node, ast.Name):
            return self._named_flag(node)
        if isinstance(node, ast.Constant) and isinstance(node.value, bool):
            return (ON, True) if node.value else (OFF, False)
        return FLAG, False

    def _named_flag(self, node: ast.Name) -> tuple[str, bool]:
        bindings = self._file.names.lookup(node)
        if len(bindings) != 1:
            return FLAG, False
        binding = bindings[0]
        if binding.kind == "assign" and binding.value is not None:
            return (FLAG, False) if isinstance(binding.value, ast.Name) else self._enabled(binding.value)
        if binding.kind == "param" and isinstance(binding.node, ast.arg):
            arguments = self._file.parent(binding.node)
            default = default_of(arguments, binding.node) if isinstance(arguments, ast.arguments) else None
            return FLAG, isinstance(default, ast.Constant) and default.value is True
        return FLAG, False

    def _asks_for_the_device(self, node: ast.expr) -> bool:
        """`torch.cuda.is_available()`, `device.type == "cuda"`, `device != "cpu"`: true where autocast matters."""
        if isinstance(node, ast.Call):
            names = self._file.resolve(node.func)
            return bool(names) and all(name.startswith("torch.") and name.endswith(_AVAILABLE) for name in names)
        if isinstance(node, ast.Compare) and len(node.ops) == 1:
            sides = [node.left, node.comparators[0]]
            word = next((s.value for s in sides if isinstance(s, ast.Constant) and isinstance(s.value, str)), "")
            if isinstance(node.ops[0], (ast.Eq, ast.In)):
                return word in ("cuda", "xpu")
            return isinstance(node.ops[0], ast.NotEq) and word == "cpu"
        return False


def is_context_manager(file: SourceFile, function: Function) -> bool:
    """Whether a generator is made a context manager (or a pytest fixture), so that its `yield` is meant to suspend."""
    for decorator in function.decorator_list:
        target = decorator.func if isinstance(decorator, ast.Call) else decorator
        names = file.resolve(target) or (ast.unparse(target),)
        if any(name.rsplit(".", 1)[-1] in ("contextmanager", "asynccontextmanager", "fixture") for name in names):
            return True
    return False


def _later_wins(first: ast.Call, second: ast.Call) -> list[ast.keyword]:
    """The keywords of a partial and of its call, those of the call where both have one."""
    names = {keyword.arg for keyword in second.keywords if keyword.arg}
    return [keyword for keyword in first.keywords if keyword.arg not in names] + second.keywords
