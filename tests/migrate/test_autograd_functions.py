"""Autograd functions that pass a value and its gradient on are left; all others are refused."""

from __future__ import annotations

import textwrap

import pytest

from amplint.migrate import migrate_source
from tests.migrate.test_refusals import HEAD

SCRIPT = """
class Own(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, factor=1.0):
{forward}

    @staticmethod
    def backward(ctx, grad):
{backward}

for x, y in batches:
    loss = F.mse_loss(Own.apply(model(x)), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""
KEEP = "ctx.factor = factor\nreturn x.view_as(x)"


@pytest.mark.parametrize(
    ("forward", "backward", "left"),
    [
        (KEEP, "return grad.neg() * ctx.factor, None", True),
        (KEEP, "return -ctx.factor * grad, None", True),
        (KEEP, "factor = grad.new_tensor(ctx.factor)\nscaled = -factor * grad\nreturn scaled, None", True),
        (KEEP, "result = None\nif ctx.needs_input_grad[0]:\n    result = -grad * 0.5\nreturn result, None", True),
        ("return x.clone()", '"""Straight on."""\nreturn grad', True),
        # what is done to the gradient depends on its scale
        (KEEP, "return grad.clamp(-1, 1), None", False),
        (KEEP, "return grad.sign() * ctx.factor, None", False),
        (KEEP, "return grad + ctx.factor, None", False),
        (KEEP, "return grad * grad, None", False),
        (KEEP, "return torch.where(grad > 0, grad, grad * 2), None", False),
        (KEEP, "print(grad.norm())\nreturn grad, None", False),
        # what is computed depends on the precision
        ("ctx.save_for_backward(x)\nreturn F.linear(x, x)", "return grad, None", False),
        ("return x @ x.t()", "return grad, None", False),
    ],
)
def test_functions(forward: str, backward: str, left: bool) -> None:
    body = SCRIPT.format(forward=textwrap.indent(forward, " " * 8), backward=textwrap.indent(backward, " " * 8))
    result = migrate_source(HEAD + body, "train.py")
    assert (result.text != HEAD + body) is left
    if not left:
        assert result.loops[0].reason.startswith("line 9: a custom autograd function")


METRIC = """
class Overlap(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, y):
        return torch.dot(x, y) / (x.sum() + y.sum())

    @staticmethod
    def backward(ctx, grad):
        raise NotImplementedError

{alias}
for x, y in batches:
    out = model(x)
    loss = F.mse_loss(out, y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(Overlap.apply({given}))
"""


@pytest.mark.parametrize(
    ("alias", "given", "left"),
    [
        ("", "(out > 0.5).float().view(-1), y.view(-1)", True),
        ("", "y.view(-1), y.view(-1)", True),
        ("", "out.view(-1), y.view(-1)", False),
        ("overlap = Overlap.apply", "y.view(-1), y.view(-1)", False),
    ],
)
def test_one_of_a_metric_may_stand_where_it_meets_float32(alias: str, given: str, left: bool) -> None:
    text = HEAD + METRIC.format(alias=alias, given=given)
    result = migrate_source(text, "train.py")
    assert (result.text != text) is left, result.loops
    assert left or result.loops[0].reason.startswith("line 9: a custom autograd function")
