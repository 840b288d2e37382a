"""Which of the values that are computed of gradients outlive the iteration in which they were made."""

from __future__ import annotations

import ast

from amplint.facts.values import path_of
from amplint.migrate.facts import Facts
from amplint.migrate.gradients.derived import Derived, Owner, changed_in_place, given_values
from amplint.migrate.tree import (
    FUNCTIONS,
    LOOPS,
    MUTATORS,
    assigned_paths,
    chain,
    overlaps,
    paths_in,
    position,
    statements_in,
    walk,
)

_FILLS = MUTATORS - {"add_", "sub_", "mul_", "div_"}


def carried(facts: Facts, found: Derived) -> dict[Owner, set[str]]:
    """The paths that keep something of earlier gradients, by the function that binds them: running averages and
    maxima, histories, and what is read before it gets its next value. `found` are all values of gradients."""
    kept: dict[Owner, set[str]] = {}
    owners: list[Owner] = [facts.file.tree, *facts.functions]
    for owner in owners:
        for statement in statements_in(owner):
            for path, value in given_values(statement):
                if isinstance(statement, LOOPS) or "grad" in path.split(".") or not found.has(value, owner):
                    continue
                home = facts.file.tree if path.startswith("self.") else owner
                if _outlives(facts, owner, statement, path, value):
                    kept.setdefault(home, set()).add(path)
    return kept


def _outlives(facts: Facts, owner: Owner, statement: ast.stmt, path: str, value: ast.expr) -> bool:
    """Whether what a statement gives a path is made of what the path held, or is read in a later round."""
    loops = [s for s in chain(facts.file, statement)[1:] if isinstance(s, LOOPS)]
    training = [loop for loop in loops if any(facts.trains(node) for node in walk(loop))]
    is_attribute = path.startswith("self.")
    scope = facts.file.names.scopes.get(owner)
    is_shared = is_attribute or (scope is not None and path in scope.globals)
    if not training and isinstance(owner, FUNCTIONS) and not is_shared and not _is_parameter(owner, path):
        return False  # made anew in each call
    around: ast.AST = training[0] if training else owner
    definitions = [
        s for s in statements_in(around) for p, v, whole in assigned_paths(s) if p == path and whole and v is not value
    ]
    if any(position(s) < position(statement) and path not in _read(s) for s in definitions):
        return False  # begun anew in this round
    if (
        any(overlaps(path, p) for p in paths_in(value))
        or isinstance(statement, ast.AugAssign)
        or _fills(statement, path)
    ):
        return True
    reads = [n for n in walk(around) if isinstance(n, (ast.Name, ast.Attribute)) and isinstance(n.ctx, ast.Load)]
    if any(path_of(node) == path and position(node) < position(statement) for node in reads):
        return True
    attribute = path.rsplit(".", 1)[-1]
    uses = facts.file.names.attributes.get(attribute, ()) if is_attribute else ()
    return any(isinstance(use.ctx, ast.Load) and facts.file.values.enclosing_function(use) is not owner for use in uses)


def _is_parameter(function: Owner, path: str) -> bool:
    arguments = function.args if isinstance(function, FUNCTIONS) else None
    every = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs] if arguments is not None else []
    return any(arg.arg == path for arg in every)


def _read(statement: ast.stmt) -> set[str]:
    value = getattr(statement, "value", None)
    return paths_in(value) if isinstance(value, ast.expr) else set()


def _fills(statement: ast.stmt, path: str) -> bool:
    """Whether a statement adds to a container, or changes a tensor in place, by other methods than `copy_`."""
    if any(changed == path for changed, _ in changed_in_place(statement)):
        return ".copy_(" not in ast.unparse(statement)
    calls = [node.func for node in walk(statement) if isinstance(node, ast.Call)]
    return any(isinstance(f, ast.Attribute) and f.attr in _FILLS and path_of(f.value) == path for f in calls)
