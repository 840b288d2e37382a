"""Gradient penalties: a function that calls `autograd.grad` runs in float32, on float32 inputs; its loss is scaled."""

from __future__ import annotations

import ast

from amplint.facts.values import path_of
from amplint.migrate.editor import Editor
from amplint.migrate.facts import Facts
from amplint.migrate.model import RefusalError
from amplint.migrate.regions import Run
from amplint.migrate.sinks import Sinks
from amplint.migrate.tree import owner_of, walk

_ADVICE = "autograd.grad is used here; put the penalty into a function of its own that returns it, called in the loop"


def islands(facts: Facts, sinks: Sinks, editor: Editor, runs: dict[Run, str]) -> None:
    """Put the calls of penalty functions into fp32 islands; `runs` gives the device type of each region.

    Raises `RefusalError` for any other use of `autograd.grad`, such as inner loops of meta-learning.
    """
    file = facts.file
    grads = [call for call in file.names.calls if "torch.autograd.grad" in file.resolve(call.func)]
    done: set[ast.stmt] = set()
    for grad in grads:
        function = file.values.enclosing_function(grad)
        if function is None or function in facts.trainers or function in facts.module_inits:
            raise RefusalError(grad, _ADVICE)
        calls = file.values.calls(function)
        if not calls:
            raise RefusalError(grad, "autograd.grad is used in a function that this file does not call")
        for call in calls:
            statement = file.statement(call)
            kind = next((k for run, k in runs.items() for s in run.statements if statement in list(_inner(s))), None)
            if kind is None or not isinstance(statement, (ast.Assign, ast.AugAssign)):
                raise RefusalError(call, _ADVICE)
            graph = sinks.graph(owner_of(file, call))
            if any(n is not call and isinstance(n, ast.Call) and graph.is_source(n) for n in walk(statement)):
                raise RefusalError(
                    call, "a penalty and another forward are computed in one statement; give the penalty its own"
                )
            if statement in done:
                continue
            done.add(statement)
            for argument in [*call.args, *(keyword.value for keyword in call.keywords)]:
                if any(isinstance(n, ast.Name) and n.id in graph.tainted for n in ast.walk(argument)):
                    if not isinstance(argument, (ast.Name, ast.Attribute, ast.Call, ast.Subscript)):
                        raise RefusalError(argument, _ADVICE)
                    editor.insert(file.span(argument).end, ".float()")
            if isinstance(statement, ast.Assign):
                for node in walk(statement.value):
                    inside = any(n is node for n in ast.walk(call))
                    if isinstance(node, ast.Name) and path_of(node) in graph.tainted and not inside:
                        raise RefusalError(
                            statement, "a penalty and other losses meet in one statement; give the penalty its own"
                        )
            editor.wrap(statement, statement, f"with torch.autocast(device_type={kind}, enabled=False):")


def _inner(statement: ast.stmt) -> list[ast.stmt]:
    return [node for node in walk(statement) if isinstance(node, ast.stmt)]
