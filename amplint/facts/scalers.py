"""Which expressions of a file are GradScaler objects: by construction, by annotation, or by how they are used."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from amplint.calls.signatures import apis
from amplint.facts.values import inside, is_self, path_of

if TYPE_CHECKING:
    from amplint.source import SourceFile

_OPTIONAL = frozenset(("Optional", "typing.Optional"))


class Scalers:
    """Answers whether an expression is a scaler of torch; subclasses and other libraries' scalers are none."""

    def __init__(self, file: SourceFile) -> None:
        self._file = file
        self.named = any(api.kind == "scaler" for ref in file.refs for api in apis(ref.candidates))

    def is_scaler(self, node: ast.expr) -> bool:
        """Whether everything that is ever assigned to a name or `self.` attribute is a scaler, or None."""
        if not self.named or not isinstance(node, (ast.Name, ast.Attribute)):
            return False
        return self._is_annotated(node) or self._is_constructed(node)

    def is_used_as_scaler(self, node: ast.expr) -> bool:
        """Whether a parameter is called a scaler and its function runs `scaler.scale(loss).backward()` with it."""
        if not isinstance(node, ast.Name) or "scaler" not in node.id.lower():
            return False
        function = self._file.values.enclosing_function(node)
        if function is None or any(binding.kind != "param" for binding in self._file.names.lookup(node)):
            return False
        return any(
            isinstance(use, ast.Attribute)
            and use.attr == "backward"
            and isinstance(use.value, ast.Call)
            and isinstance(use.value.func, ast.Attribute)
            and use.value.func.attr == "scale"
            and path_of(use.value.func.value) == node.id
            for use in inside(function)
        )

    def _is_constructed(self, node: ast.expr) -> bool:
        found = False
        for value in self._file.values.of(node):
            if isinstance(value, ast.Constant) and value.value is None:
                continue
            if not isinstance(value, ast.Call) or not self._is_scaler_class(value.func):
                return False
            found = True
        return found

    def _is_annotated(self, node: ast.Name | ast.Attribute) -> bool:
        if isinstance(node, ast.Name):
            owners = [binding.node for binding in self._file.names.lookup(node)]
            annotations = [o.annotation for o in owners if isinstance(o, (ast.arg, ast.AnnAssign))]
            return len(annotations) == len(owners) > 0 and all(self._says_scaler(a) for a in annotations)
        cls = self._file.values.enclosing_class(node) if is_self(node.value) else None
        return cls is not None and any(
            isinstance(statement, ast.AnnAssign)
            and isinstance(statement.target, ast.Name)
            and statement.target.id == node.attr
            and self._says_scaler(statement.annotation)
            for statement in cls.body
        )

    def _says_scaler(self, annotation: ast.expr | None) -> bool:
        if isinstance(annotation, ast.BinOp) and isinstance(annotation.op, ast.BitOr):
            sides = (annotation.left, annotation.right)
            return any(self._says_scaler(side) for side in sides) and all(
                self._says_scaler(side) or (isinstance(side, ast.Constant) and side.value is None) for side in sides
            )
        if isinstance(annotation, ast.Subscript) and ast.unparse(annotation.value) in _OPTIONAL:
            return self._says_scaler(annotation.slice)
        return annotation is not None and self._is_scaler_class(annotation)

    def _is_scaler_class(self, node: ast.expr) -> bool:
        found = apis(self._file.resolve(node))
        return bool(found) and all(api.kind == "scaler" for api in found)
