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


def test_writes_of_half_precision_into_float32_are_refused() -> None:
    assert refusal(WRITES.format(write="out.masked_scatter(index > 0, x)")) == (
        "line 12: `masked_scatter` does not take half precision on CUDA"
    )
    kept = WRITES.replace("torch.zeros_like(x)", "self.total").format(write="out.index_add(0, index, x)")
    assert refusal(kept) == "line 12: `index_add` does not take half precision on CUDA"


ADDITIONS = [
    "out.index_add(0, index, x)",
    "torch.index_add(out, 0, index, x)",
    "out.scatter_reduce(0, index, x, 'sum')",
    "out.scatter_add_(0, index, x)",
    "out.scatter(0, index, x)",
    "out.scatter(dim=0, index=index, src=x)",
]


@pytest.mark.parametrize("write", ADDITIONS)
@pytest.mark.parametrize("made", ["torch.zeros(8, 2, device=x.device)", "torch.zeros(8, 2).to(x.device)"])
def test_what_is_added_by_index_to_a_buffer_of_float32_is_cast(write: str, made: str) -> None:
    text = migrated(WRITES.replace("torch.zeros_like(x)", made).format(write=write))
    cast = write.replace(", x", ", x.float()").replace("=x)", "=x.float())")
    assert f"        out = {made}\n        return {cast}\n" in text


@pytest.mark.parametrize("write", ADDITIONS)
@pytest.mark.parametrize("made", ["torch.zeros_like(x)", "x.new_zeros(8, 2)", "torch.zeros(8, 2, dtype=x.dtype)"])
def test_what_a_buffer_of_its_own_dtype_is_added_to_is_float32_first(write: str, made: str) -> None:
    text = migrated(WRITES.replace("torch.zeros_like(x)", made).format(write=write))
    assert f"        x = x.float()\n        out = {made}\n        return {write}\n" in text


def test_what_a_forward_left_in_its_module_belongs_to_the_region() -> None:
    text = migrated(
        """
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.layer = nn.Linear(4, 2)

            def forward(self, x):
                self.logstd = self.layer(x)
                return self.logstd

        net = Net().to(device)
        optimizer = torch.optim.Adam(net.parameters())
        for x, y in batches:
            loss = F.mse_loss(net(x), y)
            kl = (1 - torch.exp(net.logstd)).sum(1).mean()
            loss += kl
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        """
    )
    assert "        kl = (1 - torch.exp(net.logstd)).sum(1).mean()\n" in text


def test_a_mask_on_the_outputs_of_a_copied_model_is_applied_to_float32() -> None:
    text = migrated(
        """
        import copy

        class Agent:
            def __init__(self, net):
                self.net = net

            def forward(self, x):
                return self.net(x)

        agent = Agent(model)
        target = copy.deepcopy(agent)
        for x, y in batches:
            values = agent.forward(x)
            best = torch.stack([target.forward(x)])
            best[y == 0] = -9999999
            loss = F.mse_loss(values, best.max(0)[0].detach())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        """
    )
    assert "        best = torch.stack([target.forward(x)]).float()\n" in text


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


@pytest.mark.parametrize("made", ["nn.NLLLoss()", "nn.NLLLoss().to(device)"])
def test_losses_are_float32_for_numpy(made: str) -> None:
    text = migrated(
        f"""
        criterion = {made}
        for x, y in batches:
            loss = criterion(F.log_softmax(model(x), 1), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            print(loss.data.cpu().numpy())
        """
    )
    assert text.endswith("    print(loss.data.cpu().numpy())\n")


WORDS = """
class Words(nn.Module):
    def __init__(self):
        super().__init__()
        self.unknown = 1
        self.embedding = nn.Embedding(20, 4)
        self.adaptive = nn.AdaptiveLogSoftmaxWithLoss(2, 20, [5])

    def forward(self, words, dropped):
        {}
        return model(self.embedding(words))

words = Words()
for x, y in batches:
    loss = F.mse_loss(words(x, x > 3), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


def test_what_is_looked_up_in_an_embedding_holds_no_half_precision() -> None:
    write = "words = words.clone()\n        words[dropped] = self.unknown"
    assert f"        {write}\n        return model" in migrated(WORDS.format(write))
    other = write.replace("words[dropped]", "other[dropped]").replace("words =", "other =")
    assert refusal(WORDS.format(other)).startswith("line 18: values are written into a tensor")


def test_an_adaptive_softmax_is_refused() -> None:
    assert refusal(WORDS.format("return self.adaptive(model(self.embedding(words)), words).loss")) == (
        "line 17: AdaptiveLogSoftmaxWithLoss takes tensors of one dtype, which autocast does not leave"
    )


def test_samples_that_a_module_writes_into_zeros_are_no_graph() -> None:
    text = migrated(
        """
        class Writer(nn.Module):
            def __init__(self):
                super().__init__()
                self.out = nn.Linear(4, 4)

            def forward(self, x):
                return F.log_softmax(self.out(x), 1)

            def sample(self, count, start):
                samples = torch.zeros(count, 4)
                samples[:, 0] = torch.multinomial(self.forward(start).exp(), 1).view(-1).data
                return samples

        writer = Writer()
        for x, y in batches:
            x = writer.sample(8, x)
            optimizer.zero_grad()
            loss = F.mse_loss(model(x), y)
            loss.backward()
            optimizer.step()
        """
    )
    assert "    x = writer.sample(8, x)\n    optimizer.zero_grad()\n    with torch.autocast(" in text


@pytest.mark.parametrize("given", ["*ends(x), y", "**ends(x), y=y"])
def test_what_a_call_unpacks_may_be_half_precision_too(given: str) -> None:
    body = f"""
    class Ends(nn.Module):
        def forward(self, x):
            out = torch.tanh(model(x))
            return {{"a": out, "b": out}} if {given.startswith("**")} else (out, out)

    ends = Ends()

    def likelihood(a, b, y):
        return torch.log(1 - a**2) + b * y

    for x, y in batches:
        optimizer.zero_grad()
        loss = -likelihood({given}).mean()
        loss.backward()
        optimizer.step()
    """
    assert refusal(body).startswith("line 17: a logarithm is taken by hand of a value that half precision may have")
