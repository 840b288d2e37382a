"""Edits on arguments by node: what goes and what stays."""

from __future__ import annotations

import ast
from collections.abc import Callable

import pytest

from amplint.calls.arguments import ArgumentEdits
from amplint.edits import apply_fixes
from amplint.model import Applicability, Edit, Fix
from amplint.settings import DEFAULT
from amplint.source import SourceFile


def edited(text: str, edit: Callable[[ArgumentEdits, ast.Call], list[Edit]], skip: int = 0) -> str:
    """A text whose first statement is a call, after an edit."""
    file = SourceFile(text, "t.py", DEFAULT)
    statement = file.tree.body[0]
    assert isinstance(statement, ast.Expr)
    assert isinstance(statement.value, ast.Call)
    edits = edit(ArgumentEdits(file, statement.value, skip), statement.value)
    return apply_fixes(text, [Fix("edit", tuple(edits), Applicability.SAFE)]).text


@pytest.mark.parametrize(
    ("text", "index", "want"),
    [
        ("f(a)", 0, "f()"),
        ("f(a,)", 0, "f()"),
        ("f(a, b)", 0, "f(b)"),
        ("f(a, b)", 1, "f(a)"),
        ("f(a, (b), c)", 1, "f(a, c)"),
        ("f(\n    a,\n    b,\n)", 0, "f(\n    b,\n)"),
        ("f(\n    a,\n    b,\n)", 1, "f(\n    a,\n)"),
        ("f(a,  # why\n  b)", 0, "f(a,  # why\n  b)"),
        ("f('\u00e9', b)", 0, "f(b)"),
    ],
)
def test_remove(text: str, index: int, want: str) -> None:
    assert edited(text, lambda arguments, call: arguments.remove(call.args[index])) == want


def test_remove_a_keyword() -> None:
    assert edited("f(a, k=1, **d)", lambda arguments, call: arguments.remove(call.keywords[0])) == "f(a, **d)"


def test_replace_takes_the_parentheses_too() -> None:
    assert edited("f((a), b)", lambda arguments, call: arguments.replace(call.args[0], "x")) == "f(x, b)"


def test_name_and_rename() -> None:
    assert edited("f(a, b)", lambda arguments, call: arguments.name(call.args[1], "k")) == "f(a, k=b)"
    assert edited("f(a, old = b)", lambda arguments, call: arguments.name(call.keywords[0], "new")) == "f(a, new = b)"


def test_prepend_and_append_behind_what_is_skipped() -> None:
    assert edited("partial(f)", lambda arguments, _: arguments.prepend("x"), 1) == "partial(f, x)"
    assert edited("partial(f, a)", lambda arguments, _: arguments.prepend("x"), 1) == "partial(f, x, a)"
    assert edited("partial(f, a)", lambda arguments, _: arguments.append("x"), 1) == "partial(f, a, x)"
    assert edited("f(a)", lambda arguments, _: arguments.prepend("x")) == "f(x, a)"


def test_remove_parentheses() -> None:
    assert edited("f(a, b)", lambda arguments, _: arguments.remove_parentheses()) == "f"


def test_count() -> None:
    file = SourceFile("partial(f, a, k=1)", "t.py", DEFAULT)
    [call] = file.names.calls
    assert ArgumentEdits(file, call, 1).count == 2
