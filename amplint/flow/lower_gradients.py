"""Uses of parameters' gradients: which of them look at their size, clip, zero or change them."""

from __future__ import annotations

import ast

from amplint.flow import ir
from amplint.flow.lower_base import Lowering
from amplint.flow.paths import last_name, path_of
from amplint.flow.vocabulary import PARAMETER_NAME, RANDOM_TENSOR, READS_GRADIENTS, SAME_VALUES, SHOWS_VALUES


class GradientLowering(Lowering):
    """Lowers what happens to `.grad`."""

    def gradient_read(self, node: ast.expr) -> None:
        """`p.grad.norm()` and the like: numbers are made of a parameter's gradient."""
        grad: ast.AST | None = node
        while isinstance(grad, (ast.Attribute, ast.Subscript, ast.Call)):
            if isinstance(grad, ast.Attribute) and grad.attr == "grad":
                break
            grad = grad.func if isinstance(grad, ast.Call) else grad.value
        if not (isinstance(grad, ast.Attribute) and grad.attr == "grad"):
            return
        if not PARAMETER_NAME.search(last_name(grad.value)) or not isinstance(grad.ctx, ast.Load):
            return
        event = self._use_of_gradient(grad)
        known = any(isinstance(s, ir.Event) and s.span == self.file.span(grad) for s in self.out[-4:])
        if event is not None and not known:
            self.out.append(ir.Event(event, self.file.span(grad)))

    def _use_of_gradient(self, grad: ast.Attribute) -> str | None:
        """The kind of event that a use of a gradient is, None for one that does not look at its size."""
        child: ast.AST = grad
        parent = self.file.parent(child)
        carries = "scale" in self.file.segment(self.file.statement(grad))
        same = True  # the gradient's own values so far, not its shape or device
        while parent is not None and not isinstance(parent, ast.stmt):
            if isinstance(parent, ast.Attribute):
                name = parent.attr
                if name in ("zero_", "detach_"):
                    return "zero-grad" if name == "zero_" else None
                if name in ("clamp_", "clamp", "clip_", "clip"):
                    return "clip"
                if name in ("mul_", "div_", "copy_", "add_", "sub_"):
                    if "scal" in self.file.segment(self.file.statement(grad)):
                        return "gradients-changed"
                    call = self.file.parent(parent)
                    added = call.args[:1] if isinstance(call, ast.Call) and name in ("add_", "sub_") else []
                    return "grad-read" if any(map(is_independent, added)) else None
                if name in READS_GRADIENTS:
                    return "grad-read"
                same = same and name in SAME_VALUES
            elif isinstance(parent, ast.Call) and child in parent.args:
                name = last_name(parent.func)
                if name in ("clamp_", "clamp", "clip_"):
                    return "clip"
                if name in SHOWS_VALUES:
                    return "grad-read" if same and not carries else None
                return "grad-read" if name in READS_GRADIENTS or name == "vector_norm" else None
            elif isinstance(parent, ast.Dict):
                call = self.file.parent(parent)
                logged = isinstance(call, ast.Call) and last_name(call.func) == "log" and child in parent.values
                return "grad-read" if logged and same and not carries else None
            elif not isinstance(parent, (ast.Call, ast.Subscript)):
                return None
            child, parent = parent, self.file.parent(parent)
        return None

    def gradients_in(self, test: ast.expr) -> None:
        for node in ast.walk(test):
            if isinstance(node, ast.Attribute) and node.attr == "grad":
                self.gradient_read(node)


def is_independent(added: ast.expr) -> bool:
    """Whether what is added to a gradient is of a size that the loss scale has no part in: a number, or noise."""
    if isinstance(added, ast.UnaryOp):
        return is_independent(added.operand)
    if isinstance(added, ast.BinOp):
        sides = (added.left, added.right)
        if all(map(is_independent, sides)):
            return True
        noisy = any(isinstance(side, ast.Call) and is_independent(side) for side in sides)
        return noisy and isinstance(added.op, ast.Mult) and any(_is_factor(side) for side in sides)
    if isinstance(added, ast.Call):
        return bool(RANDOM_TENSOR.search(last_name(added.func)))
    if isinstance(added, ast.Name):
        return "noise" in added.id.lower()
    return isinstance(added, ast.Constant) and isinstance(added.value, (int, float)) and added.value != 0


def _is_factor(node: ast.expr) -> bool:
    path = path_of(node)
    return path is not None and "grad" not in path
