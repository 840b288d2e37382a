"""Fp32 islands around statements with a product, of which something is computed that half precision would break: angles
of cosines, and linear algebra."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from amplint.facts.values import default_of, path_of
from amplint.migrate.editor import Editor
from amplint.migrate.model import RefusalError
from amplint.migrate.numerics.constants import number
from amplint.migrate.numerics.expressions import given_to
from amplint.migrate.numerics.kernels import LINALG
from amplint.migrate.numerics.logarithms import Logarithms
from amplint.migrate.numerics.origins import Origins
from amplint.migrate.tree import FUNCTIONS, owner_of

if TYPE_CHECKING:
    from amplint.source import SourceFile

_SIZES = frozenset(("shape", "device", "dtype", "size", "dim", "ndim"))


class ProductIslands:
    """Puts statements with products into fp32 islands, each once: `done` holds those that are in one."""

    def __init__(self, logarithms: Logarithms, origins: Origins, editor: Editor, done: set[ast.stmt]) -> None:
        self.file: SourceFile = origins.file
        self.sinks = origins.sinks
        self.half = origins.half
        self.origins = origins
        self.logarithms = logarithms
        self.casts = logarithms.casts
        self.editor = editor
        self._done = done

    def in_float32(self, value: ast.expr, *, with_outputs: bool = False) -> bool:
        """Let a value be computed in float32 from the last products on, and those in islands; whether that could be
        done. `with_outputs`: what a model gave itself may be behind it."""
        found = self.origins.all_with_products(value, with_outputs=with_outputs)
        if found is None:
            return False
        passed, products, outputs = self.origins.passed, self.origins.products, self.origins.outputs
        for call in found:
            self.logarithms.widen(call)
        for output in outputs:
            self.casts.float(output)
        self.casts.widened |= {*passed, *outputs} - set(products)
        return all(self.wrap(product) for product in products)

    def decompose(self, call: ast.Call, name: str) -> None:
        """Invert or decompose float32, which has been computed in float32 too; raises `RefusalError` otherwise."""
        if not all(self.in_float32(value, with_outputs=True) for value in given_to(self.file, call)):
            is_linalg = any(full.startswith("torch.linalg.") for full in self.file.resolve(call.func))
            raise RefusalError(call, LINALG if is_linalg else f"`{name}` does not take half precision on CUDA")
        self.casts.widened.add(call)
        self.casts.exact.add(call)

    def wrap(self, product: ast.expr) -> bool:
        """Compute the statement of a product in float32; whether it holds nothing that an island does not take."""
        statement = self.file.statement(product)
        if statement in self._done:
            return True
        if not isinstance(statement, (ast.Assign, ast.Return)) or statement.value is None:
            return False
        if self.file.names.scope_of(product) is not self.file.names.scope_of(statement):
            return False
        graph = self.sinks.graph(owner_of(self.file, product))
        if any(isinstance(n, ast.Call) and graph.is_source(n) for n in ast.walk(statement.value)):
            return False
        values = [
            n for n in ast.walk(statement.value) if isinstance(n, (ast.Name, ast.Attribute)) and self._is_value(n)
        ]
        half = [value for value in values if self.half.may_be(value)]
        factors = set(ast.walk(product))
        tensors = half or [value for value in values if value in factors and number(self.file, value) is None]
        if not tensors or any(self._may_be_number(value) for value in half):
            return False
        self._done.add(statement)
        for value in half:
            self.casts.float(value)
        header = f"with torch.autocast(device_type={path_of(tensors[0])}.device.type, enabled=False):"
        self.editor.wrap(statement, statement, header)
        self.casts.widened |= {product, statement.value}
        return True

    def _is_value(self, node: ast.Name | ast.Attribute) -> bool:
        """Whether a name or path is used for itself: not called, not for its size, not a part of a longer path."""
        parent = self.file.parent(node)
        if not path_of(node) or self.file.resolve(node) or not isinstance(node.ctx, ast.Load):
            return False
        if isinstance(parent, ast.Attribute):
            called = self.file.parent(parent)
            is_method = isinstance(called, ast.Call) and called.func is parent
            return parent.attr not in _SIZES and (is_method or parent.attr in ("T", "mT", "data"))
        return not (isinstance(parent, ast.Call) and parent.func is node)

    def _may_be_number(self, node: ast.expr) -> bool:
        """Whether a value is a parameter with a default, which some call may leave at that."""
        owner = owner_of(self.file, node)
        return (
            isinstance(node, ast.Name)
            and isinstance(owner, FUNCTIONS)
            and not self.sinks.graph(owner).reaching(node.id, self.file.statement(node))
            and any(default_of(owner.args, arg) for arg in owner.args.args if arg.arg == node.id)
        )
