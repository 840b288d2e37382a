"""Places in the text, references and what they are used for."""

from __future__ import annotations

import ast
from textwrap import dedent

import pytest

from amplint.model import Location, Span
from amplint.settings import DEFAULT
from amplint.source import Ref, SourceFile


def source(text: str) -> SourceFile:
    return SourceFile(dedent(text).lstrip("\n"), "test.py", DEFAULT)


def summary(ref: Ref) -> tuple[int, str, str]:
    return ref.node.lineno, ref.candidates[0], ref.context


class TestPlaces:
    @pytest.mark.parametrize(
        ("text", "newline"), [("a\nb", "\n"), ("a\r\nb\n", "\r\n"), ("a\rb", "\r"), ("", "\n"), ("a", "\n")]
    )
    def test_newline(self, text: str, newline: str) -> None:
        assert SourceFile(text, "test.py", DEFAULT).newline == newline

    def test_spans_are_bytes_and_locations_characters(self) -> None:
        file = source("x = 'é😀'; y = z\n")
        [use] = file.names.loads["z"]
        assert file.span(use) == Span(18, 19)
        assert file.location(18) == Location(1, 15)
        assert file.segment(use) == "z"
        assert file.offset(1, use.col_offset) == 18

    def test_rows_of_every_line_end(self) -> None:
        file = SourceFile("a\r\nb\rc\nd", "test.py", DEFAULT)
        assert file.line_starts == [0, 3, 5, 7]
        assert [file.row(offset) for offset in (0, 2, 3, 5, 7)] == [1, 1, 2, 3, 4]
        assert file.line_span(1) == Span(0, 3)
        assert file.line_span(4) == Span(7, 8)
        assert [name.lineno for use in "abcd" for name in file.names.loads[use]] == [1, 2, 3, 4]

    def test_form_feed_is_no_line_end(self) -> None:
        file = SourceFile("a\n\x0cb\n", "test.py", DEFAULT)
        [use] = file.names.loads["b"]
        assert file.segment(use) == "b"

    def test_indentation(self) -> None:
        file = source("if x:\n\ty = 1; z = 2\nif a: b = 3\n")
        statements = {ast.unparse(s): s for s in ast.walk(file.tree) if isinstance(s, ast.Assign)}
        assert file.indentation(statements["y = 1"]) == "\t"
        assert file.indentation(statements["z = 2"]) == "\t"
        assert file.indentation(statements["b = 3"]) == ""

    def test_statement_parent_and_scope(self) -> None:
        file = source("def f():\n    return g(x)\n")
        [use] = file.names.loads["x"]
        assert isinstance(file.statement(use), ast.Return)
        assert isinstance(file.parent(use), ast.Call)
        assert file.scope(use).kind == "function"
        assert file.parent(file.tree) is None

    def test_enclosing_and_outermost_function(self) -> None:
        file = source("class C:\n    def f(self):\n        def g():\n            return x\n\ny = 1\n")
        [use] = file.names.loads["x"]
        assert getattr(file.enclosing(use, ast.FunctionDef), "name", None) == "g"
        assert getattr(file.enclosing(use, ast.ClassDef, ast.Module), "name", None) == "C"
        assert file.enclosing(use, ast.For) is None
        assert getattr(file.outermost_function(use), "name", None) == "f"
        assert file.outermost_function(file.tree.body[1]) is file.tree

    def test_surrogates_and_nothing_else_break_the_text(self) -> None:
        file = SourceFile("x = '\udc80'\n", "test.py", DEFAULT)
        assert file.segment(Span(0, len(file.encoded))) == "x = '\udc80'\n"


class TestRefs:
    def test_contexts(self) -> None:
        file = source(
            """
            import functools, torch
            from torch.cuda.amp import GradScaler, custom_fwd
            @custom_fwd
            def f(scaler: GradScaler, other: list[GradScaler] | None = None) -> GradScaler: ...
            @torch.cuda.amp.autocast()
            def g(): ...
            class S(GradScaler): ...
            part = functools.partial(torch.cuda.amp.autocast, dtype=d)
            member: GradScaler
            with torch.cuda.amp.autocast(): ...
            """
        )
        assert [summary(ref) for ref in file.refs] == [
            (1, "torch", "import"),
            (2, "torch.cuda.amp.GradScaler", "import"),
            (2, "torch.cuda.amp.custom_fwd", "import"),
            (3, "torch.cuda.amp.custom_fwd", "decorator"),
            (4, "torch.cuda.amp.GradScaler", "annotation"),
            (4, "torch.cuda.amp.GradScaler", "annotation"),
            (4, "torch.cuda.amp.GradScaler", "annotation"),
            (5, "torch.cuda.amp.autocast", "call"),
            (7, "torch.cuda.amp.GradScaler", "base"),
            (8, "torch.cuda.amp.autocast", "value"),
            (9, "torch.cuda.amp.GradScaler", "annotation"),
            (10, "torch.cuda.amp.autocast", "call"),
        ]

    def test_chain(self) -> None:
        file = source("import torch as th\nth.cuda.amp.autocast(x)\n")
        ref = file.refs[-1]
        assert [file.segment(link) for link in ref.chain] == ["th", "th.cuda", "th.cuda.amp", "th.cuda.amp.autocast"]
        assert ref.names == (("torch",), ("torch.cuda",), ("torch.cuda.amp",), ("torch.cuda.amp.autocast",))
        assert ref.call is not None
        assert ref.call.func is ref.node
        assert isinstance(ref.statement, ast.Expr)

    def test_quoted_annotations(self) -> None:
        file = source(
            """
            import torch
            def f(a: "torch.cuda.amp.GradScaler", b: "Optional[ torch.cuda.amp.GradScaler]" = 'autocast'): ...
            x: " torch.cuda.amp.GradScaler"
            y: "torch.cuda.amp" ".GradScaler"
            z: "torch.cuda.amp.GradScaler +"
            """
        )
        quoted = [ref for ref in file.refs if ref.quoted is not None]
        assert [(ref.node.lineno, file.segment(ref.node)) for ref in quoted] == [
            (2, "torch.cuda.amp.GradScaler"),
            (2, "torch.cuda.amp.GradScaler"),
            (3, "torch.cuda.amp.GradScaler"),
        ]
        assert {ref.context for ref in quoted} == {"annotation"}

    def test_quoted_annotation_after_other_letters(self) -> None:
        file = source("import torch\ndef f(é: \"Dict['é', torch.cuda.amp.GradScaler]\"): ...\n")
        [ref] = [ref for ref in file.refs if ref.quoted is not None]
        assert file.segment(ref.node) == "torch.cuda.amp.GradScaler"

    def test_text_in_strings_and_comments_is_no_reference(self) -> None:
        file = source('import torch\n"""torch.cuda.amp.autocast"""\n# torch.cuda.amp.autocast\nx = "autocast"\n')
        assert [summary(ref) for ref in file.refs] == [(1, "torch", "import")]

    def test_other_libraries_and_similar_names(self) -> None:
        file = source(
            """
            from paddle.amp import GradScaler
            from mytorch.cuda.amp import autocast
            from .torch.cuda import amp
            GradScaler(); autocast(); amp.autocast()
            """
        )
        assert file.refs == ()

    def test_names_through_variables(self) -> None:
        file = source("import torch\nac = torch.cuda.amp.autocast\nwith ac(): ...\n")
        assert [summary(ref) for ref in file.refs] == [
            (1, "torch", "import"),
            (2, "torch.cuda.amp.autocast", "value"),
            (3, "torch.cuda.amp.autocast", "call"),
        ]
        assert file.roots == {"torch", "ac"}

    def test_order_is_that_of_the_text(self) -> None:
        file = source("import torch\nf(torch.a, torch.b); torch.c\n")
        assert [ref.candidates[0] for ref in file.refs] == ["torch", "torch.a", "torch.b", "torch.c"]

    def test_apex(self) -> None:
        file = source("from apex import amp\namp.initialize(m, o)\n")
        assert [ref.candidates[0] for ref in file.refs] == ["apex.amp", "apex.amp.initialize"]

    def test_in_an_f_string(self) -> None:
        file = source('import torch\nprint(f"{torch.cuda.amp.autocast}")\n')
        ref = file.refs[-1]
        assert ref.candidates == ("torch.cuda.amp.autocast",)
        assert ref.fixable == (file.segment(ref.chain[0]) == "torch")


@pytest.mark.parametrize("text", ["", "\n", "# only a comment", "x = 1\r\n", "def f(:\n"])
def test_trees(text: str) -> None:
    file = SourceFile(text, "test.py", DEFAULT)
    if ":\n" in text:
        with pytest.raises(SyntaxError):
            _ = file.tree
    else:
        assert file.refs == ()
