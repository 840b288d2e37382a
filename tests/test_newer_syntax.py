"""Files in a newer Python than the one that runs: what can be read is checked, what can't is said."""

from __future__ import annotations

import ast
import sys

import pytest

from amplint import check_source, fix_source
from amplint.newer_syntax import readable

FUTURE = "lazy import json\nimport torch\n\nwith torch.cuda.amp.autocast():\n    pass\n"

needs_older_python = pytest.mark.skipif(sys.version_info >= (3, 15), reason="this Python knows the syntax")


@needs_older_python
def test_newer_statement_is_blanked_and_the_length_kept() -> None:
    text = "lazy import \u00e9a\nx = 1\n"
    seen = readable(text)
    assert seen is not None
    assert seen.rows == (1,)
    assert seen.text == "pass           \nx = 1\n"
    assert len(seen.text.encode()) == len(text.encode())


@pytest.mark.skipif(sys.version_info >= (3, 12), reason="this Python knows type parameters")
def test_only_the_type_parameters_of_a_function_are_blanked() -> None:
    seen = readable("def f[T](x: T) -> T:\n    return x\n")
    assert seen is not None
    assert seen.text == "def f   (x: T) -> T:\n    return x\n"


def test_text_that_is_no_python_is_not_read() -> None:
    assert readable("print 'old'\n") is None
    assert readable("x = (\n") is None


@needs_older_python
def test_the_rest_of_the_file_is_checked_without_fixes() -> None:
    found = check_source(FUTURE, "new.py")
    assert [(d.code, d.location.row, d.level.label) for d in found] == [
        ("AMP000", 1, "info"),
        ("AMP001", 4, "warning"),
    ]
    assert [d.fix for d in found] == [None, None]
    assert fix_source(FUTURE, "new.py").text == FUTURE


def test_python_2_is_a_finding_with_its_position() -> None:
    found = check_source("import torch.cuda.amp\nprint 'old'\n", "old.py")
    assert [(d.code, d.level.label, tuple(d.location)) for d in found] == [("AMP000", "error", (2, 1))]


def test_newest_syntax_of_this_python_needs_no_help() -> None:
    assert isinstance(ast.parse("match x:\n    case 1:\n        pass\n"), ast.Module)
    assert check_source("match x:\n    case autocast:\n        pass\n") == []
