"""Edits on whole statements keep the layout of the file around them."""

from __future__ import annotations

import ast

import pytest

from amplint.edits import apply_fixes
from amplint.model import Applicability, Edit, Fix
from amplint.rewrite.statements import (
    delete_statement,
    insert_after,
    insert_before,
    line_break,
    owns_its_lines,
    reindent,
)
from amplint.settings import DEFAULT
from amplint.source import SourceFile


def statement_at(file: SourceFile, marker: str) -> ast.stmt:
    """The statement whose text (decorators left out) starts with the marker."""
    return next(n for n in ast.walk(file.tree) if isinstance(n, ast.stmt) and file.segment(n).startswith(marker))


def applied(file: SourceFile, edit: Edit) -> str:
    text = apply_fixes(file.text, [Fix("edit", (edit,), Applicability.SAFE)]).text
    ast.parse(text)
    return text


def deleted(text: str, marker: str = "gone") -> str:
    file = SourceFile(text, "a.py", DEFAULT)
    return applied(file, delete_statement(file, statement_at(file, marker)))


def inserted_before(text: str, code: str, marker: str = "here") -> str | None:
    file = SourceFile(text, "a.py", DEFAULT)
    edit = insert_before(file, statement_at(file, marker), code)
    return None if edit is None else applied(file, edit)


def inserted_after(text: str, code: str, marker: str = "here") -> str | None:
    file = SourceFile(text, "a.py", DEFAULT)
    edit = insert_after(file, statement_at(file, marker), code)
    return None if edit is None else applied(file, edit)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("a\ngone()\nb\n", "a\nb\n", id="line"),
        pytest.param("a\ngone()  # it was here\nb\n", "a\nb\n", id="comment after it goes"),
        pytest.param("# above\ngone()\n# below\n", "# above\n# below\n", id="comments around it stay"),
        pytest.param("a\ngone(\n    1,\n    2,  # two\n)\nb\n", "a\nb\n", id="several lines"),
        pytest.param("a\r\ngone()\r\nb\r\n", "a\r\nb\r\n", id="CRLF"),
        pytest.param("a\rgone()\rb\r", "a\rb\r", id="CR"),
        pytest.param("a\ngone()", "a\n", id="last line without newline"),
        pytest.param("gone()\n", "", id="only statement of a module"),
        pytest.param("a\ngone();\nb\n", "a\nb\n", id="semicolon after it"),
        pytest.param("gone(); b\n", "b\n", id="first of a line"),
        pytest.param("a; gone(); b  # c\n", "a; b  # c\n", id="middle of a line"),
        pytest.param("a; gone()  # c\n", "a  # c\n", id="last of a line"),
        pytest.param("a; gone();\n", "a;\n", id="last of a line with a semicolon"),
        pytest.param("if x:\n    gone()  # c\nb\n", "if x:\n    pass  # c\nb\n", id="only statement of a block"),
        pytest.param("if x: gone()\n", "if x: pass\n", id="block on one line"),
        pytest.param("if x: gone(); b\n", "if x: b\n", id="first in a block on one line"),
        pytest.param("if x: a; gone()\n", "if x: a\n", id="last in a block on one line"),
        pytest.param("if x:\n    a\nelse:\n    gone()\n", "if x:\n    a\nelse:\n    pass\n", id="else"),
        pytest.param(
            "try:\n    a\nexcept E:\n    gone()\nfinally:\n    b\n",
            "try:\n    a\nexcept E:\n    pass\nfinally:\n    b\n",
            id="handler",
        ),
        pytest.param("match x:\n    case 1:\n        gone()\n", "match x:\n    case 1:\n        pass\n", id="case"),
        pytest.param("def f():\n\tgone()\n\ta\n", "def f():\n\ta\n", id="tab"),
        pytest.param('ä = """\n"""; gone()\n', 'ä = """\n"""\n', id="after a string of several lines"),
    ],
)
def test_delete_statement(text: str, expected: str) -> None:
    assert deleted(text) == expected


def test_decorators_go_with_their_function() -> None:
    assert deleted("a\n@ one\n@two(\n    3)\ndef f():\n    pass\nb\n", "def f") == "a\nb\n"


def test_an_elif_is_not_deleted() -> None:
    file = SourceFile("if x:\n    a\nelif gone:\n    b\n", "a.py", DEFAULT)
    with pytest.raises(ValueError, match="an elif is not a statement of its own"):
        delete_statement(file, statement_at(file, "elif"))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("a\nhere()\n", "a\nnew()\nhere()\n", id="line"),
        pytest.param("if x:\n    # c\n    here()\n", "if x:\n    # c\n    new()\n    here()\n", id="block"),
        pytest.param("if x:\r\n\there()\r\n", "if x:\r\n\tnew()\r\n\there()\r\n", id="tab and CRLF"),
        pytest.param("a\r\nhere()", "a\r\nnew()\r\nhere()", id="last line without newline"),
        pytest.param("here()", "new()\nhere()", id="only line without newline"),
        pytest.param("here(); b\n", "new()\nhere(); b\n", id="first of a line"),
        pytest.param("a; here()\n", "a; new(); here()\n", id="second of a line"),
        pytest.param("if x: here()\n", "if x: new(); here()\n", id="block on one line"),
    ],
)
def test_insert_before(text: str, expected: str) -> None:
    assert inserted_before(text, "new()") == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("here()\nb\n", "here()\nnew()\nb\n", id="line"),
        pytest.param("here()  # c\nb\n", "here()  # c\nnew()\nb\n", id="comment"),
        pytest.param("if x:\n    here()\nb\n", "if x:\n    here()\n    new()\nb\n", id="block"),
        pytest.param("here(\n  1)\r\nb\n", "here(\n  1)\r\nnew()\r\nb\n", id="mixed line ends"),
        pytest.param("a\r\nhere()", "a\r\nhere()\r\nnew()", id="last line without newline"),
        pytest.param("here();\n", "here();\nnew()\n", id="semicolon after it"),
        pytest.param("here(); b\n", "here(); new(); b\n", id="first of a line"),
        pytest.param("a; here()\n", "a; here(); new()\n", id="last of a line"),
        pytest.param("if x: here()\n", "if x: here(); new()\n", id="block on one line"),
    ],
)
def test_insert_after(text: str, expected: str) -> None:
    assert inserted_after(text, "new()") == expected


def test_code_goes_after_the_whole_of_a_compound_statement() -> None:
    text = "  \nfor x in here:\n    a\n    b  # c\nd\n"
    assert inserted_after(text, "new()", "for") == "  \nfor x in here:\n    a\n    b  # c\nnew()\nd\n"


def test_code_goes_before_decorators() -> None:
    assert inserted_before("@one\ndef here():\n    pass\n", "new()", "def") == "new()\n@one\ndef here():\n    pass\n"


def test_several_lines_take_the_indentation_and_the_line_ends_of_the_place() -> None:
    code = 'with x:\n    y = """\nkept\n"""\n\n    z'
    expected = 'if a:\r\n    with x:\r\n        y = """\r\nkept\r\n"""\r\n\r\n        z\r\n    here()\r\n'
    assert inserted_before("if a:\r\n    here()\r\n", code) == expected


@pytest.mark.parametrize("code", ["a\nb", "if a: b", "a; b", "a  # c", "with x:"])
def test_more_than_a_simple_statement_does_not_go_on_a_line_with_others(code: str) -> None:
    assert inserted_before("if x: here()\n", code) is None
    assert inserted_after("here(); b\n", code) is None


def test_nothing_is_inserted_beside_an_elif() -> None:
    text = "if x:\n    a\nelif here:\n    b\n"
    assert inserted_before(text, "new()", "elif") is None
    assert inserted_after(text, "new()", "elif") is None


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("x = 1\n", True),
        ("x = 1;  # c\n", True),
        ("x = 1; y\n", False),
        ("if y: x = 1\n", False),
        ("y; x = 1\n", False),
    ],
)
def test_owns_its_lines(text: str, expected: bool) -> None:
    file = SourceFile(text, "a.py", DEFAULT)
    assert owns_its_lines(file, statement_at(file, "x")) is expected


@pytest.mark.parametrize(
    ("encoded", "offset", "expected"),
    [
        (b"a\r\nb", 0, "\r\n"),
        (b"a\r\nb", 3, "\r\n"),
        (b"a\nb", 2, "\n"),
        (b"a\rb", 2, "\r"),
        (b"a", 0, "\n"),
        (b"", 0, "\n"),
    ],
)
def test_line_break(encoded: bytes, offset: int, expected: str) -> None:
    assert line_break(encoded, offset) == expected


@pytest.mark.parametrize(
    ("block", "old", "new", "expected"),
    [
        pytest.param("a\n", "", "    ", "    a\n", id="in"),
        pytest.param("    a\n", "    ", "", "a\n", id="out"),
        pytest.param("    if x:\n        a\n", "    ", "\t", "\tif x:\n\t    a\n", id="tabs"),
        pytest.param("  a\n\n   \n  b\n", "  ", "    ", "    a\n\n   \n    b\n", id="blank lines stay"),
        pytest.param("    f(\n  1)\n# c\n", "    ", "  ", "  f(\n1)\n# c\n", id="less indented lines, out"),
        pytest.param(
            "    f(\n  1)\n# c\n", "    ", "      ", "      f(\n    1)\n  # c\n", id="less indented lines, in"
        ),
        pytest.param('x = """\n  a\n"""\ny\n', "", "  ", '  x = """\n  a\n"""\n  y\n', id="string"),
        pytest.param("x = 'a\\\n  b'\n", "", "  ", "  x = 'a\\\n  b'\n", id="continued string"),
        pytest.param('x = f"""\n{\ny}\n"""\n', "", "  ", '  x = f"""\n{\ny}\n"""\n', id="f-string"),
        pytest.param("a\r\n  b\r\n".replace("  b", "b"), "", " ", " a\r\n b\r\n", id="CRLF"),
        pytest.param("a\rb", "", " ", " a\r b", id="CR and no newline at the end"),
        pytest.param("a = 1 + \\\n  2\n", "", "  ", "  a = 1 + \\\n    2\n", id="continuation"),
        pytest.param("a\x0c\nb\n", "", " ", " a\x0c\n b\n", id="form feed"),
    ],
)
def test_reindent(block: str, old: str, new: str, expected: str) -> None:
    assert reindent(block, old, new) == expected


def test_reindent_refuses_half_a_statement() -> None:
    with pytest.raises(ValueError, match="not complete statements"):
        reindent("f(\n", "", "  ")
