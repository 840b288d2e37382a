"""Elementwise autograd functions that scale with the gradient get float32 where they are applied."""

from __future__ import annotations

import textwrap

import pytest

from amplint.migrate import migrate_source
from tests.migrate.test_refusals import HEAD

SCRIPT = """
class Own(torch.autograd.Function):
    slope = 10.0

    @staticmethod
    def forward(ctx, x, alpha=1.0):
{forward}

    @staticmethod
    def backward(ctx, grad):
{backward}

{setup}
for x, y in batches:
    loss = F.mse_loss({use}, y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""
KEEP = "ctx.save_for_backward(x)\nctx.alpha = alpha\nreturn (x > 0).float()"
SAVED = "x, = ctx.saved_tensors\n"
USE = "Own.apply(model(x))"


def script(forward: str, backward: str, use: str = USE, setup: str = "") -> str:
    parts = [textwrap.indent(part, " " * 8) for part in (forward, backward)]
    return HEAD + SCRIPT.format(forward=parts[0], backward=parts[1], use=use, setup=setup)


@pytest.mark.parametrize(
    ("forward", "backward"),
    [
        (KEEP, SAVED + "return grad / (Own.slope * x.abs() + 1.0) ** 2, None"),
        (KEEP, SAVED + "s = torch.sigmoid(ctx.alpha * x)\nreturn grad * ctx.alpha * s * (1 - s), None"),
        (KEEP, SAVED + "g = grad.clone()\ng[x.abs() > 1] = 0\nreturn g, None"),
        (KEEP, SAVED + "g = None\nif ctx.needs_input_grad[0]:\n    g = grad * x\nreturn g, None"),
        (KEEP, SAVED + "return torch.where(x.abs() <= 1, grad, torch.zeros_like(grad)), None"),
        (KEEP, SAVED + "return (x > 0).type(grad.dtype) * grad, None"),
        (KEEP, SAVED + "return grad.masked_fill(x < 0, 0), None"),
        ("out = torch.zeros_like(x)\nout[x > 0] = 1.0\nreturn out", "return grad, None"),
        ("return torch.round(x * alpha) / alpha", "return grad.clone(), None"),
    ],
)
def test_a_surrogate_is_applied_to_float32(forward: str, backward: str) -> None:
    result = migrate_source(script(forward, backward), "train.py")
    assert {report.status for report in result.loops} == {"migrated"}, result.loops
    assert "        loss = F.mse_loss(Own.apply(model(x).float()), y)\n" in result.text


@pytest.mark.parametrize(
    ("use", "setup", "written"),
    [
        ("spike(model(x) - 1)", "spike = Own.apply", "spike((model(x) - 1).float())"),
        ("spike(x @ w)", "spike = Own.apply\nw = nn.Parameter(torch.ones(4, 2))", "spike((x @ w).float())"),
        ("Own.apply(x)", "", "Own.apply(x)"),
    ],
)
def test_what_may_be_of_half_precision_is_cast(use: str, setup: str, written: str) -> None:
    use, written = f"{use} + model(x)", f"{written} + model(x)"
    text = migrate_source(script(KEEP, SAVED + "return grad * x, None", use, setup), "train.py").text
    assert f"        loss = F.mse_loss({written}, y)\n" in text


@pytest.mark.parametrize(
    ("forward", "backward"),
    [
        (KEEP, "return F.hardtanh(grad), None"),
        (KEEP, "return grad + 0.1, None"),
        (KEEP, "return grad * grad, None"),
        (KEEP, "return grad / grad.norm(), None"),
        (KEEP, "g = grad.clone()\ng[g > 1] = 0\nreturn g, None"),
        (KEEP, "g = torch.zeros_like(grad)\ng[:, 0] = grad[:, 0].abs()\nreturn g, None"),
        (KEEP, "if grad.max() > 1:\n    return grad * 0.5, None\nreturn grad, None"),
        (KEEP, "return torch.round(grad * 100) / 100, None"),
        (KEEP, SAVED + "return grad @ x.t(), None"),
        ("return x @ x.t()", "return grad, None"),
        ("return F.linear(x, x)", "return grad, None"),
        ("ctx.mark_dirty(x)\nreturn x.clamp_(min=0)", "return grad, None"),
        ("x[x < 0] = 0\nreturn x * 1.0", "return grad, None"),
        ("return helper(x)", "return grad, None"),
    ],
)
def test_other_functions_are_refused(forward: str, backward: str) -> None:
    text = script(forward, backward)
    result = migrate_source(text, "train.py")
    assert result.text == text
    assert result.loops[0].reason.startswith("line 9: a custom autograd function")


def test_a_function_that_is_handed_on_is_refused() -> None:
    text = script(KEEP, "return grad, None", "sum(map(Own.apply, [model(x)]))")
    result = migrate_source(text, "train.py")
    assert result.text == text
    assert result.loops[0].reason.startswith("line 9: a custom autograd function")
