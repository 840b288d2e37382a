"""Optimizers that are made in the arguments of the call that trains with them, and have no name there."""

from __future__ import annotations

import pytest

from amplint.migrate import migrate_source
from tests.migrate.test_refusals import HEAD

FIT = """
def fit(model, opt, epochs):
    for x, y in batches:
        loss = F.mse_loss(model(x), y)
        opt.zero_grad()
        loss.backward()
        opt.step()

"""
MADE = 'scaler = torch.amp.GradScaler("cuda", enabled=device.type == "cuda")'
SGD = "torch.optim.SGD(model.parameters(), lr=0.1)"


def migrated(body: str) -> list[str]:
    result = migrate_source(HEAD + body, "train.py")
    assert {loop.status for loop in result.loops} == {"migrated"}, result.loops
    return result.text.removeprefix(HEAD).splitlines()


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (f"fit(model, {SGD}, 3)", [MADE, f"fit(model, {SGD}, scaler, 3)"]),
        (f"fit(model, epochs=3, opt={SGD})", [MADE, f"fit(model, epochs=3, opt={SGD}, scaler=scaler)"]),
        (
            f"for fold in range(3):\n    fit(model, {SGD}, 3)",
            [MADE, "for fold in range(3):", f"    fit(model, {SGD}, scaler, 3)"],
        ),
        (
            f"if large:\n    fit(model, {SGD}, 3)\nelse:\n    fit(model, {SGD}, 1)",
            [MADE, "if large:", f"    fit(model, {SGD}, scaler, 3)", "else:", f"    fit(model, {SGD}, scaler, 1)"],
        ),
        (
            f"def make():\n    return {SGD}\n\nfit(model, make(), 3)",
            ["def make():", f"    return {SGD}", "", MADE, "fit(model, make(), scaler, 3)"],
        ),
    ],
    ids=["an argument", "a keyword", "a loop", "two branches", "a function that makes it"],
)
def test_the_scaler_is_made_before_the_call(before: str, after: list[str]) -> None:
    lines = migrated(FIT + before + "\n")
    assert "def fit(model, opt, scaler, epochs):" in lines
    assert lines[-len(after) :] == after


def test_one_scaler_serves_optimizers_with_a_name_and_without() -> None:
    text = migrate_source(HEAD + FIT + f"fit(model, optimizer, 3)\nfit(model, {SGD}, 3)\n", "train.py").text
    assert text.count("GradScaler") == 1
    assert text.endswith(f"fit(model, optimizer, scaler, 3)\nfit(model, {SGD}, scaler, 3)\n")


@pytest.mark.parametrize("made", ["Mine(model)", "build(model)", "optimizers[0] if small else optimizer"])
def test_what_is_no_optimizer_of_torch_is_refused(made: str) -> None:
    body = f"from tools import build\nclass Mine:\n    pass\n{FIT}fit(model, {made}, 3)\n"
    assert migrate_source(HEAD + body, "train.py").text == HEAD + body


MADE_STEP = """
def make_step(model, opt):
    def step(x, y):
        loss = F.mse_loss(model(x), y)
        loss.backward()
        opt.step()
        {reset}
        return loss.item()

    return step

step = make_step(model, optimizer)
for x, y in batches:
    step(x, y)
"""


def test_a_function_that_makes_the_one_that_steps_gets_the_scaler() -> None:
    lines = migrated(MADE_STEP.format(reset="opt.zero_grad()"))
    assert "def make_step(model, opt, scaler):" in lines
    assert "        scaler.step(opt)" in lines
    assert "step = make_step(model, optimizer, scaler)" in lines


def test_such_a_function_that_leaves_its_gradients_is_refused() -> None:
    body = MADE_STEP.format(reset="pass")
    result = migrate_source(HEAD + body, "train.py")
    assert result.text == HEAD + body
    assert result.loops[0].reason.startswith("line 13: gradients that are left over")
