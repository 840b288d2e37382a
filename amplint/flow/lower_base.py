"""What the lowering of expressions and of statements have in common."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from amplint.flow import ir
from amplint.flow.functions import Function, binds
from amplint.flow.kinds import OPTIMIZER, SCALER
from amplint.flow.paths import root_of

if TYPE_CHECKING:
    from amplint.flow.lower import Context


class Lowering:
    """Lowers one function; statements come out in `out`."""

    def __init__(self, function: Function, context: Context) -> None:
        self.function = function
        self.context = context
        self.functions = context.functions
        self.kinds = context.kinds
        self.file = context.file
        self.out: list[ir.Stmt] = []
        self.inner: list[str] = []

    def name(self, path: str) -> str:
        """A source path as a path of the IR."""
        root = root_of(path)
        if self.function is self.functions.module and root not in self.inner:
            return self.context.mark + path
        if root in self.inner:
            return f"%{path}"
        current: Function | None = self.function
        sigil = "%"
        while current is not None and current is not self.functions.module:
            if root in current.scope.globals:
                return self.context.mark + path
            if binds(current, root):
                return sigil + path
            current = current.outer
            sigil = "^" if sigil == "%" else f"^{sigil}"
        return self.context.mark + path

    def temporary(self) -> str:
        """A new local that no source has."""
        self.context.temporaries += 1
        return f"%<{self.context.temporaries}>"

    def kind(self, path: str | None) -> str:
        """`scaler`, `optimizer` or ""."""
        found = self.kinds.of(path, self.function)
        return found if found in (SCALER, OPTIMIZER) else ""

    # Each of these belongs to a class below; they call one another.

    def expression(self, node: ast.expr) -> ir.Value:
        """See `ExpressionLowering.expression`."""
        raise NotImplementedError

    def call(self, node: ast.Call) -> ir.Value:
        """See `CallLowering.call`."""
        raise NotImplementedError

    def elements(
        self, target: ast.expr, source: ast.expr, node: ast.stmt
    ) -> tuple[tuple[str, ...], tuple[ir.Assign, ...]]:
        """See `StatementLowering.elements`."""
        raise NotImplementedError
