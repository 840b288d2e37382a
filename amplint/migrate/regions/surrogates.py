"""Autograd functions that only need float32 inputs: elementwise ones that scale with the gradient, such as surrogate
gradients and straight-through estimators."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from amplint.facts.values import Function, path_of
from amplint.migrate.tree import FUNCTIONS, base_path, is_none, statements_in

if TYPE_CHECKING:
    from amplint.source import SourceFile

_METHODS = frozenset(("forward", "backward", "setup_context"))
_FUNCTION = frozenset(("torch.autograd.Function", "torch.autograd.function.Function"))
_PLAIN = frozenset(
    ("len", "int", "float", "bool", "range", "isinstance", "max", "min", "abs", "round", "tuple", "type")
)
_PRODUCTS = frozenset(
    ("matmul", "mm", "bmm", "mv", "dot", "einsum", "linear", "addmm", "addbmm", "baddbmm", "addmv", "addr", "bilinear",
     "chain_matmul", "conv1d", "conv2d", "conv3d", "conv_transpose1d", "conv_transpose2d", "conv_transpose3d", "prelu",
     "scaled_dot_product_attention", "multi_dot", "vecdot", "lstm", "gru", "unfold", "fold", "grad", "enable_grad",
     "backward", "item", "numpy", "tolist", "cpu", "half", "bfloat16", "double")
)  # fmt: skip
"""What autocast computes in half precision, and what leaves the graph or the precision."""
_OF_SHAPE = frozenset(("shape", "device", "dtype", "ndim", "needs_input_grad"))
_LINEAR = frozenset(
    ("clone", "neg", "view", "view_as", "reshape", "expand", "expand_as", "sum", "mean", "squeeze", "unsqueeze", "t",
     "transpose", "permute", "contiguous", "flatten", "float", "detach")
)  # fmt: skip


def is_elementwise(file: SourceFile, cls: ast.ClassDef) -> bool:
    """Whether a function is the same in float32 under autocast as without it, and scales with the gradient: no products
    in it, nothing changed in place that was given to it, and each step of `backward` linear in the gradient.

    Straight-through estimators and surrogate gradients are such functions; they only need float32 inputs.
    """
    methods = {member.name: member for member in cls.body if isinstance(member, FUNCTIONS)}
    forward, backward = methods.get("forward"), methods.get("backward")
    if forward is None or backward is None or not set(methods) <= _METHODS:
        return False
    if any(not _is_elementwise_method(file, method) for method in methods.values()):
        return False
    return _Linear(backward).holds()


def _is_elementwise_method(file: SourceFile, method: Function) -> bool:
    """Whether a method calls only functions of torch that autocast computes in float32 for float32, and leaves what it
    was given as it is."""
    arguments = {arg.arg for arg in method.args.args}
    for node in ast.walk(method):
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.MatMult):
            return False
        if isinstance(node, ast.Call):
            names = file.resolve(node.func)
            name = (names[0] if names else getattr(node.func, "attr", getattr(node.func, "id", ""))).rsplit(".", 1)[-1]
            if names and not names[0].startswith(("torch.", "math.")):
                return False
            if not names and (isinstance(node.func, ast.Name) and name not in _PLAIN):
                return False
            if file.values.functions(node) or name in _PRODUCTS or name in ("apply", "mark_dirty"):
                return False
            is_method = isinstance(node.func, ast.Attribute) and not names
            if is_method and name.endswith("_") and path_of(node.func.value) in arguments:  # type: ignore[attr-defined]
                return False
        if isinstance(node, (ast.Assign, ast.AugAssign)):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            for target in targets:
                changed = isinstance(target, ast.Subscript) or isinstance(node, ast.AugAssign)
                if changed and base_path(target) in arguments:
                    return False
    return True


class _Linear:
    """Tells whether all that a `backward` returns is linear in the gradients that it gets."""

    def __init__(self, method: Function) -> None:
        self.method = method
        self.gradients = {arg.arg for arg in method.args.args[1:]}

    def holds(self) -> bool:
        """Whether every statement computes with gradients in a linear way, or without them."""
        arguments = self.method.args
        if len(arguments.args) < 2 or arguments.vararg or arguments.kwarg or arguments.kwonlyargs:
            return False
        statements = list(statements_in(self.method))
        for _ in statements:  # until all names that hold gradients are known
            for statement in statements:
                targets = statement.targets if isinstance(statement, ast.Assign) else []
                if isinstance(statement, ast.AugAssign):
                    targets = [statement.target]
                value = getattr(statement, "value", None)
                if targets and isinstance(value, ast.expr) and not self._is_free(value):
                    self.gradients |= {base_path(target) for target in targets}
        return all(self._is_linear_statement(statement) for statement in statements)

    def _is_linear_statement(self, statement: ast.stmt) -> bool:
        if isinstance(statement, ast.Return):
            results = statement.value.elts if isinstance(statement.value, ast.Tuple) else [statement.value]
            return all(result is not None and self._is_linear(result) for result in results)
        if isinstance(statement, ast.Assign):
            if any(
                isinstance(target, ast.Subscript) and not self._is_free(target.slice) for target in statement.targets
            ):
                return False
            held = any(base_path(target) in self.gradients for target in statement.targets)
            return self._is_linear(statement.value) if held else self._is_free(statement.value)
        if isinstance(statement, ast.AugAssign):
            if isinstance(statement.target, ast.Subscript) and not self._is_free(statement.target.slice):
                return False
            if base_path(statement.target) not in self.gradients:
                return self._is_free(statement.value)
            if isinstance(statement.op, (ast.Mult, ast.Div)):
                return self._is_free(statement.value)
            return isinstance(statement.op, (ast.Add, ast.Sub)) and self._is_linear(statement.value)
        if isinstance(statement, ast.If):
            return self._is_free(statement.test)
        return isinstance(statement, ast.Pass) or (
            isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)
        )

    def _is_free(self, node: ast.AST) -> bool:
        """Whether a value does not depend on a gradient's numbers."""
        if isinstance(node, ast.Attribute) and node.attr in _OF_SHAPE:
            return True
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            if node.func.attr in ("size", "dim", "numel"):
                return True
            if node.func.attr in ("zeros_like", "ones_like"):
                return True
        if isinstance(node, ast.Name):
            return node.id not in self.gradients
        return all(self._is_free(child) for child in ast.iter_child_nodes(node))

    def _is_linear(self, node: ast.expr) -> bool:
        """Whether a value is zero, or gradients times numbers that do not depend on them."""
        if is_none(node) or (isinstance(node, ast.Constant) and node.value == 0):
            return True
        if isinstance(node, ast.Name):
            return node.id in self.gradients
        if isinstance(node, ast.UnaryOp):
            return isinstance(node.op, ast.USub) and self._is_linear(node.operand)
        if isinstance(node, ast.BinOp):
            if isinstance(node.op, (ast.Add, ast.Sub)):
                return self._is_linear(node.left) and self._is_linear(node.right)
            if isinstance(node.op, ast.Mult) and self._is_free(node.left):
                return self._is_linear(node.right)
            return isinstance(node.op, (ast.Mult, ast.Div)) and self._is_linear(node.left) and self._is_free(node.right)
        if isinstance(node, ast.IfExp):
            return self._is_free(node.test) and self._is_linear(node.body) and self._is_linear(node.orelse)
        if isinstance(node, ast.Subscript):
            return self._is_linear(node.value) and self._is_free(node.slice)
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
            return False
        name, is_torch = node.func.attr, path_of(node.func.value) == "torch"
        if name == "zeros_like" and is_torch:
            return True
        if name == "where" and is_torch and len(node.args) == 3:
            return self._is_free(node.args[0]) and all(self._is_linear(argument) for argument in node.args[1:])
        given = node.args if is_torch else [node.func.value, *node.args]
        if not given:
            return False
        others = [*given[1:], *(keyword.value for keyword in node.keywords)]
        if name in ("mul", "mul_", "div", "div_"):
            return self._is_linear(given[0]) and all(self._is_free(other) for other in others)
        if name in ("masked_fill", "masked_fill_"):
            return self._is_linear(given[0]) and self._is_free(others[0]) and self._is_linear(others[-1])
        return name in _LINEAR and self._is_linear(given[0]) and all(self._is_free(other) for other in others)


def function_of(file: SourceFile, call: ast.Call) -> ast.ClassDef | None:
    """The autograd function of the file that a call applies, by a name for its `apply` too."""
    for value in file.values.of(call.func):
        if not isinstance(value, ast.Attribute) or value.attr != "apply":
            continue
        for cls in file.values.of(value.value):
            bases = cls.bases if isinstance(cls, ast.ClassDef) else []
            if any(_FUNCTION.intersection(file.resolve(base)) for base in bases):
                return cls  # type: ignore[return-value]
    return None


def is_seen(file: SourceFile, cls: ast.ClassDef) -> bool:
    """Whether all calls that apply a function can be told: its `apply` is called, or kept under names that are."""
    pending: list[ast.AST] = [
        use for use in file.names.loads.get(cls.name, ()) if any(b.node is cls for b in file.names.lookup(use))
    ]
    seen: set[ast.AST] = set()
    while pending:
        use = pending.pop()
        parent = file.parent(use)
        if use in seen:
            continue
        seen.add(use)
        if isinstance(parent, ast.Attribute) and isinstance(use, ast.Name) and use.id == cls.name:
            if parent.attr == "apply":
                pending.append(parent)
            continue
        if isinstance(parent, ast.Call) and parent.func is use:
            if function_of(file, parent) is not cls:
                return False
            continue
        if isinstance(parent, ast.keyword):
            parent = file.parent(parent)
        if isinstance(parent, ast.Call):
            if not any(isinstance(value, (ast.ClassDef, *FUNCTIONS)) for value in file.values.of(parent.func)):
                return False
            continue  # a parameter, by which its calls are known
        if not isinstance(parent, ast.Assign):
            return False
        for target in parent.targets:
            if isinstance(target, ast.Name):
                loads = file.names.loads.get(target.id, ())
                pending += [load for load in loads if any(b.node is parent for b in file.names.lookup(load))]
                if isinstance(file.parent(parent), ast.ClassDef):
                    pending += file.names.attributes.get(target.id, ())
            elif isinstance(target, ast.Attribute):
                pending += [u for u in file.names.attributes.get(target.attr, ()) if isinstance(u.ctx, ast.Load)]
            else:
                return False
    return True
