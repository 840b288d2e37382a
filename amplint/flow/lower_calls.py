"""Python's calls as events of the IR: on scalers, optimizers, gradients and regions, and of what can't be seen."""

from __future__ import annotations

import ast

from amplint.flow import ir
from amplint.flow.conditions import atom
from amplint.flow.functions import Function
from amplint.flow.kinds import CALLED_SCALER, OPTIMIZER, SCALER, is_wrapper
from amplint.flow.lower_callees import CalleeLowering
from amplint.flow.paths import last_name, path_of, root_of
from amplint.flow.predicates import parts_read
from amplint.flow.vocabulary import (
    AUTOCAST_NAME,
    AUTOCASTS,
    CALLED_SCALER_FLAGS,
    CLIP_NAME,
    CLIPS,
    ENABLED_FIRST,
    FRAMEWORK,
    HARMLESS_CALL,
    HOOK_NAME,
    OPTIMIZER_METHODS,
    SCALER_NAME,
    SCALERS,
    SCHEDULER_NAME,
    TENSOR_METHODS,
)
from amplint.model import Span

_SCALER_EVENTS = {"unscale_": "unscale", "step": "step", "update": "update"}


class CallLowering(CalleeLowering):
    """Lowers calls."""

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
        """The region that a `@contextmanager` of this file yields in; `Plain` if it yields in none, None if it isn't
        one.
        """
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

    def call(self, node: ast.Call) -> ir.Value:
        """The value of a call."""
        func = node.func
        names = set(self.file.resolve(func)) if isinstance(func, (ast.Name, ast.Attribute)) else set()
        partial = self.called_partial(func)
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
        if is_wrapper(self.file, node) and not last_name(func)[:1].isupper():
            self.arguments(node)
            return ir.Region(span, self._flag(node))
        target = self.local(func)
        if target is None and isinstance(func, ast.Name) and self.kinds.instance(func.id, self.function):
            owner = self.kinds.instance(func.id, self.function)
            target = self.functions.methods.get(owner or "", {}).get("__call__")
            receiver, path = func, func.id
        if target is None and partial is not None:
            target = self.local(partial)
        if target is None and not names & CLIPS:
            target = self.context.imports.function(node)
            receiver, path = (None, None) if target is not None else (receiver, path)
        if target is None and (called := path_of(func)) is not None and self._is_called_scaler(node, called):
            return self._called_scaler(node, called, span)
        if (names & CLIPS) or (target is None and CLIP_NAME.match(last_name(func))):
            return self._clip(node, path, span)
        if target is not None:
            return self._invoke(node, target, receiver, path, span)
        if method == "backward":
            return self._backward(node, receiver, path, span)
        if path is not None and self.kind(path) == OPTIMIZER:
            if self._gets_scaler(node):  # no optimizer of torch, but an object around one, that steps it by the scaler
                self.out.append(ir.Escape(self.name(path), False))
                return self._unknown(node, names, receiver, span)
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
            owners += self.owners(argument)
            self.expression(argument)
        family = last_name(node.func) if any(n.startswith("torch.optim.") for n in names) else ""
        return ir.Optimizer(span, family, tuple(owners), tuple(wraps))

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
            self.out.append(ir.Event("update", span, scaler=scaler))
            return ir.Plain()
        if method == "get_scale":
            self.out.append(ir.Event("scaler-use", span, scaler=scaler))
        return ir.Plain()

    def _is_called_scaler(self, node: ast.Call, path: str) -> bool:
        """Whether an object is called as timm's `NativeScaler` is: it is one, or its name and the arguments say so."""
        known = self.kinds.of(path, self.function) == CALLED_SCALER
        named = SCALER_NAME.search(last_name(node.func)) and any(k.arg in CALLED_SCALER_FLAGS for k in node.keywords)
        return (known or bool(named)) and len(node.args) > 1

    def _called_scaler(self, node: ast.Call, path: str, span: Span) -> ir.Value:
        """`loss_scaler(loss, optimizer, ...)` backs, and unless told otherwise unscales, clips, steps and updates."""
        self.arguments(node)
        scaler, optimizer = f"{self.name(path)}._scaler", path_of(node.args[1])
        backed = ir.Event("backward", span, scaler=scaler, loss=ir.Scaled(scaler))
        self.out += [ir.Event("scale", span, scaler=scaler), backed]
        flag = next((k.value for k in node.keywords if k.arg in ("need_update", "update_grad")), None)
        if optimizer is not None:
            step = ir.Event("step", span, scaler=scaler, optimizer=self.name(optimizer))
            steps = (step, ir.Event("update", span, scaler=scaler))
            test = self.condition(flag) if flag is not None else ir.Constant(True)
            self.out.append(ir.If(test, steps, (), span, "" if flag is None else self.file.segment(flag)))
        return ir.Plain()

    def _backward(self, node: ast.Call, receiver: ast.expr | None, path: str | None, span: Span) -> ir.Value:
        assert receiver is not None
        loss = self.expression(receiver)
        arguments = self.arguments(node)
        root = root_of(path) if path is not None else ""
        seeds = [*node.args[:1], *(k.value for k in node.keywords if k.arg in ("gradient", "grad_tensors"))]
        if any(keyword.arg == "inputs" for keyword in node.keywords):
            self.out.append(ir.Event("autograd", span))
        elif any(".grad" in self.file.segment(seed) or self._carries_scale(seed) for seed in seeds):
            self.out.append(ir.Event("foreign-backward", span))  # what it starts from is scaled already
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

    def _carries_scale(self, argument: ast.expr) -> bool:
        """Whether an argument's text speaks of the scale, or that of what one of its names was given."""
        if "scale" in self.file.segment(argument):
            return True
        names = {inner.id for inner in ast.walk(argument) if isinstance(inner, ast.Name)}
        given = [b.value for name in names for b in self.function.scope.bindings.get(name, ()) if b.value is not None]
        return any("scale" in self.file.segment(value) and value is not argument for value in given)

    def _gets_scaler(self, node: ast.Call) -> bool:
        """Whether a scaler is among the arguments of a call."""
        paths = [path_of(argument) for argument in (*node.args, *(keyword.value for keyword in node.keywords))]
        return any(path is not None and self.kind(path) == SCALER for path in paths)

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
        if any(self._carries_scale(a) for a in (*node.args, *(k.value for k in node.keywords))):
            return ir.Plain()  # a threshold that is multiplied by the scale, or a wrapper that knows the scaler
        owners = self.owners(node.args[0]) if node.args else []
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
        if (answer := self._answer(own, node, instance)) is not None:
            return answer
        self.out.append(ir.Invoke(target, arguments, result, span, instance))
        return ir.Copy(result)

    def _answer(self, callee: Function, node: ast.Call, instance: str | None) -> ir.Cond | None:
        """What a function says that only answers a question, as an atom of its arguments and what it reads."""
        if not self.functions.is_predicate(callee):
            return None
        texts, paths = [f"{callee.name}("], list[str]()
        for argument in (*node.args, *(keyword.value for keyword in node.keywords)):
            path = path_of(argument)
            if isinstance(argument, ast.Constant):
                texts[-1] += f"{argument.value!r}, "
            elif path is None or "[*]" in path:
                found = atom(argument, self.name)
                if not isinstance(found, ir.Atom):
                    return None
                texts[-1] += found.texts[0]
                texts += found.texts[1:]
                paths += found.paths
                texts[-1] += ", "
            else:
                paths.append(self.name(path))
                texts.append(", ")
        if callee.receiver is not None and isinstance(callee.node, ast.FunctionDef):
            parts = parts_read(callee.node, callee.receiver)
            if parts and instance is None:
                return None
            for part in parts:
                paths.append(f"{instance}{part}")
                texts.append(" ")
        texts[-1] += ")"
        return ir.Atom(tuple(texts), tuple(paths))

    def _unknown(self, node: ast.Call, names: set[str], receiver: ast.expr | None, span: Span) -> ir.Value:
        callee = last_name(node.func)
        on = self.expression(receiver) if receiver is not None else ir.Plain()
        arguments = self.arguments(node)
        values = [value for _, value in arguments]
        harmless = bool(HARMLESS_CALL.search(callee)) or any(
            n.startswith(("torch.optim.lr_scheduler", "torch.save", "torch.cuda.", "logging.", "math.", "time."))
            for n in names
        )
        if not harmless:
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
        if callee in TENSOR_METHODS and receiver is not None and path_of(receiver) is not None and not names:
            return ir.Mix((on,))
        return ir.Derived((on, *values))

    def _flag(self, node: ast.Call) -> ir.Cond | None:
        flag = next((k.value for k in node.keywords if k.arg == "enabled"), None)
        if flag is None and len(node.args) == 1 and not isinstance(node.args[0], ast.Constant):
            return self.condition(node.args[0])
        return self.condition(flag) if flag is not None else None
