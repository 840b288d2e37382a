"""Who uses gradients between a backward and a step: code that is not in view, lambdas, optimizers of the file, and
tensors that no optimizer steps."""

from __future__ import annotations

import pytest

from tests.migrate.test_hazards import migrated, refusal

IMPORTS = """
import utils
from utils import clip, logger
"""
LOOP = """
params = list(model.parameters())
for i, (x, y) in enumerate(batches):
    loss = F.mse_loss(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    {}
    optimizer.step()
"""
UNSEEN = "code that is not in view gets the model or its optimizer here, where gradients may still be scaled; "


@pytest.mark.parametrize(
    "use",
    [
        "clip(model)",
        "utils.clip(net=model, value=1.0)",
        "utils.plot_grad_flow(model.named_parameters())",
        "clip(params)",
        "clip(p for p in model.parameters() if p.requires_grad)",
        'clip(optimizer.param_groups[0]["params"])',
        "logger.gradients(model, i)",
        "utils.Flow(model).plot()",
        "model.apply(utils.shrink)",
        "clip(model.weight)",
        "list(map(lambda p: p.grad.clamp_(-1, 1), model.parameters()))",
    ],
)
def test_it_is_unscaled_first(use: str) -> None:
    text = migrated(IMPORTS + LOOP.format(use))
    assert f"    scaler.scale(loss).backward()\n    scaler.unscale_(optimizer)\n    {use}\n" in text


@pytest.mark.parametrize(
    "use",
    [
        "print(optimizer.param_groups[0]['lr'])",
        "utils.adjust_learning_rate(optimizer, i)",
        "utils.save_weights(model)",
        "torch.save(model.state_dict(), 'm.pt')",
        "logger.add(i, loss.item())",
        "print(len(params))",
        "accuracy = utils.accuracy(model(x), y)",
    ],
)
def test_what_leaves_gradients_alone_is_no_reason(use: str) -> None:
    text = migrated(IMPORTS + LOOP.format(use))
    assert f"    scaler.scale(loss).backward()\n    {use}\n    scaler.step(optimizer)\n" in text
    assert "unscale_" not in text


@pytest.mark.parametrize(
    ("setup", "unscaled"),
    [
        ("fgm = utils.FGM(model)", True),
        ("fgm = utils.EMA(3)", False),
        ("fgm = torch.optim.swa_utils.AveragedModel(model)", False),
    ],
)
def test_an_object_that_got_the_model(setup: str, unscaled: bool) -> None:
    text = migrated(IMPORTS + setup + LOOP.format("fgm.restore()"))
    assert ("    scaler.unscale_(optimizer)\n    fgm.restore()\n" in text) == unscaled


def test_what_decides_on_a_step_out_of_view_is_refused() -> None:
    loop = LOOP.replace("    {}\n    optimizer.step()\n", "    if utils.valid(model):\n        optimizer.step()\n")
    assert UNSEEN in refusal(IMPORTS + loop)


def test_a_layer_of_a_model_out_of_view() -> None:
    setup = "net = utils.Net().to(device)\nopt = torch.optim.SGD(net.parameters(), lr=0.1)\n"
    loop = LOOP.replace("model", "net").replace("optimizer", "opt")
    text = migrated(IMPORTS + setup + loop.format("utils.log_gradients(net.fc)"))
    assert "    scaler.unscale_(opt)\n    utils.log_gradients(net.fc)\n" in text
    assert "unscale_" not in migrated(IMPORTS + setup + loop.format("utils.log(net.name)"))


def test_an_attack_on_weights_by_their_gradients_is_refused() -> None:
    attack = "fgm.attack()\n    F.mse_loss(model(x), y).backward()"
    assert "gradients" in refusal(IMPORTS + "fgm = utils.FGM(model)" + LOOP.format(attack))


def test_a_function_of_the_file_that_hands_the_model_on() -> None:
    text = migrated(
        IMPORTS + "\ndef log(net):\n    logger.gradients(net.named_parameters())\n" + LOOP.format("log(model)")
    )
    assert "    scaler.unscale_(optimizer)\n    log(model)\n" in text


ADDED_TO = (
    "gradients are used here in an iteration that may not step, and others may be added to them later; use them under "
    "the condition of the step, or reset them (zero_grad) before each backward"
)
ACCUMULATION = """
for i, (x, y) in enumerate(batches):
    loss = F.mse_loss(model(x), y)
    loss.backward()
    {}
    if (i + 1) % 2 == 0:
        optimizer.step()
        optimizer.zero_grad()
    {}
"""


def test_between_a_backward_and_a_step_under_a_condition_it_is_refused() -> None:
    assert refusal(IMPORTS + ACCUMULATION.format("utils.plot(model)", "")) == f"line 15: {ADDED_TO}"


def test_a_test_of_gradients_there_is_refused() -> None:
    use = "if model.weight.grad.norm() > 9: print('large')"
    assert refusal(ACCUMULATION.format(use, "")) == f"line 12: {ADDED_TO}"


def test_behind_a_step_under_a_condition_it_is_left() -> None:
    assert "\n    utils.plot(model)\n" in migrated(IMPORTS + ACCUMULATION.format("", "utils.plot(model)"))


def test_an_optimizer_of_the_file_reads_gradients_that_are_unscaled() -> None:
    text = migrated(
        """
        class Plain(torch.optim.Optimizer):
            def __init__(self, params, lr):
                super().__init__(params, dict(lr=lr))

            def step(self, closure=None):
                for group in self.param_groups:
                    for p in group["params"]:
                        self.move(p, group["lr"])

            def move(self, p, lr):
                p.data.add_(p.grad, alpha=-lr)

        optimizer = Plain(model.parameters(), lr=0.1)
        for x, y in batches:
            loss = F.mse_loss(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        """
    )
    assert "    scaler.scale(loss).backward()\n    scaler.step(optimizer)\n    scaler.update()\n" in text


INPUT = (
    "the gradient of a tensor that no optimizer steps is used here, which `unscale_` does not reach; take it with "
    "autograd.grad in a function of its own, in float32"
)


@pytest.mark.parametrize(
    "leaf",
    [
        "delta = torch.zeros(4, requires_grad=True, device=device)",
        "delta = torch.zeros(4, device=device).requires_grad_()",
        "delta = torch.zeros(4, device=device); delta.requires_grad = True",
    ],
)
def test_the_gradient_of_an_input_is_refused(leaf: str) -> None:
    body = f"""
{leaf}
for x, y in batches:
    optimizer.zero_grad()
    loss = F.mse_loss(model(x + delta), y)
    loss.backward()
    delta.data += 0.1 * delta.grad
    optimizer.step()
    delta.grad.zero_()
"""
    assert refusal(body) == f"line 14: {INPUT}"


def test_the_gradient_of_a_tensor_that_is_stepped_is_not() -> None:
    text = migrated(
        """
        delta = torch.zeros(4, requires_grad=True, device=device)
        optimizer = torch.optim.Adam([delta, *model.parameters()])
        for x, y in batches:
            optimizer.zero_grad()
            loss = F.mse_loss(model(x + delta), y)
            loss.backward()
            delta.grad.clamp_(-1, 1)
            optimizer.step()
        """
    )
    assert "    scaler.unscale_(optimizer)\n    delta.grad.clamp_(-1, 1)\n" in text


EXCHANGED = (
    "gradients are exchanged between processes by hand; unscaled before, one process could skip a step that another "
    "takes. Wrap the model in DistributedDataParallel instead"
)


@pytest.mark.parametrize(
    ("setup", "use", "line"),
    [
        ("import torch.distributed as dist", "for p in params: dist.all_reduce(p.grad.data)", 16),
        (
            "import torch.distributed as dist\ndef mean(m):\n    flat = [p.grad for p in m.parameters()]\n"
            "    dist.all_reduce(flat)\n",
            "mean(model)",
            11,
        ),
        ("from utils import average_gradients", "average_gradients(model)", 16),
        ("from utils.mpi import mpi_avg_grads", "mpi_avg_grads(model)", 16),
        (
            "from utils.mpi import mpi_avg\ndef mean(m):\n    for p in m.parameters():\n"
            "        p.grad.numpy()[:] = mpi_avg(p.grad)\n",
            "mean(model)",
            12,
        ),
    ],
)
def test_gradients_that_processes_exchange_are_refused(setup: str, use: str, line: int) -> None:
    assert refusal(f"\n{setup}\n" + LOOP.format(use)) == f"line {line}: {EXCHANGED}"


TWO = """
def clip_gradient(optimizer, limit):
    for group in optimizer.param_groups:
        for param in group["params"]:
            param.grad.data.clamp_(-limit, limit)
head = nn.Linear(2, 2).to(device)
opt_head = torch.optim.SGD(head.parameters(), lr=0.1)
for i, (x, y) in enumerate(batches):
    loss = F.mse_loss(head(model(x)), y)
    optimizer.zero_grad()
    opt_head.zero_grad()
    loss.backward()
    clip_gradient(optimizer, 1.0)
    {use}
    optimizer.step()
    {test}opt_head.step()
"""


@pytest.mark.parametrize(
    "use",
    [
        "clip_gradient(opt_head, 1.0)",
        "nn.utils.clip_grad_norm_(head.parameters(), 1.0)",
        "for p in head.parameters(): p.grad.clamp_(-1, 1)",
    ],
)
def test_gradients_of_an_optimizer_that_steps_under_a_condition_are_unscaled_before(use: str) -> None:
    for test in ("if i > 2: ", ""):
        text = migrated(TWO.format(use=use, test=test))
        assert (
            text.count("scaler.unscale_(opt_head)\n    clip_gradient(optimizer, 1.0)\n")
            + text.count(f"scaler.unscale_(opt_head)\n    {use}\n")
            == 1
        )
        assert text.endswith(f"    {test}scaler.step(opt_head)\n    scaler.update()\n")


def test_the_gradients_of_the_other_optimizer_are_used_before() -> None:
    text = migrated(TWO.format(use="pass", test="if i > 2: "))
    assert "scaler.unscale_(optimizer)\n    clip_gradient(optimizer, 1.0)\n" in text
    assert "scaler.unscale_(opt_head)" not in text
