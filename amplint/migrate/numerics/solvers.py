"""Solvers that choose their steps by an estimated error (`if error <= tolerance: t = t + h`): half precision rounds
away more than they tolerate, so that the steps shrink and the solver may never arrive."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator

from amplint.migrate.model import RefusalError
from amplint.migrate.tree import paths_in, statements_in

_REASON = "steps are chosen here by an error that half precision rounds away; keep the solver in float32"


def check(nodes: Iterable[ast.AST]) -> None:
    """Raise `RefusalError` for a loop among the nodes that goes on under a condition, by a step that it changes."""
    for loop in nodes:
        if not isinstance(loop, ast.While):
            continue
        statements = list(statements_in(loop))
        changed = {
            name
            for statement in statements
            for name, value in _pairs(statement)
            if name in paths_in(value) and any(isinstance(n, (ast.Mult, ast.Div)) for n in ast.walk(value))
        }
        tested = paths_in(loop.test)
        accepted = [s for test in statements if isinstance(test, ast.If) for s in statements_in(test)]
        for statement in accepted:
            for name, value in _pairs(statement):
                if name in tested and name in paths_in(value) and changed & (paths_in(value) - {name}):
                    raise RefusalError(statement, _REASON)


def _pairs(statement: ast.stmt) -> Iterator[tuple[str, ast.expr]]:
    """The names that a statement gives values, each with its own; `t += h` counts as `t = t + h`."""
    if isinstance(statement, ast.AugAssign) and isinstance(statement.target, ast.Name):
        yield statement.target.id, ast.BinOp(statement.target, statement.op, statement.value)
    if not isinstance(statement, ast.Assign):
        return
    for target in statement.targets:
        parts: list[tuple[ast.expr, ast.expr]] = [(target, statement.value)]
        if isinstance(target, ast.Tuple) and isinstance(statement.value, ast.Tuple):
            parts = list(zip(target.elts, statement.value.elts, strict=False))
        for part, value in parts:
            if isinstance(part, ast.Name):
                yield part.id, value
