"""Where exceptions start: at calls that can't be seen, as far as a handler is there to meet them."""

from __future__ import annotations

from amplint.flow import ir
from amplint.flow.program import Program


def settle(program: Program) -> None:
    """Note which procedures may raise before their first event, and drop what no `try` of the procedure itself meets.

    A call of a procedure of the file stands for all that may be raised in it: in the state before the call if that
    may be before its first event (`out = model(x)` at the start of a whole step), else in the state after it.
    """
    known: dict[str, bool | None] = {}
    for name, procedure in program.procedures.items():
        procedure.opens = bool(_opens(name, program, known))
    for procedure in program.procedures.values():
        procedure.body = _met(procedure.body, False)


def _opens(name: str, program: Program, known: dict[str, bool | None]) -> bool | None:
    """Whether a procedure may raise before its first event, None where it does neither."""
    if name in known:
        return known[name]
    known[name] = None
    for statement in ir.every(program.procedures[name].body):
        found: bool | None = None
        if isinstance(statement, ir.Risk) or (isinstance(statement, ir.Jump) and statement.kind == "raise"):
            found = True
        elif isinstance(statement, ir.Event) and statement.kind != "scaler-use":
            found = False
        elif isinstance(statement, ir.Invoke) and statement.target in program.procedures:
            found = _opens(statement.target, program, known)
        if found is not None:
            known[name] = found
            break
    return known[name]


def _met(block: ir.Block, within: bool) -> ir.Block:
    """The block without the risks that lie in no `try`."""
    kept: list[ir.Stmt] = []
    for statement in block:
        if isinstance(statement, ir.Risk):
            if within:
                kept.append(statement)
        elif isinstance(statement, ir.If):
            kept.append(statement._replace(then=_met(statement.then, within), orelse=_met(statement.orelse, within)))
        elif isinstance(statement, ir.Loop):
            body, orelse = _met(statement.body, within), _met(statement.orelse, within)
            kept.append(statement._replace(body=body, orelse=orelse, head=_met(statement.head, within)))
        elif isinstance(statement, ir.Try):
            handlers = tuple(_met(handler, within) for handler in statement.handlers)
            orelse, final = _met(statement.orelse, within), _met(statement.final, within)
            kept.append(ir.Try(_met(statement.body, True), handlers, orelse, final))
        elif isinstance(statement, ir.Within):
            kept.append(statement._replace(body=_met(statement.body, within)))
        else:
            kept.append(statement)
    return tuple(kept)
