"""What the methods of modules keep in attributes, where a loop may read it: `loss + model.kl`."""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING

from amplint.facts.values import is_self, path_of

if TYPE_CHECKING:
    from amplint.source import SourceFile

_NO_TENSOR = re.compile(
    r"^(?:len|int|float|max|min|sum|abs|round|range|list|dict|set|str|bool|(?:time|np|numpy|math|random)\.\w+)$"
)


def attributes(file: SourceFile, methods: frozenset[ast.AST]) -> frozenset[str]:
    """The attributes that methods of modules, but for `__init__`, give values which they compute by calls."""
    found = set()
    for uses in file.names.attributes.values():
        for use in uses:
            function = file.values.enclosing_function(use) if isinstance(use.ctx, ast.Store) else None
            if function in methods and function.name != "__init__" and is_self(use.value) and _computes(file, use):
                found.add(use.attr)
    return frozenset(found)


def _computes(file: SourceFile, target: ast.Attribute) -> bool:
    statement = file.statement(target)
    value = statement.value if isinstance(statement, (ast.Assign, ast.AugAssign)) else None
    calls = [node for node in ast.walk(value) if isinstance(node, ast.Call)] if value is not None else []
    return any(not _NO_TENSOR.match(path_of(call.func)) for call in calls)
