"""Gradient penalties that are computed in the training loop itself: from the forward to `autograd.grad` in float32."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, NamedTuple

from amplint.facts.values import path_of
from amplint.migrate.elsewhere import is_of_parameters
from amplint.migrate.facts import Facts
from amplint.migrate.regions.graph import Graph
from amplint.migrate.regions.runs import Run
from amplint.migrate.regions.sinks import Sinks
from amplint.migrate.tree import base_path, owner_of, walk

if TYPE_CHECKING:
    from amplint.source import SourceFile


class Stretch(NamedTuple):
    """Statements of a run that belong to penalties, from the first forward to the last gradient."""

    run: Run
    statements: tuple[ast.stmt, ...]


def is_inline(facts: Facts, grad: ast.Call) -> bool:
    """Whether a call of `autograd.grad` may be part of a penalty in a loop with several optimizers, as of a GAN."""
    optimizers = {base_path(step.func.value) for step in facts.steps}  # type: ignore[attr-defined]
    makes_graph = any(k.arg == "create_graph" for k in grad.keywords)
    return makes_graph and len(optimizers) > 1 and not is_of_parameters(facts.file, grad)


def stretches(facts: Facts, sinks: Sinks, grads: list[ast.Call], runs: list[Run]) -> list[Stretch] | None:
    """The statements of penalties, those that overlap as one; None where they can't be told from the rest."""
    file: SourceFile = facts.file
    found: list[Stretch] = []
    for run in runs:
        spans = []
        for grad in grads:
            statement = file.statement(grad)
            if statement not in run.statements:
                continue
            outputs = next((k.value for k in grad.keywords if k.arg == "outputs"), grad.args[0] if grad.args else None)
            graph = sinks.graph(owner_of(file, grad))
            forwards = _forwards(graph, outputs, statement, set()) if outputs is not None else None
            makers = _makers_of_inputs(graph, grad, statement)
            if not forwards or makers is None or not (forwards | makers) <= set(run.statements):
                return None
            forwards |= makers
            spans.append((min(run.statements.index(s) for s in forwards), run.statements.index(statement)))
        merged: list[tuple[int, int]] = []
        for first, last in sorted(spans):
            if merged and first <= merged[-1][1] + 1:
                merged[-1] = (merged[-1][0], max(last, merged[-1][1]))
            else:
                merged.append((first, last))
        found += [Stretch(run, run.statements[first : last + 1]) for first, last in merged]
    placed = {node for stretch in found for s in stretch.statements for node in walk(s)}
    return found if all(grad in placed for grad in grads) else None


def _forwards(graph: Graph, value: ast.expr, at: ast.stmt, seen: set[ast.stmt]) -> set[ast.stmt] | None:
    """The statements whose forward makes what a gradient is taken of; None where one is not plain."""
    found: set[ast.stmt] = set()
    for path in graph.value_paths(value):
        for statement, made in graph.reaching(path, at):
            if statement in seen or not graph.is_graph(made):
                continue
            seen.add(statement)
            if not isinstance(statement, ast.Assign):
                return None
            if any(isinstance(node, ast.Call) and graph.is_source(node) for node in walk(statement)):
                found.add(statement)
                continue
            inner = _forwards(graph, made, statement, seen)
            if inner is None:
                return None
            found |= inner
    return found


def _makers_of_inputs(graph: Graph, grad: ast.Call, at: ast.stmt) -> set[ast.stmt] | None:
    """The forwards of which a gradient is taken to the output, which would be of half precision as that is; None where
    one is not plain."""
    keywords = [keyword.value for keyword in grad.keywords if keyword.arg == "inputs"]
    found: set[ast.stmt] = set()
    for given in [*grad.args[1:2], *keywords]:
        for path in graph.value_paths(given):
            for statement, made in graph.reaching(path, at):
                if any(isinstance(node, ast.Call) and graph.is_source(node) for node in ast.walk(made)):
                    found.add(statement)
    return found if all(isinstance(statement, ast.Assign) for statement in found) else None


def tensors_of(graph: Graph, call: ast.Call) -> list[ast.expr]:
    """The arguments of a forward that are no models."""
    given = [*call.args, *(keyword.value for keyword in call.keywords)]
    return [a for a in given if not (path_of(a) and graph.facts.is_module(a))]
