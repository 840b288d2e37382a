"""Functions of the file that only answer a question: called twice with the same arguments they say the same."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from amplint.flow.paths import last_name, path_of, root_of
from amplint.flow.vocabulary import PURE_CALLS

_ALLOWED = (ast.Expr, ast.Assign, ast.AnnAssign, ast.If, ast.Return, ast.Raise, ast.Assert, ast.Pass)
_EFFECTS = (ast.Yield, ast.YieldFrom, ast.Await, ast.NamedExpr, ast.Lambda)


def is_predicate(node: ast.AST) -> bool:
    """Whether a function has no effect and returns a truth value, by its annotation or all its `return`s."""
    if not isinstance(node, ast.FunctionDef) or any(_is_special(d) for d in node.decorator_list):
        return False
    local: dict[str, list[ast.expr]] = {}
    returned: list[ast.expr] = []
    for statement in _statements(node.body):
        if not isinstance(statement, _ALLOWED):
            return False
        if isinstance(statement, ast.Raise):
            continue
        for part in ast.iter_child_nodes(statement):
            if isinstance(part, ast.expr) and not all(map(_is_pure, ast.walk(part))):
                return False
        if isinstance(statement, ast.Assign):
            for target in statement.targets:
                if not isinstance(target, ast.Name):
                    return False
                local.setdefault(target.id, []).append(statement.value)
        elif isinstance(statement, ast.Return) and statement.value is not None:
            returned.append(statement.value)
    if isinstance(node.returns, ast.Name) and node.returns.id == "bool":
        return bool(returned)
    return bool(returned) and all(_is_truth(value, local) for value in returned)


def parts_read(node: ast.FunctionDef, receiver: str) -> tuple[str, ...]:
    """The parts of a method's object that it reads, without the name of the object (`.state.step`)."""
    found: dict[str, None] = {}
    for inner in ast.walk(node):
        path = path_of(inner) if isinstance(inner, ast.Attribute) else None
        if path is not None and root_of(path) == receiver:
            found[path[len(receiver) :]] = None
    return tuple(found)


def resets_counter(node: ast.If, rest: list[ast.stmt]) -> bool:
    """Whether an `if` compares a name that an arm of it, which steps, sets back to zero (`if n == 4: ...; n = 0`).

    `rest` is what follows the `if` in its block: the other arm of one that ends in `continue`.
    """
    if not isinstance(node.test, ast.Compare):
        return False
    compared = {path_of(side) for side in (node.test.left, *node.test.comparators)} - {None}
    skips = bool(node.body) and isinstance(node.body[-1], ast.Continue)
    for arm in (node.body, node.orelse, rest if skips else []):
        zeroed = {path_of(s.targets[0]) for s in arm if isinstance(s, ast.Assign) and _is_zero(s.value)}
        calls = (n for s in arm for n in ast.walk(s) if isinstance(n, ast.Call))
        if compared & zeroed and any("step" in last_name(call.func) for call in calls):
            return True
    return False


def _is_zero(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value == 0 and not isinstance(node.value, bool)


def _statements(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    for statement in body:
        yield statement
        if isinstance(statement, ast.If):
            yield from _statements(statement.body)
            yield from _statements(statement.orelse)


def _is_special(decorator: ast.expr) -> bool:
    return last_name(decorator) not in ("staticmethod", "override", "property")


def _is_pure(node: ast.AST) -> bool:
    if isinstance(node, ast.Call):
        name = last_name(node.func)  # an enumeration's member by its value looks like a class that is called
        return name in PURE_CALLS or (name[:1].isupper() and len(node.args) == 1 and not node.keywords)
    return not isinstance(node, _EFFECTS)


def _is_truth(value: ast.expr, local: dict[str, list[ast.expr]], depth: int = 0) -> bool:
    if isinstance(value, ast.BoolOp):
        return all(_is_truth(part, local, depth) for part in value.values)
    if isinstance(value, ast.Name) and value.id in local and depth < 4:
        return all(_is_truth(each, local, depth + 1) for each in local[value.id])
    if isinstance(value, ast.Call):
        return last_name(value.func) in ("bool", "isinstance", "hasattr", "any", "all")
    return (
        isinstance(value, ast.Compare)
        or (isinstance(value, ast.UnaryOp) and isinstance(value.op, ast.Not))
        or (isinstance(value, ast.Constant) and isinstance(value.value, bool))
    )
