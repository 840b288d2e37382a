"""Operations that do not take a mixture of dtypes, logarithms of data, and what autograd.grad leaves for autocast."""

from __future__ import annotations

import pytest

from tests.migrate.test_hazards import migrated, refusal

WRITES = """
class Gather(nn.Module):
    def forward(self, x, index):
        out = torch.zeros_like(x)
        return {write}

gather = Gather()
for x, y in batches:
    loss = F.mse_loss(gather(model(x), y), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


@pytest.mark.parametrize(
    ("write", "reason"),
    [
        ("out.index_add(0, index, x)", "`index_add` does not take half precision on CUDA"),
        ("torch.index_add(out, 0, index, x)", "`index_add` does not take half precision on CUDA"),
        ("out.scatter_reduce(0, index, x, 'sum')", "`scatter_reduce` does not take half precision on CUDA"),
        ("out.masked_scatter(index > 0, x)", "`masked_scatter` does not take half precision on CUDA"),
        ("out.scatter(0, index, x)", "`scatter` needs both tensors in one dtype"),
        ("out.scatter(dim=0, index=index, src=x)", "`scatter` needs both tensors in one dtype"),
    ],
)
def test_writes_of_half_precision_into_float32_are_refused(write: str, reason: str) -> None:
    assert refusal(WRITES.format(write=write)) == f"line 12: {reason}"


@pytest.mark.parametrize(
    "write", ["out.scatter(1, index, 1)", "out.scatter_(1, index, 1.0)", "out.scatter_add(0, index, x)"]
)
def test_numbers_and_what_autocast_promotes_may_be_written(write: str) -> None:
    assert "loss = F.mse_loss(gather(model(x), y), y)" in migrated(WRITES.format(write=write))


def test_a_logarithm_of_data_is_left() -> None:
    text = migrated(
        """
        for x, y in batches:
            out = model(x)
            loss = F.mse_loss(out, torch.log(y))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        """
    )
    assert "        loss = F.mse_loss(out, torch.log(y))\n" in text


GRADIENTS = """
def matched(net, x):
    x.requires_grad_(True)
    energy = net(x).sum()
    return torch.autograd.grad(energy, x, create_graph=True)[0].pow(2).mean()

def sampled(net, x):
    x = x.clone().detach().requires_grad_(True)
    for _ in range(3):
        x.data -= torch.autograd.grad(net(x).sum(), x)[0]
    return x.detach()

for x, y in batches:
    {first}
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


def test_a_loss_that_is_all_double_backward_is_refused() -> None:
    body = GRADIENTS.format(first="loss = matched(model, x)").replace("def sampled", "def unused").split("def unused")
    assert refusal(body[0] + body[1][body[1].index("for x, y") :]) == (
        "line 12: all of this loss goes through autograd.grad, which stays in float32, so that nothing is gained"
    )


def test_a_sampler_stays_in_float32_outside_of_the_region() -> None:
    first = "fake = sampled(model, x)\n    loss = model(x).mean() - model(fake).mean()"
    body = GRADIENTS.format(first=first)
    text = migrated(body[body.index("def sampled") :])
    assert (
        "    fake = sampled(model, x)\n"
        "    with torch.autocast(device_type=device.type, dtype=torch.float16, enabled=scaler.is_enabled()):\n"
        "        loss = model(x).mean() - model(fake).mean()\n"
    ) in text
    assert text.count("autocast") == 1


METHODS = """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(4, 2)

    def marked(self, x):
        x_ = x.clone()
        x_[range(2), x.argmax(1)] = x.max()
        return x_

    def predict(self, x):
        return self.fc(self.marked(x))

    def forward(self, x):
        return self.fc({inner})

net = Net().to(device)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for x, y in batches:
    loss = F.mse_loss(net(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


def test_a_method_that_no_region_comes_to_may_do_what_it_likes() -> None:
    assert "scaler.scale(loss).backward()" in migrated(METHODS.format(inner="x"))


@pytest.mark.parametrize("inner", ["self.marked(x)", "getattr(self, 'mar' + 'ked')(x)", "sum(map(self.marked, [x]))"])
def test_a_method_that_a_forward_names_may_not(inner: str) -> None:
    reason = "line 16: values are written into a tensor that may be of half precision; use --dtype bfloat16"
    assert refusal(METHODS.format(inner=inner)) == reason


CODEBOOK = """
class Codebook(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("book", torch.randn(2, 8))

    def forward(self, x):
        distances = x @ self.book
        {update}
        return x + distances.min()

codebook = Codebook().to(device)
for x, y in batches:
    loss = F.mse_loss(codebook(model(x)), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


def test_a_product_with_a_running_average_is_refused() -> None:
    assert refusal(CODEBOOK.format(update="self.book.data.mul_(0.9).add_(x.T @ distances)")) == (
        "line 15: `self.book` is changed in each forward and taken a product with, in which it may exceed the range of "
        "float16; use --dtype bfloat16"
    )


def test_a_product_with_a_fixed_buffer_is_not() -> None:
    assert "        loss = F.mse_loss(codebook(model(x)), y)\n" in migrated(CODEBOOK.format(update="pass"))
