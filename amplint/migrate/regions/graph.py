"""Which statements make nodes of a loss's graph: the loss is sliced backward, the models' outputs forward."""

from __future__ import annotations

import ast
from functools import cached_property
from typing import TYPE_CHECKING

from amplint.facts.values import Function, path_of, returns
from amplint.migrate.facts import Facts
from amplint.migrate.regions import plain
from amplint.migrate.regions.indirect import runs_model
from amplint.migrate.regions.packed import is_packed
from amplint.migrate.tree import (
    FUNCTIONS,
    LOOPS,
    assigned_paths,
    chain,
    header,
    is_cut_off,
    may_be_skipped,
    overlaps,
    passed,
    position,
    statements_in,
)
from amplint.rewrite.statements import siblings

if TYPE_CHECKING:
    from amplint.source import SourceFile

_DEPTH = 4


class Graph:
    """The statements of one function, or of the module, that make nodes of graphs that reach a backward."""

    def __init__(
        self,
        facts: Facts,
        owner: Function | ast.Module,
        given: frozenset[str] = frozenset(),
        within: frozenset[ast.AST] = frozenset(),
    ) -> None:
        """`given` are the parameters that have a graph, `within` the functions that are looked at already."""
        self.facts = facts
        self._within = within | {owner}
        self._is_inner = bool(within)
        self.file: SourceFile = facts.file
        self.owner = owner
        self.statements = list(statements_in(owner))
        self._definitions: list[tuple[ast.stmt, str, ast.expr, bool]] = [
            (statement, *pair) for statement in self.statements for pair in assigned_paths(statement) if pair[0] != "_"
        ]
        self._sliced: set[ast.stmt] = set()
        self._trained: set[ast.stmt] = set()
        self._through = False
        self._active: set[ast.AST] = set()
        self.tainted: set[str] = set(given)
        self._taint()

    def _taint(self) -> None:
        grown = True
        while grown:
            grown = False
            for _, path, value, _ in self._definitions:
                if path not in self.tainted and self.is_graph(value):
                    self.tainted.add(path)
                    grown = True

    @cached_property
    def _tainted_through(self) -> set[str]:
        """The paths that would have a graph if `detach()` cut none off."""
        outer, self._through, self.tainted = self.tainted, True, set(self.tainted)
        try:
            self._taint()
            return self.tainted
        finally:
            self._through, self.tainted = False, outer

    def _is_graph_through(self, value: ast.expr) -> bool:
        """Whether a value is computed from a model's outputs, cut off from their graph or not."""
        through = self._tainted_through
        outer, self._through, self.tainted = self.tainted, True, through
        try:
            return self.is_graph(value)
        finally:
            self._through, self.tainted = False, outer

    # -- forward ------------------------------------------------------------------------------------------------------

    def is_graph(self, node: ast.AST | None, depth: int = 0) -> bool:
        """Whether an expression may hold a tensor with a graph behind it."""
        if node is None or isinstance(node, (ast.Constant, ast.Compare, ast.JoinedStr, *FUNCTIONS, ast.ClassDef)):
            return False
        if is_packed(self.file, node):
            return self.is_graph(node.value, depth)  # type: ignore[attr-defined]
        if isinstance(node, (ast.Name, ast.Attribute)) and (path := path_of(node)):
            if isinstance(node, ast.Attribute) and node.attr in plain.ATTRIBUTES:
                return self._through and node.attr == "data" and self.is_graph(node.value, depth)
            return (
                self.is_parameter(node)
                or self._is_kept(node)
                or any(path == other or path.startswith(other + ".") for other in self.tainted)
            )
        if isinstance(node, ast.Attribute):
            kept = node.attr not in plain.ATTRIBUTES or (self._through and node.attr == "data")
            return kept and self.is_graph(node.value, depth)
        if isinstance(node, ast.Call):
            return self._call_is_graph(node, depth)
        if isinstance(node, ast.Subscript):
            return self.is_graph(node.value, depth)
        if isinstance(node, (ast.ListComp, ast.SetComp, ast.GeneratorExp, ast.DictComp)):
            return self._comprehension_is_graph(node, depth)
        if isinstance(node, ast.IfExp):
            return self.is_graph(node.body, depth) or self.is_graph(node.orelse, depth)
        return any(self.is_graph(child, depth) for child in ast.iter_child_nodes(node))

    def _is_kept(self, node: ast.expr) -> bool:
        """Whether an expression is what a forward left in its module, as in `loss + model.kl`."""
        if (
            not isinstance(node, ast.Attribute)
            or path_of(node.value) in ("self", "")
            or not isinstance(node.ctx, ast.Load)
        ):
            return False
        return self.facts.is_module(node.value) and node.attr in self.facts.kept_by_modules

    def _comprehension_is_graph(
        self, node: ast.ListComp | ast.SetComp | ast.GeneratorExp | ast.DictComp, depth: int
    ) -> bool:
        """A comprehension's own names have a graph where what they run over has one."""
        own = {n.id for g in node.generators for n in ast.walk(g.target) if isinstance(n, ast.Name)}
        outer = self.tainted
        given = any(self.is_graph(generator.iter, depth) for generator in node.generators)
        self.tainted = outer | own if given else outer - own
        try:
            results = [node.key, node.value] if isinstance(node, ast.DictComp) else [node.elt]
            return any(self.is_graph(result, depth) for result in results)
        finally:
            self.tainted = outer

    def _call_is_graph(self, call: ast.Call, depth: int) -> bool:
        func = call.func
        names = self.file.resolve(func)
        if any(name in plain.TORCH or name.startswith(plain.OTHER_LIBRARIES) for name in names):
            return False
        if (
            isinstance(func, ast.Attribute)
            and func.attr in plain.METHODS
            and not names
            and self.facts.module_of(call) is None
            and not any(self._holds_source(function) for function in self.file.values.functions(call))
        ):
            return self._through and func.attr == "detach" and self.is_graph(func.value, depth)
        if isinstance(func, ast.Name) and func.id in plain.FUNCTIONS:
            return False
        arguments = [*call.args, *(keyword.value for keyword in call.keywords)]
        if any(isinstance(value, ast.ClassDef) for value in self.file.values.of(func)):
            kept = [argument for argument in arguments if not isinstance(argument, ast.Lambda)]
            return any(self.is_graph(argument, depth) for argument in kept)  # an object that may keep them
        functions = () if self.facts.module_of(call) is not None else self.file.values.functions(call)
        if not functions and self.is_source(call):
            return self._gives_graph(call, depth)
        given = any(self.is_graph(argument, depth) for argument in arguments)
        if functions and not (isinstance(func, ast.Attribute) and self.is_graph(func.value, depth)):
            return depth >= _DEPTH or any(self._returns_graph(function, given, depth) for function in functions)
        return given or (isinstance(func, ast.Attribute) and self.is_graph(func.value, depth))

    def _gives_graph(self, call: ast.Call, depth: int) -> bool:
        """Whether what a module gives may have a graph, which a method of the file that acts on samples does not."""
        functions = self.file.values.functions(call)
        if not functions or not isinstance(call.func, ast.Attribute) or depth >= _DEPTH:
            return True
        return any(self._returns_graph(function, True, depth) for function in functions)

    def _returns_graph(self, function: Function, given: bool, depth: int) -> bool:
        """Whether a function of the file returns something with a graph, given arguments that have one or not."""
        if function in self.facts.trainers or (function in self._within and (depth or self._is_inner)):
            return False  # what a recursion returns is what the function returns elsewhere
        if (
            not given
            and not any(self.is_source(node) for node in ast.walk(function) if isinstance(node, ast.Call))
            and not self._reads_outer_parameter(function)
        ):
            return False
        arguments = [*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs]
        arguments += [arg for arg in (function.args.vararg, function.args.kwarg) if arg is not None]
        names = frozenset(a.arg for a in arguments if a.arg != "self") if given else frozenset()
        inner = Graph(self.facts, function, names, self._within)
        return any(inner._gives(value, depth + 1) for value in returns(function))

    def _gives(self, value: ast.expr, depth: int) -> bool:
        """Whether what is returned has a graph; a name may have had one that it no longer has there."""
        reaching = self.reaching(value.id, self.file.statement(value)) if isinstance(value, ast.Name) else ()
        return any(self.is_graph(made, depth) for _, made in reaching) if reaching else self.is_graph(value, depth)

    def is_parameter(self, node: ast.expr) -> bool:
        """Whether an expression is a tensor that the script itself made with `requires_grad`."""
        for value in self.file.values.of(node):
            if isinstance(value, ast.Call):
                if any(
                    k.arg == "requires_grad" and isinstance(k.value, ast.Constant) and k.value.value is True
                    for k in value.keywords
                ):
                    return True
                if any(name == "torch.nn.Parameter" for name in self.file.resolve(value.func)):
                    return True
                if isinstance(value.func, ast.Attribute) and value.func.attr == "requires_grad_":
                    return True
        return False

    def is_source(self, call: ast.Call) -> bool:
        """Whether a call makes graph nodes out of a model's weights."""
        if self.facts.module_of(call) is not None:
            return True
        func = call.func
        if self.facts.trains(call) or any(isinstance(value, ast.ClassDef) for value in self.file.values.of(func)):
            return False
        if isinstance(func, ast.Attribute) and func.attr in ("parameters", "named_parameters", "DataParallel"):
            return False
        if runs_model(self.facts, call, self.is_source, self._holds_source, self._active):
            return True
        names = self.file.resolve(func)
        if any(
            name.startswith(("torch.optim", "torch.nn.", "torch.save", "torch.utils", "torch.load")) for name in names
        ):
            return False
        functions = self.file.values.functions(call)
        if functions:
            return any(self._holds_source(function) for function in functions)
        if isinstance(func, ast.Attribute) and func.attr == "forward" and not names:
            return True  # of a module, or of an object around one
        if isinstance(func, ast.Name) and (func.id in plain.FUNCTIONS or func.id[:1].isupper()):
            return False
        return not names and any(self.facts.is_module(a) for a in call.args if isinstance(a, (ast.Name, ast.Attribute)))

    def _holds_source(self, function: Function) -> bool:
        if function in self._active or function in self.facts.trainers:
            return False
        if self._reads_outer_parameter(function):
            return True
        self._active.add(function)
        try:
            return any(self.is_source(node) for node in ast.walk(function) if isinstance(node, ast.Call))
        finally:
            self._active.discard(function)

    def _reads_outer_parameter(self, function: Function) -> bool:
        """Whether a function computes with weights that the module made with `requires_grad`, as in `x @ w1 + b1`."""
        scope = self.file.names.scopes.get(function)
        return scope is not None and any(
            isinstance(node, ast.Name)
            and isinstance(node.ctx, ast.Load)
            and node.id not in scope.bindings
            and self.is_parameter(node)
            for node in ast.walk(function)
        )

    # -- backward -----------------------------------------------------------------------------------------------------

    def slice(self, expression: ast.AST, at: ast.stmt) -> tuple[set[ast.stmt], set[str]]:
        """The statements that a value depends on, and the paths for which none is in this function."""
        found: set[ast.stmt] = set()
        cut_off: set[ast.stmt] = set()
        open_paths: set[str] = set()
        seen: set[tuple[str, ast.stmt, bool]] = set()
        users: dict[ast.stmt, set[ast.stmt]] = {}
        rooted: set[ast.stmt] = set()
        pending = [(path, at, False) for path in self.value_paths(expression)]
        while pending:
            path, use, cut = pending.pop()
            if (path, use, cut) in seen:
                continue
            seen.add((path, use, cut))
            reaching = self.reaching(path, use)
            if not reaching and not cut and not is_cut_off(path, use):
                open_paths.add(path)
                if path in self.tainted or path.split(".", 1)[0] in self.tainted:
                    rooted.add(use)
            for statement, value in reaching:
                is_graph = self.is_graph(value)
                if not is_graph and not cut and not self._cuts(value):
                    # Data, or what was sampled or measured; only a container of this name could bring a graph.
                    open_paths |= {p for p in self.value_paths(value) if not self.reaching(p, statement)}
                if not is_graph and not self._is_graph_through(value):
                    continue
                is_cut = cut or not is_graph
                (cut_off if is_cut else found).add(statement)
                users.setdefault(statement, set()).add(use)
                if self._begins_graph(value):
                    rooted.add(statement)
                pending += [(inner, statement, is_cut) for inner in self.value_paths(value)]
        # A name that once held a graph may hold data here: only what is computed from a beginning of one counts.
        cut_off -= found
        found = (found | cut_off) & self._reached(rooted, users)
        bare = {
            statement
            for statement in found
            if statement in cut_off or self.file.regions.without_grad(statement) or self._is_bare(statement)
        }
        self._sliced |= found
        self._trained |= self._reached(rooted - bare, {s: u - bare for s, u in users.items()})
        for statement in list(found):
            found.update(s for s in chain(self.file, statement)[1:] if isinstance(s, (ast.With, ast.AsyncWith)))
        return found, open_paths

    def _is_bare(self, statement: ast.stmt) -> bool:
        """Whether a statement assigns what functions of the file computed without gradients."""
        value = statement.value if isinstance(statement, (ast.Assign, ast.AnnAssign)) else None
        if not isinstance(value, ast.Call) or self._active:
            return False
        functions = self.file.values.functions(value)
        return bool(functions) and all(self._returns_bare(function, value) for function in functions)

    def _returns_bare(self, function: Function, call: ast.Call) -> bool:
        arguments = [*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs]
        given = {arg.arg: passed(self.file, call, function, arg.arg) for arg in arguments}
        names = frozenset(name for name, values in given.items() if any(map(self.is_graph, values)))
        inner = Graph(self.facts, function, names, self._within)
        inner._active = {function}
        for value in returns(function):
            statement = self.file.statement(value)
            if self.file.regions.without_grad(statement) or isinstance(value, ast.Constant):
                continue
            statements, open_paths = inner.slice(value, statement)
            nodes = inner.nodes_of(statements)
            brings = any(path.split(".", 1)[0] in inner.tainted for path in open_paths)
            if not nodes or brings or inner._begins_graph(value) or not all(map(inner.is_without_grad, nodes)):
                return False
        return bool(returns(function))

    @staticmethod
    def _reached(roots: set[ast.stmt], users: dict[ast.stmt, set[ast.stmt]]) -> set[ast.stmt]:
        """The roots and all statements that use what they give a value, by way of others too."""
        found = set(roots)
        pending = list(roots)
        while pending:
            for user in users.get(pending.pop(), ()):
                if user not in found:
                    found.add(user)
                    pending.append(user)
        return found

    def is_without_grad(self, statement: ast.stmt) -> bool:
        """Whether all that a statement of a slice computes with was computed without gradients."""
        return statement in self._sliced and statement not in self._trained

    def _cuts(self, value: ast.expr) -> bool:
        """Whether an expression would give no graph even if all that it reads had one, as behind `detach()`."""
        outer = self.tainted
        self.tainted = outer | self.value_paths(value)
        try:
            return not self.is_graph(value)
        finally:
            self.tainted = outer

    def _begins_graph(self, value: ast.expr) -> bool:
        """Whether an expression makes a graph of weights or parameters itself."""
        return any(
            self.is_source(node) if isinstance(node, ast.Call) else self.is_parameter(node) or self._is_kept(node)
            for node in ast.walk(value)
            if isinstance(node, (ast.Call, ast.Name, ast.Attribute))
        )

    def value_paths(self, expression: ast.AST) -> set[str]:
        """The paths whose values go into an expression; what is called is left out unless it is a value's method."""
        found: set[str] = set()
        stack = [expression]
        while stack:
            node = stack.pop()
            if isinstance(node, ast.Call):
                stack += [*node.args, *(keyword.value for keyword in node.keywords)]
                if isinstance(node.func, ast.Attribute) and not self.file.resolve(node.func):
                    if not self.facts.is_module(node.func) and path_of(node.func.value) not in ("self", ""):
                        found.add(path_of(node.func.value))
                    elif not path_of(node.func.value):
                        stack.append(node.func.value)
                continue
            if isinstance(node, (ast.Name, ast.Attribute)) and path_of(node):
                if not self.file.resolve(node):
                    found.add(path_of(node))
                continue
            if isinstance(node, ast.Lambda):
                continue
            stack.extend(ast.iter_child_nodes(node))
        return {path for path in found if path not in ("self", "cls")}

    def reaching(self, path: str, use: ast.stmt) -> list[tuple[ast.stmt, ast.expr]]:
        """The definitions of a path that a statement may see."""
        all_of = [d for d in self._definitions if overlaps(d[1], path)]
        inside_self = [d for d in all_of if d[0] is use and isinstance(use, (*LOOPS, ast.With, ast.AsyncWith))]
        before = [d for d in all_of if position(d[0]) < position(use)] + inside_self
        after = [d for d in all_of if d not in before]
        killers = [d for d in before if d[3] and d[1] == path and self._always_before(d[0], use)]
        last = max(killers, key=lambda d: position(d[0]), default=None)
        if last is not None:
            before = [d for d in before if position(d[0]) >= position(last[0])]
        around = [loop for loop in chain(self.file, use)[1:] if isinstance(loop, LOOPS)]
        if last is not None:
            around = [loop for loop in around if loop not in chain(self.file, last[0])[1:] and loop is not last[0]]
        carried = [d for d in after if any(loop in chain(self.file, d[0]) for loop in around)]
        return [(statement, value) for statement, _, value, _ in [*before, *carried]]

    def _always_before(self, definition: ast.stmt, use: ast.stmt) -> bool:
        """Whether a definition has run whenever a use is reached: its block holds the use, or it is a loop's target."""
        around = chain(self.file, use)
        if isinstance(definition, LOOPS):
            return definition in around[1:]
        place: ast.AST = definition
        while isinstance(place, ast.stmt):
            block = {id(member) for member in siblings(self.file, place)}
            if any(id(member) in block for member in around):
                return True
            # A loop over something is taken to run at least once.
            outer = self.file.parent(place)
            if not isinstance(outer, (ast.For, ast.With)) or place not in outer.body:
                return False
            if isinstance(outer, ast.For) and may_be_skipped(outer, place):
                return False
            place = outer
        return False

    def nodes_of(self, statements: set[ast.stmt]) -> set[ast.stmt]:
        """Those of the statements that make nodes of a graph themselves (what their blocks do is not counted)."""
        return {statement for statement in statements if self.makes_nodes(statement)}

    def makes_nodes(self, statement: ast.stmt) -> bool:
        """Whether a statement computes with models or with their outputs."""
        if isinstance(statement, (ast.With, ast.AsyncWith)):
            return False
        for _, value, _ in assigned_paths(statement):
            if self.is_graph(value) and not path_of(value):
                return True
        return any(
            isinstance(node, ast.Call) and self.is_source(node) and self.is_graph(node) for node in header(statement)
        )
