"""Closures of plain optimizers: `optimizer.step(closure)` calls the closure once and then steps, and can be written so.

`GradScaler.step` takes no closure. All optimizers of `torch.optim` but LBFGS begin their step with
`loss = closure()` under `enable_grad` and return that loss (torch 1.5 to 2.13).
"""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from amplint.facts.values import Function, path_of
from amplint.migrate.facts import Facts
from amplint.migrate.lines import Apart, spread
from amplint.migrate.scalers.making import free_name
from amplint.migrate.tree import FUNCTIONS
from amplint.model import Edit, Span
from amplint.rewrite import statements

if TYPE_CHECKING:
    from amplint.source import SourceFile

_NAMES = ("loss", "closure_loss", "step_loss")


def unfold(file: SourceFile) -> Apart | None:
    """The text with `loss = closure()` and `optimizer.step()` for each `loss = optimizer.step(closure)` of a plain
    optimizer; None where there is none, or the text does not parse."""
    if ".step(" not in file.text:
        return None
    try:
        facts = Facts(file)
        steps = [call for call in facts.steps if call.args or call.keywords]
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    edits = [edit for step in steps for edit in _edits(facts, step)]
    return spread(file, edits) if edits else None


def _edits(facts: Facts, step: ast.Call) -> list[Edit]:
    file = facts.file
    closure = _closure(facts, step)
    statement = file.statement(step)
    if closure is None or not isinstance(statement, (ast.Expr, ast.Assign, ast.AugAssign, ast.AnnAssign, ast.Return)):
        return []
    if file.regions.without_grad(step) or _is_repeated(file, step, statement):
        return []
    assert isinstance(step.func, ast.Attribute)
    call, plain = f"{file.segment(closure)}()", f"{file.segment(step.func)}()"
    indent, span = file.indentation(statement), file.span(statement)
    own = statements.owns_its_lines(file, statement)
    if isinstance(statement, ast.Return):
        if statement.value is not step or not own:
            return []
        name = free_name(file, _NAMES)
        return [Edit(span, f"{name} = {call}\n{indent}{plain}\n{indent}return {name}")]
    between = f"\n{indent}" if own else "; "
    return [Edit(file.span(step), call), Edit(Span(span.end, span.end), between + plain)]


def _is_repeated(file: SourceFile, step: ast.Call, statement: ast.stmt) -> bool:
    """Whether a step may run several times in its statement, or not at all."""
    parent = file.parent(step)
    while parent is not None and parent is not statement:
        if isinstance(
            parent, (ast.Lambda, ast.IfExp, ast.BoolOp, ast.ListComp, ast.GeneratorExp, ast.SetComp, ast.DictComp)
        ):
            return True
        parent = file.parent(parent)
    return False


def _closure(facts: Facts, step: ast.Call) -> ast.expr | None:
    """The closure that a step gets, where the optimizer's class calls it once and its function is in view."""
    given = [*step.args, *(keyword.value for keyword in step.keywords if keyword.arg == "closure")]
    if len(given) != 1 or len(step.args) + len(step.keywords) != 1 or not path_of(given[0]):
        return None
    functions = facts.file.values.of(given[0])
    if not functions or not all(_goes_backward(facts, function) for function in functions):
        return None
    classes = facts.file.values.constructed(step.func.value)  # type: ignore[attr-defined]
    plain = [c for c in classes if isinstance(c, str) and c.startswith("torch.optim.") and not c.endswith("LBFGS")]
    return given[0] if classes and len(plain) == len(classes) else None


def _goes_backward(facts: Facts, function: ast.AST | None) -> bool:
    """Whether a function takes nothing and goes backward itself."""
    if not isinstance(function, FUNCTIONS):
        return False
    return not _required(function) and any(
        facts.file.values.enclosing_function(call) is function for call in facts.backwards
    )


def _required(function: Function) -> list[ast.arg]:
    arguments = function.args
    positional = [arg for arg in (*arguments.posonlyargs, *arguments.args) if arg.arg not in ("self", "cls")]
    return positional[: len(positional) - len(arguments.defaults)]
