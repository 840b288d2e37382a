"""Products of a matrix with itself: they may leave the range of float16, similarities of unit vectors do not.

They run in an fp32 island, on float32 inputs, where their statement holds nothing but the product and what is done with
it; else they are refused.
"""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from amplint.facts.values import path_of, returns
from amplint.migrate.editor import Editor
from amplint.migrate.model import RefusalError
from amplint.migrate.numerics.half import HalfValues
from amplint.migrate.regions.sinks import Sinks
from amplint.migrate.tree import owner_of

if TYPE_CHECKING:
    from amplint.source import SourceFile

REASON = "Gram matrices of images exceed the range of float16; use --dtype bfloat16"
_DEPTH = 4
_PRODUCTS = frozenset(("mm", "bmm", "matmul"))
_TURNS = frozenset(("t", "transpose", "permute", "contiguous"))
_VIEWS = frozenset(("view", "reshape", "contiguous", "detach", "clone", "squeeze", "float", "flatten", "to", "cuda"))


def is_gram(file: SourceFile, node: ast.Call | ast.BinOp, name: str = "") -> bool:
    """Whether a call of the function `name`, or a `@`, multiplies a matrix by itself, and its rows may be large."""
    both = factors(node, name)
    if len(both) != 2:
        return False
    first, second = (_origin(file, factor) for factor in both)
    return ast.dump(first) == ast.dump(second) and not _is_normalized(file, first, 0)


class Islands:
    """Puts statements with such products into fp32 islands, each once: `done` holds those that are in one."""

    def __init__(self, file: SourceFile, sinks: Sinks, half: HalfValues, editor: Editor, done: set[ast.stmt]) -> None:
        self.file = file
        self.sinks = sinks
        self.half = half
        self.editor = editor
        self._done = done

    def repair(self, node: ast.Call | ast.BinOp) -> None:
        """Compute the statement of a product in float32; raises `RefusalError` where it holds more than that."""
        statement = self.file.statement(node)
        if statement in self._done:
            return
        self._island(node, statement)

    def repair_if_alone(self, node: ast.Call | ast.BinOp) -> None:
        """Compute the statement of a product of two matrices in float32, unless it holds more than that."""
        statement = self.file.statement(node)
        second = _unturned(self._both(node)[1])
        if statement in self._done or (not isinstance(second, ast.Name) and self.half.is_computed(second)):
            return
        try:
            self._island(node, statement)
        except RefusalError:
            return

    def _island(self, node: ast.Call | ast.BinOp, statement: ast.stmt) -> None:
        if not isinstance(statement, (ast.Assign, ast.AugAssign, ast.Return)) or statement.value is None:
            raise RefusalError(node, REASON)
        graph = self.sinks.graph(owner_of(self.file, node))
        names = []
        for inner in ast.walk(statement.value):
            if isinstance(inner, ast.Call) and graph.is_source(inner):
                raise RefusalError(node, REASON)
            if isinstance(inner, (ast.BinOp, ast.Call)) and inner is not node and self._is_other_product(inner):
                raise RefusalError(node, REASON)
            if isinstance(inner, ast.Name) and isinstance(inner.ctx, ast.Load) and not self.file.resolve(inner):
                names.append(inner)
        matrix = self._matrix(node)
        if matrix is None:
            raise RefusalError(node, REASON)
        self._done.add(statement)
        within = {id(inner) for factor in self._both(node) for inner in ast.walk(_unturned(factor))}
        for name in names:
            is_factor = id(name) in within and self._is_value(name)
            if is_factor or (self._is_value(name) and self.half.is_computed(name)):
                self.editor.insert(self.file.span(name).end, ".float()")
        header = f"with torch.autocast(device_type={matrix.id}.device.type, enabled=False):"
        self.editor.wrap(statement, statement, header)

    def _is_other_product(self, node: ast.BinOp | ast.Call) -> bool:
        """Whether a node multiplies matrices that are not the same."""
        if isinstance(node, ast.BinOp):
            return isinstance(node.op, ast.MatMult) and not is_gram(self.file, node)
        names = self.file.resolve(node.func)
        last = (names[0] if names else getattr(node.func, "attr", path_of(node.func))).rsplit(".", 1)[-1]
        if self.file.values.functions(node):
            return True
        return bool(factors(node, last)) and not is_gram(self.file, node, last)

    def _matrix(self, node: ast.Call | ast.BinOp) -> ast.Name | None:
        """The name of the matrix that a product multiplies by itself."""
        both = self._both(node)
        matrix = _unturned(both[0]) if both else None
        return matrix if isinstance(matrix, ast.Name) else None

    def _both(self, node: ast.Call | ast.BinOp) -> list[ast.expr]:
        """The two factors of a product."""
        return factors(node, "" if isinstance(node, ast.BinOp) else self._last(node))

    def _last(self, call: ast.Call) -> str:
        names = self.file.resolve(call.func)
        return (names[0] if names else getattr(call.func, "attr", "")).rsplit(".", 1)[-1]

    def _is_value(self, name: ast.Name) -> bool:
        """Whether a name is used for itself, not for its size, and is not called."""
        parent = self.file.parent(name)
        if isinstance(parent, ast.Attribute) and parent.attr in ("shape", "device", "dtype", "size", "dim", "ndim"):
            return False
        above = self.file.parent(parent) if isinstance(parent, ast.Attribute) else None
        if isinstance(parent, ast.Attribute) and parent.attr not in ("T", "mT") and not isinstance(above, ast.Call):
            return False  # an object
        return not (isinstance(parent, ast.Call) and parent.func is name)


def factors(node: ast.Call | ast.BinOp, name: str) -> list[ast.expr]:
    """The two factors of a `@` or of a call of the function `name`, empty where it is no product."""
    if isinstance(node, ast.BinOp):
        return [node.left, node.right]
    if name == "einsum":
        return node.args[1:] if len(node.args) == 3 else []
    found = list(node.args) if name in _PRODUCTS else []
    if len(found) == 1 and isinstance(node.func, ast.Attribute):
        found.insert(0, node.func.value)
    return found


def _unturned(node: ast.expr) -> ast.expr:
    """A matrix whose transpose an expression is; one that is not turned stands for itself."""
    while True:
        if isinstance(node, ast.Attribute) and node.attr in ("T", "mT"):
            node = node.value
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _TURNS:
            node = node.func.value
        else:
            return node


def _origin(file: SourceFile, factor: ast.expr) -> ast.expr:
    """The matrix that a factor is or turns, also by a name of its own: `features_t = features.transpose(1, 2)`."""
    matrix = _unturned(factor)
    bindings = file.names.lookup(matrix) if isinstance(matrix, ast.Name) else ()
    value = bindings[0].value if len(bindings) == 1 else None
    return matrix if value is None or _unturned(value) is value else _unturned(value)


def _is_normalized(file: SourceFile, node: ast.expr, depth: int) -> bool:
    """Whether the rows of a matrix surely have length 1."""
    if isinstance(node, ast.Call):
        names = file.resolve(node.func)
        if "torch.nn.functional.normalize" in names:
            return True
        parts = node.args[0] if "torch.cat" in names and node.args else None
        if isinstance(parts, (ast.List, ast.Tuple)):
            return all(_is_normalized(file, part, depth + 1) for part in parts.elts)
        is_view = isinstance(node.func, ast.Attribute) and node.func.attr in _VIEWS and not names
        return is_view and _is_normalized(file, node.func.value, depth + 1)  # type: ignore[attr-defined]
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div):
        return "norm" in file.segment(node.right)
    if isinstance(node, ast.Name) and depth < _DEPTH:
        bindings = file.names.lookup(node)
        return bool(bindings) and all(_gives_normalized(file, b.node, node.id, depth + 1) for b in bindings)
    return False


def _gives_normalized(file: SourceFile, statement: ast.AST, name: str, depth: int) -> bool:
    """Whether an assignment gives a name such a matrix, also as one of those that a function returns."""
    if not isinstance(statement, ast.Assign):
        return False
    target, value = statement.targets[0], statement.value
    if isinstance(target, ast.Name):
        return _is_normalized(file, value, depth)
    functions = file.values.functions(value) if isinstance(value, ast.Call) else ()
    results = [result for function in functions for result in returns(function)]
    names = [path_of(element) for element in getattr(target, "elts", ())]
    return bool(results) and all(
        isinstance(result, ast.Tuple)
        and len(result.elts) == len(names)
        and _is_normalized(file, result.elts[names.index(name)], depth)
        for result in results
    )
