"""Values outside the range of half precision: weights of losses behind names, angles, squares, and tensors that go to
the CPU inside a region."""

from __future__ import annotations

import pytest

from tests.migrate.test_hazards import migrated, refusal

LOOP = """
{setup}
for x, y in batches:
    out = model(x)
    loss = {loss}
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""
PARSER = """
import argparse
parser = argparse.ArgumentParser()
parser.add_argument("--l1-weight", type=float, default=1e6)
args = parser.parse_args()
"""


@pytest.mark.parametrize(
    ("setup", "weight"),
    [("weight = 1e6", "weight"), (PARSER, "args.l1_weight"), ("", "1e6")],
)
def test_a_large_weight_meets_float32(setup: str, weight: str) -> None:
    text = migrated(LOOP.format(setup=setup, loss=f"{weight} * out.abs().mean()"))
    assert f"        loss = {weight} * out.float().abs().mean()\n" in text


@pytest.mark.parametrize("loss", ["weight * F.mse_loss(out, y)", "weight * out.pow(2).sum()"])
def test_a_large_weight_of_what_is_float32_is_left(loss: str) -> None:
    assert f"        loss = {loss}\n" in migrated(LOOP.format(setup="weight = 1e6", loss=loss))


def test_a_small_constant_behind_any_name_meets_float32() -> None:
    text = migrated(LOOP.format(setup="TINY = 1e-10", loss="(out / (out.std(0) + TINY)).abs().mean()"))
    assert "        loss = (out / (out.float().std(0) + TINY)).abs().mean()\n" in text


@pytest.mark.parametrize(
    ("loss", "name"),
    [
        ("torch.acos(F.linear(F.normalize(model(x)), out)).mean()", "acos"),
        ("torch.sqrt(1.0 - torch.pow(out, 2)).mean()", "sqrt"),
        ("(1 - out ** 2).sqrt().mean()", "sqrt"),
    ],
)
def test_angles_of_rounded_cosines_are_refused(loss: str, name: str) -> None:
    assert refusal(LOOP.format(setup="", loss=loss)) == (
        f"line 12: a value that half precision may have rounded beyond 1 goes into `{name}`, which is NaN there; "
        "compute it in float32, with `.float()`"
    )


@pytest.mark.parametrize(
    "loss",
    [
        "torch.sqrt((1.0 - out ** 2).clamp(0, 1)).mean()",
        "torch.sqrt(out.pow(2).sum())",
        "torch.acos(x).mean() + out.sum()",
    ],
)
def test_other_roots_and_angles_are_left(loss: str) -> None:
    assert f"        loss = {loss}\n" in migrated(LOOP.format(setup="", loss=loss))


@pytest.mark.parametrize(
    ("loss", "written"),
    [
        ("torch.square(out - y).mean()", "torch.square((out - y).float()).mean()"),
        ("out.square().mean()", "out.float().square().mean()"),
        ("F.mse_loss(out.cpu(), y)", "F.mse_loss(out.float().cpu(), y)"),
        ('F.mse_loss(out.to("cpu"), y)', 'F.mse_loss(out.float().to("cpu"), y)'),
    ],
)
def test_what_leaves_autocast_is_float32_first(loss: str, written: str) -> None:
    assert f"        loss = {written}\n" in migrated(LOOP.format(setup="", loss=loss))


@pytest.mark.parametrize("name", ["lu_solve", "quantile", "histc"])
def test_what_has_no_half_kernel_is_refused(name: str) -> None:
    assert refusal(LOOP.format(setup="", loss=f"torch.{name}(out, y)[0].mean()")) == (
        f"line 12: `{name}` does not take half precision on CUDA"
    )


@pytest.mark.parametrize(
    ("head", "call"), [("layer in layers", "layer(h)"), ("i, layer in enumerate(layers)", "layer(h)")]
)
def test_layers_of_a_list_are_modules(head: str, call: str) -> None:
    text = migrated(
        f"""
layers = nn.ModuleList([nn.Linear(4, 4), nn.Linear(4, 2)]).to(device)
for x, y in batches:
    h = x
    for {head}:
        h = {call}
    loss = F.mse_loss(h, y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""
    )
    assert (
        f"        for {head}:\n            h = {call}\n        loss = F.mse_loss(h, y)\n    optimizer.zero_grad()\n"
        in text
    )


@pytest.mark.parametrize("call", ["out.max(dim=1)[1]", "out.max(1)[1]", "torch.max(out, dim=1)[1]", "out.topk(k=1)[1]"])
def test_places_of_maxima_are_no_floats(call: str) -> None:
    text = migrated(
        LOOP.format(setup="", loss="F.mse_loss(out, y)") + f"    best = {call}\n    print(best.cpu().numpy())\n"
    )
    assert text.endswith(f"    best = {call}\n    print(best.cpu().numpy())\n")


LAST = """
last = {first}
for x, y in batches:
    out = model(x)
    loss = (out / (last + 1e-10)).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    last = out.detach()
"""


def test_what_a_round_leaves_to_the_next_one_is_of_half_precision() -> None:
    text = migrated(LAST.format(first="torch.ones(8, 2).to(device)"))
    assert "        loss = (out / (last.float() + 1e-10)).mean()\n" in text


def test_what_is_a_number_in_the_first_round_is_not_cast() -> None:
    assert refusal(LAST.format(first="0")) == (
        "line 12: a constant that float16 rounds to zero stands in arithmetic with tensors; use --dtype bfloat16"
    )
