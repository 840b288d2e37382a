"""What the planting of faults must know of a file: where its scalers are used, and what follows from that."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import NamedTuple

SOMETIMES = "float(loss_history[-1]) > 3.0"
"""A test of which nothing is known; the name is unlikely to stand in the file."""

_CLIP = re.compile(r"clip_grad(?:s|ient|ients)?(?:_norm|_value)?_?$")
_METHODS = ("unscale_", "step", "update")
_LOOPS = (ast.For, ast.AsyncFor, ast.While)
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


class Use(NamedTuple):
    """A statement that is just a call of a scaler's method (for a scaled backward: the call of `scale` in it)."""

    scaler: str
    method: str
    statement: ast.stmt
    call: ast.Call

    @property
    def row(self) -> int:
        """The first row of the statement."""
        return self.statement.lineno

    @property
    def height(self) -> int:
        """How many rows the statement takes."""
        return (self.statement.end_lineno or self.row) - self.row + 1

    @property
    def optimizer(self) -> str:
        """The source of the first argument."""
        return ast.unparse(self.call.args[0]) if self.call.args else ""


class Code:
    """A parsed file. Raises `SyntaxError` or `ValueError` for text that does not parse."""

    def __init__(self, text: str) -> None:
        self.lines = text.split("\n")
        self.tree = ast.parse(text)
        self.parents: dict[ast.AST, ast.AST] = {}
        for node in ast.walk(self.tree):
            for child in ast.iter_child_nodes(node):
                self.parents[child] = node
        scaling, protocol = set(), set()
        for _, function in self._method_calls():
            name = ast.unparse(function.value)
            if function.attr == "scale":
                scaling.add(name)
            elif function.attr in _METHODS:
                protocol.add(name)
        self.scalers = scaling & protocol
        self._uses = [use for use in self._find_uses() if self._alone(use.statement)]

    def _method_calls(self) -> Iterator[tuple[ast.Call, ast.Attribute]]:
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
                yield node, node.func

    def _find_uses(self) -> Iterator[Use]:
        for call, function in self._method_calls():
            statement = self.parents[call]
            name = ast.unparse(function.value)
            if isinstance(statement, ast.Expr) and function.attr in _METHODS and name in self.scalers:
                yield Use(name, function.attr, statement, call)

    def _alone(self, statement: ast.stmt) -> bool:
        """Whether a statement has its lines for itself."""
        first, last = self.lines[statement.lineno - 1], self.lines[(statement.end_lineno or 0) - 1]
        return (
            not first[: statement.col_offset].strip()
            and re.match(r"\s*(#.*)?\r?$", last.encode()[statement.end_col_offset or 0 :].decode()) is not None
        )

    # -- places -------------------------------------------------------------------------------------------------------

    def uses(self, method: str) -> list[Use]:
        """The statements that call this method of a scaler."""
        return [use for use in self._uses if use.method == method]

    def scaled_backwards(self) -> Iterator[tuple[Use, str]]:
        """`scaler.scale(loss).backward()` where the scaler steps in the same file, and the source of the loss."""
        stepping = {use.scaler for use in self.uses("step")}
        for call, function in self._method_calls():
            statement, inner = self.parents[call], function.value
            if (
                isinstance(statement, ast.Expr)
                and function.attr == "backward"
                and isinstance(inner, ast.Call)
                and isinstance(inner.func, ast.Attribute)
                and inner.func.attr == "scale"
                and ast.unparse(inner.func.value) in stepping
                and len(inner.args) == 1
                and not isinstance(inner.args[0], ast.Starred)
            ):
                use = Use(ast.unparse(inner.func.value), "scale", statement, inner)
                yield use, ast.unparse(inner.args[0])

    def ancestors(self, node: ast.AST) -> Iterator[ast.AST]:
        """The nodes around a node, innermost first."""
        while node in self.parents:
            node = self.parents[node]
            yield node

    def function(self, node: ast.AST) -> ast.AST:
        """The innermost function around a node, or the module."""
        return next((outer for outer in self.ancestors(node) if isinstance(outer, _FUNCTIONS)), self.tree)

    def loop(self, node: ast.AST) -> ast.AST | None:
        """The innermost loop around a node in its function."""
        for outer in self.ancestors(node):
            if isinstance(outer, _FUNCTIONS):
                return None
            if isinstance(outer, _LOOPS):
                return outer
        return None

    def exclusive(self, one: ast.AST, other: ast.AST) -> bool:
        """Whether two nodes stand in different arms of one branch."""
        around = {id(node): node for node in [other, *self.ancestors(other)]}
        below: ast.AST = one
        for outer in self.ancestors(one):
            if id(outer) in around:
                if not isinstance(outer, (ast.If, ast.Try)):
                    return False
                arms = [outer.body, outer.orelse]
                mine = [any(below is child for child in arm) for arm in arms]
                theirs = [any(id(child) in around for child in arm) for arm in arms]
                return any(mine) and any(theirs) and mine != theirs
            below = outer
        return False

    def in_function(self, use: Use, method: str) -> list[Use]:
        """The uses of a method of the same scaler in the same function."""
        function = self.function(use.statement)
        return [
            other
            for other in self.uses(method)
            if other.scaler == use.scaler and self.function(other.statement) is function
        ]

    def peers(self, use: Use) -> list[Use]:
        """The uses of the same method in the same function that may run in the same pass, itself included."""
        return [
            other for other in self.in_function(use, use.method) if not self.exclusive(use.statement, other.statement)
        ]

    def within(self, node: ast.AST, outer: ast.AST | None) -> bool:
        """Whether a node is inside another; everything is inside None."""
        return outer is None or any(around is outer for around in self.ancestors(node))

    # -- what is true there -------------------------------------------------------------------------------------------

    def scales_in_function(self, use: Use) -> bool:
        """Whether a loss is scaled in the function of a use."""
        function = self.function(use.statement)
        return any(
            callee.attr == "scale" and ast.unparse(callee.value) == use.scaler and self.function(call) is function
            for call, callee in self._method_calls()
        )

    def gradients_are_scaled(self, use: Use) -> bool:
        """Whether the file differentiates a scaled loss of the scaler in the way that is usual."""
        return any(other.scaler == use.scaler for other, _ in self.scaled_backwards())

    def ends_iteration(self, update: Use) -> bool:
        """Whether this is the only update of an iteration that steps, and another comes with the same scaler."""
        loop = self.loop(update.statement)
        function = self.function(update.statement)
        steps = [
            step
            for step in self.in_function(update, "step")
            if self.within(step.statement, loop) and not self.exclusive(step.statement, update.statement)
        ]
        others = [peer for peer in self.peers(update) if peer is not update and self.within(peer.statement, loop)]
        if not steps or others or (loop is None and function is self.tree):
            return False
        made = [
            node
            for node in ast.walk(function if loop is None else loop)
            if isinstance(node, ast.Assign) and any(ast.unparse(target) == update.scaler for target in node.targets)
        ]
        return not made

    def update_ends_iteration(self, step: Use) -> bool:
        """Whether the step is followed by such an update in the same loop."""
        return any(
            update.row > step.row and self.loop(update.statement) is self.loop(step.statement)
            for update in self.in_function(step, "update")
            if self.ends_iteration(update)
        )

    def updates_after(self, step: Use) -> bool:
        """Whether the next statement of the step's block is the update."""
        block = self.block(step.statement)
        after = block[block.index(step.statement) + 1 :]
        return bool(after) and any(update.statement is after[0] for update in self.in_function(step, "update"))

    def step_before(self, update: Use) -> bool:
        """Whether a step of the same loop runs whenever the update does."""
        return any(
            step.row < update.row
            and any(outer is step.statement or self.within(step.statement, outer) for outer in earlier)
            for earlier in [self.block(update.statement)[: self.block(update.statement).index(update.statement)]]
            for step in self.in_function(update, "step")
        )

    def unscaled_before(self, step: Use) -> bool:
        """Whether the optimizer is unscaled before in the block of the step, on every way."""
        block = self.block(step.statement)
        earlier = block[: block.index(step.statement)]
        return any(
            unscale.statement in earlier and unscale.optimizer == step.optimizer
            for unscale in self.in_function(step, "unscale_")
        )

    def block(self, statement: ast.stmt) -> list[ast.stmt]:
        """The statements of the block that holds a statement."""
        parent = self.parents[statement]
        for _, value in ast.iter_fields(parent):
            if isinstance(value, list) and any(item is statement for item in value):
                return value
        raise ValueError("a statement outside any block")

    def clip_after(self, unscale: Use) -> ast.Call | None:
        """The first clip after an unscale_ in its block or in the blocks around, before the next step of the scaler."""
        steps = [step.row for step in self.in_function(unscale, "step") if step.row > unscale.row]
        end = min(steps, default=10**9)
        function = self.function(unscale.statement)
        found = [
            call
            for call in ast.walk(function)
            if isinstance(call, ast.Call)
            and unscale.row < call.lineno < end
            and _is_clip(call)
            and self.function(call) is function
            and not self.exclusive(call, unscale.statement)
            and self.loop(call) is self.loop(unscale.statement)
        ]
        return min(found, key=lambda call: call.lineno, default=None)

    def clip_moved_before(self, unscale: Use) -> tuple[list[str], int] | None:
        """The lines with the clip that follows an unscale_ moved to before it, and the clip's new row."""
        block = self.block(unscale.statement)
        at = block.index(unscale.statement)
        if at + 1 >= len(block):
            return None
        clip = block[at + 1]
        calls = [node for node in ast.walk(clip) if isinstance(node, ast.Call)]
        clips = [call for call in calls if _is_clip(call)]
        if (
            not clips
            or not self._alone(clip)
            or any(ast.unparse(call.func).startswith(f"{unscale.scaler}.") for call in calls)
        ):
            return None
        first, last = clip.lineno, clip.end_lineno or clip.lineno
        moved = self.lines[first - 1 : last]
        head, rest = self.lines[: unscale.row - 1], self.lines[unscale.row - 1 : first - 1]
        row = min(call.lineno for call in clips) - first + unscale.row
        return [*head, *moved, *rest, *self.lines[last:]], row

    # -- changed text -------------------------------------------------------------------------------------------------

    def replaced(self, use: Use, with_lines: list[str]) -> list[str]:
        """The lines with a statement replaced; `{}` stands for the statement itself."""
        indent = self.lines[use.row - 1][: use.statement.col_offset]
        own = self.lines[use.row - 1 : use.row - 1 + use.height]
        new: list[str] = []
        for line in with_lines:
            if line.strip() == "{}":
                more = line[: -len("{}")]
                new += [more + each for each in own]
            else:
                new.append(indent + line)
        new += [""] * max(use.height - len(new), 0)
        return [*self.lines[: use.row - 1], *new, *self.lines[use.row - 1 + use.height :]]

    def with_text(self, node: ast.expr, text: str) -> list[str]:
        """The lines with an expression replaced by text of one line."""
        first, last = node.lineno - 1, (node.end_lineno or node.lineno) - 1
        head = self.lines[first].encode()[: node.col_offset].decode()
        tail = self.lines[last].encode()[node.end_col_offset or 0 :].decode()
        return [*self.lines[:first], head + text + tail, *[""] * (last - first), *self.lines[last + 1 :]]

    def blamed_rows(self, changed: str, use: Use, methods: tuple[str, ...]) -> set[int]:
        """Rows in the changed text: calls of the scaler's methods in the same function, and calls of that function."""
        function = self.function(use.statement)
        name = function.name if isinstance(function, _FUNCTIONS) else ""
        code = Code(changed)
        rows = set()
        for call, callee in code._method_calls():
            same = getattr(code.function(call), "lineno", 0) == getattr(function, "lineno", 0)
            if same and callee.attr in methods and ast.unparse(callee.value) == use.scaler:
                rows.add(call.lineno)
        for node in ast.walk(code.tree):
            if (
                isinstance(node, ast.Call)
                and name
                and name in (getattr(node.func, "id", ""), getattr(node.func, "attr", ""))
            ):
                rows.add(node.lineno)
        return rows


def _is_clip(call: ast.Call) -> bool:
    """Whether a call clips gradients; a bound of None only measures them."""
    name = ast.unparse(call.func).rpartition(".")[2]
    bound = call.args[1] if len(call.args) > 1 else None
    measures = isinstance(bound, ast.Constant) and bound.value is None
    return _CLIP.search(name) is not None and not measures
