"""Gradient penalties and losses that go backward with a gradient of their own, as Wasserstein GANs have them."""

from __future__ import annotations

import textwrap

import pytest

from tests.migrate.test_hazards import REGION, migrated, refusal

FUNCTION = """
def penalty_of(out, x):
    grads = torch.autograd.grad(out, x, torch.ones_like(out), create_graph=True)[0]
    return ((grads.view(grads.size(0), -1).norm(2, dim=1) - 1) ** 2).mean()
"""
WHOLE = """
def penalty_of(net, x):
    x.requires_grad_()
    out = net(x)
    grads = torch.autograd.grad(out, x, torch.ones_like(out), create_graph=True)[0]
    return ((grads.norm(2, dim=1) - 1) ** 2).mean()
"""
ISLAND = "with torch.autocast(device_type=device.type, enabled=False):"


def body_of(text: str) -> str:
    return textwrap.dedent(text.split("for x, y in batches:\n", 1)[1])


def test_the_forward_before_a_penalty_is_part_of_its_island() -> None:
    text = migrated(
        FUNCTION
        + """
generator = nn.Linear(4, 4).to(device)
for x, y in batches:
    fake = generator(y)
    score = model(fake.detach()).mean() - model(x).mean()
    mixed = (0.5 * x + 0.5 * fake.data).requires_grad_()
    out = model(mixed)
    penalty = penalty_of(out, mixed)
    loss = score + 10 * penalty
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""
    )
    assert body_of(text) == (
        f"{REGION}\n"
        "    fake = generator(y)\n"
        "    score = model(fake.detach()).mean() - model(x).mean()\n"
        "    mixed = (0.5 * x + 0.5 * fake.data).requires_grad_()\n"
        f"    {ISLAND}\n"
        "        out = model(mixed.float())\n"
        "        penalty = penalty_of(out, mixed)\n"
        "    loss = score + 10 * penalty\n"
        "optimizer.zero_grad()\n"
        "scaler.scale(loss).backward()\n"
        "scaler.step(optimizer)\n"
        "scaler.update()\n"
    )


def test_a_forward_that_other_losses_use_too_runs_in_float32() -> None:
    text = migrated(
        FUNCTION
        + """
for x, y in batches:
    x.requires_grad_()
    out = model(x)
    loss = F.softplus(-out).mean() + model(-x).mean()
    penalty = penalty_of(out, x)
    loss = loss + penalty
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""
    )
    assert (
        f"    {REGION}\n"
        f"        {ISLAND}\n"
        "            out = model(x)\n"
        "        loss = F.softplus(-out).mean() + model(-x).mean()\n"
        f"        {ISLAND}\n"
        "            penalty = penalty_of(out, x)\n"
    ) in text


def test_a_penalty_of_another_file_is_known_by_its_name() -> None:
    text = migrated(
        """
        from utils import gradient_penalty

        generator = nn.Linear(4, 4).to(device)
        other = torch.optim.SGD(generator.parameters(), lr=0.1)
        for x, y in batches:
            for _ in range(5):
                fake = generator(y)
                score = model(fake).mean() - model(x).mean()
                loss = score + 10 * gradient_penalty(model, x, fake, device=device)
                optimizer.zero_grad()
                loss.backward(retain_graph=True)
                optimizer.step()
            loss = -model(fake).mean()
            other.zero_grad()
            loss.backward()
            other.step()
        """
    )
    assert (
        "            score = model(fake).mean() - model(x).mean()\n"
        f"            {ISLAND}\n"
        "                grad_penalty = gradient_penalty(model, x, fake.float(), device=device)\n"
        "            loss = score + 10 * grad_penalty\n"
    ) in text
    assert text.count("scaler.update()") == 2


def test_a_forward_that_cannot_be_told_is_refused() -> None:
    assert refusal(
        FUNCTION
        + """
for x, y in batches:
    x.requires_grad_()
    for out in (model(x), model(-x)):
        penalty = penalty_of(out, x)
    optimizer.zero_grad()
    penalty.backward()
    optimizer.step()
"""
    ) == (
        "line 16: the forward of this penalty must run in float32 and can't be told from the rest; run the model "
        "inside the function that computes the penalty"
    )


def test_a_penalty_in_a_sum_of_losses_gets_a_statement_of_its_own() -> None:
    text = migrated(
        WHOLE
        + """
for x, y in batches:
    fake = model(y)
    loss = fake.mean() + 10 * penalty_of(model, fake.detach())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""
    )
    assert (
        f"    {REGION}\n"
        "        fake = model(y)\n"
        f"        {ISLAND}\n"
        "            gradient_penalty = penalty_of(model, fake.detach().float())\n"
        "        loss = fake.mean() + 10 * gradient_penalty\n"
    ) in text


def test_a_penalty_alone_needs_no_region() -> None:
    text = migrated(
        WHOLE
        + """
for x, y in batches:
    optimizer.zero_grad()
    loss = model(x).mean()
    loss.backward()
    penalty = penalty_of(model, y)
    penalty.backward()
    optimizer.step()
"""
    )
    assert (
        "    scaler.scale(loss).backward()\n    penalty = penalty_of(model, y)\n    scaler.scale(penalty).backward()\n"
    ) in text


@pytest.mark.parametrize(
    ("loss", "backward", "scaled"),
    [
        ("model(x).mean()", "loss.backward(minus)", "scaler.scale(loss).backward(minus)"),
        ("F.mse_loss(model(x), y)", "loss.backward(gradient=one)", "scaler.scale(loss).backward(gradient=one)"),
        ("model(x).mean(0).view(1)", "loss.backward(-one)", "scaler.scale(loss.float()).backward(-one)"),
        ("model(x)", "loss.backward(torch.ones(8, 2).to(device))", None),
    ],
)
def test_a_constant_gradient_stays(loss: str, backward: str, scaled: str | None) -> None:
    text = migrated(
        f"""
        one = torch.tensor(1.0)
        if torch.cuda.is_available():
            one = one.cuda()
        minus = one * -1
        for x, y in batches:
            loss = {loss}
            optimizer.zero_grad()
            {backward}
            optimizer.step()
        """
    )
    assert (scaled or "scaler.scale(loss.float()).backward(torch.ones(8, 2).to(device))") in text


@pytest.mark.parametrize("gradient", ["received", "y", "one * received"])
def test_a_gradient_that_may_be_scaled_already_is_refused(gradient: str) -> None:
    reason = refusal(
        f"""
        one = torch.ones(8, 2)
        for x, y in batches:
            received = ask(x)
            loss = model(x)
            loss.backward({gradient})
            optimizer.step()
        """
    )
    assert reason.endswith("backward() gets a gradient or makes a graph of its own, which scaling would change")


@pytest.mark.parametrize(
    "fake", ["generator(y).detach()", "generator(y).data", "torch.autograd.Variable(generator(y).data)"]
)
def test_a_generator_that_is_cut_off_runs_in_the_region(fake: str) -> None:
    text = migrated(
        f"""
        generator = nn.Linear(4, 4).to(device)
        for x, y in batches:
            fake = {fake}
            loss = model(fake).mean() - model(x).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        """
    )
    assert f"    {REGION}\n        fake = {fake}\n        loss = " in text


def test_means_of_scores_are_given_to_numpy_in_float32() -> None:
    text = migrated(
        """
        for x, y in batches:
            real = model(x)
            fake = model(-x)
            loss = fake.mean() - real.mean()
            distance = real - fake
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            print(distance.cpu().data.numpy())
        """
    )
    assert text.endswith("    print(distance.float().cpu().data.numpy())\n")


INLINE = """
generator = nn.Linear(4, 4).to(device)
other = torch.optim.SGD(generator.parameters(), lr=0.1)
for x, y in batches:
    fake = generator(y)
    score = model(fake.detach()).mean() - model(x).mean()
    mixed = (0.5 * x + 0.5 * fake.data).requires_grad_()
    out = model(mixed)
    grads = torch.autograd.grad(out.sum(), {inputs}, create_graph=True)[0]
    loss = score + ((grads.norm(2, dim=1) - 1) ** 2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    {step}
"""


def test_a_penalty_in_the_loop_runs_in_float32_from_its_forward_to_its_gradients() -> None:
    step = "other.zero_grad()\n    model(generator(y)).mean().backward()\n    other.step()"
    text = migrated(INLINE.format(inputs="mixed", step=step))
    assert (
        "        mixed = (0.5 * x + 0.5 * fake.data).requires_grad_()\n"
        f"        {ISLAND}\n"
        "            out = model(mixed.float())\n"
        "            grads = torch.autograd.grad(out.sum(), mixed, create_graph=True)[0]\n"
        "        loss = score + ((grads.norm(2, dim=1) - 1) ** 2).mean()\n"
        "    optimizer.zero_grad()\n"
    ) in text


DIVERGENCE = """
generator = nn.Linear(4, 4).to(device)
other = torch.optim.SGD(generator.parameters(), lr=0.1)
for x, y in batches:
    x.requires_grad_()
    fake = generator(y)
    real_out = model(x)
    fake_out = model(fake)
    real_grad = torch.autograd.grad(real_out.sum(), x, create_graph=True)[0]
    fake_grad = torch.autograd.grad(fake_out.sum(), fake, create_graph=True)[0]
    penalty = (real_grad.pow(2).sum(1) ** 3 + fake_grad.pow(2).sum(1) ** 3).mean()
    loss = fake_out.mean() - real_out.mean() + penalty
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    other.zero_grad()
    generated = model(generator(y)).mean()
    generated.backward()
    other.step()
"""


def test_a_step_all_of_whose_forwards_give_gradients_stays_in_float32() -> None:
    text = migrated(DIVERGENCE)
    assert (
        "    loss = fake_out.mean() - real_out.mean() + penalty\n"
        "    optimizer.zero_grad()\n"
        "    scaler.scale(loss).backward()\n"
        "    scaler.step(optimizer)\n"
        "    other.zero_grad()\n"
        f"    {REGION}\n"
        "        generated = model(generator(y)).mean()\n"
    ) in text
    assert "    fake = generator(y)\n    real_out = model(x)\n    fake_out = model(fake)\n" in text


def test_a_gradient_in_a_loop_of_one_optimizer_is_refused() -> None:
    assert refusal(INLINE.format(inputs="mixed", step="print(loss.item())")) == (
        "line 16: autograd.grad is used here; put the penalty into a function of its own that returns it, called in "
        "the loop"
    )


def test_a_penalty_that_a_helper_adds_to_its_loss_is_an_island_there() -> None:
    text = migrated(
        FUNCTION
        + """
def loss_of(net, x, y):
    x.requires_grad_()
    out = net(x)
    penalty = penalty_of(out, x)
    return F.mse_loss(net(-x), y) + penalty

for x, y in batches:
    loss = loss_of(model, x, y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""
    )
    assert (
        "    x.requires_grad_()\n"
        "    with torch.autocast(device_type=x.device.type, enabled=False):\n"
        "        out = net(x)\n"
        "        penalty = penalty_of(out, x)\n"
    ) in text


REGULARIZED = """
def path_penalty(out, x, mean):
    grad, = torch.autograd.grad((out * torch.randn_like(out)).sum(), x, create_graph=True)
    lengths = grad.pow(2).sum(1).sqrt()
    path_mean = mean + 0.01 * (lengths.mean() - mean)
    return (lengths - path_mean).pow(2).mean(), path_mean.detach(), lengths

mean = 0
for i, (x, y) in enumerate(batches):
    loss = F.mse_loss(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if i % 4 == 0:
        x.requires_grad_()
        {forward}
        penalty, mean, lengths = path_penalty(out, x, mean)
        optimizer.zero_grad()
        (4 * penalty + 0 * out[0, 0]).backward()
        optimizer.step()
"""


def test_a_step_on_a_penalty_alone_stays_in_float32() -> None:
    text = migrated(REGULARIZED.format(forward="out = model(x)"))
    assert text.endswith(
        "    if i % 4 == 0:\n"
        "        x.requires_grad_()\n"
        "        out = model(x)\n"
        "        penalty, mean, lengths = path_penalty(out, x, mean)\n"
        "        optimizer.zero_grad()\n"
        "        total_loss = 4 * penalty + 0 * out[0, 0]\n"
        "        scaler.scale(total_loss).backward()\n"
        "        scaler.step(optimizer)\n"
        "        scaler.update()\n"
    )


def test_what_is_a_number_first_is_not_cast() -> None:
    text = migrated(
        REGULARIZED.format(forward="out = model(x)\n        side = model(-x).mean()").replace("0 * out[0, 0]", "side")
    )
    assert (f"        {REGION.strip()}\n            {ISLAND}\n                out = model(x)\n") in text
    assert "path_penalty(out, x, mean)" in text


def test_a_number_or_an_output_is_refused() -> None:
    body = REGULARIZED.format(forward="out = model(x)\n        if i:\n            mean = model(-x).mean()")
    assert refusal(body) == (
        "line 26: this may be a number here, or a tensor of half precision; give it a name of its own in each case"
    )
