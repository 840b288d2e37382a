"""Uses of parameters' gradients: which of them look at their size, clip, zero or change them."""

from __future__ import annotations

import ast

from amplint.flow import ir
from amplint.flow.lower_base import Lowering
from amplint.flow.paths import last_name
from amplint.flow.vocabulary import PARAMETER_NAME, READS_GRADIENTS


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
        while parent is not None and not isinstance(parent, ast.stmt):
            if isinstance(parent, ast.Attribute):
                name = parent.attr
                if name in ("zero_", "detach_"):
                    return "zero-grad" if name == "zero_" else None
                if name in ("clamp_", "clamp", "clip_", "clip"):
                    return "clip"
                if name in ("mul_", "div_", "copy_", "add_", "sub_"):
                    return "gradients-changed" if "scal" in self.file.segment(self.file.statement(grad)) else None
                if name in READS_GRADIENTS:
                    return "grad-read"
            elif isinstance(parent, ast.Call) and child in parent.args:
                name = last_name(parent.func)
                if name in ("clamp_", "clamp", "clip_"):
                    return "clip"
                return "grad-read" if name in READS_GRADIENTS or name == "vector_norm" else None
            elif not isinstance(parent, (ast.Call, ast.Subscript)):
                return None
            child, parent = parent, self.file.parent(parent)
        return None

    def gradients_in(self, test: ast.expr) -> None:
        for node in ast.walk(test):
            if isinstance(node, ast.Attribute) and node.attr == "grad":
                self.gradient_read(node)
