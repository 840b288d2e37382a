"""What the engine sees of a function: events, guards and ways out. Nothing here knows Python's syntax tree.

A path is a string: `%x` is a local of the running frame, `^x` one of the frame around it (a closure), anything else a
global. Attributes and constant subscripts follow (`%self.scaler`, `%opts['g']`); `[*]` is some element of a collection,
which is one abstract object.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from amplint.model import Span

# -- values -----------------------------------------------------------------------------------------------------------


class New(NamedTuple):
    """`GradScaler(...)`; `enabled` is the condition under which it does anything."""

    span: Span
    enabled: Cond | None


class Copy(NamedTuple):
    """The value at a path; `kind` is `scaler` or `optimizer` where that is known."""

    path: str
    kind: str = ""


class Scaled(NamedTuple):
    """`scaler.scale(loss)`."""

    scaler: str


class Constant(NamedTuple):
    """None, True or False; any other literal is `Plain`. `kind` as for `Copy`: a None where a scaler may be."""

    value: bool | None
    kind: str = ""


class Mix(NamedTuple):
    """Computed from several values: scaled if one of them is, plain if all are known to be.

    `factors`: a product, which is plain as soon as one operand is (the others are weights, not losses).
    """

    operands: tuple[Value, ...]
    factors: bool = False


class Derived(NamedTuple):
    """What a call that can't be seen makes of its operands: scaled if one of them is, else plain."""

    operands: tuple[Value, ...]


class Gradient(NamedTuple):
    """A gradient, or what is made of one: it carries whatever scale its loss had, and a loss made of it does too."""


class Region(NamedTuple):
    """An autocast context manager; `enabled` as for `New`. A context manager that isn't autocast is `Plain`."""

    span: Span
    enabled: Cond | None


class Plain(NamedTuple):
    """Surely neither a scaler nor a scaled loss."""


class Opaque(NamedTuple):
    """Anything."""


class Optimizer(NamedTuple):
    """A new optimizer; `owners` are the paths whose `parameters()` it got, `wraps` the optimizers passed to it."""

    span: Span
    family: str
    owners: tuple[str, ...]
    wraps: tuple[str, ...]


# -- conditions -------------------------------------------------------------------------------------------------------


class Atom(NamedTuple):
    """A pure test, as text with gaps for paths: `texts[0] paths[0] texts[1] ... texts[-1]`.

    `implied` holds `(truth, condition, truth of the condition)`: what follows when the atom has that truth.
    """

    texts: tuple[str, ...]
    paths: tuple[str, ...]
    implied: tuple[tuple[bool, Cond, bool], ...] = ()


class IsNone(NamedTuple):
    """`path is None`."""

    path: str
    kind: str = ""


class Truthy(NamedTuple):
    """`if path:`."""

    path: str
    kind: str = ""


class Enabled(NamedTuple):
    """`scaler.is_enabled()`."""

    path: str


class Not(NamedTuple):
    """The negation of a condition."""

    of: Cond


class Both(NamedTuple):
    """`left and right`."""

    left: Cond
    right: Cond


class Maybe(NamedTuple):
    """Impure or not understood: both arms are possible and nothing is remembered."""


Cond = Atom | IsNone | Truthy | Enabled | Not | Both | Maybe | Constant
Value = New | Copy | Scaled | Constant | Mix | Derived | Gradient | Region | Plain | Opaque | Optimizer | Cond

CONDITIONS = (Atom, IsNone, Truthy, Enabled, Not, Both)


def either(left: Cond, right: Cond) -> Cond:
    """`left or right`."""
    return Not(Both(Not(left), Not(right)))


# -- statements -------------------------------------------------------------------------------------------------------


class Event(NamedTuple):
    """Something that the protocol or a region knows.

    `kind` is one of `protocol.EVENTS`, or `scale` (the call of `scaler.scale`), `scaler-use` (any other use that
    needs the scaler), `autograd` (`torch.autograd.grad`), `foreign-backward` (a framework's), `gradients-changed` (by
    hand, perhaps divided by the scale), `optimizer-call` (a method of the optimizer that isn't torch's). `span` is
    the call. `params` is the path whose `parameters()` are clipped or read. `loss` is what is differentiated.
    """

    kind: str
    span: Span
    scaler: str | None = None
    optimizer: str | None = None
    loss: Value | None = None
    params: str | None = None
    threshold: float | None = None


class Assign(NamedTuple):
    """`path = value`; `span` is the statement."""

    path: str
    value: Value
    span: Span | None = None


class If(NamedTuple):
    """A branch; `span` is the test and `text` its source."""

    test: Cond
    then: tuple[Stmt, ...]
    orelse: tuple[Stmt, ...]
    span: Span
    text: str


class Loop(NamedTuple):
    """A loop: `while test` or, without a test, `for`, which is taken to run at least once.

    `binds` are the paths bound anew each round. `rounds`, where given, are the rounds of a loop over a literal (or over
    a collection that is one abstract object): what each binds, in turn; the body is then not repeated beyond them.
    `head` is evaluated before every test.
    """

    test: Cond | None
    binds: tuple[str, ...]
    body: tuple[Stmt, ...]
    orelse: tuple[Stmt, ...]
    span: Span
    rounds: tuple[tuple[Stmt, ...], ...] | None = None
    head: tuple[Stmt, ...] = ()


class Try(NamedTuple):
    """`try`, with handlers that catch what `Risk` marks and `Jump("raise")` in the body."""

    body: tuple[Stmt, ...]
    handlers: tuple[tuple[Stmt, ...], ...]
    orelse: tuple[Stmt, ...]
    final: tuple[Stmt, ...]


class Within(NamedTuple):
    """`with value:`; regions entered inside (`ExitStack.enter_context`) end with it too."""

    value: Value
    body: tuple[Stmt, ...]


class Enter(NamedTuple):
    """`stack.enter_context(value)`."""

    value: Value


class Invoke(NamedTuple):
    """A call of a procedure of this file.

    `args` are positional (by number) and keyword arguments. `receiver` is the path that `self` stands for. `result`
    is the path that gets the returned value.
    """

    target: str
    args: tuple[tuple[int | str, Value], ...]
    result: str
    span: Span
    receiver: str | None = None


class Escape(NamedTuple):
    """A scaler or an optimizer goes where it can't be followed; `lasting`: knowledge does not come back."""

    path: str
    lasting: bool


class Forget(NamedTuple):
    """These temporaries are not read again."""

    paths: tuple[str, ...]


class Risk(NamedTuple):
    """Something here may raise into an enclosing handler."""


class Suspend(NamedTuple):
    """`yield`: the consumer may do anything with what isn't local."""


class Jump(NamedTuple):
    """`break`, `continue` or `raise`."""

    kind: str
    span: Span


class Return(NamedTuple):
    """`return value`."""

    value: Value
    span: Span


Stmt = Event | Assign | If | Loop | Try | Within | Enter | Invoke | Escape | Forget | Risk | Suspend | Jump | Return
Block = tuple[Stmt, ...]


class Procedure:
    """One function, method, lambda or the module's own code.

    `name` is dotted (`Trainer.fit`, `main.<closure>`). `outer` is the procedure around a closure. `owner` is the
    class of a method, `receiver` its first parameter. `rebound` are the names assigned in it. `made` are the names
    that it binds to a new scaler, and which are unbound until then. `objects` are the paths of scalers and optimizers
    that its events name. `opens` tells whether something in it may raise before its first event.
    """

    __slots__ = (
        "body",
        "defaults",
        "made",
        "name",
        "objects",
        "opens",
        "outer",
        "owner",
        "params",
        "rebound",
        "receiver",
        "span",
    )

    def __init__(self, name: str, params: tuple[str, ...], body: Block, span: Span) -> None:
        self.name = name
        self.params = params
        self.body = body
        self.span = span
        self.defaults: dict[str, Value] = {}
        self.rebound: frozenset[str] = frozenset()
        self.receiver: str | None = None
        self.owner: str | None = None
        self.outer: str | None = None
        self.made: tuple[str, ...] = ()
        self.objects: tuple[str, ...] = ()
        self.opens = False


def inner_blocks(statement: Stmt) -> tuple[Block, ...]:
    """The blocks of a compound statement, none for a simple one."""
    if isinstance(statement, If):
        return statement.then, statement.orelse
    if isinstance(statement, Loop):
        return statement.head, statement.body, statement.orelse, *(statement.rounds or ())
    if isinstance(statement, Try):
        return statement.body, *statement.handlers, statement.orelse, statement.final
    if isinstance(statement, Within):
        return (statement.body,)
    return ()


def every(block: Block) -> Iterator[Stmt]:
    """All statements of a block, nested ones included."""
    for statement in block:
        yield statement
        for inner in inner_blocks(statement):
            yield from every(inner)


def reads(value: Value | None) -> Iterator[str]:
    """The paths whose contents a value or condition depends on."""
    if isinstance(value, (Copy, IsNone, Truthy, Enabled)):
        yield value.path
    elif isinstance(value, (New, Region)):
        yield from reads(value.enabled)
    elif isinstance(value, Scaled):
        yield value.scaler
    elif isinstance(value, Atom):
        yield from value.paths
        for _, condition, _ in value.implied:
            yield from reads(condition)
    elif isinstance(value, Not):
        yield from reads(value.of)
    elif isinstance(value, Both):
        yield from reads(value.left)
        yield from reads(value.right)
    elif isinstance(value, (Mix, Derived)):
        for operand in value.operands:
            yield from reads(operand)


def text_of(path: str) -> str:
    """The source text of a path, "" for an element that has no name."""
    return "" if "[*]" in path else path.lstrip("%^")
