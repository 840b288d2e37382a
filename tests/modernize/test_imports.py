"""Edits on import statements, as text."""

from __future__ import annotations

import ast

import pytest

from amplint.edits import apply_fixes
from amplint.model import Applicability, Edit, Fix
from amplint.modernize.imports import Bound, add_names, import_order, statement_edits
from amplint.modernize.refusal import RefusalError
from amplint.settings import DEFAULT
from amplint.source import SourceFile


def applied(text: str, edits: list[Edit]) -> str:
    """A text after edits that must go together."""
    outcome = apply_fixes(text, [Fix("edit", tuple(edits), Applicability.SAFE)])
    assert outcome.deferred == []
    ast.parse(outcome.text)
    return outcome.text


def changed(text: str, *changes: tuple[str, tuple[Bound, ...]]) -> str:
    """A text after the names of the changes are bound as they say."""
    file = SourceFile(text, "t.py", DEFAULT)
    wanted = dict(changes)
    by_statement = {
        statement: {alias: wanted[alias.name] for alias in statement.names if alias.name in wanted}
        for statement in file.names.imports
        if any(alias.name in wanted for alias in statement.names)
    }
    return applied(text, statement_edits(file, by_statement))


A = Bound("m", "a")
B = Bound("m", "b")


@pytest.mark.parametrize(
    ("text", "names", "want"),
    [
        ("from o import a\nx = 1\n", "a", "x = 1\n"),
        ("from o import a, b\n", "a", "from o import b\n"),
        ("from o import a, b\n", "b", "from o import a\n"),
        ("from o import a, b, c\n", "b", "from o import a, c\n"),
        ("from o import a, b, c\n", "ac", "from o import b\n"),
        ("from o import a as x, b\n", "b", "from o import a as x\n"),
        ("from o import a, \\\n    b\n", "b", "from o import a\n"),
        ("from o import (a, b)\n", "b", "from o import (a)\n"),
        ("from o import (a, b)\n", "a", "from o import (b)\n"),
        ("from o import (a, b, c)\n", "bc", "from o import (a)\n"),
        ("from o import (a, b,)\n", "b", "from o import (a,)\n"),
        ("from o import (\n    a,\n    b,\n)\n", "a", "from o import (\n    b,\n)\n"),
        ("from o import (\n    a,\n    b\n)\n", "b", "from o import (\n    a,\n)\n"),
        ("from o import (\n    a,  # of a\n    # of b\n    b,\n)\n", "a", "from o import (\n    # of b\n    b,\n)\n"),
        ("from o import (\n    a, b,\n    c,\n)\n", "a", "from o import (\n    b,\n    c,\n)\n"),
        ("from o import (\n    a, b,\n    c,\n)\n", "b", "from o import (\n    a, \n    c,\n)\n"),
        ("from o import (a,  # of a\n               b)\n", "b", "from o import (a,  # of a\n               )\n"),
        ("import a, b\n", "a", "import b\n"),
        ("import a; x = 1\n", "a", "x = 1\n"),
        ("x = 1; import a\n", "a", "x = 1\n"),
        ("if 1:\n    import a\n", "a", "if 1:\n    pass\n"),
        ("if 1:\n    import a\n    import b\n", "ab", "if 1:\n    pass\n"),
        ("try:\n    import a\nfinally:\n    x = 1\n", "a", "try:\n    pass\nfinally:\n    x = 1\n"),
        ("import a  # why\nx = 1\n", "a", "x = 1\n"),
        ("# above\nimport a\nx = 1\n", "a", "# above\nx = 1\n"),
    ],
)
def test_names_go(text: str, names: str, want: str) -> None:
    assert changed(text, *((name, ()) for name in names)) == want


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ("import x\n\nimport a\n\nimport y\n", "import x\n\nimport y\n"),
        ("import x\n\nimport a\nimport y\n", "import x\n\nimport y\n"),
        ("import x\nimport a\n\n\ny = 1\n", "import x\n\n\ny = 1\n"),
        ("import x\n\n\nimport a\n\n\ny = 1\n", "import x\n\n\ny = 1\n"),
        ("import a\n\n\ny = 1\n", "y = 1\n"),
        ("\nimport a\n\ny = 1\n", "\ny = 1\n"),
        ('"""Doc."""\n\nimport a\n\n\ny = 1\n', '"""Doc."""\n\n\ny = 1\n'),
        ("x = 1\n\nimport a\n", "x = 1\n"),
        ("x = 1\n\nimport a", "x = 1\n"),
        ("def f():\n    import a\n\n    return 1\n", "def f():\n    return 1\n"),
        ("def f():\n    x = 1\n\n    import a\n\n    return x\n", "def f():\n    x = 1\n\n    return x\n"),
        ("import x\r\n\r\nimport a\r\n\r\nimport y\r\n", "import x\r\n\r\nimport y\r\n"),
        ("import x\n\t\nimport a\n  \nimport y\n", "import x\n  \nimport y\n"),
    ],
)
def test_blank_lines_go_with_what_they_set_off(text: str, want: str) -> None:
    assert changed(text, ("a", ())) == want


@pytest.mark.parametrize(
    ("text", "changes", "want"),
    [
        ("from o import a\n", [("a", (A,))], "from m import a\n"),
        ("from o.p import a, b  # why\n", [("a", (A,)), ("b", (B,))], "from m import a, b  # why\n"),
        ("from o import (\n    a,\n    b,\n)\n", [("a", (A,)), ("b", (B,))], "from m import (\n    a,\n    b,\n)\n"),
        ("from o import a, b\n", [("a", (A,)), ("b", ())], "from m import a\n"),
        ("from o import a, b\n", [("a", (A,))], "from m import a\nfrom o import b\n"),
        ("from o import a, b\n", [("a", (A,)), ("b", (Bound("n", "b"),))], "from m import a\nfrom n import b\n"),
        ("from o import a\n", [("a", (Bound("m", "c", "a"),))], "from m import c as a\n"),
        ("from o import a as x\n", [("a", (Bound("m", "a", "x"),))], "from m import a as x\n"),
        ("from o import a, b\n", [("a", (Bound("o", "c"),))], "from o import c, b\n"),
        ("from o import a, b, c\n", [("a", (Bound("o", "c"),))], "from o import b, c\n"),
        ("from o import *\n", [("*", (B, A))], "from m import a, b\n"),
        ("import a as x\n", [("a", (Bound("", "m", "x"),))], "import m as x\n"),
        ("import a, b\n", [("a", (Bound("", "m"),))], "import m, b\n"),
        ("import a\n", [("a", (A,))], "from m import a\n"),
        ("from o import a\n", [("a", (Bound("", "m"),))], "import m\n"),
        ("if 1:\n    from o import a, b\n", [("a", (A,))], "if 1:\n    from m import a\n    from o import b\n"),
        (
            "if 1:\n    from o import a, b\n",
            [("a", (A,)), ("b", (Bound("n", "b"),))],
            "if 1:\n    from m import a\n    from n import b\n",
        ),
        ("x = 1; from o import a, b\n", [("a", (A,))], "x = 1; from m import a; from o import b\n"),
    ],
)
def test_names_move(text: str, changes: list[tuple[str, tuple[Bound, ...]]], want: str) -> None:
    assert changed(text, *changes) == want


@pytest.mark.parametrize(
    ("text", "changes"),
    [
        ("from o import (  # why\n    a, b)\n", [("a", (A,)), ("b", (Bound("n", "b"),))]),
        ("from o . p import a\n", [("a", (A,))]),
        ("from \\\n  o import a\n", [("a", (A,))]),
    ],
)
def test_what_is_not_plain_is_refused(text: str, changes: list[tuple[str, tuple[Bound, ...]]]) -> None:
    with pytest.raises(RefusalError):
        changed(text, *changes)


@pytest.mark.parametrize(
    ("text", "names", "want"),
    [
        ("from m import b\n", "a", "from m import a, b\n"),
        ("from m import a\n", "b", "from m import a, b\n"),
        ("from m import a, c\n", "bd", "from m import a, b, c, d\n"),
        ("from m import C\n", "a", "from m import C, a\n"),
        ("from m import c, b\n", "a", "from m import c, b, a\n"),
        ("from m import b as x\n", "a", "from m import a, b as x\n"),
        ("from m import (b)\n", "a", "from m import (a, b)\n"),
        ("from m import (\n    b,\n)\n", "a", "from m import (\n    a,\n    b,\n)\n"),
        ("from m import (\n    b,  # why\n)\n", "c", "from m import (\n    b,  # why\n    c,\n)\n"),
        ("from m import (\n    b\n)\n", "cd", "from m import (\n    b,\n    c,\n    d\n)\n"),
        ("from m import (\r\n    b,\r\n)\r\n", "a", "from m import (\r\n    a,\r\n    b,\r\n)\r\n"),
    ],
)
def test_names_are_added(text: str, names: str, want: str) -> None:
    file = SourceFile(text, "t.py", DEFAULT)
    statement = file.tree.body[0]
    assert isinstance(statement, ast.ImportFrom)
    assert applied(text, add_names(file, statement, [Bound("m", name) for name in names])) == want


def test_order_of_names() -> None:
    names = ["autocast", "GradScaler", "custom_fwd as cf", "EPS", "Adam"]
    assert sorted(names, key=import_order) == ["EPS", "Adam", "GradScaler", "autocast", "custom_fwd as cf"]
