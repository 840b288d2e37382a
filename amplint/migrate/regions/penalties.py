"""Gradient penalties: a function that calls `autograd.grad` runs in float32, on float32 inputs; its loss is scaled."""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING

from amplint.facts.values import Function, path_of
from amplint.migrate.editor import Editor
from amplint.migrate.elsewhere import is_of_parameters
from amplint.migrate.facts import Facts
from amplint.migrate.model import RefusalError
from amplint.migrate.regions.graph import Graph
from amplint.migrate.regions.inline_penalties import Stretch, is_inline, stretches, tensors_of
from amplint.migrate.regions.runs import Run
from amplint.migrate.regions.sinks import Sinks
from amplint.migrate.scalers.making import free_name
from amplint.migrate.tree import FUNCTIONS, owner_of, paths_in, walk
from amplint.rewrite.statements import siblings

if TYPE_CHECKING:
    from amplint.source import SourceFile

_ADVICE = "autograd.grad is used here; put the penalty into a function of its own that returns it, called in the loop"
_FORWARD = (
    "the forward of this penalty must run in float32 and can't be told from the rest; run the model inside the "
    "function that computes the penalty"
)
_INNER = (
    "gradients of parameters are taken with autograd.grad here, in an inner loop or for a second derivative; they do "
    "not pass through the scaler, so that this loop stays in float32"
)
_WHOLE = "a model takes gradients of its inputs here, which stays in float32, so that nothing is gained"
_ELSEWHERE = re.compile(r"grad\w*_?pen|penalty_?grad|r1_?(?:reg|pen)|(?:^|_)(?:compute|calc\w*|get)_gp$", re.I)
"""The names of functions of other files that take gradients of a model's outputs."""
_NAMES = ("gradient_penalty", "grad_penalty", "penalty")


def screen_gradients(facts: Facts) -> None:
    """Raise `RefusalError` where a loop that trains takes gradients of parameters by `autograd.grad`, or a model those
    of its inputs."""
    for grad in facts.file.names.calls:
        if "torch.autograd.grad" not in facts.file.resolve(grad.func):
            continue
        function = facts.file.values.enclosing_function(grad)
        if (function is None or function in facts.trainers) and is_of_parameters(facts.file, grad):
            raise RefusalError(grad, _INNER)
        if function in facts.module_inits and function not in facts.trainers:
            raise RefusalError(grad, _WHOLE)


class Penalties:
    """Finds the calls of functions that compute penalties, and puts them into fp32 islands.

    `RefusalError` for any other use of `autograd.grad`, such as inner loops of meta-learning.
    """

    def __init__(self, facts: Facts, sinks: Sinks, editor: Editor) -> None:
        self.facts = facts
        self.file: SourceFile = facts.file
        self.sinks = sinks
        self.editor = editor
        self.functions: dict[Function, list[ast.Call]] = {}
        self.inline: list[ast.Call] = []
        self._stretches: list[Stretch] = []
        for grad in self.file.names.calls:
            if "torch.autograd.grad" in self.file.resolve(grad.func):
                function = self.file.values.enclosing_function(grad)
                if (function is None or function in facts.trainers) and is_inline(facts, grad):
                    self.inline.append(grad)
                    continue
                if function is None or function in facts.trainers or function in facts.module_inits:
                    raise RefusalError(grad, _ADVICE)
                if not self.file.values.calls(function):
                    if function.name not in self.file.names.loads and function.name not in self.file.names.attributes:
                        continue  # nothing here runs it
                    raise RefusalError(grad, "autograd.grad is used in a function that this file does not call")
                self.functions.setdefault(function, []).append(grad)
        self._done: set[ast.stmt] = set()

    def is_all_of(self, run: Run) -> bool:
        """Whether every forward of a run is a penalty's, so that it needs no region."""
        nodes = run.nodes()
        graph = self.sinks.graph(owner_of(self.file, run.first))
        sources = [node for node in nodes if isinstance(node, ast.Call) and graph.is_source(node)]
        inside = self._sources_of_stretches(run) | self._sources_of_functions(nodes, graph)
        return bool(sources) and all(source in inside for source in sources)

    def _sources_of_functions(self, nodes: list[ast.AST], graph: Graph) -> set[ast.AST]:
        """The calls of penalty functions among nodes, and the forwards before them whose gradients they take."""
        among = {id(node) for node in nodes}
        calls = [c for function in self.functions for c in self.file.values.calls(function) if id(c) in among]
        forwards = [statement for call in calls for statement in self._forwards(call)]
        return {*calls, *(n for s in forwards for n in walk(s) if isinstance(n, ast.Call) and graph.is_source(n))}

    def islands(self, runs: dict[Run, str]) -> None:
        """Write the islands; `runs` gives the device type of each region, empty where none is written for a run."""
        for stretch in self._stretches:
            self._inline_island(stretch, runs[stretch.run])
        for function in self.functions:
            for call in self.file.values.calls(function):
                self._island(call, runs)
        for call in self._elsewhere():
            self._island(call, runs)
        if self._done and all(self.is_all_of(run) for run in runs):
            raise RefusalError(
                [*self.inline, *(grad for grads in self.functions.values() for grad in grads)][0],
                "all of this loss goes through autograd.grad, which stays in float32, so that nothing is gained",
            )

    def _elsewhere(self) -> list[ast.Call]:
        """The calls of penalty functions that other files define, as far as their names tell."""
        found = []
        for call in self.file.names.calls:
            name = path_of(call.func).rsplit(".", 1)[-1]
            own = self.file.values.functions(call) or self.facts.is_module(call.func)
            if own or not _ELSEWHERE.search(name) or self.file.values.enclosing_function(call) in self.functions:
                continue
            if isinstance(self.file.statement(call), ast.Assign) and len(call.args) > 1:
                if not any(self.facts.is_module(a) for a in call.args if isinstance(a, (ast.Name, ast.Attribute))):
                    raise RefusalError(call, _FORWARD)
                found.append(call)
        return found

    def _is_apart(self, call: ast.Call) -> bool:
        """Whether a call in a training loop, outside of all regions, gives a value without a graph, as a sampler
        does."""
        owner = owner_of(self.file, call)
        return (owner is self.file.tree or owner in self.facts.trainers) and not self.sinks.graph(owner).is_graph(call)

    def _sources_of_stretches(self, run: Run) -> set[ast.Call]:
        """The calls in a run that belong to penalties in the loop itself."""
        statements = [s for stretch in self._stretches if stretch.run is run for s in stretch.statements]
        return {node for statement in statements for node in walk(statement) if isinstance(node, ast.Call)}

    def find_inline(self, runs: list[Run]) -> None:
        """Find the penalties that are computed in the loop itself; raises `RefusalError` where they can't be told."""
        found = stretches(self.facts, self.sinks, self.inline, runs)
        if found is None:
            raise RefusalError(self.inline[0], _ADVICE)
        self._stretches = found

    def _inline_island(self, stretch: Stretch, device: str) -> None:
        for statement in stretch.statements:
            graph = self.sinks.graph(owner_of(self.file, statement))
            sources = [n for n in walk(statement) if isinstance(n, ast.Call) and graph.is_source(n)]
            if sources and not isinstance(statement, ast.Assign):
                raise RefusalError(statement, _FORWARD)
            for source in sources:
                self._cast_inputs(source, statement, graph, stretch.statements)
            self._done.add(statement)
        if device:
            header = f"with torch.autocast(device_type={device}, enabled=False):"
            self.editor.wrap(stretch.statements[0], stretch.statements[-1], header)

    def _cast_inputs(
        self, source: ast.Call, statement: ast.stmt, graph: Graph, island: tuple[ast.stmt, ...] = ()
    ) -> None:
        """Give a model that runs in float32 what may be of half precision by `.float()`, but for what the statements of
        its island compute."""
        for argument in tensors_of(graph, source):
            made = graph.reaching(path_of(argument), statement) if path_of(argument) else []
            is_inside = bool(made) and all(maker in island for maker, _ in made)
            if is_inside or not self._may_be_half(argument, statement, graph, set()):
                continue
            if not isinstance(argument, (ast.Name, ast.Attribute, ast.Call, ast.Subscript)):
                raise RefusalError(statement, _FORWARD)
            self.editor.insert(self.file.span(argument).end, ".float()")

    def _island(self, call: ast.Call, runs: dict[Run, str]) -> None:
        statement = self.file.statement(call)
        run = next((r for r in runs if any(n is statement for s in r.statements for n in walk(s))), None)
        if run is None and self._is_apart(call):
            return
        if not isinstance(statement, (ast.Assign, ast.AugAssign)):
            raise RefusalError(call, _ADVICE)
        kind = runs[run] if run is not None else self._device_in_helper(call)
        graph = self.sinks.graph(owner_of(self.file, call))
        if any(n is not call and isinstance(n, ast.Call) and graph.is_source(n) for n in walk(statement)):
            raise RefusalError(
                call, "a penalty and another forward are computed in one statement; give the penalty its own"
            )
        if statement in self._done:
            raise RefusalError(call, "two penalties are computed in one statement; give each its own")
        self._done.add(statement)
        forwards = self._forwards(call)
        casts = [argument for argument in _arguments(call) if self._is_half(argument, statement, graph, forwards)]
        for argument in casts:
            if not isinstance(argument, (ast.Name, ast.Attribute, ast.Call, ast.Subscript)):
                raise RefusalError(argument, _ADVICE)
        first = statement
        header = f"with torch.autocast(device_type={kind}, enabled=False):"
        for forward in forwards:
            self._forward(forward, graph)
            block = siblings(self.file, statement)
            if not kind:
                continue
            if forward is not block[block.index(first) - 1]:
                self.editor.wrap(forward, forward, header)
            else:
                first = forward
        if kind and self._meets_others(statement, call, graph):
            if first is not statement:
                raise RefusalError(
                    statement, "a penalty and other losses meet in one statement; give the penalty its own"
                )
            self._hoist(statement, call, casts, header)
            return
        for argument in casts:
            self.editor.insert(self.file.span(argument).end, ".float()")
        if kind:
            self.editor.wrap(first, statement, header)

    def _device_in_helper(self, call: ast.Call) -> str:
        """The device type of a penalty that a helper adds to its loss, whose callers have the region."""
        owner = owner_of(self.file, call)
        graph = self.sinks.graph(owner)
        if not isinstance(owner, FUNCTIONS) or owner in self.facts.trainers:
            raise RefusalError(call, _ADVICE)
        every = {arg.arg for arg in (*owner.args.posonlyargs, *owner.args.args, *owner.args.kwonlyargs)}
        named = [a.id for a in _arguments(call) if isinstance(a, ast.Name) and a.id in every]
        given = {
            argument.id
            for node in walk(owner)
            if isinstance(node, ast.Call) and graph.is_source(node) and node is not call
            for argument in tensors_of(graph, node)
            if isinstance(argument, ast.Name)
        }
        tensor = next((name for name in named if name in given), "")
        if not tensor:
            raise RefusalError(call, _ADVICE)
        return f"{tensor}.device.type"

    def _is_half(self, argument: ast.expr, at: ast.stmt, graph: Graph, forwards: list[ast.Assign]) -> bool:
        """Whether an argument may be of half precision: what the island computes itself, in this round or the last
        one, is not. Raises `RefusalError` where such an argument may be a number, too."""
        for node in ast.walk(argument):
            if not isinstance(node, ast.Name) or node.id not in graph.tainted:
                continue
            reaching = graph.reaching(node.id, at)
            outside = [(s, v) for s, v in reaching if s is not at and s not in forwards]
            half = [v for s, v in outside if _runs_model(v, graph) or self._may_be_half(v, s, graph, set())]
            if half and any(isinstance(value, ast.Constant) for _, value in outside):
                raise RefusalError(
                    argument,
                    "this may be a number here, or a tensor of half precision; give it a name of its own in each case",
                )
            if half or not reaching:
                return True
        return False

    def _meets_others(self, statement: ast.Assign | ast.AugAssign, call: ast.Call, graph: Graph) -> bool:
        """Whether a statement computes with what the region computed, besides the penalty."""
        inside = {id(node) for node in ast.walk(call)}
        return isinstance(statement, ast.Assign) and any(
            isinstance(node, ast.Name) and path_of(node) in graph.tainted and id(node) not in inside
            for node in walk(statement.value)
        )

    def _hoist(self, statement: ast.stmt, call: ast.Call, casts: list[ast.expr], header: str) -> None:
        """Compute a penalty in a statement of its own, before the one that adds it to other losses."""
        name = free_name(self.file, _NAMES)
        text, start = self.file.segment(call), self.file.span(call).start
        if "\n" in text:
            raise RefusalError(call, "a penalty and other losses meet in one statement; give the penalty its own")
        encoded = text.encode()
        for argument in sorted(casts, key=lambda a: -self.file.span(a).end):
            end = self.file.span(argument).end - start
            encoded = encoded[:end] + b".float()" + encoded[end:]
        unit = self.editor.unit(self.file.indentation(statement))
        self.editor.insert_inside(statement, f"{header}\n{unit}{name} = {encoded.decode()}")
        self.editor.replace(call, name)

    # -- forwards outside of the function -----------------------------------------------------------------------------

    def _forwards(self, call: ast.Call) -> list[ast.Assign]:
        """The statements before a penalty's call that run the model whose gradient it takes, the last one first."""
        found: dict[ast.Assign, None] = {}
        for function in self.file.values.functions(call):
            for grad in self.functions.get(function, ()):
                for given in self._given_outputs(function, grad, call):
                    graph = self.sinks.graph(owner_of(self.file, call))
                    reaching = graph.reaching(path_of(given), self.file.statement(call)) if path_of(given) else []
                    for statement, _ in reaching:
                        if not isinstance(statement, ast.Assign):
                            raise RefusalError(call, _FORWARD)
                        found[statement] = None
                    if not reaching:
                        raise RefusalError(call, _FORWARD)
        return sorted(found, key=lambda s: -s.lineno)

    def _given_outputs(self, function: Function, grad: ast.Call, call: ast.Call) -> list[ast.expr]:
        """What a call passes for the outputs that a function takes the gradient of; none where it computes them."""
        outputs = next((k.value for k in grad.keywords if k.arg == "outputs"), grad.args[0] if grad.args else None)
        if outputs is None:
            raise RefusalError(grad, _ADVICE)
        graph = self.sinks.graph(function)
        statements, open_paths = graph.slice(outputs, self.file.statement(grad))
        nodes: list[ast.AST] = [outputs, *statements]
        if any(isinstance(n, ast.Call) and graph.is_source(n) for node in nodes for n in walk(node)):
            return []
        names = {path.split(".", 1)[0] for path in open_paths}
        every = [arg.arg for arg in (*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs)]
        given = [self.file.values.argument(call, function, arg) for arg in every if arg in names and arg != "self"]
        return [value for value in given if value is not None]

    def _forward(self, statement: ast.Assign, graph: Graph) -> None:
        """Give a model that runs before its penalty float32 inputs."""
        calls = [n for n in walk(statement.value) if isinstance(n, ast.Call) and graph.is_source(n)]
        if len(calls) != 1:
            raise RefusalError(statement, _FORWARD)
        if statement in self._done:
            return
        self._done.add(statement)
        self._cast_inputs(calls[0], statement, graph)

    def _may_be_half(self, node: ast.AST, at: ast.stmt, graph: Graph, seen: set[str]) -> bool:
        """Whether a value may come from what a model returned, by way of `.data` or `.detach()` too."""
        for path in paths_in(node):
            if path.split(".", 1)[0] in graph.tainted or path in graph.tainted:
                return True
            root = path.removesuffix(".data").removesuffix(".detach")
            if root in seen:
                continue
            seen.add(root)
            if any(self._may_be_half(value, statement, graph, seen) for statement, value in graph.reaching(root, at)):
                return True
        return False


def _runs_model(value: ast.expr, graph: Graph) -> bool:
    return any(isinstance(node, ast.Call) and graph.is_source(node) for node in walk(value))


def _arguments(call: ast.Call) -> list[ast.expr]:
    return [*call.args, *(keyword.value for keyword in call.keywords)]
