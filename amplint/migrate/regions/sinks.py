"""Where graphs end: the calls that go backward, followed to the statements of all functions that made the graph."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, NamedTuple

from amplint.facts.values import Function, is_self, path_of
from amplint.migrate.facts import Facts
from amplint.migrate.model import RefusalError
from amplint.migrate.regions.graph import Graph
from amplint.migrate.tree import FUNCTIONS, MUTATORS, assigned_paths, base_path, blocks, owner_of, passed, paths_in

if TYPE_CHECKING:
    from amplint.source import SourceFile

_STARTS = frozenset(("torch.autograd.Variable", "torch.tensor", "torch.as_tensor"))


class Sink(NamedTuple):
    """A call that goes backward on an expression, directly or by way of a function that gets it as an argument."""

    call: ast.Call
    expression: ast.expr
    statement: ast.stmt
    owner: Function | ast.Module
    direct: bool


class Sinks:
    """All sinks of a file with the statements that make their graphs; `RefusalError` where these can't be told."""

    def __init__(self, facts: Facts) -> None:
        self.facts = facts
        self.file: SourceFile = facts.file
        self._graphs: dict[ast.AST, Graph] = {}
        self._opening: set[ast.AST] = set()
        self.all: list[Sink] = []
        self.nodes: dict[Function | ast.Module, set[ast.stmt]] = {}
        self.remote: set[Function] = set()

    def find(self) -> None:
        """Collect sinks and nodes, from the calls of `backward` outwards."""
        pending = [self._sink(call, self.facts.loss_of(call), True) for call in self.facts.backwards]
        while pending:
            sink = pending.pop(0)
            if any(known.call is sink.call and known.expression is sink.expression for known in self.all):
                continue
            self.all.append(sink)
            pending += self._follow(sink)

    def _sink(self, call: ast.Call, expression: ast.expr, direct: bool) -> Sink:
        return Sink(call, expression, self.file.statement(call), owner_of(self.file, call), direct)

    def graph(self, owner: Function | ast.Module) -> Graph:
        """The graph of a function; its parameters count where some call passes a tensor with a graph."""
        if owner in self._graphs:
            return self._graphs[owner]
        given: set[str] = set()
        if isinstance(owner, FUNCTIONS) and owner not in self._opening:
            self._opening.add(owner)
            for call in self.file.values.calls(owner):
                caller = owner_of(self.file, call)
                if caller in self._opening:
                    continue
                around = self.graph(caller)
                for arg in (*owner.args.posonlyargs, *owner.args.args, *owner.args.kwonlyargs):
                    if any(around.is_graph(value) for value in passed(self.file, call, owner, arg.arg)):
                        given.add(arg.arg)
            self._opening.discard(owner)
        made = Graph(self.facts, owner, frozenset(given))
        if not self._opening:
            self._graphs[owner] = made
        return made

    def _follow(self, sink: Sink) -> list[Sink]:
        """Note the nodes behind a sink; returns the sinks that its parameters lead to."""
        graph = self.graph(sink.owner)
        statements, open_paths = graph.slice(sink.expression, sink.statement)
        self._check_cut(graph, [sink.expression, *statements])
        nodes = graph.nodes_of(statements)
        further: list[Sink] = []
        explained = any(not graph.is_without_grad(statement) for statement in nodes) or any(
            isinstance(node, ast.Call) and graph.is_source(node) for node in ast.walk(sink.expression)
        )
        for path in sorted(open_paths):
            root = path.split(".", 1)[0]
            if isinstance(sink.owner, FUNCTIONS) and self.is_parameter(sink.owner, root):
                further += self._callers(sink, root)
                if "." in path:
                    self._check_outside(sink, path)
            elif root == "self" and "." in path:
                explained |= self._attribute(sink, path)
                if path.count(".") > 1:
                    self._check_outside(sink, path)
            else:
                self._check_outside(sink, path)
        self.nodes.setdefault(sink.owner, set()).update(nodes)
        if not explained and not further and not self._is_plain_parameter_loss(graph, sink):
            raise RefusalError(
                sink.call,
                "the forward that makes this loss can't be told from the rest; put the model's call and the loss in "
                "the same function as backward()",
            )
        return further

    def _check_cut(self, graph: Graph, nodes: list[ast.AST]) -> None:
        """`Variable(loss, requires_grad=True)` starts a new graph, so that a backward reaches no weights."""
        for node in (inner for root in nodes if not blocks(root) for inner in ast.walk(root)):
            if not isinstance(node, ast.Call) or not set(self.file.resolve(node.func)) & _STARTS:
                continue
            flags = [k.value for k in node.keywords if k.arg == "requires_grad"]
            begins = any(not (isinstance(flag, ast.Constant) and not flag.value) for flag in flags)
            if begins and node.args and graph.is_graph(node.args[0]):
                raise RefusalError(node, "a new graph starts here, so that backward() gives the model no gradients")

    @staticmethod
    def _is_plain_parameter_loss(graph: Graph, sink: Sink) -> bool:
        return graph.is_graph(sink.expression)

    def is_parameter(self, owner: Function, name: str) -> bool:
        """Whether a name is a parameter of a function, `self` left out."""
        arguments = owner.args
        every = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
        return name != "self" and any(arg.arg == name for arg in every)

    def _callers(self, sink: Sink, parameter: str) -> list[Sink]:
        """Follow a parameter to what the calls pass for it, where that has a graph."""
        assert isinstance(sink.owner, FUNCTIONS)
        found = []
        for call in self.file.values.calls(sink.owner):
            value = self.file.values.argument(call, sink.owner, parameter)
            if value is not None and self._brings_graph(value, call, owner_of(self.file, call)):
                found.append(self._sink(call, value, False))
        return found

    def _attribute(self, sink: Sink, path: str) -> bool:
        """Follow `self.x` to the methods that compute it; whether one does."""
        cls = self.file.values.enclosing_class(sink.call)
        if cls is None:
            return False
        wanted = ".".join(path.split(".")[:2])
        found = False
        for entry in self.file.values.lineage(cls):
            for method in entry.body:
                if not isinstance(method, FUNCTIONS) or method is sink.owner or method.name == "__init__":
                    continue
                graph = self.graph(method)
                for statement in graph.statements:
                    values = [v for p, v, _ in assigned_paths(statement) if p == wanted and graph.is_graph(v)]
                    if not values:
                        continue
                    if self.facts.is_module_class(entry) or wanted in _appended(statement):
                        raise RefusalError(
                            sink.call, f"the graph comes to this loss through `{wanted}`, filled elsewhere"
                        )
                    statements, _ = graph.slice(ast.parse(wanted, mode="eval").body, graph.statements[-1])
                    for value in values:
                        statements |= graph.slice(value, statement)[0]
                    self.nodes.setdefault(method, set()).update(graph.nodes_of({statement, *statements}))
                    self.remote.add(method)
                    found = True
        if found:
            self._check_users(sink, wanted)
        return found

    def _check_users(self, sink: Sink, path: str) -> None:
        """What methods compute for `self.x` must not be changed through the object, where it is in no region."""
        attribute = path.split(".")[1]
        for use in self.file.names.attributes.get(attribute, ()):
            if not isinstance(use.ctx, ast.Store) or is_self(use.value):
                continue
            graph, whole = self.graph(owner_of(self.file, use)), path_of(use)
            for other, value, replaced in assigned_paths(self.file.statement(use)):
                of_object = any(p.startswith(whole.removesuffix(attribute)) for p in paths_in(value))
                if other == whole and (graph.is_graph(value) or of_object or not replaced):
                    raise RefusalError(sink.call, f"the graph comes to this loss through `{path}`, set elsewhere")

    def _brings_graph(self, value: ast.expr, call: ast.Call, owner: Function | ast.Module) -> bool:
        """Whether what a call gets or puts into a container has a graph, which nothing has that was computed without
        gradients."""
        graph = self.graph(owner)
        if not graph.is_graph(value) or self.file.regions.without_grad(call):
            return False
        statements, _ = graph.slice(value, self.file.statement(call))
        nodes = graph.nodes_of(statements)
        return not nodes or any(not graph.is_without_grad(statement) for statement in nodes)

    def _check_outside(self, sink: Sink, path: str) -> None:
        """A value of the module, of a closure or of an object must not bring a graph that is made elsewhere."""
        last = path.rsplit(".", 1)[-1]
        for name in ("append", "extend", "insert", "push"):
            for use in self.file.names.attributes.get(name, ()):
                call = self.file.parent(use)
                filled = base_path(use.value)
                if not isinstance(call, ast.Call) or not filled or filled.rsplit(".", 1)[-1] != last:
                    continue
                owner = owner_of(self.file, call)
                if owner is not sink.owner and any(self._brings_graph(arg, call, owner) for arg in call.args):
                    raise RefusalError(
                        sink.call,
                        f"the graph comes to this loss through the container `{path}`, which another function fills",
                    )
        if "." in path:
            for use in self.file.names.attributes.get(last, ()):
                if isinstance(use.ctx, ast.Store) and path_of(use) != path:
                    continue
                statement = self.file.statement(use)
                owner = owner_of(self.file, use)
                if (
                    isinstance(use.ctx, ast.Store)
                    and owner is not sink.owner
                    and any(self.graph(owner).is_graph(v) for p, v, _ in assigned_paths(statement) if p == path)
                ):
                    raise RefusalError(sink.call, f"the graph comes to this loss through `{path}`, set elsewhere")
            return
        if isinstance(sink.owner, ast.Module):
            return
        for owner in (self.file.tree, *self.facts.functions):
            scope = self.file.names.scopes.get(owner)
            if owner is sink.owner or scope is None:
                continue
            if (
                owner is not self.file.tree
                and path not in scope.globals
                and path not in scope.nonlocals
                and owner is not self.file.values.enclosing_function(sink.owner)
            ):
                continue
            graph = self.graph(owner)
            if path in graph.tainted and not graph.is_parameter(ast.Name(id=path, ctx=ast.Load())):
                raise RefusalError(sink.call, f"the graph comes to this loss through `{path}`, which is made outside")


def _appended(statement: ast.stmt) -> set[str]:
    return {
        base_path(node.func.value)
        for node in ast.walk(statement)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in MUTATORS
    }
