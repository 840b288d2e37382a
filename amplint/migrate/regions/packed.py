"""Packed sequences: their `data` is no tensor cut off from its graph, but the values themselves."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from amplint.migrate.tree import packs

if TYPE_CHECKING:
    from amplint.source import SourceFile


def is_packed(file: SourceFile, node: ast.AST) -> bool:
    """Whether an expression is the `data` of a packed sequence, made there or under a name."""
    if not isinstance(node, ast.Attribute) or node.attr != "data":
        return False
    return any(packs(value) for value in file.values.of(node.value))
