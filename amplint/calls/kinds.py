"""What kind of value an expression has: a flag, a dtype, a device, a string, a number.

Lexical and without paths, as `amplint.facts.values`. `UNKNOWN` among the kinds says that there may be others; a rule
that reports a wrong kind asks that all of them are wrong, or that one that is surely assigned is.
"""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING, NamedTuple

from amplint.calls.options import declared_option, is_flag, is_text, keyword
from amplint.facts.values import default_of, inside, is_self, returns

if TYPE_CHECKING:
    from amplint.names import Binding
    from amplint.source import SourceFile

BOOL, DTYPE, DEVICE, STRING, NUMBER, NONE, UNKNOWN = "bool", "dtype", "device", "string", "number", "none", "unknown"


class Kind(NamedTuple):
    """One kind that a value may have; `text` is that of a string, with `{}` for the parts that can't be seen."""

    name: str
    text: str = ""


Kinds = frozenset[Kind]

_DTYPE_PATH = re.compile(
    r"torch\.(?:float(?:16|32|64|8_\w+)?|half|bfloat16|double|u?int(?:8|16|32|64)?|short|long|bool|complex(?:64|128)|"
    r"cfloat|cdouble)"
)
_BOOL_CALLS = frozenset(("bool", "isinstance", "issubclass", "hasattr", "any", "all", "callable"))
_BOOL_FUNCTION = re.compile(r"torch\.(?:[a-z_.]+\.)?(?:is_[a-z0-9_]+|amp_definitely_not_available)")
_TENSOR_FUNCTION = re.compile(
    r"torch\.(?:randn?|randint|zeros|ones|empty|full|tensor|as_tensor|from_numpy|arange|linspace|eye|stack|cat|"
    r"(?:zeros|ones|empty|rand|randn|full)_like)"
)
_OF_TENSORS = frozenset(
    ("shape", "dtype", "ndim", "requires_grad", "is_cuda", "numel", "unsqueeze", "detach", "backward")
)
_MAKES_TENSORS = frozenset(("parameters", "buffers"))
_SUBSCRIPTED = frozenset(("typing.Optional", "Optional"))

_SWITCH = re.compile(
    r"_*(?:(?:use|using|is|enable|with|do|want|should|has|run)_?)?"
    r"(?:amp|mixed_?precision|mixed|auto_?cast|autocasting|half_precision|fp16|bf16|half)"
    r"(?:_?(?:enabled?|on|active|flag|mode))?|_*(?:enabled?|disabled?|use_fp16|use_bf16|no_amp|disable_amp|not_amp)"
)
_AMBIGUOUS_SWITCH = re.compile(r"_*(?:fp16|bf16|half|amp_mode|mixed)")
_DEVICE_NAME = re.compile(r"_*(?:[a-z0-9]+_)*(?:device|device_type|dev)")
_DTYPE_NAME = re.compile(r"_*(?:[a-z0-9]+_)*(?:dtype|torch_dtype)")
_SCALE_NAME = re.compile(r"_*(?:[a-z0-9]+_)*(?:init_scale|loss_scale|initial_scale)")


def names(kinds: Kinds) -> frozenset[str]:
    """The names of kinds, without their texts."""
    return frozenset(kind.name for kind in kinds)


def only(kinds: Kinds, *allowed: str) -> bool:
    """Whether something is known and it is all of the given kinds."""
    return bool(kinds) and names(kinds) <= set(allowed)


def strings(kinds: Kinds) -> list[str]:
    """The texts of the strings among kinds, in order; those that can't be seen are left out."""
    return sorted(kind.text for kind in kinds if kind.name == STRING and kind.text)


def last_name(node: ast.expr) -> str:
    """The word by which an expression is known: `amp` for `amp`, `args.amp`, `cfg["amp"]`, `getattr(args, "amp")`."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        return node.attr
    key: ast.expr | None = None
    if isinstance(node, ast.Subscript):
        key = node.slice
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "get" and node.args:
        key = node.args[0]
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "getattr":
        key = node.args[1] if len(node.args) > 1 else None
    return key.value if isinstance(key, ast.Constant) and isinstance(key.value, str) else ""


def is_named_like_a_switch(node: ast.expr) -> bool:
    """Whether an expression is called as flags are (`use_amp`, `args.mixed_precision`), which no dtype ever is."""
    name = last_name(node).lower()
    if isinstance(node, ast.Name) and _AMBIGUOUS_SWITCH.fullmatch(name):
        return False
    return _SWITCH.fullmatch(name) is not None


def is_named_like_a_device(node: ast.expr) -> bool:
    """Whether an expression is called as devices are (`device`, `self.device_type`)."""
    return _DEVICE_NAME.fullmatch(last_name(node).lower()) is not None


def is_named_like_a_dtype(node: ast.expr) -> bool:
    """Whether an expression is called as dtypes are (`amp_dtype`, `cfg.dtype`)."""
    return _DTYPE_NAME.fullmatch(last_name(node).lower()) is not None


def is_named_like_a_scale(node: ast.expr) -> bool:
    """Whether an expression is called as initial scales are (`init_scale`, `args.loss_scale`)."""
    return _SCALE_NAME.fullmatch(last_name(node).lower()) is not None


class Classifier:
    """Finds the kinds of expressions in one file."""

    def __init__(self, file: SourceFile) -> None:
        self._file = file
        self._values = file.values
        self._active: set[ast.AST] = set()

    def of(self, node: ast.expr) -> Kinds:
        """The kinds that an expression may have."""
        if node in self._active:
            return _UNKNOWN
        self._active.add(node)
        try:
            return self._kinds(node)
        finally:
            self._active.discard(node)

    def _kinds(self, node: ast.expr) -> Kinds:
        if isinstance(node, ast.Constant):
            return _constant(node.value)
        if isinstance(node, ast.Compare) or (isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not)):
            return _BOOL
        if isinstance(node, ast.UnaryOp):
            return self.of(node.operand) if self.of(node.operand) == _NUMBER else _UNKNOWN
        if isinstance(node, ast.JoinedStr):
            parts = (str(p.value) if isinstance(p, ast.Constant) else "{}" for p in node.values)
            return frozenset((Kind(STRING, "".join(parts)),))
        if isinstance(node, ast.BinOp):
            return self._arithmetic(node)
        if isinstance(node, ast.NamedExpr):
            return self.of(node.value)
        if isinstance(node, ast.IfExp):
            found = self.of(node.body) | self.of(node.orelse)
            return _without_devices(found) if _tells_types_apart(node.test) else found
        if isinstance(node, ast.BoolOp):
            return self._logic(node)
        if isinstance(node, ast.Call):
            return self._call(node)
        if isinstance(node, ast.Name):
            return self._name(node)
        if isinstance(node, ast.Attribute):
            return self._attribute(node)
        return _UNKNOWN

    def _arithmetic(self, node: ast.BinOp) -> Kinds:
        left = self.of(node.left)
        if only(left, STRING):
            if isinstance(node.op, ast.Add):
                return frozenset(Kind(STRING, f"{kind.text}{{}}") for kind in left)
            if isinstance(node.op, ast.Mod):
                return frozenset(Kind(STRING, re.sub(r"%\w", "{}", kind.text)) for kind in left)
        return _NUMBER if only(left, NUMBER) and only(self.of(node.right), NUMBER) else _UNKNOWN

    def _logic(self, node: ast.BoolOp) -> Kinds:
        parts = [self.of(value) for value in node.values]
        if isinstance(node.op, ast.And):
            found = frozenset().union(*parts)
            # `flag and dtype` is a dtype or False; `unknown and x > 0` is hardly anything but a flag.
            return _BOOL if names(found) <= {BOOL, UNKNOWN} and BOOL in names(found) else found
        last = parts.pop()
        return frozenset(kind for part in parts for kind in part if kind.name != NONE) | last

    def _call(self, node: ast.Call) -> Kinds:
        func = node.func
        resolved = self._file.resolve(func)
        if resolved:
            if all(name == "torch.device" for name in resolved):
                return _DEVICE
            if all(name == "torch.get_autocast_dtype" for name in resolved):
                return _DTYPE
            if all(_BOOL_FUNCTION.fullmatch(name) for name in resolved):
                return _BOOL
            return _UNKNOWN
        if isinstance(func, ast.Name) and not self._file.names.lookup(func):
            if func.id == "getattr":
                return _DTYPE if _are_dtypes(self._file.resolve(node)) else _UNKNOWN
            if func.id in _BOOL_CALLS:
                return _BOOL
            if func.id in ("int", "float", "len"):
                return _NUMBER
            if func.id == "str":
                return frozenset((Kind(STRING),))
        if isinstance(func, ast.Attribute) and func.attr == "format" and only(self.of(func.value), STRING):
            return self.of(func.value)
        if isinstance(func, ast.Name):
            callees = self._file.values.of(func)
            if len(callees) == 1 and isinstance(callees[0], ast.FunctionDef):
                return self._returned(callees[0])
        return _UNKNOWN

    def _returned(self, function: ast.FunctionDef | ast.AsyncFunctionDef) -> Kinds:
        """The kinds that a function of the file returns, by its annotation or else by its `return` statements."""
        if function.returns is not None:
            return self._annotation(function.returns)
        found: Kinds = frozenset().union(*(self.of(value) for value in returns(function)))
        return found or _UNKNOWN

    def _name(self, node: ast.Name) -> Kinds:
        resolved = self._file.resolve(node)
        if _are_dtypes(resolved):
            return _DTYPE
        found: Kinds = frozenset()
        bindings = self._file.names.lookup(node)
        for binding in bindings:
            found |= self._bound(binding)
        if self._is_told_apart(node) or any(self._is_told_apart(binding.node) for binding in bindings):
            found = _without_devices(found)
        return found or _UNKNOWN

    def _bound(self, binding: Binding) -> Kinds:
        if binding.kind == "assign" and binding.value is not None:
            return self.of(binding.value)
        if binding.kind == "param" and isinstance(binding.node, ast.arg):
            return self._parameter(binding.node)
        return _UNKNOWN

    def _parameter(self, arg: ast.arg) -> Kinds:
        """By the annotation, or else by a default of True or False, which says what is wanted; callers aren't asked."""
        arguments = self._file.parent(arg)
        default = default_of(arguments, arg) if isinstance(arguments, ast.arguments) else None
        of_default = self.of(default) if default is not None else frozenset()
        if arg.annotation is not None:
            annotated = self._annotation(arg.annotation)
            return annotated | of_default if annotated != _UNKNOWN else _UNKNOWN | _text_only(of_default)
        return of_default if of_default == _BOOL else _UNKNOWN | _text_only(of_default)

    def _annotation(self, node: ast.expr) -> Kinds:
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            try:
                node = ast.parse(node.value.strip(), mode="eval").body
            except (SyntaxError, ValueError):
                return _UNKNOWN
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr):
            return self._annotation(node.left) | self._annotation(node.right)
        if isinstance(node, ast.Subscript) and ast.unparse(node.value) in _SUBSCRIPTED:
            return self._annotation(node.slice) | _NONE
        return _ANNOTATIONS.get(ast.unparse(node), _UNKNOWN)

    def _attribute(self, node: ast.Attribute) -> Kinds:
        resolved = self._file.resolve(node)
        if _are_dtypes(resolved):
            return _DTYPE
        if node.attr == "type":
            return frozenset((Kind(STRING),))
        owner = self._values.enclosing_class(node) if is_self(node.value) else None
        if owner is not None:
            found = self._member(owner, node)
            if found:
                return found
        if node.attr == "device" and self._is_tensor(node.value):
            return _DEVICE
        option = declared_option(self._file, node)
        return self._option(option) if option is not None else _UNKNOWN

    def _option(self, option: ast.Call) -> Kinds:
        """The kinds of a command-line option: a flag, or the text that was typed and its default."""
        if is_flag(option):
            return _BOOL
        default = keyword(option, "default")
        found = self.of(default) if default is not None else _NONE
        return found | {Kind(STRING)} if is_text(option) else _UNKNOWN | _text_only(found)

    def _member(self, owner: ast.ClassDef, node: ast.Attribute) -> Kinds:
        found: Kinds = frozenset()
        for cls in self._values.lineage(owner):
            method = self._values.method(cls, node.attr)
            if method is not None:
                names_of = [ast.unparse(decorator) for decorator in method.decorator_list]
                return self._returned(method) if names_of == ["property"] else _UNKNOWN
            for value in self._values.assigned(cls, node.attr):
                found |= self.of(value) if value is not None else _UNKNOWN
        return _without_devices(found) if self._is_told_apart(node) else found

    def _is_told_apart(self, node: ast.AST) -> bool:
        """Whether a node stands under a test of some value's type, so that not all kinds reach it."""
        child, parent = node, self._file.parent(node)
        while parent is not None:
            if isinstance(parent, (ast.If, ast.IfExp)) and child is not parent.test and _tells_types_apart(parent.test):
                return True
            child, parent = parent, self._file.parent(parent)
        return False

    # -- tensors ------------------------------------------------------------------------------------------------------

    def _is_tensor(self, node: ast.expr) -> bool:
        """Whether the text shows that an expression is a tensor, or a framework object with such a `device`."""
        if isinstance(node, ast.Attribute):
            return node.attr in ("weight", "bias", "data", "grad")
        if isinstance(node, ast.Call):
            return self._makes_tensors(node)
        return isinstance(node, ast.Name) and self._is_tensor_name(node)

    def _makes_tensors(self, node: ast.Call) -> bool:
        func = node.func
        resolved = self._file.resolve(func)
        if resolved:
            return all(_TENSOR_FUNCTION.fullmatch(name) or name == "accelerate.Accelerator" for name in resolved)
        if isinstance(func, ast.Name) and func.id == "next" and node.args:
            inner = node.args[0]
            return (
                isinstance(inner, ast.Call)
                and isinstance(inner.func, ast.Attribute)
                and inner.func.attr in _MAKES_TENSORS
            )
        return isinstance(func, ast.Attribute) and func.attr in ("to", "cuda", "detach", "unsqueeze")

    def _is_tensor_name(self, node: ast.Name) -> bool:
        bindings = self._file.names.lookup(node)
        for binding in bindings:
            if isinstance(binding.node, ast.arg) and binding.node.annotation is not None:
                return ast.unparse(binding.node.annotation) in ("torch.Tensor", "Tensor")
            if isinstance(binding.value, ast.Call) and self._makes_tensors(binding.value):
                return True
            if binding.kind in ("import", "class", "def"):
                return False
        function = self._values.enclosing_function(node)
        if function is None or not bindings:
            return False
        if function.name == "forward" and any(binding.kind == "param" for binding in bindings):
            return not any(self._has_default(binding) for binding in bindings)
        return any(
            isinstance(use, ast.Attribute)
            and use.attr in _OF_TENSORS
            and isinstance(use.value, ast.Name)
            and use.value.id == node.id
            for use in inside(function)
        )

    def _has_default(self, binding: Binding) -> bool:
        arguments = self._file.parent(binding.node)
        return (
            isinstance(arguments, ast.arguments)
            and isinstance(binding.node, ast.arg)
            and default_of(arguments, binding.node) is not None
        )


def _are_dtypes(resolved: tuple[str, ...]) -> bool:
    return bool(resolved) and all(_DTYPE_PATH.fullmatch(name) for name in resolved)


def _constant(value: object) -> Kinds:
    if isinstance(value, bool):
        return _BOOL
    if isinstance(value, (int, float)):
        return _NUMBER
    if value is None:
        return _NONE
    return frozenset((Kind(STRING, value),)) if isinstance(value, str) else _UNKNOWN


def _text_only(kinds: Kinds) -> Kinds:
    """The strings among kinds: a default that may well arrive, beside whatever callers pass."""
    return frozenset(kind for kind in kinds if kind.name == STRING)


def _without_devices(kinds: Kinds) -> Kinds:
    return frozenset(kind for kind in kinds if kind.name != DEVICE) | (
        _UNKNOWN if DEVICE in names(kinds) else frozenset()
    )


def _tells_types_apart(test: ast.expr) -> bool:
    return any(isinstance(n, ast.Name) and n.id in ("isinstance", "hasattr", "type") for n in ast.walk(test))


_UNKNOWN: Kinds = frozenset((Kind(UNKNOWN),))
_BOOL: Kinds = frozenset((Kind(BOOL),))
_NUMBER: Kinds = frozenset((Kind(NUMBER),))
_NONE: Kinds = frozenset((Kind(NONE),))
_DEVICE: Kinds = frozenset((Kind(DEVICE),))
_DTYPE: Kinds = frozenset((Kind(DTYPE),))
_ANNOTATIONS: dict[str, Kinds] = {
    "bool": _BOOL,
    "int": _NUMBER,
    "float": _NUMBER,
    "str": frozenset((Kind(STRING),)),
    "None": _NONE,
    "torch.device": _DEVICE,
    "torch.dtype": _DTYPE,
}
