"""The state that a recurrent model keeps in itself: a forward under autocast leaves it in half precision, and the next
one in float32 would stop at it."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from amplint.facts.values import is_self
from amplint.migrate.facts import Facts
from amplint.migrate.model import RefusalError
from amplint.migrate.tree import FUNCTIONS, blocks, header, loop_of, own_call, owner_of, position, statements_in, walk

if TYPE_CHECKING:
    from amplint.migrate.regions.runs import Run


def kept(facts: Facts) -> list[str]:
    """The attributes of modules of the file that a forward computes and the next one reads, as `self.hidden`."""
    found: dict[str, None] = {}
    for cls in facts.module_classes:
        methods = [member for member in cls.body if isinstance(member, FUNCTIONS) and member.name != "__init__"]
        stored = {method.name: _stored(method) for method in methods}
        for method in methods:
            given: set[str] = set()
            computed = _computed(facts, method)
            for statement in statements_in(method):
                nodes = list(header(statement))
                given |= {name for node in nodes for name in stored.get(own_call(node), ())}
                used = [node for node in nodes if isinstance(node, ast.Attribute) and is_self(node.value)]
                read = {node.attr for node in used if isinstance(node.ctx, ast.Load)}
                found.update(dict.fromkeys(sorted(read & computed - given)))
                given |= {node.attr for node in used if isinstance(node.ctx, ast.Store)}
    return list(found)


def advances(facts: Facts, statement: ast.stmt) -> bool:
    """Whether a statement runs a model for the sake of its state alone: `net(x[i])`, its result not used."""
    return (
        isinstance(statement, ast.Expr)
        and isinstance(statement.value, ast.Call)
        and facts.module_of(statement.value) is not None
        and not facts.file.regions.without_grad(statement.value)
        and bool(kept(facts))
    )


def left_over(facts: Facts, runs: Iterable[Run]) -> list[ast.stmt]:
    """The statements outside of all regions that run a model on a state which may be in half precision.

    Raises `RefusalError` where such a statement can't have a region of its own.
    """
    names = kept(facts)
    if not names:
        return []
    covered = {id(node) for run in runs for node in run.nodes()}
    found: dict[ast.stmt, None] = {}
    for call in forwards_outside(facts, covered):
        owner = owner_of(facts.file, call)
        forwards = [n for n in walk(owner) if isinstance(n, ast.Call) and facts.module_of(n) is not None]
        before = [position(n) for n in forwards if id(n) in covered and position(n) < position(call)]
        statement = facts.file.statement(call)
        if owner is facts.file.tree and not before and loop_of(facts.file, statement) is None:
            continue  # before all training
        if _is_reset(facts, owner, names, max(before, default=(0, 0)), position(call)):
            continue
        if blocks(statement) or any(facts.trains(node) or facts.reads_gradient(node) for node in walk(statement)):
            raise RefusalError(
                call,
                f"the model keeps `self.{names[0]}` from one forward to the next, in half precision after one under "
                "autocast, and runs in float32 here; give it a new one first",
            )
        found[statement] = None
    return list(found)


def forwards_outside(facts: Facts, covered: set[int]) -> Iterator[ast.Call]:
    """The calls of models that are neither under a region themselves nor in a function that only regions call.

    `covered` holds the `id()` of all nodes under the regions.
    """
    for call in facts.file.names.calls:
        function = facts.file.values.enclosing_function(call)
        if id(call) in covered or function in facts.module_inits or facts.module_of(call) is None:
            continue
        sites = facts.file.values.calls(function) if function is not None else ()
        if sites and all(id(site) in covered for site in sites):
            continue
        yield call


def _is_reset(facts: Facts, owner: ast.AST, names: list[str], since: tuple[int, int], until: tuple[int, int]) -> bool:
    """Whether a model gets a new state between two places: `model.hidden = ...`, `model.init_hidden()`."""
    for node in walk(owner):
        if isinstance(node, (ast.Attribute, ast.Call)) and since < position(node) < until:
            if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store) and node.attr in names:
                return True
            if isinstance(node, ast.Call) and any(
                function.name != "forward" and set(names) & _stored(function)
                for function in facts.file.values.functions(node)
            ):
                return True
    return False


def _stored(method: ast.AST) -> set[str]:
    return {
        node.attr
        for node in walk(method)
        if isinstance(node, ast.Attribute) and is_self(node.value) and isinstance(node.ctx, ast.Store)
    }


def _computed(facts: Facts, method: ast.AST) -> set[str]:
    """The attributes that a method gets from a submodule, such as `out, self.hidden = self.rnn(x, self.hidden)`."""
    found = set()
    for node in walk(method):
        if not isinstance(node, ast.Assign):
            continue
        if any(isinstance(n, ast.Call) and facts.module_of(n) is not None for n in ast.walk(node.value)):
            for target in (t for top in node.targets for t in (top.elts if isinstance(top, ast.Tuple) else [top])):
                while isinstance(target, ast.Subscript):
                    target = target.value
                if isinstance(target, ast.Attribute) and is_self(target.value):
                    found.add(target.attr)
    return found
