"""A file as a program of the IR: every function that matters, without what can't matter."""

from __future__ import annotations

import ast
import os
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from amplint.flow import ir
from amplint.flow.functions import Function, Functions
from amplint.flow.imports import FAR, Imports, Others, moved
from amplint.flow.kinds import SCALER, Kinds
from amplint.flow.lower_statements import StatementLowering
from amplint.flow.program import MODULE, ClassInfo, Imported, Program
from amplint.flow.prune import prune
from amplint.flow.risks import settle
from amplint.flow.vocabulary import AUTOCASTS
from amplint.model import Span

if TYPE_CHECKING:
    from amplint.source import SourceFile

_RELEVANT = re.compile(r"autocast|[Ss]caler|unscale_")


class Context:
    """What the lowering of all functions of a file shares."""

    def __init__(self, file: SourceFile, root: SourceFile | None = None, others: Others | None = None, at: int = 0):
        self.file = file
        self.root = file if root is None else root
        """The file that is analysed; this one may be another one that it imports from, the `at`-th of them."""
        self.others = Others() if others is None else others
        self.at = at
        self.mark = f"<{at}>" if at else ""
        self.functions = Functions(file, self.mark)
        self.imports = Imports(self)
        self.kinds = Kinds(self.functions, self.imports)
        self.temporaries = 0
        self.duplicates: list[tuple[Span, str, str]] = []
        self.counters: list[Span] = []

    def beside(self, other: SourceFile, at: int) -> Context | None:
        """The context of another file that is looked into for the same one, None where it does not parse."""
        try:
            return Context(other, self.root, self.others, at)
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            return None


def lower(file: SourceFile) -> Program:
    """The program of a file; empty where nothing in the text has to do with scalers or autocast.

    Raises what `file.tree` raises.
    """
    program = Program()
    wrappers = (wrapper.rpartition(".")[2] for wrapper in file.settings.wrappers)
    if not _RELEVANT.search(file.text) and not any(wrapper in file.text for wrapper in wrappers):
        return program
    context = Context(file)
    for function in context.functions.by_node.values():
        if function.owner in context.functions.scaler_classes:
            continue
        program.procedures[function.name] = _procedure(function, context)
    _add_imported(program, context)
    for name in context.functions.classes:
        methods = context.functions.methods[name]
        info = ClassInfo(name)
        info.methods = {method: full for method, full in methods.items() if full in program.procedures}
        info.setup = tuple(
            full
            for method, full in info.methods.items()
            if method != "__init__" and _sets_up(program.procedures[full], context, context.functions.by_name[full])
        )
        program.classes[name] = info
    program.globals = _assignments(program.procedures[MODULE].body)
    program.duplicates = tuple(context.duplicates)
    program.counters = frozenset(_counters(context))
    settle(program)
    prune(program)
    return program


def _add_imported(program: Program, context: Context) -> None:
    """Add the procedures of other files that those of the program call, directly or through one another."""
    waiting = list(program.procedures.values())
    while waiting and context.others.contexts:
        for statement in ir.every(waiting.pop().body):
            if not isinstance(statement, ir.Invoke) or statement.target in program.procedures:
                continue
            for other in context.others.contexts.values():
                function = other.functions.by_name.get(statement.target) if other is not None else None
                if other is not None and function is not None and statement.target.startswith(other.mark):
                    procedure = _procedure(function, other)
                    moved(procedure, other.at * FAR)
                    program.procedures[function.name] = procedure
                    shown = os.path.relpath(other.file.filename, os.path.dirname(context.file.filename) or ".")
                    program.imported[function.name] = Imported(other.file, other.at * FAR, shown.replace(os.sep, "/"))
                    waiting.append(procedure)
                    break


def _counters(context: Context) -> Iterator[Span]:
    """The tests of counters in the file and in the other files that it calls, where their procedures stand."""
    yield from context.counters
    for other in context.others.contexts.values():
        if other is not None:
            by = other.at * FAR
            yield from (Span(span.start + by, span.end + by) for span in other.counters)


def _procedure(function: Function, context: Context) -> ir.Procedure:
    node = function.node
    lowering = StatementLowering(function, context)
    params: tuple[str, ...] = ()
    defaults: dict[str, ir.Value] = {}
    if isinstance(node, ast.Module):
        body = lowering.block(node.body)
        span = Span(0, 0)
    else:
        assert isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda))
        span = context.file.span(node)
        params, defaults = _parameters(node.args, function, context.kinds)
        if isinstance(node, ast.Lambda):
            body = lowering.result_of(node.body)
        else:
            body = _decorated(node, lowering.block(node.body), lowering)
    procedure = ir.Procedure(function.name, params, body, span)
    procedure.defaults = defaults
    procedure.receiver = function.receiver
    procedure.owner = None if function.owner is None else f"{context.mark}{function.owner}"
    procedure.outer = function.outer.name if function.outer is not None else None
    assigned = [s for s in ir.every(body) if isinstance(s, ir.Assign)]
    names = {statement.path for statement in assigned} | {
        path for s in ir.every(body) if isinstance(s, ir.Loop) for path in s.binds
    }
    procedure.rebound = frozenset(path[1:] for path in names if path[0] == "%" and path[1:].isidentifier())
    made = dict.fromkeys(s.path for s in assigned if isinstance(s.value, ir.New))
    procedure.made = tuple(
        path for path in made if "." not in path and "[" not in path and path[0] == "%" and path[1:] not in params
    )
    objects = [
        path for s in ir.every(body) if isinstance(s, ir.Event) for path in (s.scaler, s.optimizer) if path is not None
    ]
    procedure.objects = tuple(dict.fromkeys(objects))
    return procedure


def _parameters(args: ast.arguments, function: Function, kinds: Kinds) -> tuple[tuple[str, ...], dict[str, ir.Value]]:
    positional = [*args.posonlyargs, *args.args]
    names = [arg.arg for arg in positional]
    defaults: dict[str, ir.Value] = {}
    pairs = list(zip(positional[len(positional) - len(args.defaults) :], args.defaults, strict=True))
    pairs += [(arg, value) for arg, value in zip(args.kwonlyargs, args.kw_defaults, strict=True) if value is not None]
    for arg, value in pairs:
        if isinstance(value, ast.Constant):
            known = value.value is None or isinstance(value.value, bool)
            kind = kinds.of(arg.arg, function) if value.value is None else ""
            defaults[arg.arg] = ir.Constant(value.value, kind) if known else ir.Plain()  # type: ignore[arg-type]
    if function.receiver is not None:
        names = names[1:]
    return (*names, *(arg.arg for arg in args.kwonlyargs)), defaults


def _decorated(node: ast.FunctionDef | ast.AsyncFunctionDef, body: ir.Block, lowering: StatementLowering) -> ir.Block:
    """The body inside the autocast region of its decorator, if it has one."""
    for decorator in reversed(node.decorator_list):
        callee = decorator.func if isinstance(decorator, ast.Call) else decorator
        if not AUTOCASTS & set(lowering.file.resolve(callee)):
            continue
        value: ir.Value = ir.Region(lowering.file.span(decorator), None)
        if isinstance(decorator, ast.Call):
            value = lowering.region(decorator)
        body = (ir.Within(value, body),)
    return body


def _sets_up(procedure: ir.Procedure, context: Context, function: Function) -> bool:
    """Whether a method sets a scaler of its object."""
    prefix = f"%{procedure.receiver}."
    if any(isinstance(s, ir.Event) and s.kind in ("step", "backward") for s in ir.every(procedure.body)):
        return False
    return any(
        isinstance(statement, ir.Assign)
        and statement.path.startswith(prefix)
        and context.kinds.of(statement.path[1:], function) == SCALER
        for statement in ir.every(procedure.body)
    )


def _assignments(body: ir.Block) -> ir.Block:
    """The assignments of the module, with the tests around them."""
    kept: list[ir.Stmt] = []
    for statement in body:
        if isinstance(statement, ir.Assign):
            kept.append(statement)
        elif isinstance(statement, ir.If):
            then, orelse = _assignments(statement.then), _assignments(statement.orelse)
            if then or orelse:
                kept.append(statement._replace(then=then, orelse=orelse))
        elif isinstance(statement, ir.Try):
            kept += _assignments(statement.body)
    return tuple(kept)
