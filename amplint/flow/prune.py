"""Throwing away what has no event and no influence on one: most of a function goes before the engine runs."""

from __future__ import annotations

from amplint.flow import ir
from amplint.flow.program import Program

_ACTS = (ir.Event, ir.Invoke, ir.Escape, ir.Return, ir.Assign, ir.Enter, ir.Suspend, ir.Jump)


def prune(program: Program) -> None:
    """Empty the procedures that cause no event, and drop from the others what can't reach one."""
    hot = _hot(program)
    for name, procedure in program.procedures.items():
        if name not in hot:
            procedure.body = ()
    for procedure in program.procedures.values():
        procedure.body = _Sieve(hot, None).block(procedure.body)
    wanted = _wanted(program)
    for procedure in program.procedures.values():
        procedure.body = _Sieve(hot, wanted).block(procedure.body)
    program.globals = _Sieve(hot, wanted).block(program.globals)


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
    return hot | {name for name in program.procedures if name.endswith(".__init__")}


def _root(path: str) -> str:
    """A path without the frame it is seen from: what one function calls `^x` is another's `%x`."""
    return path.lstrip("%^")


def _wanted(program: Program) -> set[str]:
    """The paths whose contents can reach an event, a test around one, or a call; the same name anywhere counts."""
    wanted: set[str] = set()
    assigned: dict[str, list[ir.Value]] = {}
    for procedure in program.procedures.values():
        for statement in ir.every(procedure.body):
            values: list[ir.Value] = []
            if isinstance(statement, ir.Event):
                wanted |= {_root(p) for p in (statement.scaler, statement.optimizer, statement.params) if p}
                values = [statement.loss] if statement.loss is not None else []
            elif isinstance(statement, (ir.If, ir.Loop)):
                values = [statement.test] if statement.test is not None else []
            elif isinstance(statement, ir.Invoke):
                values = [value for _, value in statement.args]
            elif isinstance(statement, (ir.Return, ir.Within, ir.Enter)):
                values = [statement.value]
            elif isinstance(statement, ir.Assign):
                assigned.setdefault(_root(statement.path), []).append(statement.value)
            wanted |= {_root(path) for value in values for path in ir.reads(value)}
    while True:
        wanted = _with_receivers(wanted)
        more = {_root(p) for path in wanted & set(assigned) for value in assigned[path] for p in ir.reads(value)}
        if more <= wanted:
            return wanted
        wanted |= more


def _with_receivers(wanted: set[str]) -> set[str]:
    """The paths and all that lies on the way to them: rebinding `a` changes `a.b`."""
    grown = set(wanted)
    for path in wanted:
        for index, char in enumerate(path):
            if char in ".[":
                grown.add(path[:index])
    return grown


class _Sieve:
    """Drops statements from blocks; `wanted` None drops only calls without effect and what they leave empty."""

    def __init__(self, hot: set[str], wanted: set[str] | None) -> None:
        self.hot = hot
        self.wanted = wanted
        self.tails = set() if wanted is None else {p[p.index(".") :] for p in wanted if "." in p}

    def block(self, body: ir.Block) -> ir.Block:
        """The block without what can't matter."""
        kept: list[ir.Stmt] = []
        for statement in body:
            kept += self._kept(statement)
        return tuple(kept)

    def _matters(self, path: str) -> bool:
        if self.wanted is None:
            return True
        root = _root(path)
        if root in self.wanted or root.startswith("<"):
            return True
        return "." in root and root[root.index(".") :] in self.tails

    def _kept(self, statement: ir.Stmt) -> ir.Block:
        if isinstance(statement, ir.Invoke):
            return (statement,) if statement.target in self.hot else ()
        if isinstance(statement, ir.Assign):
            made = isinstance(statement.value, (ir.New, ir.Optimizer))
            return (statement,) if made or self._matters(statement.path) else ()
        if isinstance(statement, ir.If):
            then, orelse = self.block(statement.then), self.block(statement.orelse)
            if all(isinstance(s, ir.Risk) for s in (*then, *orelse)):
                return (ir.Risk(),) if then or orelse else ()
            return (statement._replace(then=then, orelse=orelse),)
        if isinstance(statement, ir.Loop):
            return self._loop(statement)
        if isinstance(statement, ir.Try):
            parts = (self.block(statement.body), self.block(statement.orelse), self.block(statement.final))
            handlers = tuple(self.block(handler) for handler in statement.handlers)
            if not any((*parts, *handlers)):
                return ()
            return (ir.Try(parts[0], handlers, parts[1], parts[2]),)
        if isinstance(statement, ir.Within):
            inner = self.block(statement.body)
            if (
                not inner
                or (isinstance(statement.value, (ir.Plain, ir.Opaque))
                and not any(isinstance(s, ir.Enter) for s in ir.every(inner)))
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
