"""Python's statements as statements of the IR."""

from __future__ import annotations

import ast

from amplint.flow import ir
from amplint.flow.kinds import OPTIMIZER, SCALER
from amplint.flow.lower_calls import CallLowering
from amplint.flow.lower_gradients import is_independent
from amplint.flow.paths import element_targets, last_name, path_of
from amplint.flow.predicates import resets_counter
from amplint.flow.vocabulary import PARAMETER_NAME

_TRY = (ast.Try, getattr(ast, "TryStar", ast.Try))
_COMPOUND = (ast.If, ast.For, ast.AsyncFor, ast.While, ast.With, ast.AsyncWith, ast.Match, *_TRY)
MAX_UNROLLED = 4


class StatementLowering(CallLowering):
    """Lowers the statements of one function."""

    def block(self, body: list[ast.stmt]) -> ir.Block:
        """The statements of a block."""
        out, self.out = self.out, []
        for index, statement in enumerate(body):
            before = self.context.temporaries
            if isinstance(statement, ast.If) and resets_counter(statement, body[index + 1 :]):
                self.context.counters.append(self.file.span(statement.test))
            self.statement(statement)
            made_here = range(before + 1, self.context.temporaries + 1)
            if made_here and not isinstance(statement, _COMPOUND):
                self.out.append(ir.Forget(tuple(f"%<{n}>" for n in made_here)))
        made, self.out = self.out, out
        return tuple(made)

    def result_of(self, node: ast.expr) -> ir.Block:
        """The body of a lambda."""
        out, self.out = self.out, []
        value = self.expression(node)
        self.out.append(ir.Return(value, self.file.span(node)))
        made, self.out = self.out, out
        return tuple(made)

    def statement(self, node: ast.stmt) -> None:
        """Lower one statement into the current block."""
        if isinstance(node, ast.Expr):
            self.expression(node.value)
        elif isinstance(node, ast.Assign):
            self.assignment(node.targets, node.value, node)
        elif isinstance(node, ast.AnnAssign):
            if node.value is not None:
                self.assignment([node.target], node.value, node)
        elif isinstance(node, ast.AugAssign):
            self.augmented(node)
        elif isinstance(node, ast.If):
            self.branch(node)
        elif isinstance(node, (ast.For, ast.AsyncFor)):
            self.for_loop(node)
        elif isinstance(node, ast.While):
            out, self.out = self.out, []
            test = self.condition(node.test)
            head, self.out = tuple(self.out), out
            body, orelse = self.block(node.body), self.block(node.orelse)
            self.out.append(ir.Loop(test, (), body, orelse, self.file.span(node), head=head))
        elif isinstance(node, _TRY):
            self.attempt(node)
        elif isinstance(node, (ast.With, ast.AsyncWith)):
            self.within(node.items, node.body)
        elif isinstance(node, ast.Match):
            self.match(node)
        else:
            self.simple(node)

    def simple(self, node: ast.stmt) -> None:
        """Lower a statement that leaves a block, or has only expressions."""
        if isinstance(node, ast.Return):
            value = self.expression(node.value) if node.value is not None else ir.Constant(None)
            self.out.append(ir.Return(value, self.file.span(node)))
        elif isinstance(node, (ast.Break, ast.Continue)):
            kind = "break" if isinstance(node, ast.Break) else "continue"
            self.out.append(ir.Jump(kind, self.file.span(node)))
        elif isinstance(node, ast.Raise):
            self.out.append(ir.Jump("raise", self.file.span(node)))
        elif isinstance(node, ast.Assert):
            test = self.condition(node.test)
            fails = (ir.Jump("raise", self.file.span(node)),)
            self.out.append(ir.If(test, (), fails, self.file.span(node.test), ""))
        elif isinstance(node, ast.Delete):
            for target in node.targets:
                self.bind(target, ir.Opaque(), node)

    # -- assignment ---------------------------------------------------------------------------------------------------

    def assignment(self, targets: list[ast.expr], value: ast.expr, node: ast.stmt) -> None:
        """`targets = value`, element by element where both sides are displays of the same length."""
        target = targets[0]
        if (
            isinstance(target, (ast.Tuple, ast.List))
            and isinstance(value, (ast.Tuple, ast.List))
            and len(target.elts) == len(value.elts)
            and not any(isinstance(item, ast.Starred) for item in (*target.elts, *value.elts))
        ):
            values = [self.expression(item) for item in value.elts]
            for one, lowered in zip(target.elts, values, strict=True):
                self.bind(one, lowered, node)
            return
        if isinstance(target, ast.Attribute) and target.attr == "grad":
            self.gradient_assigned(target, value, node)
            return
        if (call := self.constructs(value)) is not None and (path := path_of(target)) is not None:
            self.construct(call, self.name(path))
            return
        if isinstance(value, ast.Lambda) or self.is_partial(value):
            return
        lowered = self.expression(value)
        for one in targets:
            self.bind(one, lowered, node)

    def bind(self, target: ast.expr, value: ir.Value, node: ast.stmt) -> None:
        """Give a target a value."""
        if isinstance(target, (ast.Tuple, ast.List)):
            part = value if isinstance(value, (ir.Scaled, ir.Plain, ir.Derived)) else ir.Opaque()
            for item in target.elts:
                self.bind(item, part, node)
        elif isinstance(target, ast.Starred):
            self.bind(target.value, ir.Opaque(), node)
        elif isinstance(target, ast.Subscript) and ".grad" in self.file.segment(target.value):
            self.out.append(ir.Event("gradients-changed", self.file.span(node)))
        elif (path := path_of(target)) is not None:
            if isinstance(value, ir.Constant) and value.value is None:
                value = value._replace(kind=self.kind(path))
            if "[*]" in path and not isinstance(value, (ir.New, ir.Optimizer)):
                return
            self.out.append(ir.Assign(self.name(path), value, self.file.span(node)))

    def augmented(self, node: ast.AugAssign) -> None:
        """`target += value`."""
        if isinstance(node.target, ast.Attribute) and node.target.attr == "grad":
            self.gradient_assigned(node.target, node.value, node)
            return
        value = self.expression(node.value)
        path = path_of(node.target)
        if path is not None and "[*]" not in path:
            name = self.name(path)
            mixed = ir.Mix((ir.Copy(name), value), factors=not isinstance(node.op, (ast.Add, ast.Sub)))
            self.out.append(ir.Assign(name, mixed, self.file.span(node)))

    def gradient_assigned(self, target: ast.Attribute, value: ast.expr, node: ast.stmt) -> None:
        """`p.grad = None` zeroes; `p.grad = p.grad.clamp(...)` clips; anything else may be an `unscale_` by hand."""
        span = self.file.span(node)
        if isinstance(value, ast.Constant) and value.value is None:
            if PARAMETER_NAME.search(last_name(target.value)):
                self.out.append(ir.Event("zero-grad", span))
            return
        self.expression(value)
        named = PARAMETER_NAME.search(last_name(target.value))
        if "scale" not in self.file.segment(node):
            if named and self._adds_to(target, value, node):
                self.out.append(ir.Event("grad-read", span))
                return
            if isinstance(node, ast.AugAssign):
                return  # linear: an average over ranks or micro-batches is the same on scaled gradients
        if named:
            self.out.append(ir.Event("gradients-changed", span))

    @staticmethod
    def _adds_to(target: ast.Attribute, value: ast.expr, node: ast.stmt) -> bool:
        """`p.grad += 0.01` and `p.grad = p.grad + noise`."""
        if isinstance(node, ast.AugAssign):
            return isinstance(node.op, (ast.Add, ast.Sub)) and is_independent(value)
        if not isinstance(value, ast.BinOp) or not isinstance(value.op, (ast.Add, ast.Sub)):
            return False
        return path_of(value.left) == path_of(target) and is_independent(value.right)

    # -- control ------------------------------------------------------------------------------------------------------

    def branch(self, node: ast.If) -> None:
        """`if`; a test of `__name__` is taken to hold."""
        if isinstance(node.test, ast.Compare) and path_of(node.test.left) == "__name__":
            self.out += self.block(node.body)
            return
        test = self.condition(node.test)
        then, orelse = self.block(node.body), self.block(node.orelse)
        text = " ".join(self.file.segment(node.test).split())
        self.out.append(ir.If(test, then, orelse, self.file.span(node.test), text))

    def for_loop(self, node: ast.For | ast.AsyncFor) -> None:
        """`for`: over a literal, round by round; over a collection of optimizers, once, since it is one object."""
        span = self.file.span(node)
        literal = node.iter
        if (
            isinstance(literal, (ast.Tuple, ast.List))
            and 0 < len(literal.elts) <= MAX_UNROLLED
            and not any(isinstance(item, ast.Starred) for item in literal.elts)
        ):
            rounds = []
            for item in self.distinct(literal.elts):
                out, self.out = self.out, []
                self.assignment([node.target], item, node)
                rounds.append(tuple(self.out))
                self.out = out
            body, orelse = self.block(node.body), self.block(node.orelse)
            self.out.append(ir.Loop(None, (), body, orelse, span, tuple(rounds)))
            return
        self.expression(node.iter)
        binds, assigned = self.elements(node.target, node.iter, node)
        objects = any(isinstance(s.value, ir.Copy) and s.value.kind in (SCALER, OPTIMIZER) for s in assigned)
        objects = objects or self.indexes_objects(node)
        body, orelse = self.block(node.body), self.block(node.orelse)
        if objects:
            first = (*(ir.Assign(path, ir.Opaque()) for path in binds), *assigned)
            self.out.append(ir.Loop(None, (), body, orelse, span, (first,)))
        else:
            self.out.append(ir.Loop(None, binds, (*assigned, *body), orelse, span))

    def elements(
        self, target: ast.expr, source: ast.expr, node: ast.stmt
    ) -> tuple[tuple[str, ...], tuple[ir.Assign, ...]]:
        """What a loop's head binds: names to anything, and names to elements of collections that matter."""
        assigned: list[ir.Assign] = []
        for variable, collection in element_targets(target, source):
            name, path = path_of(variable), path_of(collection)
            if name is None or path is None:
                continue
            kind = self.kinds.of(name, self.function)
            if kind in (SCALER, OPTIMIZER) or "loss" in name.lower():
                element = ir.Copy(f"{self.name(path)}[*]", kind if kind in (SCALER, OPTIMIZER) else "")
                assigned.append(ir.Assign(self.name(name), element, self.file.span(node)))
        out, self.out = self.out, []
        self.bind(target, ir.Opaque(), node)
        binds = tuple(s.path for s in self.out if isinstance(s, ir.Assign))
        self.out = out
        return binds, tuple(assigned)

    def indexes_objects(self, node: ast.For | ast.AsyncFor) -> bool:
        """Whether a loop's variable picks a scaler or an optimizer out of a collection."""
        names = {n.id for n in ast.walk(node.target) if isinstance(n, ast.Name)}
        for statement in node.body:
            for inner in ast.walk(statement):
                if isinstance(inner, ast.Subscript) and isinstance(inner.slice, ast.Name) and inner.slice.id in names:
                    path = path_of(inner)
                    if path is not None and self.kinds.of(path, self.function) in (SCALER, OPTIMIZER):
                        return True
        return False

    def attempt(self, node: ast.stmt) -> None:
        """`try`."""
        assert isinstance(node, _TRY)
        body = self.block(node.body)
        handlers = tuple(self.block(handler.body) for handler in node.handlers)
        self.out.append(ir.Try(body, handlers, self.block(node.orelse), self.block(node.finalbody)))

    def within(self, items: list[ast.withitem], body: list[ast.stmt]) -> None:
        """`with`, item by item."""
        if not items:
            self.out += self.block(body)
            return
        item = items[0]
        value = self.manager(item.context_expr)
        if item.optional_vars is not None:
            self.bind(item.optional_vars, ir.Opaque(), body[0])
        out, self.out = self.out, []
        self.within(items[1:], body)
        inner, self.out = tuple(self.out), out
        self.out.append(ir.Within(value, inner))

    def match(self, node: ast.Match) -> None:
        """`match`, as a chain of tests."""
        subject = node.subject
        self.expression(subject)
        arms: list[tuple[ir.Cond, ir.Block, ast.match_case]] = []
        for case in node.cases:
            test: ir.Cond = ir.Maybe()
            if isinstance(case.pattern, (ast.MatchValue, ast.MatchSingleton)) and case.guard is None:
                value = case.pattern.value
                right = value if isinstance(value, ast.expr) else ast.Constant(value)
                test = self.condition(ast.copy_location(ast.Compare(subject, [ast.Eq()], [right]), subject))
            elif isinstance(case.pattern, ast.MatchAs) and case.pattern.pattern is None and case.guard is None:
                test = ir.Constant(True)
            arms.append((test, self.block(case.body), case))
        chain: ir.Block = ()
        for test, body, case in reversed(arms):
            span = self.file.span(case.pattern)
            chain = (ir.If(test, body, chain, span, f"case {self.file.segment(case.pattern)}"),)
        self.out += chain
