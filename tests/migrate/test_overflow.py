"""Gradients that overflow are skipped by the scaler alone: what else keeps them is refused."""

from __future__ import annotations

import pytest

from amplint.migrate import migrate_source
from amplint.migrate.model import Options
from tests.migrate.test_hazards import migrated, refusal
from tests.migrate.test_refusals import HEAD

LOOP = """
average = {{}}
for x, y in batches:
    optimizer.zero_grad()
    loss = F.mse_loss(model(x), y)
    loss.backward()
    {use}
    optimizer.step()
"""
PARAMETERS = "for p in model.parameters():\n        "
NAMED = "for n, p in model.named_parameters():\n        "


@pytest.mark.parametrize(
    "use",
    [
        PARAMETERS + "p.data.add_(p.grad, alpha=-0.1)",
        PARAMETERS + "p.data -= 0.1 * p.grad",
        PARAMETERS + "p.data = p.data - 0.1 * p.grad",
        "for p in optimizer.param_groups[0]['params']:\n        p.data.add_(p.grad, alpha=-0.1)",
        PARAMETERS + "g = p.grad * 2\n        p.data.mul_(0.9).sub_(g)",
    ],
)
def test_gradients_in_parameters(use: str) -> None:
    assert "parameters are changed by their gradients here" in refusal(LOOP.format(use=use))


@pytest.mark.parametrize(
    "average",
    ["average[n] = 0.9 * average.get(n, 0) + p.grad", "average[n] += p.grad", "average[n].mul_(0.9).add_(p.grad)"],
)
@pytest.mark.parametrize("back", ["p.grad = p.grad + average[n]", "p.grad += average[n]", "p.grad.add_(average[n])"])
def test_gradients_in_an_average_that_comes_back(average: str, back: str) -> None:
    text = LOOP.format(use=f"{NAMED}{average}\n        {back}")
    assert "a running average of gradients is added to gradients here" in refusal(text)


@pytest.mark.parametrize(
    "use",
    [
        PARAMETERS + "p.grad.add_(p.data, alpha=0.1)",
        PARAMETERS + "p.grad = p.grad - p.grad.mean()",
        PARAMETERS + "p.data.add_(0.1 * torch.randn(1))",
        NAMED + "average[n] = 0.9 * average.get(n, 0) + p.grad.norm().item()",
        "for q, p in zip(old, model.parameters()):\n        q.mul_(0.9).add_(p.data, alpha=0.1)",
    ],
)
def test_gradients_that_are_changed_or_logged_are_migrated(use: str) -> None:
    assert "scaler.step(optimizer)" in migrated(LOOP.format(use=use))


@pytest.mark.parametrize(
    "use",
    [
        "model.weight.data -= 0.1 * model.weight.grad",
        "w = model.weight\n    w.data.add_(w.grad, alpha=-0.1)",
        "with torch.no_grad():\n        model.weight.copy_(model.weight - 0.1 * model.weight.grad)",
        "grads = [p.grad.clone() for p in model.parameters()]\n    for p, g in zip(model.parameters(), grads):\n"
        "        p.data.sub_(0.1 * g)",
        "update(list(model.parameters()), [p.grad for p in model.parameters()])",
    ],
    ids=["a weight", "its name", "a copy", "zip", "a function"],
)
def test_gradients_in_parameters_by_other_names(use: str) -> None:
    function = "def update(params, grads):\n    for p, g in zip(params, grads):\n        p.data.sub_(0.1 * g)\n"
    assert "parameters are changed by their gradients here" in refusal(f"\n{function}" + LOOP.format(use=use))


NORM = "norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0)\n    "


@pytest.mark.parametrize(
    "use",
    [
        "norm = nn.utils.clip_grad_norm_(model.parameters(), limit)\n    limit = 0.9 * limit + 0.1 * norm.item()",
        NORM + "history.append(norm.item())\n    nn.utils.clip_grad_norm_(model.parameters(), sum(history))",
        NORM + "limit = max(limit, float(norm))\n    for g in optimizer.param_groups:\n        g['lr'] = 1 / limit",
        NORM + "if limit > norm * 9:\n        optimizer.param_groups[0]['lr'] = 0.1\n    limit = norm",
        "for p in model.parameters():\n        limit = 0.9 * limit + p.grad.norm()\n        p.grad.div_(limit)",
    ],
    ids=["an average", "a history", "a maximum", "the last one", "an average that gradients are divided by"],
)
def test_what_is_kept_of_earlier_gradients_must_not_steer(use: str) -> None:
    reason = refusal("\nlimit, history = 1.0, []\n" + LOOP.format(use=use))
    assert "leave it infinite" in reason, reason


@pytest.mark.parametrize(
    "test",
    [
        NORM + "optimizer.step()\n    if norm > 1e4:\n        break",
        NORM + "optimizer.step()\n    if not torch.isfinite(norm):\n        raise ValueError",
        "optimizer.step()\n    if measure() > 1e4:\n        exit()",
    ],
)
def test_infinite_gradients_must_not_end_the_training(test: str) -> None:
    function = "\ndef measure():\n    return sum(p.grad.norm() ** 2 for p in model.parameters()) ** 0.5\n"
    text = function + LOOP.format(use=test).removesuffix("    optimizer.step()\n")
    assert "infinite gradients end the training here" in refusal(text)


@pytest.mark.parametrize(
    "use",
    [
        NORM + "history.append(norm.item())\n    print(sum(history))",
        NORM + "for g in optimizer.param_groups:\n        g['lr'] = 0.1 / (1 + norm.item())",
        NORM + "if norm > 1e4:\n        print('large')",
        "total = 0.0\n    for p in model.parameters():\n        total += p.grad.norm().item() ** 2\n"
        "    for p in model.parameters():\n        p.grad.div_(max(total, 1.0))",
        NORM + "limit = 0.9 * limit + 0.1 * norm.item()\n    print(limit)",
    ],
    ids=[
        "a history that is printed",
        "a rate of this step",
        "a warning",
        "a norm by hand",
        "an average that is printed",
    ],
)
def test_what_no_later_step_sees_is_migrated(use: str) -> None:
    assert "scaler.step(optimizer)" in migrated("\nlimit, history = 1.0, []\n" + LOOP.format(use=use))


def test_training_that_has_converged_may_end() -> None:
    text = LOOP.format(use=NORM + "optimizer.step()\n    if norm < 1e-6:\n        break")
    assert "scaler.step(optimizer)" in migrated(text.removesuffix("    optimizer.step()\n"))


def test_training_may_end_where_the_mean_of_an_epoch_is_small() -> None:
    text = LOOP.format(use=NORM + "history.append(norm.item())")
    assert "scaler.step(optimizer)" in migrated(
        f"for epoch in range(3):\n    history = []\n{text.replace(chr(10), chr(10) + '    ')}\n"
        "    if sum(history) / len(history) < 1e-5:\n        break\n"
    )


def test_gradients_that_must_be_finite() -> None:
    text = LOOP.format(use=PARAMETERS + "assert torch.isfinite(p.grad).all()")
    assert "infinite gradients stop the script here" in refusal(text)


def test_bfloat16_skips_no_steps() -> None:
    text = HEAD + LOOP.format(use=PARAMETERS + "p.data.add_(p.grad, alpha=-0.1)")
    assert migrate_source(text, "train.py", options=Options(dtype="bfloat16")).text != text
