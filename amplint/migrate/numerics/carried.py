"""Recurrent state in a variable: `out, h = rnn(x, h)` under autocast leaves it in half precision for the next call."""

from __future__ import annotations

import ast
from collections.abc import Iterable

from amplint.facts.values import path_of
from amplint.migrate.facts import Facts
from amplint.migrate.model import RefusalError
from amplint.migrate.numerics.spread import Spread
from amplint.migrate.numerics.states import forwards_outside
from amplint.migrate.regions.graph import Graph
from amplint.migrate.regions.runs import Run
from amplint.migrate.regions.sinks import Sinks
from amplint.migrate.tree import assigned_paths, owner_of, paths_in

_FLOAT = frozenset(("float", "double"))


def check(facts: Facts, sinks: Sinks, runs: Iterable[Run]) -> None:
    """Raise `RefusalError` where a model runs outside of all regions on a state that one of them computed."""
    nodes = [node for run in runs for node in run.nodes()]
    covered = {id(node) for node in nodes}
    recurrent = [node for node in nodes if isinstance(node, ast.Assign) and _is_recurrent(facts, node)]
    if not recurrent:
        return
    half = Spread(facts, _FLOAT).of_assigned(recurrent).expressions()
    for call in forwards_outside(facts, covered):
        graph = sinks.graph(owner_of(facts.file, call))
        for argument in [*call.args, *(keyword.value for keyword in call.keywords)]:
            path = path_of(argument)
            if path and argument in half and _comes_from(graph, path, facts.file.statement(call), covered):
                raise RefusalError(
                    call,
                    f"`{path}` comes here from a forward under autocast, in half precision, and the model runs in "
                    "float32; give it a new state, or one in float32",
                )


def _is_recurrent(facts: Facts, assign: ast.Assign) -> bool:
    """Whether a model returns what it also takes."""
    if not isinstance(assign.value, ast.Call) or facts.module_of(assign.value) is None:
        return False
    taken = {path for argument in assign.value.args for path in paths_in(argument)}
    return any(path in taken for path, _, _ in assigned_paths(assign))


def _comes_from(graph: Graph, path: str, at: ast.stmt, covered: set[int]) -> bool:
    """Whether a value at a statement may come from the regions: by a definition in one, or from out of the function."""
    seen: set[tuple[str, int]] = set()
    pending = [(path, at)]
    while pending:
        name, use = pending.pop()
        if (name, id(use)) in seen:
            continue
        seen.add((name, id(use)))
        reaching = graph.reaching(name, use)
        if any(id(statement) in covered for statement, _ in reaching):
            return True
        if not reaching and name == path:
            return True
        pending += [(inner, statement) for statement, value in reaching for inner in graph.value_paths(value)]
    return False
