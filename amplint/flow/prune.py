"""Throwing away what has no event and no influence on one: most of a function goes before the engine runs."""

from __future__ import annotations

from amplint.flow import ir
from amplint.flow.program import Program
from amplint.flow.taint import simplify

_NUMBERS = (ir.Plain, ir.Mix, ir.Derived)
_ACTS = (ir.Event, ir.Invoke, ir.Escape, ir.Return, ir.Assign, ir.Enter, ir.Suspend, ir.Jump)


def prune(program: Program) -> None:
    """Empty the procedures that cause no event, and drop from the others what can't reach one."""
    simplify(program)
    hot = _hot(program)
    for name, procedure in program.procedures.items():
        if name not in hot:
            procedure.body = ()
    for procedure in program.procedures.values():
        procedure.body = _Sieve(hot, None).block(procedure.body)
    need = _Need(program)
    for procedure in program.procedures.values():
        procedure.body = _Sieve(hot, need.wanted, need.losses).block(procedure.body)
    program.globals = _Sieve(hot, need.wanted, need.losses).block(program.globals)


def _hot(program: Program) -> set[str]:
    """The procedures that may cause an event, set a scaler, or return something that matters."""
    hot: set[str] = set()
    while True:
        grown = {
            name
            for name, procedure in program.procedures.items()
            if any(
                (isinstance(s, ir.Event) and s.kind != "scaler-use")
                or isinstance(s, ir.Enter)
                or (isinstance(s, ir.Invoke) and s.target in hot)
                or (isinstance(s, ir.Assign) and isinstance(s.value, (ir.New, ir.Region, ir.Optimizer)))
                or (isinstance(s, ir.Return) and isinstance(s.value, (ir.New, ir.Region, ir.Scaled, ir.Optimizer)))
                for s in ir.every(procedure.body)
            )
        }
        if grown == hot:
            break
        hot = grown
    for info in program.classes.values():
        if any(full in hot for full in info.methods.values()) and "__init__" in info.methods:
            hot.add(info.methods["__init__"])
    return hot


def _root(path: str) -> str:
    """A path without the frame it is seen from: what one function calls `^x` is another's `%x`."""
    return path.lstrip("%^")


class _Need:
    """The paths whose contents can reach an event: read by events, or by tests that decide about something that
    matters.

    Paths are names without their frame: the same name anywhere counts.
    """

    def __init__(self, program: Program) -> None:
        self.program = program
        self.wanted: set[str] = set()
        self.losses = self._losses()
        size = -1
        while size != len(self.wanted):
            size = len(self.wanted)
            self.results = {
                statement.target
                for procedure in program.procedures.values()
                for statement in ir.every(procedure.body)
                if isinstance(statement, ir.Invoke) and _root(statement.result) in self.wanted
            }
            for name, procedure in program.procedures.items():
                self._block(procedure.body, name)
            self._block(program.globals, "")
            self.wanted = _with_receivers(self.wanted)

    def _losses(self) -> set[str]:
        """The paths whose contents can be differentiated: for others, it does not matter whether they are scaled."""
        losses: set[str] = set()
        procedures = self.program.procedures
        size = -1
        while size != len(losses):
            size = len(losses)
            results: set[str] = set()
            for procedure in procedures.values():
                for s in ir.every(procedure.body):
                    if isinstance(s, ir.Event):
                        losses.update(_root(path) for path in ir.reads(s.loss))
                    elif isinstance(s, ir.Assign) and _root(s.path) in losses:
                        losses.update(_root(path) for path in ir.reads(s.value))
                    elif isinstance(s, ir.Invoke):
                        params = procedures[s.target].params
                        for slot, value in s.args:
                            if (
                                slot if isinstance(slot, str) else params[slot] if slot < len(params) else ""
                            ) in losses:
                                losses.update(_root(path) for path in ir.reads(value))
                        if _root(s.result) in losses:
                            results.add(s.target)
            for name in results:
                for s in ir.every(procedures[name].body):
                    if isinstance(s, ir.Return):
                        losses.update(_root(path) for path in ir.reads(s.value))
            losses |= _with_receivers(losses)
        return losses

    def _add(self, value: ir.Value | None) -> None:
        self.wanted.update(_root(path) for path in ir.reads(value))

    def _block(self, body: ir.Block, procedure: str) -> bool:
        """Whether a block holds anything that matters."""
        matters = False
        for statement in body:
            matters = self._statement(statement, procedure) or matters
        return matters

    def _statement(self, statement: ir.Stmt, procedure: str) -> bool:
        if isinstance(statement, ir.Event):
            self.wanted.update(_root(p) for p in (statement.scaler, statement.optimizer, statement.params) if p)
            self._add(statement.loss)
        elif isinstance(statement, ir.Assign):
            if not isinstance(statement.value, (ir.New, ir.Optimizer)) and _root(statement.path) not in self.wanted:
                return False
            if not isinstance(statement.value, _NUMBERS) or _root(statement.path) in self.losses:
                self._add(statement.value)
        elif isinstance(statement, ir.Invoke):
            params = self.program.procedures[statement.target].params
            for slot, value in statement.args:
                name = slot if isinstance(slot, str) else params[slot] if slot < len(params) else ""
                if name in self.wanted:
                    self._add(value)
            if statement.receiver is not None:
                self.wanted.add(_root(statement.receiver))
        elif isinstance(statement, ir.Return):
            if procedure in self.results:
                self._add(statement.value)
        elif isinstance(statement, (ir.Risk, ir.Suspend, ir.Forget)):
            return False
        elif isinstance(statement, ir.Escape):
            self.wanted.add(_root(statement.path))
        else:
            return self._compound(statement, procedure)
        return True

    def _compound(self, statement: ir.Stmt, procedure: str) -> bool:
        matters = [self._block(inner, procedure) for inner in ir.inner_blocks(statement)]
        if not any(matters) and not isinstance(statement, (ir.Enter, ir.Jump)):
            return False
        if isinstance(statement, (ir.If, ir.Loop)):
            self._add(statement.test)
        elif isinstance(statement, (ir.Within, ir.Enter)):
            self._add(statement.value)
        return True


def _with_receivers(wanted: set[str]) -> set[str]:
    """The paths and all that lies on the way to them: rebinding `a` changes `a.b`."""
    grown = set(wanted)
    for path in wanted:
        for index, char in enumerate(path):
            if char in ".[":
                grown.add(path[:index])
    return grown


def _only_forgets(statement: ir.Stmt) -> bool:
    return isinstance(statement, (ir.Risk, ir.Forget)) or (
        isinstance(statement, ir.Assign) and isinstance(statement.value, ir.Opaque)
    )


class _Sieve:
    """Drops statements from blocks; `wanted` None drops only calls without effect and what they leave empty."""

    def __init__(self, hot: set[str], wanted: set[str] | None, losses: set[str] | None = None) -> None:
        self.hot = hot
        self.wanted = wanted
        self.losses = losses
        self.tails = set() if wanted is None else {p[p.index(".") :] for p in wanted if "." in p}

    def block(self, body: ir.Block) -> ir.Block:
        """The block without what can't matter."""
        kept: list[ir.Stmt] = []
        risked = False
        for statement in body:
            for one in self._kept(statement):
                if isinstance(one, ir.Risk):
                    if risked:
                        continue
                    risked = True  # until something happens, the next exception finds the same state
                elif not isinstance(one, (ir.Assign, ir.Forget)):
                    risked = False
                kept.append(one)
        return tuple(kept)

    def _matters(self, path: str) -> bool:
        if self.wanted is None:
            return True
        root = _root(path)
        if root in self.wanted:
            return True
        return "." in root and root[root.index(".") :] in self.tails

    def _kept(self, statement: ir.Stmt) -> ir.Block:
        if isinstance(statement, ir.Invoke):
            if statement.target in self.hot:
                return (statement,)
            result = ir.Derived(tuple(value for _, value in statement.args))
            return self._kept(ir.Assign(statement.result, result, statement.span))
        if isinstance(statement, ir.Assign):
            made = isinstance(statement.value, (ir.New, ir.Optimizer))
            if not made and not self._matters(statement.path):
                return ()
            number = self.losses is not None and isinstance(statement.value, _NUMBERS)
            if number and _root(statement.path) not in (self.losses or ()):
                return (statement._replace(value=ir.Opaque()),)
            return (statement,)
        if isinstance(statement, ir.Forget):
            paths = tuple(path for path in statement.paths if self.wanted is None or _root(path) in self.wanted)
            return (ir.Forget(paths),) if paths else ()
        if isinstance(statement, ir.If):
            then, orelse = self.block(statement.then), self.block(statement.orelse)
            if all(isinstance(s, ir.Risk) for s in (*then, *orelse)):
                return (ir.Risk(),) if then or orelse else ()
            if self.wanted is not None and all(_only_forgets(s) for s in (*then, *orelse)):
                return (*then, *orelse)  # what is known of these names is lost in either case
            return (statement._replace(then=then, orelse=orelse),)
        if isinstance(statement, ir.Loop):
            return self._loop(statement)
        if isinstance(statement, ir.Try):
            parts = (self.block(statement.body), self.block(statement.orelse), self.block(statement.final))
            handlers = tuple(self.block(handler) for handler in statement.handlers)
            if all(isinstance(s, ir.Risk) for part in (*parts, *handlers) for s in part):
                return (ir.Risk(),) if any(handlers) or parts[0] else ()
            return (ir.Try(parts[0], handlers, parts[1], parts[2]),)
        if isinstance(statement, ir.Within):
            inner = self.block(statement.body)
            if not inner or (
                isinstance(statement.value, (ir.Plain, ir.Opaque))
                and not any(isinstance(s, ir.Enter) for s in ir.every(inner))
            ):
                return inner
            return (statement._replace(body=inner),)
        return (statement,)

    def _loop(self, statement: ir.Loop) -> ir.Block:
        body, orelse = self.block(statement.body), self.block(statement.orelse)
        head = self.block(statement.head)
        rounds = None
        if statement.rounds is not None:
            rounds = tuple(self.block(binds) for binds in statement.rounds)
        binds = tuple(path for path in statement.binds if self._matters(path))
        acts = [s for s in ir.every((*body, *head)) if isinstance(s, _ACTS)]
        if all(isinstance(s, ir.Jump) and s.kind != "raise" for s in acts):
            return (*(ir.Assign(path, ir.Opaque()) for path in binds), *orelse)
        return (statement._replace(binds=binds, body=body, orelse=orelse, head=head, rounds=rounds),)
