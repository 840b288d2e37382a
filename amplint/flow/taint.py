"""Which names may hold a scaled loss: everywhere else, what a value is made of does not matter."""

from __future__ import annotations

from amplint.flow import ir
from amplint.flow.program import Program


def name_of(path: str) -> str:
    """The name at the root of a path, without the frame it is seen from; attributes of a receiver by their own name."""
    bare = path.lstrip("%^")
    for index, char in enumerate(bare):
        if char in ".[":
            head = bare[:index]
            return f"self{bare[index:]}" if head == "self" else head
    return bare


def simplify(program: Program) -> None:
    """Replace what is computed from values that are surely not scaled by `Plain`."""
    tainted = _tainted(program)
    rewrite = _Rewrite(tainted)
    for procedure in program.procedures.values():
        procedure.body = rewrite.block(procedure.body)
    program.globals = rewrite.block(program.globals)


def _scaled(value: ir.Value | None, tainted: set[str]) -> bool:
    """Whether a value may be scaled."""
    if isinstance(value, (ir.Scaled, ir.Gradient)):
        return True
    if isinstance(value, ir.Copy):
        return name_of(value.path) in tainted
    if isinstance(value, (ir.Mix, ir.Derived)):
        return any(_scaled(operand, tainted) for operand in value.operands)
    return False


def _tainted(program: Program) -> set[str]:
    tainted: set[str] = set()
    returning: set[str] = set()
    procedures = program.procedures
    statements = [(name, s) for name, procedure in procedures.items() for s in ir.every(procedure.body)]
    size = -1
    while size != len(tainted) + len(returning):
        size = len(tainted) + len(returning)
        for name, statement in statements:
            if isinstance(statement, ir.Assign):
                if _scaled(statement.value, tainted):
                    tainted.add(name_of(statement.path))
            elif isinstance(statement, ir.Invoke):
                if statement.target in returning:
                    tainted.add(name_of(statement.result))
                params = procedures[statement.target].params
                for slot, value in statement.args:
                    if _scaled(value, tainted):
                        tainted.add(slot if isinstance(slot, str) else params[slot] if slot < len(params) else "")
            elif isinstance(statement, ir.Return) and _scaled(statement.value, tainted):
                returning.add(name)
    return tainted


class _Rewrite:
    def __init__(self, tainted: set[str]) -> None:
        self.tainted = tainted

    def block(self, body: ir.Block) -> ir.Block:
        return tuple(self._statement(statement) for statement in body)

    def _value(self, value: ir.Value) -> ir.Value:
        if isinstance(value, ir.Derived):
            kept = tuple(self._value(o) for o in value.operands if _scaled(o, self.tainted))
            return ir.Derived(kept) if kept else ir.Plain()
        if isinstance(value, ir.Mix):
            operands = tuple(self._value(operand) for operand in value.operands)
            plain = [isinstance(operand, (ir.Plain, ir.Constant)) for operand in operands]
            if all(plain) or (value.factors and any(plain) and not _scaled(value, self.tainted)):
                return ir.Plain()
            return ir.Mix(operands, value.factors)
        return value

    def _statement(self, s: ir.Stmt) -> ir.Stmt:
        if isinstance(s, (ir.Assign, ir.Return)):
            return s._replace(value=self._value(s.value))
        if isinstance(s, ir.Event):
            return s._replace(loss=self._value(s.loss)) if s.loss is not None else s
        if isinstance(s, ir.Invoke):
            return s._replace(args=tuple((slot, self._value(value)) for slot, value in s.args))
        if isinstance(s, ir.If):
            return s._replace(then=self.block(s.then), orelse=self.block(s.orelse))
        if isinstance(s, ir.Loop):
            rounds = None if s.rounds is None else tuple(self.block(binds) for binds in s.rounds)
            body, orelse, head = self.block(s.body), self.block(s.orelse), self.block(s.head)
            return s._replace(body=body, orelse=orelse, head=head, rounds=rounds)
        if isinstance(s, ir.Try):
            handlers = tuple(self.block(handler) for handler in s.handlers)
            return ir.Try(self.block(s.body), handlers, self.block(s.orelse), self.block(s.final))
        if isinstance(s, ir.Within):
            return s._replace(value=self._value(s.value), body=self.block(s.body))
        return s
