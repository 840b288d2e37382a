"""What an expression may stand for inside one file."""

from __future__ import annotations

import ast
from textwrap import dedent

import pytest

from amplint.facts.values import path_of
from amplint.settings import DEFAULT
from amplint.source import SourceFile


def parsed(code: str) -> SourceFile:
    """A file with `import torch` above the code."""
    return SourceFile("import torch\n" + dedent(code), "t.py", DEFAULT)


def probe(file: SourceFile) -> ast.expr:
    """The argument of the call `probe(...)`."""
    for call in file.names.calls:
        if isinstance(call.func, ast.Name) and call.func.id == "probe":
            return call.args[0]
    raise AssertionError("no probe in the code")


def texts(code: str) -> list[str]:
    """The values of the probed expression as text, `?` for what can't be seen."""
    file = parsed(code)
    found = []
    for value in file.values.of(probe(file)):
        found.append("?" if value is None else getattr(value, "name", None) or ast.unparse(value))
    return found


@pytest.mark.parametrize(
    ("code", "want"),
    [
        ("x = 1\nprobe(x)", ["1"]),
        ("x = 1 if a else 2\nprobe(x)", ["1", "2"]),
        ("x = a or 2\na = 3\nprobe(x)", ["3", "2"]),
        ("if a:\n    x = 1\nelse:\n    x = 2\nprobe(x)", ["1", "2"]),
        ("a, b = 1, 2\nprobe(b)", ["2"]),
        ("for x in y:\n    probe(x)", ["?"]),
        ("probe(x)", ["?"]),
        ("probe(torch.float16)", ["torch.float16"]),
        ("probe(torch)", ["torch"]),
        ("probe(other.x)", ["other.x"]),
        ("def f():\n    pass\nprobe(f)", ["f"]),
        ("def f(x=1):\n    probe(x)", ["1"]),
        ("def f(x):\n    probe(x)", ["?"]),
        ("def f(x):\n    probe(x)\nf(1)\nf(x=2)", ["1", "2"]),
        ("def f(a, *, x=1):\n    probe(x)\nf(0, x=2)\nf(*b)", ["1", "2"]),
        ("x = y\ny = x\nprobe(x)", ["?"]),
        ("class C:\n    def a(self):\n        self.x = 1\n    def b(self):\n        probe(self.x)", ["1"]),
        ("class C:\n    def a(self):\n        self.x, self.y = 1, 2\n        probe(self.y)", ["2"]),
        ("class B:\n    x = 1\nclass C(B):\n    def b(self):\n        probe(self.x)", ["1"]),
        ("class C:\n    def m(self):\n        probe(self.m)", ["m"]),
        ("class C:\n    def b(self):\n        probe(self.x)", ["?"]),
        ("class C:\n    def __init__(self, x):\n        self.x = x\n        probe(self.x)\nC(1)", ["1"]),
    ],
)
def test_of(code: str, want: list[str]) -> None:
    assert texts(code) == want


@pytest.mark.parametrize(
    ("code", "want"),
    [
        ("x = torch.nn.Linear(1, 1)\nprobe(x)", ["torch.nn.Linear"]),
        ("class N:\n    pass\nx = N().to(d).eval()\nprobe(x)", ["N"]),
        ("class N:\n    pass\nx = torch.nn.DataParallel(N())\nprobe(x)", ["torch.nn.DataParallel", "N"]),
        ("class N:\n    pass\ndef make():\n    return N()\nx = make()\nprobe(x)", ["N"]),
        ("x = make()\nprobe(x)", ["?"]),
        ("x = 1\nprobe(x)", ["?"]),
    ],
)
def test_constructed(code: str, want: list[str]) -> None:
    file = parsed(code)
    found = file.values.constructed(probe(file))
    assert [c.name if isinstance(c, ast.ClassDef) else c or "?" for c in found] == want


@pytest.mark.parametrize(
    ("code", "want"),
    [
        ("def f():\n    pass\nf()", ["f"]),
        ("class C:\n    def m(self):\n        self.n()\n    def n(self):\n        pass", ["n"]),
        ("class B:\n    def n(self):\n        pass\nclass C(B):\n    def m(self):\n        self.n()", ["n"]),
        ("class N:\n    def forward(self, x):\n        pass\nnet = N()\nnet(1)", ["forward"]),
        ("class N:\n    def forward(self, x):\n        pass\nnet = N()\nnet.forward(1)", ["forward"]),
        ("class N:\n    def __call__(self, x):\n        pass\nN()(1)", ["__call__"]),
        ("f()", []),
        ("torch.ones(1)", []),
    ],
)
def test_functions_that_a_call_runs(code: str, want: list[str]) -> None:
    file = parsed(code)
    last = max(file.names.calls, key=lambda call: (call.end_lineno or 0, call.end_col_offset or 0))
    assert [function.name for function in file.values.functions(last)] == want


@pytest.mark.parametrize(
    ("code", "want"),
    [
        ("x = 1\nprobe(x)", False),
        ("probe(torch.float16)", False),
        ("x = torch.device('cpu')\nprobe(x.type)", False),
        ("x = 1 if a else 2\nprobe(x)", False),
        ("def f(x=1):\n    probe(x)", True),
        ("def f(x=1):\n    y = x\n    probe(y)", True),
        ("probe(x)", True),
        ("probe(a.b.c)", True),
        ("class C:\n    def __init__(self, x=1):\n        self.x = x\n        probe(self.x)", True),
        ("class C:\n    def __init__(self):\n        self.x = 1\n        probe(self.x)", False),
        ("probe(table[x])", True),
    ],
)
def test_is_open(code: str, want: bool) -> None:
    file = parsed(code)
    assert file.values.is_open(probe(file)) is want


def test_a_class_that_replaces_its_base() -> None:
    file = parsed("class C:\n    pass\nclass C(C):\n    def m(self):\n        probe(self.x)")
    assert file.values.of(probe(file)) == (None,)


def test_wide_graphs_of_names_end() -> None:
    definitions = "\n".join(f"x{i} = x{i + 1} if a else x{i + 2} or x{i + 3}" for i in range(60))
    file = parsed(f"{definitions}\nprobe(x0)")
    assert None in file.values.of(probe(file))


def test_path_of() -> None:
    expressions = {"a": "a", "a.b.c": "a.b.c", "a().b": "", "a[0]": "", "1": ""}
    assert {text: path_of(ast.parse(text, mode="eval").body) for text in expressions} == expressions
