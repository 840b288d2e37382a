"""Paths of expressions: dotted names with constant subscripts, as the IR has them."""

from __future__ import annotations

import ast


def path_of(node: ast.AST | None) -> str | None:
    """`a.b['c'][*]` for an expression that names something, None for any other; `[*]` is a subscript that varies."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        base = path_of(node.value)
        return None if base is None else f"{base}.{node.attr}"
    if isinstance(node, ast.Subscript):
        base = path_of(node.value)
        if base is None or isinstance(node.slice, (ast.Slice, ast.Tuple)):
            return None
        return f"{base}[{node.slice.value!r}]" if isinstance(node.slice, ast.Constant) else f"{base}[*]"
    return None


def root_of(path: str) -> str:
    """The name at the start of a path."""
    for index, char in enumerate(path):
        if char in ".[":
            return path[:index]
    return path


def last_name(node: ast.AST | None) -> str:
    """The last name of a callee (`clip` of `a.b.clip`), "" where it has none."""
    if isinstance(node, ast.Name):
        return node.id
    return node.attr if isinstance(node, ast.Attribute) else ""


def base_of_collection(node: ast.expr) -> ast.expr:
    """The collection whose elements an expression iterates over: `xs` of `enumerate(xs)`, `xs.values()`,
    `reversed(xs)`.
    """
    while isinstance(node, ast.Call):
        if isinstance(node.func, ast.Attribute) and node.func.attr in ("values", "items") and not node.args:
            node = node.func.value
        elif last_name(node.func) in ("enumerate", "reversed", "list", "tuple", "tqdm", "iter", "sorted") and node.args:
            node = node.args[0]
        else:
            break
    return node


def element_targets(target: ast.expr, source: ast.expr) -> list[tuple[ast.expr, ast.expr]]:
    """(variable, collection) of a loop's or comprehension's head, `zip` and `enumerate` and `.items()` seen through."""
    if isinstance(source, ast.Call):
        name = last_name(source.func)
        if name == "enumerate" and isinstance(target, ast.Tuple) and len(target.elts) == 2 and source.args:
            return element_targets(target.elts[1], source.args[0])
        if name == "zip" and isinstance(target, ast.Tuple) and len(target.elts) == len(source.args):
            pairs: list[tuple[ast.expr, ast.expr]] = []
            for part, collection in zip(target.elts, source.args, strict=True):
                pairs += element_targets(part, collection)
            return pairs
        if name == "items" and isinstance(target, ast.Tuple) and len(target.elts) == 2:
            return [(target.elts[1], base_of_collection(source))]
    return [(target, base_of_collection(source))]
