"""Which qualified name a use stands for."""

from __future__ import annotations

import ast
from textwrap import dedent

import pytest

from amplint.names import UNKNOWN, Names, getattr_constant

NEW = ("torch.amp.autocast",)
OLD = ("torch.cuda.amp.autocast",)

RESOLVED = {
    "plain import": ("import torch\nUSE(torch.cuda.amp.autocast)", OLD),
    "import of a submodule": ("import torch.cuda.amp\nUSE(torch.cuda.amp.autocast)", OLD),
    "import as": ("import torch.cuda.amp as amp\nUSE(amp.autocast)", OLD),
    "from import": ("from torch.cuda import amp\nUSE(amp.autocast)", OLD),
    "from import as": ("from torch.cuda.amp import autocast as ac\nUSE(ac)", OLD),
    "star import": ("from torch.cuda.amp import *\nUSE(autocast)", OLD),
    "the later star import": (
        "from torch.cuda.amp import *\nfrom torch.amp import *\nUSE(autocast)",
        NEW,
    ),
    "either star import": (
        """
        try:
            from torch.amp import *
        except ImportError:
            from torch.cuda.amp import *
        USE(autocast)
        """,
        ("torch.amp.autocast", "torch.cuda.amp.autocast"),
    ),
    "a star that doesn't export the name": ("from torch.cuda.amp.grad_scaler import *\nUSE(autocast)", ()),
    "chained aliases": (
        "import torch as th\namp = th.cuda.amp\nac = amp.autocast\nUSE(ac)",
        OLD,
    ),
    "several targets": ("import torch\na = b = torch.amp\nUSE(b.autocast)", NEW),
    "unpacking": ("import torch\na, b = torch.amp, torch.cuda\nUSE(b.amp)", ("torch.cuda.amp",)),
    "starred unpacking": ("import torch\na, *b = torch.amp, torch.cuda\nUSE(a.autocast)", ()),
    "annotated assignment": ("import torch\na: object = torch.amp\nUSE(a.autocast)", NEW),
    "walrus": ("import torch\nif (a := torch.amp):\n    USE(a.autocast)", NEW),
    "conditional expression": (
        "import torch\na = torch.amp if x else torch.cuda.amp\nUSE(a.autocast)",
        ("torch.amp.autocast", "torch.cuda.amp.autocast"),
    ),
    "conditional expression with something unknown": (
        "import torch\na = torch.autocast if x else nullcontext\nUSE(a)",
        ("torch.autocast", UNKNOWN),
    ),
    "getattr": ("import torch\nUSE(getattr(torch.amp, 'autocast', None))", NEW),
    "the import shim": (
        """
        try:
            from torch.amp import autocast
        except ImportError:
            from torch.cuda.amp import autocast
        USE(autocast)
        """,
        ("torch.amp.autocast", "torch.cuda.amp.autocast"),
    ),
    "an overwritten name": ("from torch.amp import autocast\nautocast = other\nUSE(autocast)", ()),
    "a name overwritten later": (
        "from torch.amp import autocast\nUSE(autocast)\nautocast = other",
        NEW,
    ),
    "a name overwritten under a condition": (
        "from torch.amp import autocast\nif x:\n    autocast = other\nUSE(autocast)",
        ("torch.amp.autocast", UNKNOWN),
    ),
    "a name made from itself": (
        "from torch.amp import autocast\nautocast = wrap(USE(autocast))",
        NEW,
    ),
    "a class that extends its own name": (
        "from torch.amp import GradScaler\nclass GradScaler(USE(GradScaler)):\n    pass",
        ("torch.amp.GradScaler",),
    ),
    "a class of that name": ("class GradScaler:\n    pass\nUSE(GradScaler)", ()),
    "a parameter": ("from torch.amp import autocast\ndef f(autocast):\n    USE(autocast)", ()),
    "a default of a parameter": (
        "from torch.amp import autocast\ndef f(autocast=USE(autocast)): ...",
        NEW,
    ),
    "a lambda's parameter": ("from torch.amp import autocast\nf = lambda autocast: USE(autocast)", ()),
    "a function-local import": (
        "def f():\n    from torch.amp import autocast\n    USE(autocast)",
        NEW,
    ),
    "an import local to another function": (
        "def f():\n    from torch.amp import autocast\ndef g():\n    USE(autocast)",
        (),
    ),
    "a module-level import below the function": (
        "def f():\n    USE(autocast)\nfrom torch.amp import autocast",
        NEW,
    ),
    "class scope is not seen in methods": (
        "class T:\n    from torch.amp import autocast\n    def f(self):\n        USE(autocast)",
        (),
    ),
    "class scope is seen in the class": (
        "class T:\n    from torch.amp import autocast\n    USE(autocast)",
        NEW,
    ),
    "global": (
        "def f():\n    global autocast\n    from torch.amp import autocast\ndef g():\n    USE(autocast)",
        NEW,
    ),
    "nonlocal from two functions out": (
        """
        def f():
            from torch.amp import autocast
            def g():
                def h():
                    nonlocal autocast
                    autocast = other
                USE(autocast)
        """,
        ("torch.amp.autocast", UNKNOWN),
    ),
    "comprehension": ("import torch\n[USE(torch.amp) for x in y]", ("torch.amp",)),
    "comprehension target": ("import torch\n[USE(torch) for torch in y]", ()),
    "loop target": ("from torch.amp import autocast\nfor autocast in y:\n    USE(autocast)", ()),
    "with target": ("from torch.amp import autocast\nwith y as autocast:\n    USE(autocast)", ()),
    "exception name": ("import torch.amp as e\ntry:\n    pass\nexcept E as e:\n    USE(e)", ()),
    "match capture": ("import torch\nmatch x:\n    case [a, *torch]:\n        USE(torch.amp)", ("torch.amp", UNKNOWN)),
    "deleted and imported again": (
        "from torch.cuda.amp import autocast\ndel autocast\nfrom torch.amp import autocast\nUSE(autocast)",
        NEW,
    ),
    "a circle": ("a = b\nb = a\nUSE(a)", ()),
    "relative import": ("from .torch import amp\nUSE(amp.autocast)", (".torch.amp.autocast",)),
    "another library": ("from paddle.amp import GradScaler\nUSE(GradScaler)", ("paddle.amp.GradScaler",)),
    "what a call returns": ("import torch\nUSE(torch.amp())", ()),
    "torch from nowhere": ("USE(torch.amp)", ("torch.amp",)),
}


def names_in(text: str) -> Names:
    return Names(ast.parse(dedent(text).lstrip("\n")))


@pytest.mark.parametrize(("text", "expected"), RESOLVED.values(), ids=RESOLVED.keys())
def test_resolve(text: str, expected: tuple[str, ...]) -> None:
    names = names_in(text)
    [use] = [call for call in names.calls if isinstance(call.func, ast.Name) and call.func.id == "USE"]
    assert names.resolve(use.args[0]) == expected
    assert names.resolve(use.args[0]) == expected


def test_conditional_chains_are_not_followed_again_and_again() -> None:
    steps = "".join(f"if c{i}:\n    x = x.left\n" for i in range(60))
    names = names_in(f"import torch\nx = torch\n{steps}USE(x)\n")
    found = names.resolve(names.calls[-1].args[0])
    assert len(found) == 61
    assert found[:2] == ("torch", "torch.left")


def test_long_chains_of_names_and_attributes_end() -> None:
    aliases = "".join(f"a{i} = a{i - 1}\n" for i in range(1, 3000))
    names = names_in(f"import torch\na0 = torch\n{aliases}USE(a2999)\n")
    assert names.resolve(names.calls[-1].args[0]) == ()
    names = names_in(f"import torch\nUSE(torch{'.a' * 900})\n")
    assert names.resolve(names.calls[-1].args[0]) == (f"torch{'.a' * 900}",)


def test_parents_and_scopes() -> None:
    names = names_in("class T:\n    def f(self, x=1):\n        return [y for y in x]\n")
    kinds = [scope.kind for scope in names.scopes.values()]
    assert kinds == ["module", "class", "function", "comprehension"]
    [constant] = [node for node in names.parents if isinstance(node, ast.Constant)]
    assert names.scope_of(constant).kind == "class"
    [use] = names.loads["x"]
    assert names.scope_of(use).kind == "comprehension"


def test_type_parameters_are_reached() -> None:
    try:
        tree = ast.parse("import torch\ndef f[T: torch.amp.GradScaler](x: T): ...\nclass C[U: torch.autocast]: ...\n")
    except SyntaxError:
        pytest.skip("type parameters are new in Python 3.12")
    assert len(Names(tree).loads["torch"]) == 2


@pytest.mark.parametrize(
    ("text", "expected"),
    [("getattr(x, 'a')", "a"), ("getattr(x, 'a', None)", "a"), ("getattr(x, a)", None), ("setattr(x, 'a')", None)],
)
def test_getattr_constant(text: str, expected: str | None) -> None:
    call = ast.parse(text, mode="eval").body
    assert isinstance(call, ast.Call)
    assert getattr_constant(call) == expected
