"""Evaluation loops: a forward under `no_grad` gets autocast and no scaler, where its outputs are used harmlessly."""

from __future__ import annotations

import ast
from collections.abc import Collection
from typing import TYPE_CHECKING, NamedTuple

from amplint.facts.training import is_loss_name, losses, targets_of
from amplint.facts.values import Function, path_of
from amplint.migrate.facts import Facts
from amplint.migrate.numerics import states
from amplint.migrate.regions.runs import Run
from amplint.migrate.regions.sinks import Sinks
from amplint.migrate.tree import (
    FUNCTIONS,
    LOOPS,
    assigned_paths,
    blocks,
    chain,
    paths_in,
    position,
    statements_in,
    walk,
)

if TYPE_CHECKING:
    from amplint.source import SourceFile

_HARMLESS = frozenset(
    ("argmax", "argmin", "max", "topk", "argsort", "size", "shape", "dim", "numel", "item", "sort", "min", "ndim")
)
_INDICES = frozenset(("argmax", "argmin", "argsort"))
_INDICES_TORCH = frozenset(f"torch.{name}" for name in _INDICES)
_HARMLESS_TORCH = frozenset(
    (*(f"torch.{name}" for name in ("max", "argmax", "topk", "argsort", "sort", "numel")), "numpy.argmax")
)
_WITH_INDICES = frozenset(("max", "min", "topk", "sort"))
"""What gives values and their indices."""
_SAME_METHODS = frozenset(("detach", "cpu", "float", "numpy", "to_tuple"))
_SAME_ATTRIBUTES = frozenset(("data", "logits", "loss"))
"""What gives the tensor itself, or one of those that an output object holds."""


_BRANCHES = (*FUNCTIONS, ast.ClassDef, ast.Return, ast.Break, ast.Continue, ast.Try)
"""What is not put into a region."""


class Evaluation(NamedTuple):
    """An evaluation loop: its region, or the reason for which it is left in float32."""

    line: int
    run: Run | None
    reason: str
    module: str


def find(facts: Facts, sinks: Sinks, reached: Collection[Function] = ()) -> list[Evaluation]:
    """The evaluation loops of a file, each with its region or the reason for leaving it alone; functions that the
    regions of training reach, as for targets, hold none."""
    found: list[Evaluation] = []
    for owner in (facts.file.tree, *facts.functions):
        if owner in facts.module_inits or owner in reached:
            continue
        statements = _forwards(facts, owner)
        seen: list[list[ast.stmt]] = []
        for statement in statements:
            block = _block(facts.file, statement)
            if any(block is other for other in seen):
                continue
            seen.append(block)
            entry = _plan(facts, sinks, owner, block)
            if entry.run is not None or not (_is_rollout(facts, statement) or _is_sampler(facts, statement)):
                found.append(entry)
    return found


def _is_rollout(facts: Facts, statement: ast.stmt) -> bool:
    """Whether the loop around a forward acts in an environment (`env.step(action)`), which stays in float32."""
    loop = next(s for s in chain(facts.file, statement) if isinstance(s, LOOPS))
    return any(
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr == "step"
        and bool(node.args)
        and not facts.is_optimizer(node.func.value)
        and "sched" not in path_of(node.func.value).lower()
        for node in walk(loop)
    )


def _is_sampler(facts: Facts, statement: ast.stmt) -> bool:
    """Whether the loop around a forward feeds it what it computed before, as in `x = x - model(x, t)`, and computes no
    loss: such a loop generates, and stays in float32."""
    loop = next(s for s in chain(facts.file, statement) if isinstance(s, LOOPS))
    calls = [node for node in walk(loop) if isinstance(node, ast.Call)]
    if any(losses(facts.file, call) or is_loss_name(call) for call in calls):
        return False
    inside = {id(node) for node in walk(statement)}
    forwards = [call for call in calls if id(call) in inside and facts.module_of(call) is not None]
    given = [value for call in forwards for value in (*call.args, *(k.value for k in call.keywords))]
    read = {path for value in given for path in paths_in(value)}
    made = [
        (position(s), path)
        for s in statements_in(loop)
        for path, value, _ in assigned_paths(s)
        if path in read and value not in forwards  # a model hands its state to its next call so
    ]
    first = {path for at, path in made if at < position(statement)} | set(paths_in(getattr(loop, "target", loop)))
    return any(at > position(statement) or (at == position(statement) and path not in first) for at, path in made)


def _forwards(facts: Facts, owner: Function | ast.Module) -> list[ast.stmt]:
    """The statements in loops that run a model without gradients."""
    file = facts.file
    found: dict[ast.stmt, None] = {}
    for node in walk(owner):
        if not isinstance(node, ast.Call) or facts.module_of(node) is None or not file.regions.without_grad(node):
            continue
        statement = file.statement(node)
        around = chain(file, statement)
        without = [s for s in around if isinstance(s, ast.With) and _has_no_grad(file, s)]
        if any(facts.trains(n) for s in (without[-1:] or around) for n in walk(s)):
            continue
        loop = next((s for s in around if isinstance(s, LOOPS)), None)
        if loop is None or any(facts.trains(n) for n in walk(loop)):
            continue  # a single forward, or one of a training iteration, such as a teacher's
        found[_either_arm(facts, statement)] = None
    return list(found)


def _either_arm(facts: Facts, statement: ast.stmt) -> ast.stmt:
    """The `if` around a forward whose other arm has one too, else the forward itself."""
    parent = facts.file.parent(statement)
    if not isinstance(parent, ast.If) or any(blocks(s) for s in (*parent.body, *parent.orelse)):
        return statement
    arms = [[n for s in arm for n in walk(s) if isinstance(n, ast.Call)] for arm in (parent.body, parent.orelse)]
    return parent if all(any(facts.module_of(call) is not None for call in arm) for arm in arms) else statement


def _simple(statement: ast.stmt) -> list[ast.stmt]:
    """The statements in a statement that hold no others, or the statement itself."""
    if not blocks(statement):
        return [statement]
    return [inner for inner in statements_in(statement) if not blocks(inner)]


def _has_no_grad(file: SourceFile, statement: ast.With) -> bool:
    return any(file.regions.is_no_grad(item.context_expr) for item in statement.items)


def _block(file: SourceFile, statement: ast.stmt) -> list[ast.stmt]:
    from amplint.rewrite.statements import siblings

    return siblings(file, statement)


def _plan(facts: Facts, sinks: Sinks, owner: Function | ast.Module, block: list[ast.stmt]) -> Evaluation:
    file = facts.file
    graph = sinks.graph(owner)
    line = next((s.lineno for s in chain(file, block[0])[1:] if isinstance(s, LOOPS)), block[0].lineno)
    forwards = [i for i, s in enumerate(block) if any(isinstance(n, ast.Call) and facts.module_of(n) for n in walk(s))]
    module = next(
        (path_of(m) for i in forwards for n in walk(block[i]) if isinstance(n, ast.Call) and (m := facts.module_of(n))),
        "",
    )

    def left(reason: str) -> Evaluation:
        run = block[forwards[0] : forwards[-1] + 1]
        if states.kept(facts) and not any(blocks(s) for s in run):
            return Evaluation(line, Run(run[0], run[-1], tuple(run)), "", module)  # its state may be in half precision
        return Evaluation(line, None, f"evaluation is left in float32: {reason}", module)

    calls = [
        inner
        for i in forwards
        for inner in _simple(block[i])
        if any(isinstance(n, ast.Call) and facts.module_of(n) is not None for n in walk(inner))
    ]
    indices = {s for s in calls if _is_of_indices(facts, s)}
    if any(s not in indices and (not isinstance(s, ast.Assign) or not _plain_targets(s)) for s in calls):
        return left("the model is called inside a larger statement; write `output = model(...)` on a line of its own")
    outputs = {path_of(t) for s in calls if s not in indices for t in targets_of(s)}
    reshaped = set(outputs)
    losses_at = []
    for i, member in enumerate(block[forwards[0] :], forwards[0]):
        for statement in _simple(member):
            if _is_loss(facts, statement, reshaped):
                losses_at.append(i)
            elif isinstance(statement, ast.Assign) and reshaped & graph.value_paths(statement.value):
                if not graph.is_graph(statement.value):
                    continue
                reshaped.update(path_of(target) for target in targets_of(statement) if isinstance(target, ast.Name))
    last = max([*forwards, *losses_at])
    run = block[forwards[0] : last + 1]
    inside = {inner for statement in run for inner in (statement, *statements_in(statement))}
    if any(isinstance(s, _BRANCHES) or (s in run and isinstance(s, (ast.With, *LOOPS))) for s in inside):
        return left("its statements are in branches")
    for statement in run:
        for node in walk(statement):
            if isinstance(node, (ast.Yield, ast.YieldFrom, ast.Await)):
                return left("it yields")
    grown = True
    half = set(outputs)
    fed = _fed_back(facts, run)
    aliases = set()
    while grown:
        grown = False
        for statement in statements_in(owner):
            if not isinstance(statement, ast.Assign):
                continue
            if statement in inside and not _is_loss(facts, statement, reshaped):
                found = _valued_targets(facts, statement) if graph.is_graph(statement.value) else []
            elif position(statement) > position(run[-1]) and path_of(_same(statement.value)) in half:
                found = [path_of(target) for target in targets_of(statement) if isinstance(target, ast.Name)]
                if len(found) == len(targets_of(statement)):
                    aliases.add(statement)
            else:
                continue
            grown |= not half.issuperset(found)
            half.update(found)
    for use in walk(owner):
        if isinstance(use, (ast.Name, ast.Attribute)) and path_of(use) in half and isinstance(use.ctx, ast.Load):
            statement = file.statement(use)
            if statement in inside or position(use) < position(run[0]) or statement in aliases:
                continue
            if path_of(use) in fed and isinstance(statement, ast.Assign) and _assigns(statement, path_of(use)):
                continue  # a state on its way back into the model: `hidden = detach(hidden)`
            if not _is_harmless(facts, use):
                return left("what is computed from the model's output would change with the precision")
    return Evaluation(line, Run(run[0], run[-1], tuple(run)), "", module)


def _fed_back(facts: Facts, run: list[ast.stmt]) -> set[str]:
    """The paths that the models of a run are given."""
    calls = [n for s in run for n in walk(s) if isinstance(n, ast.Call) and facts.module_of(n) is not None]
    return {path for call in calls for argument in call.args for path in paths_in(argument)}


def _assigns(statement: ast.Assign, path: str) -> bool:
    return [path_of(target) for target in targets_of(statement)] == [path]


def _valued_targets(facts: Facts, statement: ast.Assign) -> list[str]:
    """The paths that a statement gives values; `_, index = torch.max(output, 1)` gives the second one whole numbers."""
    targets = targets_of(statement)
    call = statement.value
    if len(targets) == 2 and isinstance(call, ast.Call):
        name = call.func.attr if isinstance(call.func, ast.Attribute) else ""
        if name in _WITH_INDICES and facts.module_of(call) is None:
            targets = targets[:1]
    return [path_of(target) for target in targets if path_of(target) != "_"]


def _same(value: ast.expr) -> ast.expr:
    """The output that an expression gives as it is, on another device or as another kind of array, or a part of."""
    while True:
        if isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute) and value.func.attr in _SAME_METHODS:
            value = value.func.value
        elif (isinstance(value, ast.Subscript) and isinstance(value.slice, ast.Constant)) or (
            isinstance(value, ast.Attribute) and value.attr in _SAME_ATTRIBUTES
        ):
            value = value.value
        else:
            return value


def _is_of_indices(facts: Facts, statement: ast.stmt) -> bool:
    """Whether a statement takes no more than indices of all that its models return (`pred = model(x).argmax(1)`)."""
    if not isinstance(statement, (ast.Assign, ast.AugAssign, ast.Expr)):
        return False
    for node in walk(statement):
        if isinstance(node, ast.Call) and facts.module_of(node) is not None:
            parent = facts.file.parent(node)
            if isinstance(parent, ast.Attribute):
                known = parent.attr in _INDICES
            else:
                known = isinstance(parent, ast.Call) and node in parent.args
                known = known and any(name in _INDICES_TORCH for name in facts.file.resolve(parent.func))  # type: ignore[union-attr]
            if not known:
                return False
    return True


def _plain_targets(statement: ast.stmt) -> bool:
    return all(isinstance(target, ast.Name) for target in targets_of(statement))


def _is_loss(facts: Facts, statement: ast.stmt, outputs: set[str]) -> bool:
    for node in walk(statement):
        if (
            isinstance(node, ast.Call)
            and (losses(facts.file, node) or is_loss_name(node))
            and any(
                isinstance(n, (ast.Name, ast.Attribute)) and path_of(n) in outputs
                for a in node.args
                for n in ast.walk(a)
            )
        ):
            return True
    return False


def _is_harmless(facts: Facts, use: ast.expr, depth: int = 0) -> bool:
    """Whether a use of an output gives the same in half precision, but for rounding between near values."""
    file = facts.file
    value: ast.AST = use
    parent = file.parent(value)
    while True:
        above = file.parent(parent) if parent is not None else None
        if isinstance(parent, ast.Attribute) and isinstance(above, ast.Call) and above.func is parent:
            if parent.attr not in _SAME_METHODS:
                break
            value = above
        elif (isinstance(parent, ast.Attribute) and parent.attr in _SAME_ATTRIBUTES) or (
            isinstance(parent, ast.Subscript) and parent.value is value and isinstance(parent.slice, ast.Constant)
        ):
            value = parent
        else:
            break
        parent = file.parent(value)
    if isinstance(parent, ast.Attribute):
        return parent.attr in _HARMLESS
    if not isinstance(parent, ast.Call) or value not in parent.args:
        return False
    if any(name in _HARMLESS_TORCH for name in file.resolve(parent.func)):
        return True
    functions = file.values.functions(parent)
    return bool(functions) and depth < 3 and all(_takes_harmlessly(facts, f, parent, value, depth) for f in functions)


def _takes_harmlessly(facts: Facts, function: Function, call: ast.Call, value: ast.AST, depth: int) -> bool:
    """Whether a function of the file uses an argument of a call only harmlessly."""
    names = [arg.arg for arg in (*function.args.posonlyargs, *function.args.args)]
    taken = [name for name in names if facts.file.values.argument(call, function, name) is value]
    uses = [n for n in walk(function) if isinstance(n, ast.Name) and n.id in taken and isinstance(n.ctx, ast.Load)]
    return bool(taken) and all(_is_harmless(facts, use, depth + 1) for use in uses)
