"""Edits on argument lists: where text goes in, and what stays as it was."""

from __future__ import annotations

import ast
from collections.abc import Callable

import pytest

from amplint.calls.call_edits import Arguments, skip_trivia
from amplint.edits import apply_fixes
from amplint.model import Applicability, Edit, Fix
from amplint.settings import DEFAULT
from amplint.source import SourceFile


def edited(text: str, edit: Callable[[Arguments], list[Edit]]) -> str:
    """A text whose first statement is a call, after an edit of its arguments."""
    file = SourceFile(text, "t.py", DEFAULT)
    statement = file.tree.body[0]
    assert isinstance(statement, ast.Expr)
    assert isinstance(statement.value, ast.Call)
    edits = edit(Arguments(file, statement.value))
    return apply_fixes(text, [Fix("edit", tuple(edits), Applicability.SAFE)]).text


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ("f()", "f(X)"),
        ("f(  )", "f(X)"),
        ("f(\n)", "f(X)"),
        ("f(  # why\n)", "f(X  # why\n)"),
        ("f(a)", "f(X, a)"),
        ("f( a )", "f( X, a )"),
        ("f((a))", "f(X, (a))"),
        ("(f)(a)", "(f)(X, a)"),
        ("f (a)", "f (X, a)"),
        ("(f  # why (not)\n)(a)", "(f  # why (not)\n)(X, a)"),
        ("f(*a, **k)", "f(X, *a, **k)"),
        ("f(k=1)", "f(X, k=1)"),
        ("f(x for x in y)", "f(X, x for x in y)"),
        ("f(\n    a, b\n)", "f(\n    X, a, b\n)"),
        ("f(\n    a\n)", "f(\n    X, a\n)"),
        ("f(\n    a,\n)", "f(\n    X,\n    a,\n)"),
        ("f(\n    # of a\n    a,\n)", "f(\n    X,\n    # of a\n    a,\n)"),
        ("f(\n\ta,\n\tb)", "f(\n\tX,\n\ta,\n\tb)"),
        ("f(\r\n    a,\r\n)", "f(\r\n    X,\r\n    a,\r\n)"),
        ("f(a,\n  b)", "f(X, a,\n  b)"),
        ("f('\u00e9')", "f(X, '\u00e9')"),
        ("g\\\n(a)", "g\\\n(X, a)"),
    ],
)
def test_prepend(text: str, want: str) -> None:
    assert edited(text, lambda arguments: arguments.prepend("X")) == want


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ("f()", "f(X)"),
        ("f(a)", "f(a, X)"),
        ("f(a,)", "f(a, X,)"),
        ("f((a) )", "f((a), X )"),
        ("f(a  # why\n)", "f(a, X  # why\n)"),
        ("f(a, **k)", "f(a, **k, X)"),
        ("f(\n    a,\n)", "f(\n    a,\n    X,\n)"),
        ("f(\n    a,  # why\n)", "f(\n    a,  # why\n    X,\n)"),
        ("f(\n    a,  # why\n    # last\n)", "f(\n    a,  # why\n    # last\n    X,\n)"),
        ("f(\n    a,\n    b\n)", "f(\n    a,\n    b,\n    X\n)"),
        ("f(\n    a,\n    b)", "f(\n    a,\n    b, X)"),
        ("f(g(a), lambda b, c: b)", "f(g(a), lambda b, c: b, X)"),
    ],
)
def test_append(text: str, want: str) -> None:
    assert edited(text, lambda arguments: arguments.append("X")) == want


@pytest.mark.parametrize(
    ("text", "index", "want"),
    [
        ("f(a)", 0, "f(k=a)"),
        ("f((a), b)", 0, "f(k=(a), b)"),
        ("f(a, (b or c) and d)", 1, "f(a, k=(b or c) and d)"),
        ("f(a := 1)", 0, "f(k=(a := 1))"),
        ("f((a := 1))", 0, "f(k=(a := 1))"),
        ("f(x for x in y)", 0, "f(k=(x for x in y))"),
        ("f((x for x in y))", 0, "f(k=(x for x in y))"),
        ("f(\n    # why\n    a,\n)", 0, "f(\n    # why\n    k=a,\n)"),
    ],
)
def test_name(text: str, index: int, want: str) -> None:
    assert edited(text, lambda arguments: arguments.name(index, "k")) == want


def test_insert_after() -> None:
    assert edited("f((a),  b)", lambda arguments: arguments.insert_after(0, "X")) == "f((a), X,  b)"


def test_items_include_parentheses_stars_and_keywords() -> None:
    text = "f((a), *b, k = (c), **d,)"
    file = SourceFile(text, "t.py", DEFAULT)
    call = file.tree.body[0].value  # type: ignore[attr-defined]
    arguments = Arguments(file, call)
    assert [text[item.start : item.end] for item in arguments.items] == ["(a)", "*b", "k = (c)", "**d"]
    assert arguments.trailing_comma


@pytest.mark.parametrize(
    ("text", "want"), [(b"  \t\r\nx", 5), (b"# a\n# b\nx", 8), (b"\\\nx", 2), (b"x", 0), (b"# a", 3), (b"# a\rx", 4)]
)
def test_skip_trivia(text: bytes, want: int) -> None:
    assert skip_trivia(text, 0) == want
