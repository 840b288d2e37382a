"""Scalers that come to objects: to the methods of one around an optimizer, and into constructors that get one."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from amplint.facts.values import Function
from amplint.migrate.model import RefusalError
from amplint.migrate.scalers import arguments
from amplint.migrate.tree import FUNCTIONS, is_none, loops_of

if TYPE_CHECKING:
    from amplint.migrate.scalers.making import Scalers
    from amplint.source import SourceFile


def method(scalers: Scalers, function: Function, at: ast.stmt, depth: int) -> str:
    """Make the scaler the first parameter of a method of an object around an optimizer, and pass it in all calls.

    Returns how it is written in the method; raises `RefusalError` where a use of the method is no plain call.
    """
    if function in scalers.threaded:
        return scalers.threaded[function]
    first = function.args.args[0] if function.args.args and not function.args.posonlyargs else None
    if first is None or function.name.startswith("__") or function.decorator_list:
        raise RefusalError(at, f"`{function.name}` can't get a scaler as a parameter")
    calls = scalers.file.values.calls(function)
    if (other := scalers.facts.wrappers.other_use(function, calls)) is not None:
        raise RefusalError(
            other, f"`{function.name}` is used otherwise than by a plain call, so its parameters can't change"
        )
    scalers.threaded[function] = scalers.name
    for call in calls:
        text = scalers.reach(call.func.value, scalers.file.statement(call), depth + 1)  # type: ignore[attr-defined]
        arguments.pass_first(scalers.file, scalers.editor, call, text)
    scalers.editor.insert(scalers.file.span(first).end, f", {scalers.name}")
    return scalers.name


def shared(file: SourceFile, init: Function, makers: list[ast.stmt]) -> ast.arg | None:
    """The parameter of a constructor that an attribute is given as it comes, where several objects are made, which
    would make several scalers for one optimizer; else None."""
    names = {m.value.id for m in makers if isinstance(m, ast.Assign) and isinstance(m.value, ast.Name)}
    if init.name != "__init__" or len(names) != 1 or len(makers) != 1:
        return None
    calls = file.values.calls_of(init)
    if len(calls) <= 1 and not any(loops_of(file, file.statement(call)) for call in calls):
        return None
    given = [file.values.argument(call, init, name) for call in calls for name in names]
    if all(isinstance(value, ast.Call) for value in given):
        return None  # each object has an optimizer of its own
    return next((arg for arg in (*init.args.args, *init.args.kwonlyargs) if arg.arg in names), None)


def construct(scalers: Scalers, init: Function, arg: ast.arg, maker: ast.stmt, depth: int) -> None:
    """Give objects that get an optimizer when they are made its scaler behind it, also those that get none: what they
    compute may be added to the gradients of the others.

    Raises `RefusalError` where not all objects are made in view, or no optimizer is near.
    """
    if init in scalers.threaded:
        return
    file, cls = scalers.file, scalers.file.parent(init)
    assert isinstance(cls, ast.ClassDef)
    calls = file.values.calls_of(init)
    arguments.check_constructions(file, cls, init, calls, maker)
    scalers.threaded[init] = scalers.name
    given = {call: file.values.argument(call, init, arg.arg) for call in calls}
    passed = {call: value for call, value in given.items() if value is not None and not is_none(value)}
    for call, value in given.items():
        around = file.values.enclosing_function(call)
        near = [v for c, v in passed.items() if file.values.enclosing_function(c) is around]
        if not near or any(isinstance(argument, ast.Starred) for argument in call.args):
            raise RefusalError(call, f"the optimizer that `{cls.name}` gets here can't be told")
        text = scalers.reach(passed.get(call, near[0]), file.statement(call), depth + 1)
        if value is None:
            arguments.pass_last(file, scalers.editor, call, f"{scalers.name}={text}")
        else:
            arguments.pass_behind(file, scalers.editor, call, value, scalers.name, text)
    arguments.declare(file, scalers.editor, init, arg, scalers.name, maker)
    scalers.editor.insert_after(maker, f"self.{scalers.name} = {scalers.name}")


def hand_over(scalers: Scalers, owner: ast.AST) -> bool:
    """Bring the scaler that a function makes beside an optimizer to the objects that get that optimizer when they are
    made, and that would make a scaler each; whether there are any.

    Raises `RefusalError` where not all objects of their class are made in view.
    """
    handed = False
    for init in [f for f in scalers.made if isinstance(f, FUNCTIONS) and f.name == "__init__" and f is not owner]:
        makers = list(scalers.made[init])
        value = getattr(makers[0], "value", None)
        arg = next(
            (a for a in (*init.args.args, *init.args.kwonlyargs) if isinstance(value, ast.Name) and a.arg == value.id),
            None,
        )
        if len(makers) != 1 or arg is None or not _is_made_by(scalers, owner, init, arg):
            continue
        construct(scalers, init, arg, makers[0], 0)
        scalers.forget(init)
        handed = True
    return handed


def _is_made_by(scalers: Scalers, owner: ast.AST, init: Function, arg: ast.arg) -> bool:
    """Whether the optimizer that a constructor gets is always one that a function makes."""
    for call in scalers.file.values.calls_of(init):
        given = scalers.file.values.argument(call, init, arg.arg)
        bindings = scalers.file.names.lookup(given) if isinstance(given, ast.Name) else ()
        if not bindings or not all(binding.node in scalers.made[owner] for binding in bindings):
            return False
    return True
