"""Python's expressions as values and conditions of the IR; the events of their calls come first."""

from __future__ import annotations

import ast

from amplint.flow import ir
from amplint.flow.conditions import atom
from amplint.flow.kinds import OPTIMIZER, SCALER
from amplint.flow.lower_gradients import GradientLowering
from amplint.flow.paths import last_name, path_of
from amplint.flow.vocabulary import PURE_CALLS

_CONTAINERS = (ast.Tuple, ast.List, ast.Set)


class ExpressionLowering(GradientLowering):
    """Lowers expressions and tests."""

    def expression(self, node: ast.expr) -> ir.Value:
        """The value of an expression; its events are added in the order of evaluation."""
        path = path_of(node)
        if path is not None:
            self.gradient_read(node)
            return ir.Gradient() if _is_gradient(node) else ir.Copy(self.name(path), self.kind(path))
        if isinstance(node, ast.Constant):
            if node.value is None or isinstance(node.value, bool):
                return ir.Constant(node.value)
            return ir.Plain()
        if isinstance(node, ast.Call):
            return self.call(node)
        if isinstance(node, ast.NamedExpr):
            value = self.expression(node.value)
            if (target := path_of(node.target)) is not None:
                self.out.append(ir.Assign(self.name(target), value, self.file.span(node)))
            return value
        if isinstance(node, ast.IfExp):
            return self._choice(self.condition(node.test), node.body, node.orelse, node.test)
        if isinstance(node, ast.Compare) or (isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not)):
            return self.condition(node)
        if isinstance(node, ast.BoolOp):
            return self._boolean(node)
        if isinstance(node, ast.BinOp):
            sides = (self.expression(node.left), self.expression(node.right))
            return ir.Mix(sides, factors=not isinstance(node.op, (ast.Add, ast.Sub)))
        if isinstance(node, ast.UnaryOp):
            return ir.Mix((self.expression(node.operand),))
        if isinstance(node, (ast.Attribute, ast.Subscript, ast.Await, ast.Starred)):
            self.gradient_read(node)
            value = self.expression(node.value)
            return ir.Gradient() if _is_gradient(node) else ir.Derived((value,))
        if isinstance(node, _CONTAINERS):
            self.distinct(node.elts)
            return ir.Derived(tuple(self.expression(item) for item in node.elts))
        if isinstance(node, (ast.ListComp, ast.SetComp, ast.GeneratorExp, ast.DictComp)):
            return self._comprehension(node)
        if isinstance(node, (ast.Yield, ast.YieldFrom)):
            if node.value is not None:
                self.expression(node.value)
            self.out.append(ir.Suspend())
            return ir.Opaque()
        if isinstance(node, ast.Lambda):
            return ir.Opaque()
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.expr):
                self.expression(child)
        return ir.Opaque()

    def distinct(self, items: list[ast.expr]) -> list[ast.expr]:
        """The items of a literal without an optimizer that stands there a second time, which is noted."""
        seen: set[str] = set()
        kept: list[ast.expr] = []
        for item in items:
            path = path_of(item)
            if path is not None and path in seen and self.kind(path) == OPTIMIZER:
                self.context.duplicates.append((self.file.span(item), self.function.name, path))
                continue
            if path is not None:
                seen.add(path)
            kept.append(item)
        return kept

    def _choice(self, test: ir.Cond, body: ast.expr, orelse: ast.expr, where: ast.expr) -> ir.Value:
        chosen = self.temporary()
        arms = []
        for branch in (body, orelse):
            out, self.out = self.out, []
            value = self.expression(branch)
            if isinstance(value, ir.Constant) and value.value is None:
                value = value._replace(kind=SCALER)
            self.out.append(ir.Assign(chosen, value))
            arms.append(tuple(self.out))
            self.out = out
        text = " ".join(self.file.segment(where).split())
        self.out.append(ir.If(test, arms[0], arms[1], self.file.span(where), text))
        return ir.Copy(chosen)

    def _boolean(self, node: ast.BoolOp) -> ir.Value:
        """`a or GradScaler()` is a choice; a test of several parts is a condition."""
        last = node.values[-1]
        if isinstance(node.op, ast.Or) and len(node.values) == 2 and isinstance(last, ast.Call):
            made = self.kinds.constructed(last)
            if made in (SCALER, OPTIMIZER):
                return self._choice(self.condition(node.values[0]), node.values[0], last, node.values[0])
        return self.condition(node)

    def _comprehension(self, node: ast.ListComp | ast.SetComp | ast.GeneratorExp | ast.DictComp) -> ir.Value:
        """A loop over its element; what the elements are is what the whole is."""
        value: ir.Value = ir.Opaque()
        before = len(self.inner)
        for generator in node.generators:
            self.expression(generator.iter)
            self.inner += [n.id for n in ast.walk(generator.target) if isinstance(n, ast.Name)]
        out, self.out = self.out, []
        assigned: list[ir.Stmt] = []
        binds: tuple[str, ...] = ()
        for generator in node.generators:
            binds_here, assigned_here = self.elements(generator.target, generator.iter, self.file.statement(node))
            binds += binds_here
            assigned += assigned_here
            for test in generator.ifs:
                self.expression(test)
        parts = (node.key, node.value) if isinstance(node, ast.DictComp) else (node.elt,)
        for part in parts:
            value = self.expression(part)
        body, self.out = tuple(self.out), out
        del self.inner[before:]
        if any(isinstance(s, (ir.Event, ir.Invoke)) for s in ir.every(body)):
            objects = any(isinstance(s, ir.Assign) and isinstance(s.value, ir.Copy) and s.value.kind for s in assigned)
            rounds = (tuple(assigned),) if objects else None
            head = () if objects else tuple(assigned)
            self.out.append(ir.Loop(None, () if objects else binds, (*head, *body), (), self.file.span(node), rounds))
        elif isinstance(value, ir.Copy) and assigned:
            return ir.Derived(tuple(s.value for s in assigned if isinstance(s, ir.Assign)))
        return value if isinstance(value, (ir.Scaled, ir.Derived, ir.Plain)) else ir.Derived(())

    def condition(self, test: ast.expr) -> ir.Cond:
        """A test; its events are added first."""
        if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
            return ir.Not(self.condition(test.operand))
        if isinstance(test, ast.BoolOp):
            parts = [self.condition(value) for value in test.values]
            whole = parts[0]
            for part in parts[1:]:
                whole = ir.Both(whole, part) if isinstance(test.op, ast.And) else ir.either(whole, part)
            return whole
        path = path_of(test)
        if path is not None:
            return ir.Maybe() if "[*]" in path else ir.Truthy(self.name(path), self.kind(path))
        if isinstance(test, ast.Constant):
            return ir.Constant(bool(test.value))
        if isinstance(test, ast.NamedExpr):
            self.expression(test)
            target = path_of(test.target)
            return ir.Truthy(self.name(target)) if target is not None else ir.Maybe()
        if isinstance(test, ast.Call):
            receiver = path_of(test.func.value) if isinstance(test.func, ast.Attribute) else None
            if receiver is not None and last_name(test.func) == "is_enabled" and self.kind(receiver) == SCALER:
                return ir.Enabled(self.name(receiver))
            if last_name(test.func) == "bool" and len(test.args) == 1:
                return self.condition(test.args[0])
            if last_name(test.func) not in PURE_CALLS:
                value = self.call(test)
                if isinstance(value, ir.Atom):
                    return value
                return ir.Truthy(value.path) if isinstance(value, ir.Copy) else ir.Maybe()
        found = atom(test, self.name)
        if isinstance(found, ir.Maybe):
            for child in ast.iter_child_nodes(test):
                if isinstance(child, ast.expr):
                    self.expression(child)
        else:
            self.gradients_in(test)
        if isinstance(found, ir.IsNone) and (tested := self._tested(test)) is not None:
            return found._replace(kind=self.kind(tested))
        return found

    @staticmethod
    def _tested(test: ast.expr) -> str | None:
        return path_of(test.left) if isinstance(test, ast.Compare) else None


def _is_gradient(node: ast.expr) -> bool:
    """Whether an expression is `x.grad` or a part of it."""
    part: ast.expr = node
    while isinstance(part, (ast.Attribute, ast.Subscript)):
        if isinstance(part, ast.Attribute) and part.attr == "grad":
            return True
        part = part.value
    return False
