"""Steps that are taken on a condition, behind gradients that were used: unscaled before it, updated behind it."""

from __future__ import annotations

import pytest

from amplint.migrate import migrate_source
from tests.migrate.test_refusals import HEAD

LOOP = """
skipped = 0
for x, y in batches:
    optimizer.zero_grad()
    loss = F.mse_loss(model(x), y)
    loss.backward()
    norm = nn.utils.clip_grad_norm_(model.parameters(), 1)
"""
TWO = """
first, second = nn.Linear(4, 4).to(device), nn.Linear(4, 2).to(device)
one = torch.optim.SGD(first.parameters(), lr=0.1)
two = torch.optim.SGD(second.parameters(), lr=0.1)
for epoch in range(2):
    for x, y in batches:
        one.zero_grad()
        two.zero_grad()
"""


def migrated(body: str) -> list[str]:
    result = migrate_source(HEAD + body, "train.py")
    assert {loop.status for loop in result.loops} == {"migrated"}, result.loops
    return result.text.removeprefix(HEAD).splitlines()


def refused(body: str) -> str:
    result = migrate_source(HEAD + body, "train.py")
    assert result.text == HEAD + body
    return result.loops[0].reason


def test_the_norm_must_be_finite() -> None:
    lines = migrated(
        LOOP
        + """    if torch.isfinite(norm):
        optimizer.step()
    else:
        skipped += 1
        print("skipped", skipped)
"""
    )
    at = lines.index("    scaler.scale(loss).backward()")
    assert lines[at + 1 :] == [
        "    scaler.unscale_(optimizer)",
        "    norm = nn.utils.clip_grad_norm_(model.parameters(), 1)",
        "    if torch.isfinite(norm):",
        "        scaler.step(optimizer)",
        "    else:",
        "        skipped += 1",
        '        print("skipped", skipped)',
        "    scaler.update()",
    ]


def test_the_iteration_ends_where_the_norm_is_not_finite() -> None:
    lines = migrated(
        LOOP
        + """    if not torch.isfinite(norm):
        optimizer.zero_grad()
        continue
    optimizer.step()
"""
    )
    at = lines.index("    if not torch.isfinite(norm):")
    assert lines[at + 1 :] == [
        "        optimizer.zero_grad()",
        "        scaler.update()",
        "        continue",
        "    scaler.step(optimizer)",
        "    scaler.update()",
    ]


@pytest.mark.parametrize("call", ["train(x, y)", "print(train(x, y))"])
def test_a_return_that_a_caller_asks_about_is_refused(call: str) -> None:
    body = f"""
def train(x, y):
    optimizer.zero_grad()
    loss = F.mse_loss(model(x), y)
    loss.backward()
    norm = nn.utils.clip_grad_norm_(model.parameters(), 1)
    if not torch.isfinite(norm):
        return
    optimizer.step()

for x, y in batches:
    {call}
"""
    if call.startswith("print"):
        assert refused(body) == "line 15: the iteration can end here between unscaling and the step"
    else:
        lines = migrated(body)
        assert lines[lines.index("        return") - 1] == "        scaler.update()"


def test_a_condition_that_asks_for_gradients_itself() -> None:
    lines = migrated(
        LOOP.replace("    norm = nn.utils.clip_grad_norm_(model.parameters(), 1)\n", "")
        + """    if skipped:
        print("never")
    elif all(torch.isfinite(p.grad).all() for p in model.parameters()):
        optimizer.step()
"""
    )
    at = lines.index("    if skipped:")
    assert lines[at - 1] == "    scaler.unscale_(optimizer)"
    assert lines[-2:] == ["        scaler.step(optimizer)", "    scaler.update()"]


def test_one_of_two_optimizers_steps_later_in_training() -> None:
    lines = migrated(
        TWO
        + """        loss = F.mse_loss(second(first(x)), y)
        loss.backward()
        nn.utils.clip_grad_norm_(first.parameters(), 1)
        nn.utils.clip_grad_norm_(second.parameters(), 1)
        if epoch:
            one.step()
        two.step()
"""
    )
    at = lines.index("        scaler.scale(loss).backward()")
    assert lines[at + 1 : at + 3] == ["        scaler.unscale_(one)", "        scaler.unscale_(two)"]
    assert lines[at + 5 :] == [
        "        if epoch:",
        "            scaler.step(one)",
        "        scaler.step(two)",
        "        scaler.update()",
    ]


def test_an_iteration_that_ends_between_two_steps() -> None:
    lines = migrated(
        TWO
        + """        F.mse_loss(first(x), x).backward()
        one.step()
        if epoch:
            continue
        F.mse_loss(second(x), y).backward()
        two.step()
"""
    )
    at = lines.index("        if epoch:")
    assert lines[at - 1 : at + 3] == [
        "        scaler.step(one)",
        "        if epoch:",
        "            scaler.update()",
        "            continue",
    ]
    assert lines[-2:] == ["        scaler.step(two)", "        scaler.update()"]


ENDS = "the iteration can end here between unscaling and the step"
ELSE = (
    "this runs where gradients are infinite, which a scaler meets as a matter of course; leave only the step to the "
    "condition"
)


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("    if not torch.isfinite(norm):\n        break\n    optimizer.step()\n", f"line 16: {ENDS}"),
        ("    if norm < 9:\n        optimizer.step()\n    else:\n        raise ValueError\n", f"line 18: {ENDS}"),
        (
            "    if norm < 9:\n        optimizer.step()\n    else:\n        exit()\n",
            "line 18: infinite gradients raise here, and a scaler meets them as a matter of course",
        ),
        (
            "    if norm < 9:\n        optimizer.step()\n    else:\n        optimizer.param_groups[0]['lr'] /= 2\n",
            f"line 18: {ELSE}",
        ),
        (
            "    if norm < 9:\n        optimizer.step()\n    else:\n        model.load_state_dict(best)\n",
            f"line 18: {ELSE}",
        ),
        (
            "    if norm < 9:\n        optimizer.step()\n    else:\n        skipped += 1\n"
            "    if skipped > 3:\n        break\n",
            f"line 18: {ELSE}",
        ),
    ],
    ids=["break", "raise", "exit", "a smaller rate", "a roll-back", "a counter that stops"],
)
def test_what_an_overflow_would_set_off_is_refused(body: str, reason: str) -> None:
    assert refused(LOOP + body) == reason


@pytest.mark.parametrize(
    "body",
    [
        "    if norm < 9:\n        optimizer.step()\n        optimizer.zero_grad()\n",
        "    if norm > 9:\n        continue\n    optimizer.step()\n    optimizer.zero_grad()\n",
    ],
    ids=["a step on a condition", "continue"],
)
def test_gradients_that_are_left_unscaled_are_refused(body: str) -> None:
    reason = refused(LOOP.replace("    optimizer.zero_grad()\n", "") + body)
    assert reason.startswith("line 13: gradients are used here in an iteration that may not step"), reason


def test_gradients_accumulate_over_unscaled_ones() -> None:
    """The reset on the first micro-batch is behind each step, but not behind each time that gradients are unscaled."""
    body = """
for i, (x, y) in enumerate(batches):
    if i % 2 == 0:
        optimizer.zero_grad()
    loss = F.mse_loss(model(x), y)
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1)
    if (i + 1) % 2 == 0:
        optimizer.step()
"""
    assert refused(body).startswith("line 14: gradients are used here in an iteration that may not step")
