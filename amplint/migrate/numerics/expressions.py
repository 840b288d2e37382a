"""Parts of expressions."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from amplint.source import SourceFile


def children(node: ast.AST) -> list[ast.expr]:
    """The expressions that a value is made of, those of comprehensions included."""
    found: list[ast.expr] = []
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.comprehension):
            found.append(child.iter)
        elif isinstance(child, ast.expr):
            found.append(child)
    return found


def keywords(call: ast.Call) -> list[ast.expr]:
    """What a call passes by keyword."""
    return [keyword.value for keyword in call.keywords]


def root(node: ast.expr) -> ast.Name:
    """The name that a path begins with."""
    while isinstance(node, ast.Attribute):
        node = node.value
    assert isinstance(node, ast.Name)
    return node


def given_to(file: SourceFile, call: ast.Call) -> list[ast.expr]:
    """The values that a call of torch computes with, the one that it is a method of among them."""
    given = [*call.args, *keywords(call)]
    if isinstance(call.func, ast.Attribute) and not file.resolve(call.func):
        given.insert(0, call.func.value)
    return given
