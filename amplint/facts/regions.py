"""The autocast regions of a file, as they stand in the text, and which of them hold at a node.

A region is the body of a `with`, of a decorated function, or what follows `stack.enter_context(...)`. A function that
is called inside a region runs under it too. There are no paths here: the protocol engine has those.
"""

from __future__ import annotations

import ast
from functools import cached_property
from typing import TYPE_CHECKING

from amplint.facts.contexts import FLAG, HALF_DTYPES, OFF, ON, Autocast, ContextReader
from amplint.facts.values import Function

if TYPE_CHECKING:
    from amplint.source import SourceFile

_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_NO_GRAD = ("torch.no_grad", "torch.inference_mode", "torch.autograd.no_grad")


class Region:
    """One autocast region.

    `node` is the `with` statement or the decorated function, `expression` the context as it stands there. `autocasts`
    are the calls that may be behind it; `certain` says that it can be nothing else. `body` are the statements inside.
    `outer` is the region around it in the same function. `inline` says that the call of autocast stands in the place
    where the region is entered, so that a dtype left out is that of the region around.
    """

    __slots__ = ("autocasts", "body", "certain", "expression", "function", "inline", "node", "outer")

    def __init__(
        self, node: ast.stmt, expression: ast.expr, body: tuple[ast.stmt, ...], autocasts: tuple[Autocast, ...]
    ) -> None:
        self.node = node
        self.expression = expression
        self.body = body
        self.autocasts = autocasts
        self.certain = True
        self.inline = False
        self.outer: Region | None = None
        self.function: Function | None = None

    @property
    def enabled(self) -> str:
        """`on`, `off`, or `flag` where it is known only when the program runs."""
        states = {entry.enabled for entry in self.autocasts}
        return states.pop() if len(states) == 1 else FLAG

    @property
    def on_by_default(self) -> bool:
        """Whether some context behind the region is on unless a caller asks for something else."""
        return any(entry.valid and (entry.enabled == ON or entry.on_by_default) for entry in self.autocasts)

    @property
    def devices(self) -> frozenset[str]:
        """The device types of the contexts behind the region; empty where one is unknown."""
        return _all_of([entry.devices for entry in self.autocasts])

    @property
    def dtypes(self) -> frozenset[str]:
        """The dtypes that the region may run in; empty where one is unknown."""
        if self.inline and self.outer is not None and self.outer.enabled != OFF:
            entry = self.autocasts[0]
            if entry.valid and entry.dtype is None and not entry.legacy:
                return self.outer.dtypes if self.outer.devices == self.devices else frozenset()
        return _all_of([entry.dtypes for entry in self.autocasts if entry.enabled != OFF])

    @property
    def is_low_precision(self) -> bool:
        """Whether the region surely runs in half precision when it is on."""
        if self.enabled == OFF:
            return False
        dtypes = self.dtypes
        if dtypes:
            return dtypes <= HALF_DTYPES
        return all(entry.valid and entry.dtype is None for entry in self.autocasts)


class Regions:
    """All regions of a file; see `SourceFile.regions`."""

    def __init__(self, file: SourceFile) -> None:
        self._file = file
        self.reader = ContextReader(file)
        self._entered: dict[ast.stmt, list[Region]] = {}
        self._stacked: dict[ast.stmt, Region] = {}
        """By statement, the last region that an earlier statement of the same block entered through an ExitStack."""

    @cached_property
    def all(self) -> tuple[Region, ...]:
        """The regions in the order of the text; the items of one `with` in their order."""
        found: list[Region] = []
        for node in self._file.names.parents:
            if isinstance(node, (ast.With, ast.AsyncWith)):
                found += self._of_with(node)
            elif isinstance(node, _FUNCTIONS):
                found += self._of_decorators(node)
            elif isinstance(node, ast.Expr):
                found += self._of_stack(node)
        found.sort(key=lambda region: (region.expression.lineno, region.expression.col_offset))
        for region in found:
            region.function = self._function_of(region)
            self._entered.setdefault(region.node, []).append(region)
            if isinstance(region.node, ast.Expr):
                self._stacked.update(dict.fromkeys(region.body, region))
        for region in found:
            region.outer = self._outer(region)
        return tuple(found)

    def _of_with(self, node: ast.With | ast.AsyncWith) -> list[Region]:
        return [region for item in node.items if (region := self._region(node, item.context_expr, tuple(node.body)))]

    def _of_decorators(self, function: Function) -> list[Region]:
        return [
            region
            for decorator in function.decorator_list
            if (region := self._region(function, decorator, tuple(function.body)))
        ]

    def _of_stack(self, statement: ast.Expr) -> list[Region]:
        call = statement.value
        if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Attribute) or len(call.args) != 1:
            return []
        if call.func.attr not in ("enter_context", "enter_async_context"):
            return []
        block = _block(self._file, statement)
        body = tuple(block[block.index(statement) + 1 :])
        region = self._region(statement, call.args[0], body) if body else None
        return [region] if region is not None else []

    def _region(self, node: ast.stmt, expression: ast.expr, body: tuple[ast.stmt, ...]) -> Region | None:
        contexts = self.reader.read(expression)
        if not contexts.autocasts:
            return None
        region = Region(node, expression, body, contexts.autocasts)
        region.certain = not contexts.others and len(contexts.autocasts) == 1
        region.inline = contexts.autocasts[0].call is expression and not isinstance(node, _FUNCTIONS)
        return region

    def _function_of(self, region: Region) -> Function | None:
        if isinstance(region.node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            return region.node
        return self._file.values.enclosing_function(region.node)

    def _outer(self, region: Region) -> Region | None:
        entered = self._entered[region.node]
        index = entered.index(region)
        if index and not isinstance(region.node, _FUNCTIONS):
            return entered[index - 1]
        if isinstance(region.node, _FUNCTIONS):
            return entered[index - 1] if index else None
        return self._lexical(region.node)

    # -- what holds at a node -----------------------------------------------------------------------------------------

    def at(self, node: ast.AST) -> Region | None:
        """The innermost region that a node stands in, in the same function or by its decorators."""
        _ = self.all
        return self._lexical(node)

    def _lexical(self, node: ast.AST) -> Region | None:
        child, parent = node, self._file.parent(node)
        while parent is not None:
            if isinstance(parent, (ast.With, ast.AsyncWith)) and isinstance(child, ast.stmt):
                if entered := self._entered.get(parent):
                    return entered[-1]
            elif isinstance(parent, (ast.With, ast.AsyncWith)) and isinstance(child, ast.withitem):
                before = parent.items[: parent.items.index(child)]
                for region in reversed(self._entered.get(parent, ())):
                    if any(item.context_expr is region.expression for item in before):
                        return region
            if isinstance(child, ast.stmt) and (found := self._stacked.get(child)):
                return found
            if isinstance(parent, _FUNCTIONS):
                if not isinstance(child, ast.stmt):
                    return None
                entered = self._entered.get(parent, [])
                return entered[-1] if entered else None
            if isinstance(parent, (ast.Lambda, ast.ClassDef)):
                return None
            child, parent = parent, self._file.parent(parent)
        return None

    @cached_property
    def _under(self) -> dict[Function, tuple[tuple[Region, ast.Call], ...]]:
        """By function, the regions under which it is called, with the call that leads there."""
        found: dict[Function, dict[Region, ast.Call]] = {}
        pending: list[tuple[Function, Region, ast.Call]] = []
        values = self._file.values
        for call in self._file.names.calls:
            functions = values.functions(call)
            region = self.at(call) if functions else None
            if region is not None:
                pending += [(function, region, call) for function in functions]
        while pending:
            function, region, call = pending.pop()
            known = found.setdefault(function, {})
            if region in known:
                continue
            known[region] = call
            for inner in self._calls_in.get(function, ()):
                if self.at(inner) is None:
                    pending += [(called, region, call) for called in values.functions(inner)]
        return {function: tuple(known.items()) for function, known in found.items()}

    @cached_property
    def _calls_in(self) -> dict[Function, list[ast.Call]]:
        by_function: dict[Function, list[ast.Call]] = {}
        for call in self._file.names.calls:
            if self._file.values.functions(call):
                function = self._file.values.enclosing_function(call)
                if function is not None:
                    by_function.setdefault(function, []).append(call)
        return by_function

    def active(self, node: ast.AST) -> tuple[tuple[Region, ast.Call | None], ...]:
        """The regions that may be the innermost one when a node runs, each with the call that leads to it.

        That is the region that it stands in; where there is none, those from which its function is called.
        """
        region = self.at(node)
        if region is not None:
            return ((region, None),)
        function = self._file.values.enclosing_function(node)
        return self._under.get(function, ()) if function is not None else ()

    def callers(self, function: Function) -> tuple[tuple[Region, ast.Call], ...]:
        """The regions from which a function is called, directly or through others, each with the first call in it."""
        _ = self.all
        return self._under.get(function, ())

    # -- gradients ----------------------------------------------------------------------------------------------------

    def without_grad(self, node: ast.AST) -> bool:
        """Whether a node stands under `torch.no_grad()` or `torch.inference_mode()`, by `with` or decorator."""
        child, parent = node, self._file.parent(node)
        while parent is not None:
            if isinstance(parent, (ast.With, ast.AsyncWith)):
                stop = parent.items.index(child) if isinstance(child, ast.withitem) else len(parent.items)
                if any(self.is_no_grad(item.context_expr) for item in parent.items[:stop]):
                    return True
            if isinstance(parent, _FUNCTIONS) and any(self.is_no_grad(d) for d in parent.decorator_list):
                return True
            child, parent = parent, self._file.parent(parent)
        return False

    def is_no_grad(self, node: ast.expr) -> bool:
        """Whether an expression is `torch.no_grad()`, `torch.inference_mode()` or `torch.set_grad_enabled(False)`."""
        call = node if isinstance(node, ast.Call) else None
        names = self._file.resolve(call.func if call is not None else node)
        if names and all(name in _NO_GRAD for name in names):
            return call is None or not _is_false(call.args[:1])
        return names == ("torch.set_grad_enabled",) and call is not None and _is_false(call.args[:1])


def _is_false(args: list[ast.expr]) -> bool:
    return bool(args) and isinstance(args[0], ast.Constant) and args[0].value is False


def _all_of(sets: list[frozenset[str]]) -> frozenset[str]:
    """The union of the sets, empty where one of them is (it is unknown)."""
    return frozenset().union(*sets) if all(sets) else frozenset()


def _block(file: SourceFile, statement: ast.stmt) -> list[ast.stmt]:
    parent = file.parent(statement)
    for field in ("body", "orelse", "finalbody"):
        block = getattr(parent, field, None)
        if isinstance(block, list) and statement in block:
            return block
    return [statement]
