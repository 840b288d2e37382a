"""Python's expressions as values of the IR, and the calls among them as events."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from amplint.flow import ir
from amplint.flow.conditions import atom
from amplint.flow.functions import Function, binds
from amplint.flow.kinds import OPTIMIZER, SCALER
from amplint.flow.paths import last_name, path_of, root_of
from amplint.flow.vocabulary import (
    AUTOCAST_NAME,
    AUTOCASTS,
    CLIP_NAME,
    CLIPS,
    ENABLED_FIRST,
    FRAMEWORK,
    HARMLESS_CALL,
    HOOK_NAME,
    OPTIMIZER_METHODS,
    PARAMETER_NAME,
    PURE_CALLS,
    READS_GRADIENTS,
    SCALERS,
    SCHEDULER_NAME,
    TENSOR_METHODS,
)
from amplint.model import Span

if TYPE_CHECKING:
    from amplint.flow.lower import Context

_SCALER_EVENTS = {"unscale_": "unscale", "step": "step", "update": "update"}
_CONTAINERS = (ast.Tuple, ast.List, ast.Set)


class CallLowering:
    """Lowers the expressions of one function; statements come out in `out`."""

    def __init__(self, function: Function, context: Context) -> None:
        self.function = function
        self.context = context
        self.functions = context.functions
        self.kinds = context.kinds
        self.file = context.file
        self.out: list[ir.Stmt] = []
        self.tries = 0
        self._inner: list[str] = []

    # -- names -------------------------------------------------------------------------------------------------------

    def name(self, path: str) -> str:
        """A source path as a path of the IR."""
        root = root_of(path)
        if self.function is self.functions.module and root not in self._inner:
            return path
        if root in self._inner:
            return f"%{path}"
        current: Function | None = self.function
        sigil = "%"
        while current is not None and current is not self.functions.module:
            if root in current.scope.globals:
                return path
            if binds(current, root):
                return sigil + path
            current = current.outer
            sigil = "^" if sigil == "%" else f"^{sigil}"
        return path

    def temporary(self) -> str:
        """A new local that no source has."""
        self.context.temporaries += 1
        return f"%<{self.context.temporaries}>"

    def kind(self, path: str | None) -> str:
        """`scaler`, `optimizer` or ""."""
        found = self.kinds.of(path, self.function)
        return found if found in (SCALER, OPTIMIZER) else ""

    # -- expressions --------------------------------------------------------------------------------------------------

    def expression(self, node: ast.expr) -> ir.Value:
        """The value of an expression; its events are added in the order of evaluation."""
        path = path_of(node)
        if path is not None:
            self._gradient_read(node)
            return ir.Copy(self.name(path), self.kind(path))
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
            self._gradient_read(node)
            return ir.Derived((self.expression(node.value),))
        if isinstance(node, _CONTAINERS):
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
        before = len(self._inner)
        for generator in node.generators:
            self.expression(generator.iter)
            self._inner += [n.id for n in ast.walk(generator.target) if isinstance(n, ast.Name)]
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
        del self._inner[before:]
        if any(isinstance(s, (ir.Event, ir.Invoke)) for s in ir.every(body)):
            objects = any(isinstance(s, ir.Assign) and isinstance(s.value, ir.Copy) and s.value.kind for s in assigned)
            rounds = (tuple(assigned),) if objects else None
            head = () if objects else tuple(assigned)
            self.out.append(ir.Loop(None, () if objects else binds, (*head, *body), (), self.file.span(node), rounds))
        elif isinstance(value, ir.Copy) and assigned:
            return ir.Derived(tuple(s.value for s in assigned if isinstance(s, ir.Assign)))
        return value if isinstance(value, (ir.Scaled, ir.Derived, ir.Plain)) else ir.Derived(())

    def elements(
        self, target: ast.expr, source: ast.expr, node: ast.stmt
    ) -> tuple[tuple[str, ...], tuple[ir.Assign, ...]]:
        """See `StatementLowering.elements`."""
        raise NotImplementedError

    # -- conditions ---------------------------------------------------------------------------------------------------

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
                return ir.Truthy(value.path) if isinstance(value, ir.Copy) else ir.Maybe()
        found = atom(test, self.name)
        if isinstance(found, ir.Maybe):
            for child in ast.iter_child_nodes(test):
                if isinstance(child, ast.expr):
                    self.expression(child)
        else:
            self._reads_in(test)
        if isinstance(found, ir.IsNone) and (tested := self._tested(test)) is not None:
            return found._replace(kind=self.kind(tested))
        return found

    @staticmethod
    def _tested(test: ast.expr) -> str | None:
        return path_of(test.left) if isinstance(test, ast.Compare) else None

    def _reads_in(self, test: ast.expr) -> None:
        for node in ast.walk(test):
            if isinstance(node, ast.Attribute) and node.attr == "grad":
                self._gradient_read(node)

    # -- gradients ----------------------------------------------------------------------------------------------------

    def _gradient_read(self, node: ast.expr) -> None:
        """`p.grad.norm()` and the like: numbers are made of a parameter's gradient."""
        grad: ast.AST | None = node
        while isinstance(grad, (ast.Attribute, ast.Subscript, ast.Call)):
            if isinstance(grad, ast.Attribute) and grad.attr == "grad":
                break
            grad = grad.func if isinstance(grad, ast.Call) else grad.value
        if not (isinstance(grad, ast.Attribute) and grad.attr == "grad"):
            return
        if not PARAMETER_NAME.search(last_name(grad.value)) or not isinstance(grad.ctx, ast.Load):
            return
        event = self._use_of_gradient(grad)
        known = any(isinstance(s, ir.Event) and s.span == self.file.span(grad) for s in self.out[-4:])
        if event is not None and not known:
            self.out.append(ir.Event(event, self.file.span(grad)))

    def _use_of_gradient(self, grad: ast.Attribute) -> str | None:
        """The kind of event that a use of a gradient is, None for one that does not look at its size."""
        child: ast.AST = grad
        parent = self.file.parent(child)
        while parent is not None and not isinstance(parent, ast.stmt):
            if isinstance(parent, ast.Attribute):
                name = parent.attr
                if name in ("zero_", "detach_"):
                    return "zero-grad" if name == "zero_" else None
                if name in ("clamp_", "clamp", "clip_", "clip"):
                    return "clip"
                if name in ("mul_", "div_", "copy_", "add_", "sub_"):
                    return "gradients-changed" if "scal" in self.file.segment(self.file.statement(grad)) else None
                if name in READS_GRADIENTS:
                    return "grad-read"
            elif isinstance(parent, ast.Call) and child in parent.args:
                name = last_name(parent.func)
                if name in ("clamp_", "clamp", "clip_"):
                    return "clip"
                return "grad-read" if name in READS_GRADIENTS or name == "vector_norm" else None
            elif not isinstance(parent, (ast.Call, ast.Subscript)):
                return None
            child, parent = parent, self.file.parent(parent)
        return None

    # -- managers -----------------------------------------------------------------------------------------------------

    def region(self, call: ast.Call) -> ir.Region:
        """An autocast call as a region with its condition."""
        names = set(self.file.resolve(call.func))
        flag = next((k.value for k in call.keywords if k.arg == "enabled"), None)
        position = 0 if names & ENABLED_FIRST and not names - ENABLED_FIRST else 2
        if flag is None and len(call.args) > position:
            flag = call.args[position]
        enabled = None if flag is None else self.condition(flag)
        if isinstance(enabled, ir.Constant) and enabled.value:
            enabled = None
        return ir.Region(self.file.span(call), enabled)

    def manager(self, node: ast.expr) -> ir.Value:
        """The value of a `with` item."""
        if isinstance(node, ast.Call):
            target = self.local(node.func)
            if target is not None and (region := self._context_manager(target)) is not None:
                return region
        return self.expression(node)

    def _context_manager(self, target: str) -> ir.Value | None:
        """The region that a `@contextmanager` of this file yields in; `Plain` if it yields in none, None if it isn't one."""
        node = self.functions.by_name[target].node
        if not isinstance(node, ast.FunctionDef):
            return None
        if not any("contextmanager" in last_name(d) for d in node.decorator_list):
            return None
        for inner in ast.walk(node):
            if isinstance(inner, ast.With) and any(isinstance(n, ast.Yield) for s in inner.body for n in ast.walk(s)):
                for item in inner.items:
                    call = item.context_expr
                    if isinstance(call, ast.Call) and AUTOCASTS & set(self.file.resolve(call.func)):
                        return ir.Region(self.file.span(call), ir.Maybe() if call.keywords else None)
        return ir.Plain()

    # -- what a callee is ---------------------------------------------------------------------------------------------

    def local(self, func: ast.expr) -> str | None:
        """The procedure of this file that a call of `func` runs, None where that is not certain."""
        if isinstance(func, ast.Name):
            return self._named(func.id)
        if not isinstance(func, ast.Attribute):
            return None
        if isinstance(func.value, ast.Call) and last_name(func.value.func) == "super" and self.function.owner:
            for base in self.functions.bases.get(self.function.owner, ()):
                if func.attr in self.functions.methods[base]:
                    return self.functions.methods[base][func.attr]
            return None
        path = path_of(func.value)
        if path is None:
            return None
        place, rest = self.kinds.key(f"{path}.", self.function)
        owner = place[6:] if place.startswith("class ") and rest == "." else self.kinds.instance(path, self.function)
        if owner is None and path in self.functions.classes:
            owner = path
        if owner is not None:
            method = self.functions.methods.get(owner, {}).get(func.attr)
            return method or self._stored(f".{func.attr}", owner)
        return None

    def _named(self, name: str) -> str | None:
        current: Function | None = self.function
        while current is not None:
            if binds(current, name):
                bindings = current.scope.bindings[name]
                found = [b for b in bindings if b.kind == "def"]
                if found and len(found) == len(bindings):
                    return self.functions.by_node[found[-1].node].name
                if len(bindings) == 1 and isinstance(bindings[0].value, ast.Lambda):
                    return self.functions.by_node[bindings[0].value].name
                if len(bindings) == 1 and isinstance(bindings[0].value, ast.Name) and bindings[0].value.id != name:
                    return self._named(bindings[0].value.id)
                if len(bindings) == 1 and (inner := self._partial_of(bindings[0].value)) is not None:
                    return self.local(inner)
                return None
            current = current.outer or (self.functions.module if current is not self.functions.module else None)
        return None

    def _stored(self, attribute: str, owner: str) -> str | None:
        """The lambda that a class stores at an attribute, if it is the only one."""
        found: list[str] = []
        for node in self.file.names.scopes:
            parent = self.file.parent(node) if isinstance(node, ast.Lambda) else None
            if isinstance(parent, ast.Assign):
                function = self.functions.by_node[node]
                for target in parent.targets:
                    path = path_of(target)
                    if path is not None and function.outer is not None and function.owner == owner:
                        if self.kinds.key(path, function.outer) == (f"class {owner}", attribute):
                            found.append(function.name)
        return found[0] if len(found) == 1 else None

    def _partial_of(self, value: ast.expr | None) -> ast.expr | None:
        if isinstance(value, ast.Call) and last_name(value.func) == "partial" and value.args:
            return value.args[0]
        return None

    def is_partial(self, value: ast.expr) -> bool:
        """Whether an expression is `functools.partial` of something that is called later."""
        return self._partial_of(value) is not None

    def constructs(self, value: ast.expr) -> ast.Call | None:
        """The call that makes an instance of a class of this file, if `value` is one."""
        if isinstance(value, ast.Call) and self.kinds.constructed(value).startswith("class:"):
            return value
        return None

    def construct(self, call: ast.Call, receiver: str) -> None:
        """Make an instance of a class of this file at a path."""
        owner = last_name(call.func)
        target = self.functions.methods[owner].get("__init__")
        arguments = self.arguments(call)
        self.out.append(ir.Assign(receiver, ir.Opaque()))
        if target is not None:
            span = self.file.span(call)
            self.out.append(ir.Invoke(target, arguments, self.temporary(), span, receiver))

    # -- calls --------------------------------------------------------------------------------------------------------

    def arguments(self, call: ast.Call) -> tuple[tuple[int | str, ir.Value], ...]:
        """The arguments of a call, those before a star left out of the positions after it."""
        found: list[tuple[int | str, ir.Value]] = []
        starred = False
        for index, argument in enumerate(call.args):
            value = self.expression(argument)
            starred = starred or isinstance(argument, ast.Starred)
            if not starred:
                found.append((index, value))
        for keyword in call.keywords:
            value = self.expression(keyword.value)
            if keyword.arg is not None:
                found.append((keyword.arg, value))
        return tuple(found)

    def call(self, node: ast.Call) -> ir.Value:
        """The value of a call."""
        func = node.func
        names = set(self.file.resolve(func)) if isinstance(func, (ast.Name, ast.Attribute)) else set()
        partial = self._called_partial(func)
        if partial is not None:
            names = set(self.file.resolve(partial)) if isinstance(partial, (ast.Name, ast.Attribute)) else set()
        if names & SCALERS:
            return self._new_scaler(node, names)
        if names & AUTOCASTS:
            return self.region(node)
        receiver = func.value if isinstance(func, ast.Attribute) else None
        path = path_of(receiver)
        span = self.file.span(node)
        method = func.attr if isinstance(func, ast.Attribute) else ""
        if path is not None and self.kind(path) == SCALER:
            return self._on_scaler(node, method, path, span)
        if names & {"torch.autograd.backward"} and node.args:
            self.out.append(ir.Event("backward", span, loss=self.expression(node.args[0])))
            return ir.Opaque()
        if names & {"torch.autograd.grad"}:
            self.arguments(node)
            self.out.append(ir.Event("autograd", span))
            return ir.Opaque()
        target = self.local(func)
        if target is None and isinstance(func, ast.Name) and self.kinds.instance(func.id, self.function):
            owner = self.kinds.instance(func.id, self.function)
            target = self.functions.methods.get(owner or "", {}).get("__call__")
            receiver, path = func, func.id
        if target is None and partial is not None:
            target = self.local(partial)
        if (names & CLIPS) or (target is None and CLIP_NAME.match(last_name(func))):
            return self._clip(node, path, span)
        if target is not None:
            return self._invoke(node, target, receiver, path, span)
        if method == "backward":
            return self._backward(node, receiver, path, span)
        if path is not None and self.kind(path) == OPTIMIZER:
            return self._on_optimizer(node, method, path, span)
        if method == "zero_grad" and path is not None:
            self.out.append(ir.Event("zero-grad", span))
            return ir.Plain()
        if method == "enter_context" and node.args:
            self.out.append(ir.Enter(self.manager(node.args[0])))
            return ir.Opaque()
        made = self.kinds.constructed(node)
        if made == OPTIMIZER:
            return self._new_optimizer(node, names, span)
        if made.startswith("class:"):
            receiver_path = self.temporary()
            self.construct(node, receiver_path)
            return ir.Copy(receiver_path)
        return self._unknown(node, names, receiver, span)

    def _called_partial(self, func: ast.expr) -> ast.expr | None:
        """The function behind a name or attribute that is bound once, to a partial or to the function itself."""
        if isinstance(func, ast.Name):
            current: Function | None = self.function
            while current is not None:
                if binds(current, func.id):
                    bindings = current.scope.bindings[func.id]
                    return self._partial_of(bindings[0].value) if len(bindings) == 1 else None
                current = current.outer or (self.functions.module if current is not self.functions.module else None)
        return None

    def _new_scaler(self, node: ast.Call, names: set[str]) -> ir.Value:
        for argument in node.args:
            self.expression(argument)
        flag = next((k.value for k in node.keywords if k.arg == "enabled"), None)
        old = all(".cuda." in name or ".cpu." in name for name in names)
        position = 4 if old else 5
        if flag is None and len(node.args) > position:
            flag = node.args[position]
        enabled = self.condition(flag) if flag is not None else None
        if enabled is None and any(keyword.arg is None for keyword in node.keywords):
            enabled = ir.Maybe()
        if isinstance(enabled, ir.Constant) and enabled.value:
            enabled = None
        return ir.New(self.file.span(node), enabled)

    def _new_optimizer(self, node: ast.Call, names: set[str], span: Span) -> ir.Value:
        owners: list[str] = []
        wraps: list[str] = []
        for argument in (*node.args, *(k.value for k in node.keywords)):
            inner = path_of(argument)
            if inner is not None and self.kind(inner) == OPTIMIZER:
                wraps.append(self.name(inner))
            owners += self._owners(argument)
            self.expression(argument)
        family = last_name(node.func) if any(n.startswith("torch.optim.") for n in names) else ""
        return ir.Optimizer(span, family, tuple(owners), tuple(wraps))

    def _owners(self, argument: ast.expr) -> list[str]:
        """The paths whose `parameters()` an argument holds."""
        found = []
        for inner in ast.walk(argument):
            if isinstance(inner, ast.Call) and last_name(inner.func) in ("parameters", "named_parameters"):
                path = path_of(inner.func.value) if isinstance(inner.func, ast.Attribute) else None
                if path is not None and "[*]" not in path:
                    found.append(self.name(path))
        return found

    def _on_scaler(self, node: ast.Call, method: str, path: str, span: Span) -> ir.Value:
        scaler = self.name(path)
        arguments = self.arguments(node)
        if method == "scale":
            self.out.append(ir.Event("scale", span, scaler=scaler))
            return ir.Scaled(scaler)
        if method in ("unscale_", "step"):
            given = node.args[0] if node.args else next((k.value for k in node.keywords if k.arg == "optimizer"), None)
            optimizer = path_of(given)
            self.out.append(
                ir.Event(
                    _SCALER_EVENTS[method],
                    span,
                    scaler=scaler,
                    optimizer=self.name(optimizer) if optimizer is not None else None,
                )
            )
            return ir.Plain()
        if method == "update":
            if arguments:  # a new scale by hand: torch does not look at the recorded checks
                self.out.append(ir.Escape(scaler, False))
            else:
                self.out.append(ir.Event("update", span, scaler=scaler))
            return ir.Plain()
        if method == "get_scale":
            self.out.append(ir.Event("scaler-use", span, scaler=scaler))
        return ir.Plain()

    def _backward(self, node: ast.Call, receiver: ast.expr | None, path: str | None, span: Span) -> ir.Value:
        assert receiver is not None
        loss = self.expression(receiver)
        arguments = self.arguments(node)
        root = root_of(path) if path is not None else ""
        if any(keyword.arg == "inputs" for keyword in node.keywords):
            self.out.append(ir.Event("autograd", span))
        elif (
            path is not None
            and arguments
            and (
                root == self.function.receiver
                or FRAMEWORK.search(path)
                or "model" in path
                or path in self.functions.classes
            )
        ):
            self.out.append(ir.Event("foreign-backward", span))
        elif isinstance(receiver, ast.Call) and last_name(receiver.func) == "super":
            return ir.Opaque()
        else:
            self.out.append(ir.Event("backward", span, loss=loss))
        return ir.Plain()

    def _on_optimizer(self, node: ast.Call, method: str, path: str, span: Span) -> ir.Value:
        self.arguments(node)
        optimizer = self.name(path)
        if method in ("step", "zero_grad"):
            kind = "plain-step" if method == "step" else "zero-grad"
            self.out.append(ir.Event(kind, span, optimizer=optimizer))
        elif method not in OPTIMIZER_METHODS and not HARMLESS_CALL.search(method):
            self.out.append(ir.Event("optimizer-call", span, optimizer=optimizer))
        return ir.Plain()

    def _clip(self, node: ast.Call, path: str | None, span: Span) -> ir.Value:
        self.arguments(node)
        if path is not None and FRAMEWORK.search(path):
            return ir.Plain()
        if any("scale" in self.file.segment(a) for a in (*node.args, *(k.value for k in node.keywords))):
            return ir.Plain()  # a threshold that is multiplied by the scale, or a wrapper that knows the scaler
        owners = self._owners(node.args[0]) if node.args else []
        bound = node.args[1] if len(node.args) > 1 else None
        for keyword in node.keywords:
            if keyword.arg in ("max_norm", "clip_value", "max_value"):
                bound = keyword.value
        literal = bound.value if isinstance(bound, ast.Constant) else None
        threshold = float(literal) if isinstance(literal, (int, float)) else None
        self.out.append(ir.Event("clip", span, params=owners[0] if len(owners) == 1 else None, threshold=threshold))
        return ir.Plain()

    def _invoke(self, node: ast.Call, target: str, receiver: ast.expr | None, path: str | None, span: Span) -> ir.Value:
        if (
            receiver is not None
            and path is None
            and not (isinstance(receiver, ast.Call) and last_name(receiver.func) == "super")
        ):
            self.expression(receiver)
        result = self.temporary()
        own = self.functions.by_name[target]
        instance = self.name(path) if path is not None and own.receiver and path not in self.functions.classes else None
        if isinstance(receiver, ast.Call) and own.receiver and self.function.receiver:
            instance = f"%{self.function.receiver}"
        arguments = self.arguments(node)
        self.out.append(ir.Invoke(target, arguments, result, span, instance))
        return ir.Copy(result)

    def _unknown(self, node: ast.Call, names: set[str], receiver: ast.expr | None, span: Span) -> ir.Value:
        callee = last_name(node.func)
        on = self.expression(receiver) if receiver is not None else ir.Plain()
        arguments = self.arguments(node)
        values = [value for _, value in arguments]
        harmless = bool(HARMLESS_CALL.search(callee)) or any(
            n.startswith(("torch.optim.lr_scheduler", "torch.save", "torch.cuda.", "logging.", "math.", "time."))
            for n in names
        )
        if self.tries and not harmless:
            self.out.append(ir.Risk())
        if path_of(receiver) is not None and path_of(receiver) == self.function.receiver and HOOK_NAME.search(callee):
            self.out.append(ir.Suspend())  # a method of a class that can't be seen
        if AUTOCAST_NAME.search(callee) and not harmless:
            return ir.Region(span, self._flag(node))
        if callee in ("nullcontext", "suppress", "no_grad", "enable_grad", "inference_mode"):
            return ir.Plain()
        objects = [v for v in values if isinstance(v, ir.Copy) and v.kind]
        wraps = tuple(v.path for v in objects if v.kind == OPTIMIZER)
        if not harmless:
            for value in objects:
                self.out.append(ir.Escape(value.path, value.kind == SCALER))
            if any(isinstance(value, ir.Scaled) for value in values):
                self.out.append(ir.Event("foreign-backward", span))
        if wraps and not harmless and callee[:1].isupper() and not SCHEDULER_NAME.search(callee):
            return ir.Optimizer(span, "", (), wraps)
        if "scal" in callee.lower() or (objects and not harmless):
            return ir.Opaque()
        if callee in TENSOR_METHODS and receiver is not None and path_of(receiver) is not None:
            return ir.Mix((on,))
        return ir.Derived((on, *values))

    def _flag(self, node: ast.Call) -> ir.Cond | None:
        flag = next((k.value for k in node.keywords if k.arg == "enabled"), None)
        if flag is None and len(node.args) == 1 and not isinstance(node.args[0], ast.Constant):
            return self.condition(node.args[0])
        return self.condition(flag) if flag is not None else None
