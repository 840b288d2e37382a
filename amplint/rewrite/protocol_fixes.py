"""From a violation of the protocol to a finding, and the edits that its fix is made of."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from amplint.facts.training import is_loss_name, is_model_call, losses
from amplint.facts.values import path_of
from amplint.model import Applicability, Edit, Finding, Fix, Label, Level, Span
from amplint.rewrite import statements

if TYPE_CHECKING:
    from amplint.flow.violations import Violation
    from amplint.source import SourceFile

PROTOCOL_METHODS = frozenset(("backward", "step", "update", "unscale_", "zero_grad"))
_CLIPS = frozenset(("clip_grad_norm_", "clip_grad_value_", "clip_grad_norm"))


def finding(
    code: str,
    violation: Violation,
    message: str,
    fix: Fix | None = None,
    *,
    level: Level | None = None,
    help: str = "",
) -> Finding:
    """The finding of a violation: its related places and the path that leads to it, in the order of events."""
    labels = dict.fromkeys((*violation.labels, *violation.path))
    return Finding(code, violation.span, message, tuple(labels), fix, level, help)


def call_at(file: SourceFile, span: Span) -> ast.Call | None:
    """The call with a span, None where the span is that of something else."""
    for call in file.names.calls:
        if file.span(call) == span:
            return call
    return None


def statement_at(file: SourceFile, violation: Violation) -> ast.stmt | None:
    """The statement of the blamed call, None where the wrong call stands in a helper."""
    call = call_at(file, violation.span) if violation.span == violation.place else None
    return None if call is None else file.statement(call)


def bare_call(file: SourceFile, violation: Violation) -> ast.Expr | None:
    """The statement of the blamed call where it consists of that call alone, so that it can go or move."""
    statement = statement_at(file, violation)
    if isinstance(statement, ast.Expr) and file.span(statement.value) == violation.span:
        return statement
    return None


def same_block(file: SourceFile, first: ast.stmt, second: ast.stmt) -> bool:
    """Whether two statements stand in one block, so that whoever runs the first runs the second."""
    return any(member is second for member in statements.siblings(file, first))


def delete(file: SourceFile, statement: ast.stmt) -> Edit | None:
    """The edit that deletes a statement, None for an `elif`."""
    try:
        return statements.delete_statement(file, statement)
    except ValueError:
        return None


def move(
    file: SourceFile, statement: ast.stmt, *, before: ast.stmt | None = None, after: ast.stmt | None = None
) -> tuple[Edit, ...] | None:
    """The edits that move a statement of one line to another place of the file, None where that can't be done."""
    if not statements.owns_its_lines(file, statement) or statement.lineno != statement.end_lineno:
        return None
    code = file.segment(statement)
    inserted = None
    if before is not None:
        inserted = statements.insert_before(file, before, code)
    elif after is not None:
        inserted = statements.insert_after(file, after, code)
    removed = delete(file, statement)
    return None if inserted is None or removed is None else (removed, inserted)


def method_calls(file: SourceFile, root: ast.AST, method: str, receiver: str) -> list[ast.Call]:
    """The calls `<receiver>.<method>(...)` below a node, in the order of the text."""
    found = [
        node
        for node in ast.walk(root)
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr == method
        and file.segment(node.func.value) == receiver
    ]
    return sorted(found, key=lambda call: (call.lineno, call.col_offset))


def innermost_loop(file: SourceFile, node: ast.AST) -> ast.For | ast.AsyncFor | ast.While | None:
    """The loop around a node in the same function."""
    current = file.parent(node)
    while current is not None and not isinstance(current, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
        if isinstance(current, (ast.For, ast.AsyncFor, ast.While)):
            return current
        current = file.parent(current)
    return None


# -- moving the tail of a region out ----------------------------------------------------------------------------------


def unscale_first(file: SourceFile, statement: ast.stmt, violation: Violation) -> tuple[str, Edit] | None:
    """The call that unscales for a statement, with the edit that puts it there, None where that can't be done.

    It goes before loops that do not step: they would unscale again in every round. Where the optimizer is the variable
    of a loop that steps later, all of that loop's optimizers are unscaled. Where some ways to the statement are right,
    it goes under the test of the step, and nowhere if some other way unscales anyway.
    """
    if not violation.scaler or len(violation.optimizers) != 1:
        return None
    call = f"{violation.scaler}.unscale_({violation.optimizers[0]})"
    if _unscales_on_some_way(file, statement, violation):
        return None
    guard = "" if violation.certain else _flag_of_step(file, statement, violation)
    while (loop := innermost_loop(file, statement)) and not method_calls(file, loop, "step", violation.scaler):
        statement = loop
    code = call
    for step in method_calls(file, file.tree, "step", violation.scaler):
        loop = innermost_loop(file, step)
        if not isinstance(loop, ast.For) or file.segment(loop.target) != violation.optimizers[0]:
            continue
        if innermost_loop(file, statement) is innermost_loop(file, loop) and file.span(loop) > file.span(statement):
            code = f"for {file.segment(loop.target)} in {file.segment(loop.iter)}:\n    {call}"
    if guard:
        code = f"if {guard}:\n" + "\n".join(f"    {line}" for line in code.split("\n"))
    edit = statements.insert_before(file, statement, code)
    return None if edit is None else (call, edit)


def _unscales_on_some_way(file: SourceFile, statement: ast.stmt, violation: Violation) -> bool:
    """Whether a way through a statement unscales anyway: before it, or in an arm that follows in the same loop."""
    function = file.outermost_function(statement)
    if not violation.certain and method_calls(file, function, "unscale_", violation.scaler):
        return True
    root = innermost_loop(file, statement) or function
    return any(
        other.lineno > statement.lineno and not same_block(file, statement, file.statement(other))
        for other in method_calls(file, root, "unscale_", violation.scaler)
    )


def _flag_of_step(file: SourceFile, statement: ast.stmt, violation: Violation) -> str:
    """The test of a flag under which the scaler steps and a statement does not stand, "" where there is none."""
    for step in method_calls(file, file.outermost_function(statement), "step", violation.scaler):
        child: ast.AST = step
        parent = file.parent(child)
        while parent is not None and not isinstance(parent, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Module)):
            inside = file.span(parent) if isinstance(parent, ast.If) else None
            if isinstance(parent, ast.If) and inside is not None and child in parent.body:
                around = inside.start <= file.span(statement).start < inside.end
                if not around and _is_flag(parent.test):
                    return file.segment(parent.test)
            child, parent = parent, file.parent(parent)
    return ""


def _is_flag(test: ast.expr) -> bool:
    """Whether a test is of names alone: `use_amp`, `args.amp`, `not fp32`, `scaler is not None`."""
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        return _is_flag(test.operand)
    if isinstance(test, ast.Compare) and len(test.ops) == 1 and isinstance(test.ops[0], (ast.Is, ast.IsNot)):
        return isinstance(test.comparators[0], ast.Constant) and _is_flag(test.left)
    return bool(path_of(test))


def leave_region(file: SourceFile, node: ast.AST) -> Fix | None:
    """Move the tail of an autocast region, from the first backward or step on, behind the region.

    Only where the region is a `with` of autocast contexts alone and the tail builds no graph: it holds backward, clip,
    step, update and what surrounds them, and no call of a model or loss. None otherwise.
    """
    region = _region_around(file, node)
    if region is None:
        return None
    with_, child = region
    tail = _protocol_tail(file, with_.body)
    if not tail or child not in tail or len(tail) == len(with_.body):
        return None
    first, last = tail[0], tail[-1]
    if not all(statements.owns_its_lines(file, statement) for statement in (first, last)):
        return None
    previous = with_.body[len(with_.body) - len(tail) - 1]
    encoded = file.encoded
    start = statements.next_line(encoded, file.span(previous).end)
    end = statements.next_line(encoded, file.span(last).end)
    block = file.segment(Span(start, end))
    try:
        moved = statements.reindent(block, file.indentation(first), file.indentation(with_))
    except ValueError:
        return None
    certain = all(isinstance(statement, (ast.Expr, ast.Assign)) for statement in tail)
    applicability = Applicability.SAFE if certain else Applicability.UNSAFE
    return Fix("Move it out of the region", (Edit(Span(start, end), moved),), applicability)


def enter_in_loop(file: SourceFile, node: ast.AST) -> Fix | None:
    """Move an autocast region from around a loop into it, round what builds the graph.

    Only where the loop (or loops, one inside the other) is all that the region holds and its body ends in a tail that
    builds no graph. None otherwise.
    """
    region = _region_around(file, node)
    if region is None or len(region[0].body) != 1 or len(region[0].items) != 1:
        return None
    with_, loop = region[0], region[0].body[0]
    while (
        isinstance(loop, (ast.For, ast.While))
        and len(loop.body) == 1
        and isinstance(loop.body[0], (ast.For, ast.While))
    ):
        loop = loop.body[0]
    if not isinstance(loop, (ast.For, ast.While)) or loop.orelse:
        return None
    tail = _protocol_tail(file, loop.body)
    forward = loop.body[: len(loop.body) - len(tail)]
    parts = (with_, with_.body[0], loop.body[0], loop.body[-1])
    if not tail or not forward or not all(statements.owns_its_lines(file, part) for part in (parts[0], parts[-1])):
        return None
    encoded = file.encoded
    header = Span(statements.line_start(encoded, file.span(with_).start), file.line_span(with_.body[0].lineno).start)
    outside = Span(header.end, file.line_span(forward[0].lineno).start)
    behind = Span(
        statements.next_line(encoded, file.span(forward[-1]).end),
        statements.next_line(encoded, file.span(tail[-1]).end),
    )
    outer, inner = file.indentation(with_), file.indentation(with_.body[0])
    place = file.indentation(forward[0])
    if header.end == header.start or not inner.startswith(outer) or not place.startswith(inner):
        return None
    deeper = place[: len(place) - (len(inner) - len(outer))]
    try:
        loops = statements.reindent(file.segment(outside), inner, outer)
        moved = statements.reindent(file.segment(behind), place, deeper)
        entered = statements.reindent(file.segment(header), outer, deeper)
    except ValueError:
        return None
    edits = (Edit(header, ""), Edit(outside, loops + entered), Edit(behind, moved))
    return Fix("Move the region into the loop", edits, Applicability.SAFE)


def _region_around(file: SourceFile, node: ast.AST) -> tuple[ast.With, ast.stmt] | None:
    """The innermost `with` of autocast contexts alone around a node, and its direct child that holds the node."""
    child: ast.AST = node
    parent = file.parent(node)
    while parent is not None and not isinstance(parent, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
        if isinstance(parent, ast.With) and isinstance(child, ast.stmt):
            regions = [region for region in file.regions.all if region.node is parent]
            if len(regions) == len(parent.items):
                return parent, child
        child, parent = parent, file.parent(parent)
    return None


def _protocol_tail(file: SourceFile, body: list[ast.stmt]) -> list[ast.stmt]:
    """The longest run of statements at the end that builds no graph, from its first backward or step on."""
    start = len(body)
    while start and not _builds_graph(file, body[start - 1]):
        start -= 1
    tail = body[start:]
    while tail and not _has_protocol_call(tail[0]):
        tail = tail[1:]
    return tail


def _builds_graph(file: SourceFile, statement: ast.stmt) -> bool:
    if isinstance(statement, (ast.For, ast.While, ast.With, ast.FunctionDef, ast.ClassDef, ast.Try, ast.Return)):
        return True
    for node in ast.walk(statement):
        if isinstance(node, ast.Call) and not _is_protocol_call(node):
            if is_model_call(file, node) or losses(file, node) or is_loss_name(node):
                return True
            if path_of(node.func).startswith(("torch.", "F.", "nn.")) and _last(node) not in _CLIPS:
                return True
    return False


def _has_protocol_call(statement: ast.stmt) -> bool:
    return any(isinstance(node, ast.Call) and _is_protocol_call(node) for node in ast.walk(statement))


def _is_protocol_call(call: ast.Call) -> bool:
    return isinstance(call.func, ast.Attribute) and call.func.attr in PROTOCOL_METHODS | {"scale"} | _CLIPS


def _last(call: ast.Call) -> str:
    return path_of(call.func).rsplit(".", 1)[-1]


def named(code: str) -> str:
    """An expression as messages name it; a long one is shortened."""
    return f"`{code}`" if len(code) <= 40 else f"`{code[:37]}...`"


def place(file: SourceFile, node: ast.AST, message: str) -> Label:
    """A label at a node."""
    return Label(file.span(node), message)
