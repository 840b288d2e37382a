"""The functions of a file that run under the regions."""

from __future__ import annotations

import ast

from amplint.facts.values import Function
from amplint.migrate.facts import Facts
from amplint.migrate.regions.runs import Run
from amplint.migrate.tree import FUNCTIONS, walk

_ENTERED = frozenset(("forward", "__init__"))


def reached_functions(facts: Facts, runs: list[Run]) -> list[Function]:
    """The functions that the regions call, and the methods of modules that a forward may come to."""
    pending: list[ast.AST] = [s for run in runs for s in run.statements]
    pending += [run.bind.expression for run in runs if run.bind is not None]
    methods = [m for cls in facts.module_classes for m in cls.body if isinstance(m, FUNCTIONS)]
    names, found = set(_ENTERED), dict.fromkeys(m for m in methods if _is_entered(facts, m))
    pending += list(found)
    while pending:
        for node in ast.walk(pending.pop()):
            named = node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")
            entered = []
            if named not in names:
                names.add(named)
                entered += methods if named == "getattr" else [m for m in methods if m.name == named]
            if isinstance(node, ast.Call):
                entered += [f for f in facts.file.values.functions(node) if f not in facts.trainers]
                entered += [f for f in _handed(facts, node) if f not in facts.trainers]
                made = [v for v in facts.file.values.of(node.func) if isinstance(v, ast.ClassDef)]
                entered += _returned(facts, node)
                entered += [f for cls in made if (f := facts.file.values.method(cls, "__init__")) is not None]
            for function in entered:
                if function not in found:
                    found[function] = None
                    pending.append(function)
    return list(found)


def _handed(facts: Facts, call: ast.Call) -> list[Function]:
    """The functions that a call hands to another, which may run them (`checkpoint(f, x)`, `partial(f)`)."""
    values = facts.file.values
    calls = [call, *(v for v in values.of(call.func) if isinstance(v, ast.Call))]
    given = [argument for c in calls for argument in (*c.args, *(keyword.value for keyword in c.keywords))]
    return [f for argument in given for f in values.of(argument) if isinstance(f, FUNCTIONS)]


def _is_entered(facts: Facts, method: Function) -> bool:
    """Whether torch, or a base class out of sight, may call a method of a module when the module is called."""
    if method.name in _ENTERED or method.name.startswith("_"):
        return True
    cls = facts.file.parent(method)
    assert isinstance(cls, ast.ClassDef)
    bases = [base for entry in facts.file.values.lineage(cls) for base in entry.bases]
    return not all(
        any(isinstance(value, ast.ClassDef) for value in facts.file.values.of(base))
        or any(name.startswith("torch.nn.") for name in facts.file.resolve(base))
        for base in bases
    )


def _returned(facts: Facts, call: ast.Call) -> list[Function]:
    """The functions that a call may run that another function made and returned (`loss_fn = make_loss(margin)`); any
    of them where its value is not in view, as behind `loss_fn, center = make_loss(margin)`."""
    values = facts.file.values
    if facts.file.resolve(call.func) or values.functions(call) or not isinstance(call.func, ast.Name):
        return []
    if facts.is_module(call.func) or not facts.file.names.lookup(call.func):
        return []
    makers = [f for v in values.of(call.func) if isinstance(v, ast.Call) for f in values.functions(v)]
    found = []
    for maker in makers or facts.functions:
        results = [n for r in walk(maker) if isinstance(r, ast.Return) and r.value for n in ast.walk(r.value)]
        names = {n.id for n in results if isinstance(n, ast.Name)}
        found += [n for n in ast.walk(maker) if isinstance(n, FUNCTIONS) and n is not maker and n.name in names]
    return found
