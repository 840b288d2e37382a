"""Recursions in log space, such as the forward algorithm of a CRF: what each step rounds, the next ones build on."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable
from typing import TYPE_CHECKING

from amplint.facts.values import path_of
from amplint.migrate.model import RefusalError
from amplint.migrate.tree import FUNCTIONS, LOOPS, assigned_paths, header, owner_of, paths_in, position, statements_in

if TYPE_CHECKING:
    from amplint.source import SourceFile

_SUMS_OF_EXPONENTIALS = re.compile(r"log_?sum_?exp|logaddexp", re.I)


def check(file: SourceFile, nodes: Iterable[ast.AST]) -> None:
    """Raise `RefusalError` for a loop among the nodes in which a log-sum-exp is taken of what the last one gave."""
    for loop in nodes:
        if not isinstance(loop, LOOPS):
            continue
        inside = list(statements_in(loop))
        edges = [
            (source, path)
            for statement in inside
            for path, value, _ in assigned_paths(statement)
            for source in paths_in(value)
        ]
        for statement in inside:
            for call in header(statement):
                if not isinstance(call, ast.Call) or not _sums_exponentials(file, call):
                    continue
                results = {path for path, _, _ in assigned_paths(statement)}
                fed = _closure(results, edges)
                behind = _closure({p for a in call.args for p in paths_in(a)}, [(b, a) for a, b in edges])
                if results & behind and any(_is_bound_before(file, path, loop) for path in fed & behind):
                    raise RefusalError(
                        call, "a recursion in log space builds on what half precision has rounded at each step"
                    )


def _closure(paths: set[str], edges: list[tuple[str, str]]) -> set[str]:
    found = set(paths)
    grown = True
    while grown:
        grown = False
        for source, path in edges:
            if source in found and path not in found:
                found.add(path)
                grown = True
    return found


def _sums_exponentials(file: SourceFile, call: ast.Call) -> bool:
    """Whether a call takes the logarithm of a sum of exponentials, itself or in a function of the file."""
    name = (*file.resolve(call.func), path_of(call.func) or getattr(call.func, "attr", ""))[0].rsplit(".", 1)[-1]
    if _SUMS_OF_EXPONENTIALS.search(name):
        return True
    if name == "log":
        return any(
            isinstance(n, ast.Attribute) and n.attr == "exp" for a in [call.func, *call.args] for n in ast.walk(a)
        )
    return any(
        isinstance(node, ast.Call) and not file.values.functions(node) and _sums_exponentials(file, node)
        for function in file.values.functions(call)
        if len(function.body) < 8
        for node in ast.walk(function)
    )


def _is_bound_before(file: SourceFile, path: str, loop: ast.stmt) -> bool:
    owner = owner_of(file, loop)
    if isinstance(owner, FUNCTIONS) and any(arg.arg == path for arg in owner.args.args):
        return True
    return any(
        position(statement) < position(loop) and any(path == bound for bound, _, _ in assigned_paths(statement))
        for statement in statements_in(owner)
    )
