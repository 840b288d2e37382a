"""Parameters and arguments for scalers: where they stand, and whether all calls that would need one are known."""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING

from amplint.facts.values import Function, default_of, path_of
from amplint.migrate.editor import Editor
from amplint.migrate.facts import Facts
from amplint.migrate.model import RefusalError
from amplint.migrate.tree import FUNCTIONS, is_none

if TYPE_CHECKING:
    from amplint.source import SourceFile

_REGISTERS = re.compile(r"regist|callback|hook|subscrib|handler", re.I)


def check_calls(facts: Facts, function: Function, calls: tuple[ast.Call, ...], at: ast.stmt) -> None:
    """Raise `RefusalError` unless all uses of a function are the calls that are known, for each of them must pass the
    scaler."""
    name = function.name
    uses: list[ast.expr] = [*facts.file.names.loads.get(name, ())]
    uses += facts.file.names.attributes.get(name, ())
    called = {call.func for call in calls}
    others = [use for use in uses if use not in called and not _is_other(facts, use, function)]
    if others:
        raise RefusalError(
            others[0], f"`{name}` is used otherwise than by a plain call, so its parameters can't change"
        )
    if (decorator := _keeper(facts, function)) is not None:
        raise RefusalError(
            decorator, f"`{name}` may be called by what keeps it here, so its parameters can't change; call it by name"
        )
    if not calls:
        raise RefusalError(
            at,
            f"the optimizer comes as a parameter of `{name}`, which this file does not call; give "
            "`amplint migrate` the file that calls it too, or write the scaler by hand, beside the optimizer",
            "caller",
        )


def _keeper(facts: Facts, function: Function) -> ast.expr | None:
    """A decorator that may keep a function for other calls, as registries do; None where none does."""
    for decorator in function.decorator_list:
        func = decorator.func if isinstance(decorator, ast.Call) else decorator
        if _REGISTERS.search(path_of(func)):
            return decorator
        for made in facts.file.values.of(func):
            if isinstance(made, FUNCTIONS) and any(_keeps(facts.file, inner) for inner in _functions(made)):
                return decorator
    return None


def _functions(function: Function) -> list[Function]:
    return [node for node in ast.walk(function) if isinstance(node, FUNCTIONS)]


def _keeps(file: SourceFile, function: Function) -> bool:
    """Whether a function puts its first parameter into a container or an attribute."""
    first = function.args.args[0].arg if function.args.args else ""
    for node in ast.walk(function):
        if not isinstance(node, ast.Name) or node.id != first or not isinstance(node.ctx, ast.Load):
            continue
        parent = file.parent(node)
        if isinstance(parent, ast.Assign) and any(
            isinstance(target, (ast.Subscript, ast.Attribute)) for target in parent.targets
        ):
            return True
        if isinstance(parent, ast.Call) and node in parent.args and path_of(parent.func).endswith((".append", ".add")):
            return True
    return False


def _is_other(facts: Facts, use: ast.expr, function: Function) -> bool:
    """Whether a use of the function's name surely means something else, such as `model.train`."""
    is_method = isinstance(facts.file.parent(function), ast.ClassDef)
    if isinstance(use, ast.Attribute):
        return not is_method or facts.is_module(use.value)
    return is_method or all(binding.node is not function for binding in facts.file.names.lookup(use))  # type: ignore[arg-type]


def check_constructions(
    file: SourceFile, cls: ast.ClassDef, init: Function, calls: tuple[ast.Call, ...], at: ast.stmt
) -> None:
    """Raise `RefusalError` unless a class is only used where its objects are made, by the calls that are known."""
    called = {call.func for call in calls}
    for use in file.names.loads.get(cls.name, ()):
        parent = file.parent(use)
        asked = isinstance(parent, ast.Call) and getattr(parent.func, "id", "") == "isinstance"
        if use not in called and not asked:
            raise RefusalError(
                use, f"`{cls.name}` is used otherwise than by a plain call, so its parameters can't change"
            )
    for other in file.names.scopes:
        if isinstance(other, ast.ClassDef) and other is not cls and cls in file.values.lineage(other):
            raise RefusalError(other, f"`{other.name}` extends `{cls.name}`, whose parameters would change")
    if not calls or init.decorator_list or file.parent(init) is not cls:
        raise RefusalError(at, f"where objects of `{cls.name}` are made can't be seen")


def declare(file: SourceFile, editor: Editor, function: Function, arg: ast.arg, name: str, at: ast.stmt) -> None:
    """Write a parameter behind another one; raises `RefusalError` where a default stands in the way."""
    default = default_of(function.args, arg)
    if default is None:
        editor.insert(file.span(arg).end, f", {name}")
    elif is_none(default):
        editor.insert(file.span(default).end, f", {name}=None")  # each call passes both
    else:
        raise RefusalError(at, f"the parameter `{arg.arg}` has a default, so a scaler can't follow it")


def pass_behind(file: SourceFile, editor: Editor, call: ast.Call, given: ast.expr, name: str, text: str) -> None:
    """Write an argument behind another one, by keyword where that has one."""
    if any(keyword.value is given for keyword in call.keywords):
        text = f"{name}={text}"
    editor.insert(_end(file, given), f", {text}")


def pass_first(file: SourceFile, editor: Editor, call: ast.Call, text: str) -> None:
    """Write an argument before all others."""
    given = [*call.args, *call.keywords]
    if given:
        editor.insert(min(file.span(argument).start for argument in given), f"{text}, ")
    else:
        editor.insert(file.span(call).end - 1, text)


def pass_last(file: SourceFile, editor: Editor, call: ast.Call, text: str) -> None:
    """Write a keyword behind all arguments."""
    given = [*call.args, *(keyword.value for keyword in call.keywords)]
    if given:
        editor.insert(_end(file, given[-1]), f", {text}")
    else:
        editor.insert(file.span(call).end - 1, text)


def _end(file: SourceFile, node: ast.expr) -> int:
    """The end of an argument, closing parentheses of its own included."""
    end = file.span(node).end
    parent = file.parent(node)
    call = file.parent(parent) if isinstance(parent, ast.keyword) else parent
    assert isinstance(call, ast.Call)
    start = file.span(node).start
    while file.encoded[start - 1 : start] == b"(" and start - 1 > file.span(call.func).end:
        closing = file.encoded.find(b")", end)
        if closing < 0 or file.encoded[end:closing].strip():
            break
        start, end = start - 1, closing + 1
    return end
