"""Walking statements and blocks: what encloses what, what runs with what."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import TYPE_CHECKING

from amplint.facts.values import Function, is_self, path_of
from amplint.rewrite.statements import siblings

if TYPE_CHECKING:
    from amplint.source import SourceFile

FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
LOOPS = (ast.For, ast.AsyncFor, ast.While)
MUTATORS = frozenset(("append", "extend", "insert", "add", "update", "add_", "sub_", "mul_", "div_", "push"))


def walk(node: ast.AST) -> Iterator[ast.AST]:
    """A node and all that runs with it, in the order of the text: bodies of nested functions, classes, lambdas left
    out."""
    stack = [node]
    while stack:
        current = stack.pop()
        yield current
        children = [
            child
            for child in ast.iter_child_nodes(current)
            if not isinstance(child, (*FUNCTIONS, ast.ClassDef, ast.Lambda))
        ]
        stack.extend(reversed(children))


def blocks(statement: ast.AST) -> list[list[ast.stmt]]:
    """The blocks of a compound statement."""
    found = [getattr(statement, name, None) for name in ("body", "orelse", "finalbody")]
    found += [handler.body for handler in getattr(statement, "handlers", ())]
    found += [case.body for case in getattr(statement, "cases", ())]
    return [block for block in found if isinstance(block, list) and block and isinstance(block[0], ast.stmt)]


def header(statement: ast.stmt) -> Iterator[ast.AST]:
    """What a compound statement evaluates besides its blocks; a simple statement whole."""
    inner = {id(member) for block in blocks(statement) for member in block}
    stack: list[ast.AST] = [statement]
    while stack:
        current = stack.pop()
        yield current
        for child in ast.iter_child_nodes(current):
            if id(child) not in inner and not isinstance(child, (*FUNCTIONS, ast.ClassDef, ast.Lambda)):
                stack.append(child)


def statements_in(owner: ast.AST) -> Iterator[ast.stmt]:
    """All statements of a function or module, nested blocks included, nested functions and classes not entered."""
    for block in blocks(owner):
        for statement in block:
            yield statement
            if not isinstance(statement, (*FUNCTIONS, ast.ClassDef)):
                yield from statements_in(statement)


def position(node: ast.AST) -> tuple[int, int]:
    """The place of a node, for comparing the order of the text."""
    return node.lineno, node.col_offset  # type: ignore[attr-defined]


def chain(file: SourceFile, statement: ast.stmt) -> list[ast.stmt]:
    """The statement and those around it up to its function or the module, innermost first."""
    found = [statement]
    parent = file.parent(statement)
    while parent is not None and not isinstance(parent, (*FUNCTIONS, ast.Module, ast.ClassDef)):
        if isinstance(parent, ast.stmt):
            found.append(parent)
        parent = file.parent(parent)
    return found


def loop_of(file: SourceFile, statement: ast.stmt) -> ast.stmt | None:
    """The innermost loop whose body holds a statement, in the same function."""
    return next((s for s in chain(file, statement)[1:] if isinstance(s, LOOPS)), None)


def loops_of(file: SourceFile, statement: ast.stmt) -> list[ast.stmt]:
    """All loops around a statement in its function, innermost first."""
    return [s for s in chain(file, statement)[1:] if isinstance(s, LOOPS)]


def common_block(file: SourceFile, statements: list[ast.stmt]) -> list[ast.stmt]:
    """The innermost block that holds all the statements, themselves or what they stand in; of one function."""
    for candidate in chain(file, statements[0]):
        block = siblings(file, candidate)
        if all(lift(file, statement, block) is not None for statement in statements):
            return block
    raise ValueError("the statements are of different functions")


def lift(file: SourceFile, statement: ast.stmt, block: list[ast.stmt]) -> ast.stmt | None:
    """The member of a block that is or holds a statement, None where there is none."""
    members = {id(member) for member in block}
    return next((s for s in chain(file, statement) if id(s) in members), None)


def owner_of(file: SourceFile, node: ast.AST) -> Function | ast.Module:
    """The function whose body holds a node, or the module."""
    return file.values.enclosing_function(node) or file.tree


def base_path(node: ast.expr) -> str:
    """The path at the root of an expression: subscripts and `.values()` are looked through."""
    while isinstance(node, ast.Subscript):
        node = node.value
    if (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and not node.args
        and node.func.attr in ("values", "items")
    ):
        return base_path(node.func.value)
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ("enumerate", "reversed"):
        return base_path(node.args[0]) if node.args else ""
    return path_of(node)


def paths_in(node: ast.AST) -> set[str]:
    """The names and attribute chains that an expression reads, each in its longest form."""
    found: set[str] = set()
    stack = [node]
    while stack:
        current = stack.pop()
        if isinstance(current, (ast.Name, ast.Attribute)) and (path := path_of(current)):
            found.add(path)
            continue
        stack.extend(ast.iter_child_nodes(current))
    return found


def assigned_paths(statement: ast.stmt) -> list[tuple[str, ast.expr, bool]]:
    """What a statement gives a value: path, the expression it comes from, and whether the old value is gone.

    `x = e`, `x += e`, `x: T = e`, `x[i] = e`, `for x in e`, `with e as x`, `(x := e)`, `x.append(e)`.
    """
    found: list[tuple[str, ast.expr, bool]] = []
    if isinstance(statement, ast.Assign):
        for target in statement.targets:
            found += _pairs(target, statement.value)
    elif isinstance(statement, ast.AnnAssign) and statement.value is not None:
        found += _pairs(statement.target, statement.value)
    elif isinstance(statement, ast.AugAssign):
        found += [(path, value, False) for path, value, _ in _pairs(statement.target, statement.value)]
    elif isinstance(statement, (ast.For, ast.AsyncFor)):
        found += _pairs(statement.target, statement.iter)
    elif isinstance(statement, (ast.With, ast.AsyncWith)):
        for item in statement.items:
            if item.optional_vars is not None:
                found += _pairs(item.optional_vars, item.context_expr)
    for node in header(statement):
        if isinstance(node, ast.NamedExpr):
            found += _pairs(node.target, node.value)
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in MUTATORS:
            path = base_path(node.func.value)
            if path and path != "self":
                found += [(path, argument, False) for argument in node.args]
    return found


def _pairs(target: ast.expr, value: ast.expr) -> list[tuple[str, ast.expr, bool]]:
    if isinstance(target, (ast.Tuple, ast.List)):
        if isinstance(value, (ast.Tuple, ast.List)) and len(value.elts) == len(target.elts):
            return [pair for t, v in zip(target.elts, value.elts, strict=True) for pair in _pairs(t, v)]
        return [pair for t in target.elts for pair in _pairs(t, value)]
    if isinstance(target, ast.Starred):
        return _pairs(target.value, value)
    if isinstance(target, ast.Subscript):
        return [(base_path(target), value, False)] if base_path(target) else []
    return [(path_of(target), value, True)] if path_of(target) else []


def overlaps(one: str, other: str) -> bool:
    """Whether two paths are the same object or one is a part of the other (`x` and `x.y`)."""
    return one == other or one.startswith(other + ".") or other.startswith(one + ".")


def inside_own_loop(statement: ast.stmt, node: ast.AST) -> bool:
    """Whether a `break` or `continue` belongs to a loop inside the statement."""
    if isinstance(node, (ast.Return, ast.Raise)):
        return False
    return any(isinstance(s, LOOPS) and any(n is node for n in walk(s)) for s in [statement, *statements_in(statement)])


def may_be_skipped(loop: ast.stmt, statement: ast.stmt) -> bool:
    """Whether a `continue` or `break` stands before a statement of a loop, and may skip it in each round."""
    return any(
        isinstance(s, (ast.Continue, ast.Break)) and position(s) < position(statement) for s in statements_in(loop)
    )


def is_leaving_branch(statement: ast.stmt) -> bool:
    """Whether a statement is a branch that ends the iteration."""
    if not isinstance(statement, ast.If) or statement.orelse:
        return False
    return isinstance(statement.body[-1], (ast.Continue, ast.Return))


def own_call(node: ast.AST) -> str:
    """The name of the method that `self.name(...)` calls, else an empty one."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and is_self(node.func.value):
        return node.func.attr
    return ""


def passed(file: SourceFile, call: ast.Call, function: Function, parameter: str) -> list[ast.expr]:
    """What a call may pass for a parameter of a function: one value, or those that it unpacks."""
    value = file.values.argument(call, function, parameter)
    if value is not None:
        return [value]
    starred = [argument.value for argument in call.args if isinstance(argument, ast.Starred)]
    return [*starred, *(keyword.value for keyword in call.keywords if keyword.arg is None)]


def is_none(node: ast.expr | None) -> bool:
    """Whether an expression is the constant None."""
    return isinstance(node, ast.Constant) and node.value is None


def is_false(node: ast.expr) -> bool:
    """Whether an expression is the constant False; 0 is not."""
    return isinstance(node, ast.Constant) and node.value is False


def is_cut_off(path: str, use: ast.stmt) -> bool:
    """Whether a statement reads a path only behind `detach()` or the like, so that no graph comes through it."""
    stack: list[tuple[ast.AST, bool]] = [(node, False) for node in ast.iter_child_nodes(use)]
    inner = {id(member) for block in blocks(use) for member in block}
    found = False
    while stack:
        node, cut = stack.pop()
        if id(node) in inner:
            continue
        if isinstance(node, (ast.Name, ast.Attribute)) and path_of(node) == path:
            if not cut:
                return False
            found = True
            continue
        names = ("detach", "item", "numpy", "tolist", "data")
        cut = cut or (isinstance(node, ast.Attribute) and node.attr in names and not packs(node.value))
        stack += [(child, cut) for child in ast.iter_child_nodes(node)]
    return found


def packs(node: ast.AST | None) -> bool:
    """Whether an expression makes a packed sequence, whose `data` is no tensor cut off from its graph."""
    names = ("pack_padded_sequence", "pack_sequence")
    return isinstance(node, ast.Call) and path_of(node.func).rsplit(".", 1)[-1] in names
