"""Steps under a condition, such as that the norm of the gradients is finite: gradients are then unscaled before the
condition, and the scaler is updated behind it whether the step was taken or not."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from amplint.facts.values import path_of
from amplint.migrate.facts import Facts
from amplint.migrate.gradients.stages import Plan
from amplint.migrate.gradients.strangers import Strangers
from amplint.migrate.model import RefusalError
from amplint.migrate.tree import blocks, chain, header, inside_own_loop, is_none, statements_in, walk
from amplint.rewrite.statements import siblings

if TYPE_CHECKING:
    from amplint.source import SourceFile

_ENDS = "the iteration can end here between unscaling and the step"
_RAISES = "infinite gradients raise here, and a scaler meets them as a matter of course"
_ELSE = (
    "this runs where gradients are infinite, which a scaler meets as a matter of course; leave only the step to the "
    "condition"
)
_EXITS = frozenset(("sys.exit", "os._exit", "os.abort", "exit", "quit"))
_SAYS = re.compile(
    r"^(?:print|zero_grad|warn|warning|info|debug|error|exception|critical|write|flush|log|add_scalar|empty_cache|"
    r"collect|item|format|update_postfix|set_postfix|set_description|tolist|join|isoformat|now|time|float|int|str|round)$"
)


class Places:
    """Where gradients are used before each step, and from where on they must be unscaled."""

    def __init__(
        self,
        facts: Facts,
        strangers: Strangers,
        goes_backward: Callable[[ast.AST], bool],
        is_sink: Callable[[ast.stmt], bool],
    ) -> None:
        self.facts = facts
        self.file: SourceFile = facts.file
        self._strangers = strangers
        self._goes_backward = goes_backward
        self._is_sink = is_sink

    def of(self, step: ast.stmt) -> tuple[list[ast.stmt], ast.stmt]:
        """The block in which gradients are used before a step, and the step's place in it: the step, a loop of steps,
        or the outermost condition around it before which gradients are used."""
        current = step
        for outer in chain(self.file, step)[1:]:
            if isinstance(outer, ast.For) and not any(self._is_sink(s) for s in statements_in(outer)):
                current = outer
            else:
                break
        block, own = siblings(self.file, current), siblings(self.file, step)
        if self.used(block, current) is None and self.used(own, step) is not None:
            return own, step
        found = block, current
        while current is step or isinstance(current, ast.If):
            if any(self._goes_backward(node) for member in block[: block.index(current)] for node in walk(member)):
                break
            around = self._condition(current)
            if around is None or any(self._goes_backward(node) for node in walk(around)):
                break
            block, current = siblings(self.file, around), around
            if self.used(block, current) is not None:
                found = block, current
        return found

    def _condition(self, statement: ast.stmt) -> ast.If | None:
        """The `if` whose arm a statement stands in, with all its `elif`."""
        parent = self.file.parent(statement)
        while isinstance(parent, ast.If):
            above = self.file.parent(parent)
            if not isinstance(above, ast.If) or above.orelse != [parent]:
                return parent
            parent = above
        return None

    def used(self, block: list[ast.stmt], at: ast.stmt) -> ast.stmt | None:
        """The first statement of the block, behind the last backward before the step, that uses gradients; the
        condition of the step counts."""
        start = 0
        for index, member in enumerate(block[: block.index(at)]):
            if any(self._goes_backward(node) for node in walk(member)):
                start = index + (0 if any(self.facts.uses_gradient(n) for n in walk(member)) else 1)
        members = block[start : block.index(at)]
        uses, may_use = self.facts.uses_gradient, self._strangers.may_use
        found = next((m for m in members if any(uses(n) or may_use(n) for n in walk(m))), None)
        if found is None and isinstance(at, ast.If) and any(uses(n) for n in _tests(at)):
            return at
        return found

    def leaving(self, members: list[ast.stmt], at: ast.stmt) -> list[ast.stmt]:
        """The `continue`s before a step, before which the scaler must be updated too, and returns that are like them.

        `members` are the statements from the first use of gradients up to `at`, the step or the condition around it.
        Raises `RefusalError` where an overflow, which makes norms infinite, would end the training or do more than
        leave the step out.
        """
        conditions = [at] if isinstance(at, ast.If) else []
        found: list[ast.stmt] = []
        for member in [*members, *conditions]:
            for node in walk(member):
                if self._goes_on(node) and not inside_own_loop(member, node):
                    found.append(node)  # type: ignore[arg-type]
                elif isinstance(node, (ast.Break, ast.Return, ast.Raise)) and not inside_own_loop(member, node):
                    raise RefusalError(node, _ENDS)
                elif isinstance(node, ast.Call) and self._stops(node):
                    raise RefusalError(node, _RAISES)
        stored = {path for member in members for path in _stored(member)}
        for member in [*members, *conditions]:
            for inner in [member, *statements_in(member)]:
                if isinstance(inner, ast.If) and self._asks(inner, stored) and (inner is at or self._leaves(inner)):
                    self._check_arms(inner)
        return found

    def _goes_on(self, node: ast.AST) -> bool:
        """Whether a node ends this iteration and no more: `continue`, or a plain `return` that no caller asks about."""
        if isinstance(node, ast.Continue):
            return True
        if not isinstance(node, ast.Return) or not (node.value is None or is_none(node.value)):
            return False
        function = self.file.values.enclosing_function(node)
        calls = self.file.values.calls(function) if function is not None else ()
        return bool(calls) and all(isinstance(self.file.parent(call), ast.Expr) for call in calls)

    def _leaves(self, statement: ast.If) -> bool:
        return any(self._goes_on(node) and not inside_own_loop(statement, node) for node in walk(statement))

    def _stops(self, call: ast.Call) -> bool:
        if any(keyword.arg == "error_if_nonfinite" for keyword in call.keywords):
            return True
        names = self.file.resolve(call.func) or (path_of(call.func),)
        return bool(_EXITS.intersection(names))

    def _asks(self, statement: ast.If, stored: set[str]) -> bool:
        """Whether a condition may ask for gradients, or for what was computed between."""
        return any(
            self.facts.uses_gradient(node) or (isinstance(node, (ast.Name, ast.Attribute)) and path_of(node) in stored)
            for node in _tests(statement)
        )

    def _check_arms(self, statement: ast.If) -> None:
        """The arms without the step may only say so, reset gradients, and go on."""
        for arm in _arms(statement):
            inside = [node for member in arm for node in walk(member)]
            if any(node in self.facts.steps for node in inside):
                continue
            if any(self.facts.trains(node) for node in inside):
                return  # the step is in a function
            for member in arm:
                self._check_harmless(member)

    def _check_harmless(self, statement: ast.stmt) -> None:
        if isinstance(statement, (ast.Pass, ast.Delete)) or self._goes_on(statement):
            return
        if isinstance(statement, ast.If):
            for member in (m for block in blocks(statement) for m in block):
                self._check_harmless(member)
            return
        stored = _stored(statement)
        simple = isinstance(statement, (ast.Expr, ast.Assign, ast.AugAssign, ast.AnnAssign))
        calls = [node for node in walk(statement) if isinstance(node, ast.Call)]
        if not simple or any(not _SAYS.match(_last(call)) for call in calls) or any(self._decides(p) for p in stored):
            raise RefusalError(statement, _ELSE)

    def _decides(self, path: str) -> bool:
        """Whether what a path holds is asked for anywhere, or may be a part of what trains."""
        last = path.rsplit(".", 1)[-1]
        if "[" in path or not last:
            return True
        kinds = (ast.If, ast.While, ast.IfExp, ast.Assert)
        tests = [node.test for node in ast.walk(self.file.tree) if isinstance(node, kinds)]
        return any(getattr(n, "id", getattr(n, "attr", "")) == last for test in tests for n in ast.walk(test))


def _tests(statement: ast.If) -> Iterator[ast.AST]:
    """The nodes of the tests of an `if` and of all its `elif`."""
    current: ast.stmt = statement
    while isinstance(current, ast.If):
        yield from header(current)
        current = current.orelse[0] if len(current.orelse) == 1 else ast.Pass()


def _arms(statement: ast.If) -> list[list[ast.stmt]]:
    if len(statement.orelse) == 1 and isinstance(statement.orelse[0], ast.If):
        return [statement.body, *_arms(statement.orelse[0])]
    return [statement.body, statement.orelse]


def _stored(statement: ast.stmt) -> set[str]:
    """The paths that a statement and its blocks give values; subscripts are marked by a bracket."""
    found = set()
    for node in walk(statement):
        if isinstance(node, (ast.Name, ast.Attribute)) and isinstance(node.ctx, ast.Store):
            found.add(path_of(node) or "[")
        elif isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store):
            found.add(f"{path_of(node.value)}[")
    return found


def _last(call: ast.Call) -> str:
    return path_of(call.func).rsplit(".", 1)[-1] or getattr(call.func, "attr", "")


def is_boundary(facts: Facts, plan: Plan, statement: ast.stmt) -> bool:
    """Whether a statement is `if i % k == 0: optimizer.zero_grad()` where all steps are under
    `if (i + 1) % k == 0`, so that it runs behind each of them."""
    if not isinstance(statement, ast.If) or statement.orelse or is_guarded(facts, plan):
        return False
    match = re.fullmatch(r"(\w+) % (.+) == 0", ast.unparse(statement.test))
    if match is None or not all(isinstance(s, ast.Expr) for s in statement.body):
        return False
    wanted = f"({match[1]} + 1) % {match[2]} == 0"
    tests = [
        [ast.unparse(s.test) for s in chain(facts.file, facts.file.statement(step)) if isinstance(s, ast.If)]
        for step in facts.steps
    ]
    return all(any(test == wanted or test.startswith(f"{wanted} or ") for test in around) for around in tests)


def is_guarded(facts: Facts, plan: Plan) -> bool:
    """Whether gradients are unscaled before a condition under which they are stepped, so that they may be left
    unscaled."""
    if plan.closed:
        return True
    for used in plan.unscaled:
        around = chain(facts.file, used)[1:]
        for step in (facts.file.statement(step) for step in facts.steps):
            if any(isinstance(s, ast.If) and s not in around for s in chain(facts.file, step)[1:]):
                return True
    return False


def surely_resets(facts: Facts, earlier: ast.stmt, step: ast.stmt) -> bool:
    """Whether a statement resets the gradients of a step under no condition."""
    if isinstance(earlier, ast.If):
        return False
    stepped = {path_of(n.value) for n in ast.walk(step) if isinstance(n, ast.Attribute) and n.attr == "step"}
    own = [node.value for node in header(earlier) if isinstance(node, ast.Attribute) and node.attr == "zero_grad"]
    if any(path_of(reset) in stepped or facts.is_module(reset) for reset in own):
        return True
    return any(surely_resets(facts, member, step) for block in blocks(earlier) for member in block)
