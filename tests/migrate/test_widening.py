"""Constants that float16 rounds to zero, or that lie beyond it: what they meet is float32 from the last product on."""

from __future__ import annotations

import pytest

from amplint.migrate import migrate_source
from tests.migrate.test_hazards import refusal
from tests.migrate.test_refusals import HEAD

LOOP = """
class Norm(nn.Module):
    def __init__(self, eps=1e-12):
        super().__init__()
        self.eps = eps

    def forward(self, x, scale=1.0):
        {first}
        return {norm}

norm = Norm().to(device)
{setup}
for x, y in batches:
    out = model(x)
    loss = {loss}
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""
VANISHES = "a constant that float16 rounds to zero stands in arithmetic with tensors; use --dtype bfloat16"
BEYOND = "a constant beyond the range of float16 stands in arithmetic with tensors; use --dtype bfloat16"


def script(norm: str = "x", loss: str = "norm(out).mean()", setup: str = "", first: str = "pass") -> str:
    return LOOP.format(norm=norm, loss=loss, setup=setup, first=first)


def migrated(body: str) -> str:
    result = migrate_source(HEAD + body, "train.py")
    assert {report.status for report in result.loops} == {"migrated"}, result.loops
    return result.text


@pytest.mark.parametrize(
    ("norm", "written"),
    [
        ("x / (x.std(0) + self.eps)", "x / (x.float().std(0) + self.eps)"),
        ("x * torch.rsqrt(x.var(1) + 1e-12)", "x * torch.rsqrt(x.float().var(1) + 1e-12)"),
        ("x * torch.rsqrt((x * x).mean(1) + 1e-8)", "x * torch.rsqrt((x.float() * x.float()).mean(1) + 1e-8)"),
        ("torch.sqrt(F.relu(x) + 1e-16)", "torch.sqrt(F.relu(x.float()) + 1e-16)"),
        ("x / (x.abs().max(1, keepdim=True)[0] + 1e-8)", "x / (x.float().abs().max(1, keepdim=True)[0] + 1e-8)"),
        ("x / (x.sum(1) + 1e-8)", "x / (x.sum(1) + 1e-8)"),
        ("x / torch.sqrt(x.pow(2).mean(1) + 1e-12)", "x / torch.sqrt(x.pow(2).mean(1) + 1e-12)"),
    ],
)
def test_an_epsilon_meets_float32(norm: str, written: str) -> None:
    assert f"        return {written}\n" in migrated(script(norm))


@pytest.mark.parametrize(
    ("first", "norm", "written"),
    [
        ("std = x.std(-1)", "x / (std + self.eps)", "        std = x.float().std(-1)\n"),
        ("d = x - 1", "torch.sqrt(d * d + 1e-12)", "        d = x.float() - 1\n"),
        ("s = torch.mm(x, y)", "(s / 4 + 1e9).softmax(1)", "        return (s.float() / 4 + 1e9).softmax(1)\n"),
    ],
)
def test_arithmetic_behind_a_name_does_too(first: str, norm: str, written: str) -> None:
    assert written in migrated(script(norm, first=first))


def test_a_filler_beyond_float16_is_float32() -> None:
    first = "filler = -9e15 * torch.ones_like(x)"
    text = migrated(script("torch.where(x > 0, x, filler).softmax(1)", first=first))
    assert "        filler = -9e15 * torch.ones_like(x).float()\n" in text


@pytest.mark.parametrize(
    ("first", "written"),
    [
        ("s = torch.mm(x, w); s += mask * -1e9", "s = torch.mm(x, w).float()"),
        ("s = torch.mm(x, w) / 2; s += mask * -1e9", "s = torch.mm(x, w).float() / 2"),
        ("s = torch.mm(x, w); s /= 2; s += mask * -1e9", "s = torch.mm(x, w).float()"),
        ("s = torch.mm(x, w); bias = (1 - mask) * -1e9; s += bias", "s = torch.mm(x, w).float()"),
        ("s = torch.mm(x, w); s += 1e-9", "s = torch.mm(x, w).float()"),
    ],
)
def test_what_is_changed_in_place_is_float32_before(first: str, written: str) -> None:
    lines = first.replace("; ", "\n        ")
    text = migrated(script("s.softmax(1)", setup="mask = torch.eye(2)\nw = torch.eye(2)", first=lines))
    assert f"        {written}\n" in text


@pytest.mark.parametrize(
    ("first", "norm", "reason"),
    [
        ("x += 1e-10", "x", VANISHES),
        ("v = x.view(-1)\n        v += 1e-10", "x", VANISHES),
        ("v = x\n        v += mask * -1e9", "x", BEYOND),
        ("x[:, 0] += mask * -1e9", "x", BEYOND),
        ("self.x = x @ x\n        self.x += 1e-10", "self.x", VANISHES),
        ("for v in x.chunk(2):\n            v += 1e-10", "x", VANISHES),
    ],
)
def test_what_may_have_another_name_or_be_a_number_is_refused(first: str, norm: str, reason: str) -> None:
    assert refusal(script(norm, first=first, setup="mask = torch.eye(2)")).endswith(f": {reason}")


def test_a_parameter_that_one_call_leaves_at_its_number_is_refused() -> None:
    text = script("x / (scale + 1e-10)", "norm(out).mean() + norm(out, out).mean()")
    assert refusal(text) == f"line 16: {VANISHES}"


def test_a_function_that_is_called_out_of_sight_is_refused() -> None:
    text = script("getattr(self, 'div' + 'ided')(x, x)").replace(
        "    def forward", "    def divided(self, a, b):\n        return a / (b + 1e-10)\n\n    def forward"
    )
    assert refusal(text) == f"line 15: {VANISHES}"
