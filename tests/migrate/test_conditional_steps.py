"""Optimizers that step under a condition, or that may be None: unscaled, stepped and updated where that is right."""

from __future__ import annotations

import pytest

from amplint.migrate import migrate_source
from tests.migrate.test_refusals import HEAD

MAKE = """
fine_tune = True
encoder = nn.Linear(4, 4).to(device)
opt_e = torch.optim.SGD(encoder.parameters(), lr=0.1){optional}
"""
LOOP = """
for epoch in range(9):
    for x, y in batches:
        optimizer.zero_grad()
        {reset}
        loss = F.mse_loss(model(encoder(x)), y)
        loss.backward()
        {use}
        optimizer.step()
        {step}
"""
OPTIONAL = " if fine_tune else None"
CLIP = "nn.utils.clip_grad_norm_(encoder.parameters(), 1.0)"


def script(reset: str, use: str, step: str, optional: str = OPTIONAL) -> str:
    """A loop with two optimizers, the second of which may be missing."""
    return HEAD + MAKE.format(optional=optional) + LOOP.format(reset=reset, use=use, step=step)


def behind_backward(text: str) -> list[str]:
    """The migrated lines behind the backward."""
    result = migrate_source(text, "train.py")
    assert {loop.status for loop in result.loops} == {"migrated"}, result.loops
    assert migrate_source(result.text, "train.py").text == result.text
    lines = [line.removeprefix("        ") for line in result.text.splitlines()]
    return lines[lines.index("scaler.scale(loss).backward()") + 1 :]


def reason(text: str) -> str:
    result = migrate_source(text, "train.py")
    assert result.text == text
    return result.loops[0].reason


def test_two_steps_of_which_one_may_be_missing_share_an_update() -> None:
    ask = "if opt_e is not None:\n            "
    assert behind_backward(script(f"{ask}opt_e.zero_grad()", "pass", f"{ask}opt_e.step()")) == [
        "pass",
        "scaler.step(optimizer)",
        "if opt_e is not None:",
        "    scaler.step(opt_e)",
        "scaler.update()",
    ]


@pytest.mark.parametrize("test", ["opt_e is not None", "opt_e", "not opt_e is None", "fine_tune"])
def test_gradients_that_are_used_under_the_same_condition_are_unscaled_there(test: str) -> None:
    ask = f"if {test}:\n            "
    assert behind_backward(script(f"{ask}opt_e.zero_grad()", ask + CLIP, f"{ask}opt_e.step()")) == [
        f"if {test}:",
        "    scaler.unscale_(opt_e)",
        f"    {CLIP}",
        "scaler.step(optimizer)",
        f"if {test}:",
        "    scaler.step(opt_e)",
        "scaler.update()",
    ]


def test_the_condition_may_be_written_in_several_ways() -> None:
    text = script("if opt_e: opt_e.zero_grad()", f"if opt_e is not None: {CLIP}", "if not opt_e is None: opt_e.step()")
    assert behind_backward(text) == [
        f"if opt_e is not None: scaler.unscale_(opt_e); {CLIP}",
        "scaler.step(optimizer)",
        "if not opt_e is None: scaler.step(opt_e)",
        "scaler.update()",
    ]


def test_gradients_of_an_optimizer_that_may_be_missing_are_not_used_without_asking() -> None:
    ask = "if opt_e is not None:\n            "
    assert reason(script(f"{ask}opt_e.zero_grad()", CLIP, f"{ask}opt_e.step()")) == (
        "line 20: gradients are used here of an optimizer that may not have been made, and nothing would unscale them "
        "then; use them under the condition under which it steps"
    )


def test_an_optimizer_that_steps_later_in_training_is_always_unscaled() -> None:
    assert behind_backward(script("opt_e.zero_grad()", CLIP, "if epoch > 2: opt_e.step()", "")) == [
        "scaler.unscale_(opt_e)",
        CLIP,
        "scaler.step(optimizer)",
        "if epoch > 2: scaler.step(opt_e)",
        "scaler.update()",
    ]


def test_a_step_that_depends_on_the_gradients_is_followed_by_an_update_in_any_case() -> None:
    loop = """
for x, y in batches:
        optimizer.zero_grad()
        loss = F.mse_loss(model(x), y)
        loss.backward()
        norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        if torch.isfinite(norm):
            optimizer.step()
        else:
            print("skipped")
"""
    assert behind_backward(HEAD + loop) == [
        "scaler.unscale_(optimizer)",
        "norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0)",
        "if torch.isfinite(norm):",
        "    scaler.step(optimizer)",
        "else:",
        '    print("skipped")',
        "scaler.update()",
    ]


LEFT_OVER = (
    "gradients that are left over from another step or another scale may reach this step; reset them (zero_grad) "
    "before the first backward of each step"
)
PARTS = """
def train({parameters}):
    {first}
    for x, y in batches:
        optimizer.zero_grad()
        loss = F.mse_loss(model(encoder(x)), y)
        loss.backward()
        optimizer.step()
        if thawed:
            opt_e.step()
        if thawed:
            opt_e.zero_grad()

"""


@pytest.mark.parametrize(
    ("parameters", "first", "calls"),
    [
        ("epoch", "thawed = epoch > 1", "for epoch in range(3):\n    train(epoch)\n"),
        ("thawed", "pass", "for epoch in range(3):\n    train(epoch > 1)\n"),
        ("thawed", "pass", "train(False)\ntrain(True)\n"),
        ("", "pass", "thawed = False\ntrain()\nthawed = True\ntrain()\n"),
        ("", "thawed = options.thawed", "options = Options()\ntrain()\noptions.thawed = True\ntrain()\n"),
    ],
)
def test_a_condition_that_changes_is_not_taken_to_hold_throughout(parameters: str, first: str, calls: str) -> None:
    text = HEAD + MAKE.format(optional="") + PARTS.format(parameters=parameters, first=first) + calls
    assert reason(text).endswith(LEFT_OVER)


@pytest.mark.parametrize(
    ("parameters", "first", "calls"),
    [
        ("", "pass", "thawed = True\nfor epoch in range(3):\n    train()\n"),
        ("", "thawed = options.thawed", "options = Options()\noptions.thawed = True\ntrain()\n"),
        ("thawed", "pass", "for epoch in range(3):\n    train(fine_tune)\n"),
    ],
)
def test_a_condition_that_is_fixed_holds_throughout(parameters: str, first: str, calls: str) -> None:
    text = HEAD + MAKE.format(optional="") + PARTS.format(parameters=parameters, first=first) + calls
    assert behind_backward(text)[:6] == [
        "scaler.step(optimizer)",
        "if thawed:",
        "    scaler.step(opt_e)",
        "scaler.update()",
        "if thawed:",
        "    opt_e.zero_grad()",
    ]


@pytest.mark.parametrize(
    ("head", "test", "fixed"),
    [
        ("", "model.training", False),
        ("args = parser.parse_args()\n", "args.thawed", True),
        ("memory = []\n", "memory", False),
        ("ready = torch.zeros(1)\n", "ready", False),
        ("ready = torch.cuda.is_available()\n", "ready", True),
        ("from options import config\n", "config.thawed", True),
        (
            "class Plan:\n    @property\n    def thawed(self):\n        return self.n > 1\n\nplan = Plan()\n",
            "plan.thawed",
            False,
        ),
        (
            "class Plan:\n    def __init__(self):\n        self.thawed = True\n\nplan = Plan()\n",
            "plan.thawed",
            True,
        ),
    ],
)
def test_which_attributes_are_taken_not_to_change(head: str, test: str, fixed: bool) -> None:
    text = HEAD + MAKE.format(optional="") + head + PARTS.format(parameters="", first="pass").replace("thawed", test)
    text += "\ntrain()\ntrain()\n"
    result = migrate_source(text, "train.py")
    assert (result.text != text) is fixed, result.loops
    assert fixed or result.loops[0].reason.endswith(LEFT_OVER)
