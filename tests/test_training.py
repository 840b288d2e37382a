"""What calls in training code do."""

from __future__ import annotations

import ast
from textwrap import dedent

import pytest

from amplint.facts import training
from amplint.facts.precision import LoweredByFunction
from amplint.settings import DEFAULT
from amplint.source import SourceFile

HEADER = "import torch\nimport torch.nn.functional as F\nfrom torch import nn\n"


def parsed(code: str) -> SourceFile:
    """A file with the usual imports above the code."""
    return SourceFile(HEADER + dedent(code), "t.py", DEFAULT)


def last_call(file: SourceFile) -> ast.Call:
    """The outermost call of the last statement."""
    statement = file.tree.body[-1]
    assert isinstance(statement, (ast.Expr, ast.Assign))
    assert isinstance(statement.value, ast.Call)
    return statement.value


@pytest.mark.parametrize(
    ("code", "want"),
    [
        ("F.cross_entropy(a, b)", {"cross_entropy"}),
        ("nn.functional.mse_loss(a, b)", {"mse_loss"}),
        ("loss = nn.CrossEntropyLoss(weight=w)\nloss(a, b)", {"cross_entropy"}),
        ("nn.BCELoss()(a, b)", {"binary_cross_entropy"}),
        (
            "loss = nn.BCELoss() if a else nn.BCEWithLogitsLoss()\nloss(a, b)",
            set(training.LOSS_FUNCTIONS) & {"binary_cross_entropy", "binary_cross_entropy_with_logits"},
        ),
        ("loss = F.nll_loss\nloss(a, b)", {"nll_loss"}),
        ("F.relu(a)", set()),
        ("loss(a, b)", set()),
        ("from mine import mse_loss\nmse_loss(a, b)", set()),
        ("nn.Linear(1, 1)(a)", set()),
    ],
)
def test_losses(code: str, want: set[str]) -> None:
    file = parsed(code)
    assert training.losses(file, last_call(file)) == want


@pytest.mark.parametrize(
    ("code", "want"),
    [
        ("model(x)", True),
        ("self.net(x)", True),
        ("ddp_model(x)", True),
        ("model.module(x)", True),
        ("model.forward(x)", True),
        ("netD(x)", True),
        ("layer = nn.Linear(1, 1)\nlayer(x)", True),
        ("model = nn.MSELoss()\nmodel(x)", False),
        ("model()", False),
        ("len(x)", False),
        ("model.generate(x)", False),
        ("x.view(1)", False),
        ("torch.relu(x)", False),
        ("load_model = 1\ndef model(x):\n    pass\nmodel(x)", False),
        ("from mine import model\nmodel(x)", False),
        ("super()(x)", False),
    ],
)
def test_is_model_call(code: str, want: bool) -> None:
    file = parsed(code)
    assert training.is_model_call(file, last_call(file)) is want


@pytest.mark.parametrize(
    ("name", "want"),
    [
        ("criterion", True),
        ("self.loss_fn", True),
        ("loss", True),
        ("aux_loss", True),
        ("compute_loss_weights", False),
        ("lossy", False),
        ("model", False),
    ],
)
def test_is_loss_name(name: str, want: bool) -> None:
    call = ast.parse(f"{name}(x)", mode="eval").body
    assert isinstance(call, ast.Call)
    assert training.is_loss_name(call) is want


@pytest.mark.parametrize(
    ("code", "want"),
    [
        ("scaler.scale(loss).backward()", 1),
        ("amp.scale(loss).backward()", 1),
        ("scaled = self.scaler.scale(loss)", 1),
        ("s = torch.amp.GradScaler()\ny = s.scale(loss)", 1),
        ("y = transform.scale(x)", 0),
        ("scaler.scale()", 0),
        ("scaler.update()", 0),
    ],
)
def test_scale_calls(code: str, want: int) -> None:
    assert len(training.scale_calls(parsed(code))) == want


def test_frameworks_go_backward_with_the_loss_as_argument() -> None:
    file = parsed("loss.backward(retain_graph=True)\naccelerator.backward(loss)\nengine.backward(loss=loss)")
    assert [call.lineno for call in training.backward_calls(file)] == [4, 6]


@pytest.mark.parametrize(
    ("expression", "want"),
    [
        ("x.float()", True),
        ("x.double()", True),
        ("x.to(torch.float32)", True),
        ("x.to(dtype=torch.float)", True),
        ("x.to(device)", False),
        ("x.half()", False),
        ("float(x)", False),
    ],
)
def test_is_float_cast(expression: str, want: bool) -> None:
    file = parsed(expression)
    assert training.is_float_cast(file, last_call(file)) is want


def test_arms_of_one_test_exclude_each_other() -> None:
    file = parsed("if a:\n    one()\nelse:\n    two()\nthree() if a else four()\nif a:\n    five()\n    six()")
    calls = {call.func.id: call for call in file.names.calls if isinstance(call.func, ast.Name)}
    pairs = [("one", "two"), ("three", "four"), ("five", "six"), ("one", "five")]
    assert [training.in_other_arm(file, calls[a], calls[b]) for a, b in pairs] == [True, True, False, False]


@pytest.mark.parametrize(
    ("body", "want"),
    [
        ("    out = model(x)", True),
        ("    out, aux = model(x)", True),
        ("    out = model(x)[0].squeeze()", True),
        ("    out = model(x)\nout = out.view(1)", True),
        ("    out = model(x)\nout = out.float()", False),
        ("    out = model(x).float()", False),
        ("    out = x", False),
        ("    out = model(x)\nfor out in y:\n    pass", False),
        ("    if a:\n        out = model(x)", False),
    ],
)
def test_lowered_values(body: str, want: bool) -> None:
    file = parsed(f'with torch.autocast("cuda"):\n{body}\nprobe(out)')
    lowered = LoweredByFunction(file)[None].behind(last_call(file).args[0])
    assert (lowered is not None) is want
