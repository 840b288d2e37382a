"""Products in place (`dist.addmm_(x, x.t())`), which autocast leaves alone: all that goes in must be of one dtype.

Where all of it comes from parameters of the function without another product, those become float32 first.
"""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from amplint.facts.values import Function, is_self, path_of
from amplint.migrate.editor import Editor
from amplint.migrate.regions.graph import Graph
from amplint.migrate.regions.sinks import Sinks

if TYPE_CHECKING:
    from amplint.source import SourceFile

NAMES = frozenset(("addmm_", "addbmm_", "baddbmm_", "addmv_", "addr_"))
_NEW = frozenset(("new_zeros", "new_ones", "new_empty", "new_full"))
_SAME = frozenset(
    ("t", "transpose", "permute", "expand", "expand_as", "pow", "sum", "mean", "view", "reshape", "float", "contiguous",
     "unsqueeze", "squeeze", "repeat", "add", "mul", "div", "sub", "clone", "add_", "mul_", "square")
)  # fmt: skip


def repair(file: SourceFile, sinks: Sinks, editor: Editor, call: ast.Call, function: Function) -> bool:
    """Write `x = x.float()` at the top of a function for each parameter that goes into a product in place; whether
    that could be done."""
    given = [*call.args, call.func.value]  # type: ignore[attr-defined]
    return widen(file, sinks, editor, given, file.statement(call), function)


def widen(
    file: SourceFile, sinks: Sinks, editor: Editor, given: list[ast.expr], at: ast.stmt, function: Function
) -> bool:
    """Write `x = x.float()` at the top of a function for each parameter that values at a statement are computed from;
    whether that could be done."""
    parameters = _parameters(file, sinks.graph(function), function, given, at)
    body = [s for s in function.body if not (isinstance(s, ast.Expr) and isinstance(s.value, ast.Constant))]
    if not parameters or not body or body[0].lineno == function.lineno:
        return False
    for name in sorted(parameters):
        editor.insert_before(body[0], f"{name} = {name}.float()")
    return True


def _parameters(
    file: SourceFile, graph: Graph, function: Function, given: list[ast.expr], at: ast.stmt
) -> set[str] | None:
    """The parameters that expressions are computed from, None where something else goes in."""
    arguments = {arg.arg for arg in (*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs)}
    found: set[str] = set()
    seen: set[tuple[str, ast.stmt]] = set()
    pending: list[tuple[ast.expr, ast.stmt]] = [(node, at) for node in given]
    while pending:
        node, place = pending.pop()
        if isinstance(node, ast.Constant):
            continue
        if isinstance(node, ast.Name):
            if (node.id, place) in seen:
                continue
            seen.add((node.id, place))
            reaching = graph.reaching(node.id, place)
            if not reaching:
                if node.id not in arguments - {"self"}:
                    return None
                found.add(node.id)
            pending += [(value, statement) for statement, value in reaching]
        elif isinstance(node, ast.UnaryOp):
            pending.append((node.operand, place))
        elif isinstance(node, ast.BinOp) and not isinstance(node.op, ast.MatMult):
            pending += [(node.left, place), (node.right, place)]
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _SAME:
            is_function = bool(file.resolve(node.func))
            pending.append((node.args[0] if is_function and node.args else node.func.value, place))
            others = node.args[1:] if is_function else node.args
            if node.func.attr in ("add", "mul", "div", "sub", "add_", "mul_"):
                pending += [(other, place) for other in others]
        elif isinstance(node, ast.Call) and (like := _like(file, node)) is not None:
            pending.append((like, place))
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in NAMES:
            pending += [(inner, place) for inner in (*node.args, node.func.value)]
        elif _is_parameter(file, node):
            continue  # in float32, as all that optimizers step
        elif not (isinstance(node, ast.Attribute) and node.attr == "T" and path_of(node.value)):
            return None
        else:
            pending.append((node.value, place))
    return found


def _like(file: SourceFile, call: ast.Call) -> ast.expr | None:
    """The tensor whose dtype a new one takes, as in `x.new_zeros(n)` and `torch.zeros(n, dtype=x.dtype)`."""
    dtypes = [keyword.value for keyword in call.keywords if keyword.arg == "dtype"]
    if dtypes:
        is_same = isinstance(dtypes[0], ast.Attribute) and dtypes[0].attr == "dtype"
        return dtypes[0].value if is_same else None  # type: ignore[attr-defined]
    names = file.resolve(call.func)
    if names:
        return call.args[0] if names[0].startswith("torch.") and names[0].endswith("_like") and call.args else None
    is_new = isinstance(call.func, ast.Attribute) and call.func.attr in _NEW
    return call.func.value if is_new else None  # type: ignore[attr-defined]


def _is_parameter(file: SourceFile, node: ast.expr) -> bool:
    """Whether an expression is an attribute of the module that is made as an `nn.Parameter` and as nothing else."""
    if not isinstance(node, ast.Attribute) or not is_self(node.value):
        return False
    values = file.values.of(node)
    made = [file.resolve(value.func) if isinstance(value, ast.Call) else () for value in values]
    return bool(made) and all(
        "torch.nn.Parameter" in names or "torch.nn.parameter.Parameter" in names for names in made
    )
