"""AMP008: what real torch makes of an autocast class that is not called."""

from __future__ import annotations

import warnings
from textwrap import dedent

import pytest

from amplint import check_source, fix_source
from amplint.model import Applicability
from amplint.settings import Settings

ONLY = Settings(select=("AMP008",))

SETUP = """\
import contextlib
import torch
from torch.cpu.amp import autocast

x = torch.ones(2, 2)


"""


def execute(text: str) -> None:
    """Run a text on real torch."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        exec(compile(text, "snippet.py", "exec", dont_inherit=True), {})


def found(text: str) -> list[tuple[int, int]]:
    """The (row, column) of what is found in a text."""
    return [(d.location.row, d.location.column) for d in check_source(dedent(text), "t.py", ONLY)]


RAISES = [
    ("with torch.autocast:\n    x @ x", 'with torch.autocast("cpu"):\n    x @ x', TypeError),
    (
        "with torch.amp.autocast as region:\n    x @ x",
        'with torch.amp.autocast("cpu") as region:\n    x @ x',
        TypeError,
    ),
    ("with torch.no_grad(), autocast:\n    x @ x", "with torch.no_grad(), autocast():\n    x @ x", TypeError),
    ("with torch.cpu.amp.autocast:\n    x @ x", "with torch.cpu.amp.autocast():\n    x @ x", TypeError),
    ("context = autocast\nwith context:\n    x @ x", "context = autocast\nwith context():\n    x @ x", TypeError),
    (
        "context = autocast if x.is_cuda else contextlib.nullcontext\nwith context:\n    x @ x",
        "context = autocast if x.is_cuda else contextlib.nullcontext\nwith context():\n    x @ x",
        TypeError,
    ),
    (
        "with torch.autocast if not x.is_cuda else contextlib.nullcontext():\n    x @ x",
        'with torch.autocast("cpu") if not x.is_cuda else contextlib.nullcontext():\n    x @ x',
        TypeError,
    ),
    (
        "with contextlib.ExitStack() as stack:\n    stack.enter_context(torch.autocast)",
        'with contextlib.ExitStack() as stack:\n    stack.enter_context(torch.autocast("cpu"))',
        TypeError,
    ),
    (
        "@torch.autocast\ndef multiply(y):\n    return y @ y\n\n\nmultiply(x)",
        '@torch.autocast("cpu")\ndef multiply(y):\n    return y @ y\n\n\nmultiply(x)',
        ValueError,
    ),
    (
        "@autocast\ndef multiply(y):\n    return y @ y\n\n\nmultiply(x)",
        "@autocast()\ndef multiply(y):\n    return y @ y\n\n\nmultiply(x)",
        TypeError,
    ),
    (
        "class M(torch.nn.Module):\n    @torch.cpu.amp.autocast\n    def forward(self, y): ...\n\nM()(x)",
        "class M(torch.nn.Module):\n    @torch.cpu.amp.autocast()\n    def forward(self, y): ...\n\nM()(x)",
        TypeError,
    ),
]


@pytest.mark.parametrize(("bad", "good", "error"), RAISES, ids=[bad.split("\n")[0] for bad, _, _ in RAISES])
def test_torch_refuses_what_is_reported_and_takes_what_is_written(bad: str, good: str, error: type[Exception]) -> None:
    with pytest.raises(error):
        execute(SETUP + bad)
    text = f'{SETUP}torch.autocast("cpu").__enter__().__exit__(None, None, None)\n{bad}'
    assert len(found(text)) == 1
    result = fix_source(SETUP + bad, "t.py", ONLY, unsafe=True)
    device = '"cpu"' if "torch.cpu.amp.autocast" in good or "autocast()" in good else '"cuda"'
    assert result.text == SETUP + good.replace('"cpu"', device)
    execute(SETUP + good)
    assert found(SETUP + good) == []


@pytest.mark.parametrize(
    "text",
    [
        'with torch.autocast("cuda"):\n    pass',
        'with torch.autocast("cuda") as region:\n    pass',
        'context = torch.autocast("cuda")\nwith context:\n    pass',
        "context = torch.autocast if amp else Own\nwith context:\n    pass",
        "with torch.no_grad():\n    pass",
        "register(torch.autocast)",
        "context = torch.autocast",
        '@torch.autocast("cuda")\ndef f(): ...',
        "@torch.no_grad()\ndef f(): ...",
        'try:\n    torch.autocast("mps")\nexcept RuntimeError:\n    pass',
        "with pytest.raises(TypeError):\n    torch.autocast()",
        "with self.assertWarns(FutureWarning):\n    torch.cuda.amp.autocast()",
        'region = torch.autocast("cuda")\nregion.__enter__()',
        'torch.autocast("cuda").__enter__()',
        "def autocast(f): ...\n@autocast\ndef g(): ...",
        "from tensorflow import autocast\nwith autocast:\n    pass",
    ],
)
def test_silence(text: str) -> None:
    assert found(f"import torch\n{text}\n") == []


def test_a_call_that_is_thrown_away() -> None:
    text = """\
        import torch
        from torch.cuda.amp import autocast

        def step(model, x):
            autocast()
            torch.autocast("cuda", dtype=torch.float16)
            return model(x)
        """
    diagnostics = check_source(dedent(text), "t.py", ONLY)
    assert [(d.location.row, d.fix) for d in diagnostics] == [(5, None), (6, None)]
    assert {d.message for d in diagnostics} == {"autocast is made and thrown away, so nothing runs under it"}


def test_a_class_that_is_stored_on_self() -> None:
    text = """\
        import torch

        class Trainer:
            def __init__(self, fast):
                self.context = torch.autocast
                self.either = torch.autocast if fast else contextlib.nullcontext
                self.region = torch.autocast("cuda")

            def step(self, x):
                with self.context, self.region:
                    self.model(x)
                with self.either:
                    self.model(x)
        """
    assert found(text) == [(10, 14)]
    assert 'with self.context("cuda"), self.region:' in fix_source(dedent(text), "t.py", ONLY, unsafe=True).text


@pytest.mark.parametrize(
    ("other", "applicability"),
    [("model.cuda()", Applicability.SAFE), ("model", Applicability.UNSAFE)],
)
def test_the_device_must_be_in_the_file_for_a_safe_fix(other: str, applicability: Applicability) -> None:
    [diagnostic] = check_source(f"import torch\n{other}\nwith torch.autocast:\n    pass\n", "t.py", ONLY)
    assert diagnostic.fix is not None
    assert diagnostic.fix.applicability is applicability


def test_candidates_that_need_different_arguments_are_not_fixed() -> None:
    text = """\
        try:
            from torch.amp import autocast
        except ImportError:
            from torch.cuda.amp import autocast

        with autocast:
            pass
        """
    [diagnostic] = check_source(dedent(text), "t.py", ONLY)
    assert (diagnostic.location.row, diagnostic.fix) == (6, None)
