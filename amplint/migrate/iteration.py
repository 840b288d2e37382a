"""What the variables of loops and comprehensions run over."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from amplint.facts.values import path_of
from amplint.migrate.tree import FUNCTIONS

if TYPE_CHECKING:
    from amplint.source import SourceFile


def loop_around(file: SourceFile, node: ast.Name) -> ast.AST | None:
    """The loop, or the generator of a comprehension, that binds a name around its use."""
    current: ast.AST | None = node
    while current is not None and not isinstance(current, FUNCTIONS):
        if isinstance(current, (ast.For, ast.AsyncFor)) and _binds(current.target, node.id):
            return current
        for generator in getattr(current, "generators", ()):
            if _binds(generator.target, node.id):
                found: ast.AST = generator
                return found
        current = file.parent(current)
    return None


def collection_of(file: SourceFile, node: ast.expr) -> ast.expr | None:
    """The collection that a loop variable runs over, one of several in a `zip`; None for any other expression."""
    loop = loop_around(file, node) if isinstance(node, ast.Name) else None
    if not isinstance(loop, (ast.For, ast.AsyncFor, ast.comprehension)) or not isinstance(node, ast.Name):
        return None
    target, iterated = loop.target, loop.iter
    while isinstance(iterated, ast.Call) and isinstance(target, (ast.Tuple, ast.List)):
        index = next((i for i, part in enumerate(target.elts) if _binds(part, node.id)), -1)
        kind = path_of(iterated.func)
        if kind == "zip" and len(iterated.args) == len(target.elts):
            target, iterated = target.elts[index], iterated.args[index]
        elif kind == "enumerate" and index == 1 and iterated.args:
            target, iterated = target.elts[1], iterated.args[0]
        else:
            break
    return iterated


def appended(file: SourceFile, node: ast.expr) -> list[ast.expr]:
    """What `append` puts into a list that goes by a name of one function, or by an attribute of one class."""
    path, found = path_of(node), []
    for use in file.names.attributes.get("append", ()) if path else ():
        call = file.parent(use)
        if path_of(use.value) != path or not isinstance(call, ast.Call) or call.func is not use or len(call.args) != 1:
            continue
        if path.startswith("self."):
            is_same = file.values.enclosing_class(use) is file.values.enclosing_class(node)
        else:
            is_same = file.values.enclosing_function(use) is file.values.enclosing_function(node)
        found += call.args if is_same else []
    return found


def is_over(loop: ast.stmt, step: ast.Call) -> bool:
    """Whether each round of a loop steps another optimizer: what is stepped hangs on the variable of the loop."""
    root = step.func.value  # type: ignore[attr-defined]
    while isinstance(root, (ast.Attribute, ast.Subscript)):
        root = root.value if not isinstance(root, ast.Subscript) else root.slice
    names = {n.id for n in ast.walk(loop.target) if isinstance(n, ast.Name)} if isinstance(loop, ast.For) else set()
    return any(isinstance(n, ast.Name) and n.id in names for n in ast.walk(root))


def _binds(target: ast.expr, name: str) -> bool:
    return any(isinstance(node, ast.Name) and node.id == name for node in ast.walk(target))
