"""Gradients that overflowed: the scaler skips the step, and nothing keeps them from what a script computes itself."""

from __future__ import annotations

import ast
import re
from typing import Final

from amplint.facts.values import path_of
from amplint.migrate.facts import Facts
from amplint.migrate.gradients.carried_values import carried
from amplint.migrate.gradients.derived import Derived, Owner
from amplint.migrate.model import RefusalError
from amplint.migrate.tree import FUNCTIONS, LOOPS, blocks, chain, inside_own_loop, statements_in, walk

_ADDS: Final = frozenset(("add_", "sub_", "mul_", "div_", "addcmul_", "addcdiv_", "lerp_", "copy_"))
_PARAMETERS: Final = frozenset(("parameters", "named_parameters"))
_WEIGHTS: Final = frozenset(("weight", "bias"))
_EXITS: Final = frozenset(("sys.exit", "os._exit", "exit", "quit"))
_CLIPS: Final = re.compile(r"clip_grad")
_BY_HAND: Final = (
    "parameters are changed by their gradients here, which may be infinite in a step that the scaler skips; let an "
    "optimizer do it"
)
_ASSERTED: Final = "infinite gradients stop the script here, and a scaler meets them as a matter of course"
_CARRIED: Final = (
    "a running average of gradients is added to gradients here, and one step that the scaler skips would leave it "
    "infinite; keep it in an optimizer"
)
_STEERS: Final = (
    "what is kept of earlier gradients decides here how training goes on, and one step that the scaler skips would "
    "leave it infinite; leave infinite gradients out of it"
)
_ENDS: Final = "infinite gradients end the training here, and a scaler meets them as a matter of course"


def check(facts: Facts) -> None:
    """Raise `RefusalError` where gradients come into parameters without the optimizer, or into something that outlives
    the step and comes back into training; and where infinite ones end it. In float16 the first steps overflow, and the
    scaler skips them alone."""
    found = Derived(facts)
    kept = Derived(facts, carried(facts, found))
    owners: list[Owner] = [*facts.functions, facts.file.tree]
    for owner in owners:
        if isinstance(owner, FUNCTIONS) and facts.is_step_of_optimizer(owner):
            continue
        statements = list(statements_in(owner))
        parameters = _parameters(statements)
        for statement in statements:
            if isinstance(statement, ast.Assert) and _asks_for_finite(statement.test, found, owner):
                raise RefusalError(statement, _ASSERTED)
            if _changes_parameter(statement, parameters, found, owner):
                raise RefusalError(statement, _BY_HAND)
            for target, given in _changes(statement):
                if _is_gradient(target) and any(kept.has(value, owner) for value in given if value is not target):
                    raise RefusalError(statement, _CARRIED)
            if _is_steered(facts, statement, kept, owner):
                raise RefusalError(statement, _STEERS)
            if isinstance(statement, ast.If) and _ends(facts, statement, found, owner):
                raise RefusalError(statement, _ENDS)


def _changes(statement: ast.stmt) -> list[tuple[ast.expr, list[ast.expr]]]:
    """What a statement gives a value, or changes in place, and of what the new value is made."""
    if isinstance(statement, ast.Assign):
        return [(target, [statement.value]) for target in statement.targets]
    if isinstance(statement, ast.AugAssign):
        return [(statement.target, [statement.target, statement.value])]
    found = []
    for node in walk(statement) if isinstance(statement, ast.Expr) else ():
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _ADDS:
            receiver: ast.expr = node.func.value
            while isinstance(receiver, ast.Call) and isinstance(receiver.func, ast.Attribute):
                receiver = receiver.func.value  # `a.mul_(0.9).add_(b)` changes `a`
            found.append((receiver, [*node.args, *(keyword.value for keyword in node.keywords)]))
    return found


def _is_gradient(node: ast.AST) -> bool:
    """Whether an expression is `p.grad`, or `p.grad.data`."""
    while isinstance(node, ast.Attribute):
        if node.attr == "grad":
            return True
        node = node.value
    return False


def _asks_for_finite(test: ast.expr, found: Derived, owner: Owner) -> bool:
    asked = {node.attr for node in ast.walk(test) if isinstance(node, ast.Attribute)}
    return bool(asked & {"isnan", "isinf", "isfinite"}) and found.has(test, owner)


def _parameters(statements: list[ast.stmt]) -> set[str]:
    """The variables of loops over parameters, and names of single ones (`w = model.fc.weight`)."""
    loops = [
        name.id
        for statement in statements
        if isinstance(statement, ast.For) and _holds_parameters(statement.iter)
        for name in ast.walk(statement.target)
        if isinstance(name, ast.Name)
    ]
    single = [
        target.id
        for statement in statements
        if isinstance(statement, ast.Assign) and isinstance(statement.value, ast.Attribute)
        for target in statement.targets
        if isinstance(target, ast.Name) and statement.value.attr in _WEIGHTS
    ]
    return {*loops, *single}


def _holds_parameters(node: ast.expr) -> bool:
    return any(
        (isinstance(n, ast.Attribute) and n.attr in _PARAMETERS)
        or (isinstance(n, ast.Constant) and n.value == "params")
        or (isinstance(n, ast.Name) and n.id in ("params", "parameters", "weights"))
        for n in ast.walk(node)
    )


def _changes_parameter(statement: ast.stmt, parameters: set[str], found: Derived, owner: Owner) -> bool:
    """Whether a statement adds something of a gradient to a parameter: `p.add_(p.grad)`, `p -= lr * p.grad`."""
    return any(
        _is_one(target, parameters) and any(found.has(value, owner) for value in given if value is not target)
        for target, given in _changes(statement)
        if not isinstance(target, ast.Name) or not isinstance(statement, ast.Assign)
    )


def _is_one(node: ast.AST, parameters: set[str]) -> bool:
    """Whether an expression is a parameter, or its data."""
    path = path_of(node).removesuffix(".data") if isinstance(node, (ast.Name, ast.Attribute)) else ""
    return path in parameters or ("." in path and path.rsplit(".", 1)[-1] in _WEIGHTS)


def _is_steered(facts: Facts, statement: ast.stmt, kept: Derived, owner: Owner) -> bool:
    """Whether what is kept of earlier gradients sets the limit of a clip, a rate, a loss, or what is done next."""
    if isinstance(statement, ast.If) and _is_small(statement.test, kept, owner):
        return False
    if isinstance(statement, (ast.If, ast.While)):
        inside = [node for block in blocks(statement) for member in block for node in walk(member)]
        return kept.has(statement.test, owner) and any(_decides(facts, node) for node in inside)
    if blocks(statement):
        return False
    for node in walk(statement):
        if isinstance(node, ast.Call):
            named = path_of(node.func).rsplit(".", 1)[-1]
            limits = [*node.args[1:], *(k.value for k in node.keywords if k.arg != "parameters")]
            if _CLIPS.search(named) and any(kept.has(limit, owner) for limit in limits):
                return True
            if node in facts.backwards and kept.has(facts.loss_of(node), owner):
                return True
    return any(_is_rate(target) and any(kept.has(v, owner) for v in given) for target, given in _changes(statement))


def _is_rate(target: ast.expr) -> bool:
    return isinstance(target, ast.Subscript) and isinstance(target.slice, ast.Constant) and target.slice.value == "lr"


def _decides(facts: Facts, node: ast.AST) -> bool:
    """Whether a node ends a loop or changes how training goes on."""
    if isinstance(node, (ast.Break, ast.Return, ast.Raise)):
        return True
    if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store):
        return _is_rate(node)
    if not isinstance(node, ast.Call):
        return False
    return facts.trains(node) or path_of(node.func).rsplit(".", 1)[-1] in ("load_state_dict", "exit", "quit")


def _ends(facts: Facts, statement: ast.If, found: Derived, owner: Owner) -> bool:
    """Whether a condition on gradients ends a training loop, a function that trains, or the script."""
    if _is_small(statement.test, found, owner) or not found.has(statement.test, owner):
        return False
    loops = [s for s in chain(facts.file, statement)[1:] if isinstance(s, LOOPS)]
    in_training = bool(loops) and any(facts.trains(node) for node in walk(loops[0]))
    for node in walk(statement):
        if isinstance(node, ast.Raise):
            return True
        if isinstance(node, ast.Call) and _EXITS.intersection(facts.file.resolve(node.func) or (path_of(node.func),)):
            return True
        if isinstance(node, ast.Break) and in_training and not inside_own_loop(statement, node):
            return True
        if isinstance(node, ast.Return) and in_training and owner in facts.trainers:
            return True
    return False


def _is_small(test: ast.expr, found: Derived, owner: Owner) -> bool:
    """Whether a test asks for something below a bound, as training that has converged does: `norm < 1e-6`."""
    if not isinstance(test, ast.Compare) or len(test.ops) != 1:
        return False
    left, right = found.has(test.left, owner), found.has(test.comparators[0], owner)
    return (left and not right and isinstance(test.ops[0], (ast.Lt, ast.LtE))) or (
        right and not left and isinstance(test.ops[0], (ast.Gt, ast.GtE))
    )
