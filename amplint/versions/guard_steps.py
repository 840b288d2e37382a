"""The conditions under which a node runs, read off the syntax: branches, early exits, assertions, `try` blocks."""

from __future__ import annotations

import ast
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from operator import itemgetter
from typing import NamedTuple

Arm = Sequence[ast.AST]
Place = tuple[int, int]

_MISSING_NAME = frozenset(
    ["ImportError", "ModuleNotFoundError", "AttributeError", "NameError", "Exception", "BaseException"]
)
_EXITS = frozenset(["exit", "_exit", "quit", "abort", "skip", "skipTest", "fail"])
_BLOCKS = frozenset(("body", "orelse", "finalbody"))
_NEAR = 20
_SKIPS = {"skipif": False, "skipIf": False, "skipUnless": True}


class Guard(NamedTuple):
    """A condition under which a node runs: `test` must give `holds`.

    `kind` is `branch` where the test has another arm that runs instead, `exit` where the code before left early, and
    `assert` where the program stops otherwise. `arms` is the code that runs instead.
    """

    test: ast.expr
    holds: bool
    kind: str
    arms: tuple[Arm, ...] = ()


class Attempt(NamedTuple):
    """A `try` around a node: `handler` is the arm that the node is in, None for its body (or what comes after it)."""

    node: ast.Try
    handler: ast.ExceptHandler | None


Step = Guard | Attempt


class Steps:
    """The guards of the nodes of one file. What early exits say of a block is read once.

    `is_telling` says whether a guard says anything of the torch version; of the other early exits of a block only
    those that are nearest to a node count.
    """

    def __init__(self, parent_of: Callable[[ast.AST], ast.AST | None], is_telling: Callable[[Step], bool]) -> None:
        self._parent_of = parent_of
        self._is_telling = is_telling
        self._exits: dict[int, list[list[tuple[int, Step]]]] = {}
        self._places: dict[ast.AST, dict[int, tuple[str, int]]] = {}

    def of(self, node: ast.AST) -> Iterator[Step]:
        """The guards of a node, from the innermost outwards."""
        child, parent = node, self._parent_of(node)
        while parent is not None:
            field, index = self.place(child, parent)
            if isinstance(parent, ast.If) and field == "body" and not parent.orelse:
                yield Guard(parent.test, True, "branch", (self._after(parent),))
            else:
                yield from _steps_between(child, field, parent)
            if field in _BLOCKS:
                yield from self._steps_before(index, getattr(parent, field))
            child, parent = parent, self._parent_of(parent)

    def place(self, child: ast.AST, parent: ast.AST) -> tuple[str, int]:
        """The field of a parent in whose list a child stands, and where in it; `("", 0)` for a child in no list."""
        places = self._places.get(parent)
        if places is None:
            places = {}
            for field in parent._fields:
                items = getattr(parent, field, None)
                if isinstance(items, list):
                    places.update((id(item), (field, index)) for index, item in enumerate(items))
            self._places[parent] = places
        return places.get(id(child), ("", 0))

    def later(self, statement: ast.stmt) -> list[ast.stmt]:
        """The statements that follow one in its block."""
        parent = self._parent_of(statement)
        field, index = self.place(statement, parent) if parent is not None else ("", 0)
        block: list[ast.stmt] = getattr(parent, field)[index + 1 :] if field in _BLOCKS else []
        return block

    def _steps_before(self, own: int, block: list[ast.AST]) -> list[Step]:
        """The guards that earlier statements of a block put on a later one, the nearest first."""
        exits = self._exits.get(id(block))
        if exits is None:
            found = [(index, step) for index, statement in enumerate(block) for step in _exits_of(statement)]
            self._exits[id(block)] = [found[:_NEAR]]  # while it is being told which of them say something
            exits = [[], []]
            for exit_ in found:
                exits[self._is_telling(exit_[1])].append(exit_)
            self._exits[id(block)] = exits
        before: list[tuple[int, Step]] = []
        for group in exits:
            end = bisect_left(group, own, key=itemgetter(0))
            before += group[max(end - _NEAR, 0) : end]
        return [step for _, step in sorted(before, key=itemgetter(0), reverse=True)]

    def _after(self, node: ast.If) -> Arm:
        """The code that runs only if a condition without an `else` fails: what follows it where its body leaves."""
        return self.later(node) if _leaves(node.body) else ()


def within(node: ast.AST, arm: Arm) -> bool:
    """Whether a node stands in the text of an arm."""
    if not arm:
        return False
    start, end = limits(arm)
    return start <= start_of(node) < end


def limits(arm: Arm) -> tuple[Place, Place]:
    """Where an arm with something in it starts and ends, as rows and columns in bytes."""
    start = min(start_of(first) for first in (arm[0], *getattr(arm[0], "decorator_list", ())))
    return start, (getattr(arm[-1], "end_lineno", 0), getattr(arm[-1], "end_col_offset", 0))


def start_of(node: ast.AST) -> Place:
    """The row and the column in bytes at which a node starts."""
    return getattr(node, "lineno", 0), getattr(node, "col_offset", 0)


def catches_missing(handler: ast.ExceptHandler, parameter: bool = True) -> bool:
    """Whether a handler catches what a missing name raises or, with `parameter`, a missing parameter."""
    if handler.type is None:
        return True
    types = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
    caught = {last_name(kind) for kind in types}
    return not caught.isdisjoint(_MISSING_NAME) or (parameter and "TypeError" in caught)


def _steps_between(child: ast.AST, field: str, parent: ast.AST) -> Iterator[Step]:
    """The guards that a parent puts round a child."""
    if isinstance(parent, ast.If):
        if field == "body":
            yield Guard(parent.test, True, "branch", (parent.orelse,))
        elif field == "orelse":
            yield Guard(parent.test, False, "branch", (parent.body,))
    elif isinstance(parent, ast.IfExp):
        if child is parent.body:
            yield Guard(parent.test, True, "branch", ([parent.orelse],))
        elif child is parent.orelse:
            yield Guard(parent.test, False, "branch", ([parent.body],))
    elif isinstance(parent, ast.While):
        if field == "body":
            yield Guard(parent.test, True, "branch")
    elif isinstance(parent, ast.BoolOp):
        for value in parent.values[: parent.values.index(child)]:  # type: ignore[arg-type]
            yield Guard(value, isinstance(parent.op, ast.And), "branch")
    elif isinstance(parent, ast.Try):
        if field in ("body", "orelse"):
            yield Attempt(parent, None)
        elif isinstance(child, ast.ExceptHandler):
            yield Attempt(parent, child)
    elif isinstance(parent, ast.match_case):
        if field == "body" and parent.guard is not None:
            yield Guard(parent.guard, True, "branch")
    elif isinstance(parent, ast.Match) and isinstance(child, ast.match_case):
        yield from _match_steps(child, parent)
    elif isinstance(parent, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
        for decorator in parent.decorator_list:
            if isinstance(decorator, ast.Call) and decorator.args and child is not decorator:
                name = last_name(decorator.func)
                if name in _SKIPS:
                    yield Guard(decorator.args[0], _SKIPS[name], "exit")


def _match_steps(case: ast.match_case, node: ast.Match) -> Iterator[Guard]:
    """The guards of a case of `match FLAG:` with `True` and `False`, the catch-all included."""
    others = [other for other in node.cases if other is not case]
    arms = tuple(other.body for other in others)
    if isinstance(case.pattern, ast.MatchSingleton) and isinstance(case.pattern.value, bool):
        yield Guard(node.subject, case.pattern.value, "branch", arms)
    elif isinstance(case.pattern, ast.MatchAs) and case.pattern.pattern is None:
        for other in others:
            if isinstance(other.pattern, ast.MatchSingleton) and isinstance(other.pattern.value, bool):
                yield Guard(node.subject, not other.pattern.value, "branch", arms)
            elif other.guard is not None and isinstance(other.pattern, ast.MatchAs):
                yield Guard(other.guard, False, "branch", (other.body,))


def _exits_of(statement: ast.AST) -> Iterator[Step]:
    """The guards that a statement puts on all that follows it in its block by leaving early."""
    if isinstance(statement, ast.Assert):
        yield Guard(statement.test, True, "assert")
    elif isinstance(statement, ast.If):
        if _leaves(statement.body):
            yield Guard(statement.test, False, _exit_kind(statement.body), (statement.body,))
        elif _leaves(statement.orelse):
            yield Guard(statement.test, True, _exit_kind(statement.orelse), (statement.orelse,))
    elif isinstance(statement, ast.Try):
        if all(_leaves(handler.body) for handler in statement.handlers):
            yield Attempt(statement, None)
        for inner in statement.body:
            if isinstance(inner, ast.If):
                yield from _exits_of(inner)


def _exit_kind(block: list[ast.stmt]) -> str:
    """`assert` for a block that ends the program, `exit` for one that does the work in another way."""
    return "assert" if isinstance(block[-1], (ast.Raise, ast.Expr)) else "exit"


def _leaves(block: list[ast.stmt]) -> bool:
    """Whether what follows a block never runs after it."""
    while block:
        last = block[-1]
        if not isinstance(last, ast.If):
            break
        if not _leaves(last.body):
            return False
        block = last.orelse
    if not block:
        return False
    last = block[-1]
    if isinstance(last, ast.Expr) and isinstance(last.value, ast.Call):
        return last_name(last.value.func) in _EXITS
    return isinstance(last, (ast.Return, ast.Raise, ast.Continue, ast.Break))


def last_name(node: ast.expr) -> str:
    """`c` of `a.b.c`, the name of a plain name, "" of anything else."""
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""
