"""Products in place: the parameters that go into them become float32 first, or they are refused."""

from __future__ import annotations

import textwrap

import pytest

from amplint.migrate import migrate_source
from tests.migrate.test_refusals import HEAD

SCRIPT = """
class Distances(nn.Module):
    def __init__(self):
        super().__init__()
        self.centers = nn.Parameter(torch.randn(3, 2, device=device))

    def forward(self, x, y):
        \"\"\"Squared distances.\"\"\"
{body}

criterion = Distances()
for x, y in batches:
    out = model(x)
    loss = criterion(out, y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


def migrated(body: str) -> str:
    return migrate_source(HEAD + SCRIPT.format(body=textwrap.indent(body, " " * 8)), "train.py").text


@pytest.mark.parametrize(
    ("body", "casts"),
    [
        (
            "n = x.size(0)\ndist = torch.pow(x, 2).sum(dim=1, keepdim=True).expand(n, n)\ndist = dist + dist.t()\n"
            "dist.addmm_(x, x.t(), beta=1, alpha=-2)\nreturn dist.mean()",
            ["x = x.float()"],
        ),
        (
            "d = x.pow(2).sum(1, keepdim=True) + y.pow(2).sum(1, keepdim=True).t()\nd.addmm_(1, -2, x, y.t())\n"
            "return d.mean()",
            ["x = x.float()", "y = y.float()"],
        ),
        (
            "d = x.pow(2).sum(1, keepdim=True) + self.centers.pow(2).sum(1)\nd.addmm_(x, self.centers.t(), alpha=-2)\n"
            "return d.mean()",
            ["x = x.float()"],
        ),
    ],
)
def test_their_parameters_become_float32(body: str, casts: list[str]) -> None:
    lines = [line.strip() for line in migrated(body).splitlines()]
    at = lines.index('"""Squared distances."""')
    assert lines[at + 1 : at + 1 + len(casts)] == casts


@pytest.mark.parametrize(
    "body",
    [
        "d = torch.matmul(x, x.t())\nd.addmm_(x, x.t())\nreturn d.mean()",
        "d = x @ x.t() * 2\nd.addmm_(x, x.t())\nreturn d.mean()",
        "d = self.base\nd.addmm_(x, x.t())\nreturn d.mean()",
    ],
)
def test_what_comes_from_another_product_is_refused(body: str) -> None:
    text = HEAD + SCRIPT.format(body=textwrap.indent(body, " " * 8))
    result = migrate_source(text, "train.py")
    assert result.text == text


def test_quantization_aware_training_is_refused() -> None:
    body = """
net = torch.ao.quantization.prepare_qat(model)
for x, y in batches:
    loss = F.mse_loss(net(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""
    reason = migrate_source(HEAD + body, "train.py").loops[0].reason
    assert reason == "line 9: quantization-aware training rounds values that must be float32"


@pytest.mark.parametrize(("results", "target"), [("compute", "criterion"), ("compute, 0.3", "criterion, margin")])
def test_losses_that_a_function_returns_are_looked_into(results: str, target: str) -> None:
    body = f"""
def distances(x):
    d = x.pow(2).sum(1, keepdim=True) + x.pow(2).sum(1)
    d.addmm_(x, x.t(), alpha=-2)
    return d

def make_loss():
    def compute(out, y):
        return F.mse_loss(out, y) + distances(out).mean()
    return {results}

def train(net, opt, loss_fn):
    for x, y in batches:
        loss = loss_fn(net(x), y)
        opt.zero_grad()
        loss.backward()
        opt.step()

{target} = make_loss()
train(model, optimizer, criterion)
"""
    assert "def distances(x):\n    x = x.float()\n" in migrate_source(HEAD + body, "train.py").text


def test_one_island_where_a_product_is_reached_by_several_regions() -> None:
    text = """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 2)

    def forward(self, x):
        self.kept = self.layer(x)
        return similarity(self.kept)

def similarity(z):
    product = torch.matmul(z, z.t())
    return product

net = Net().to(device)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for x, y in batches:
    loss = net(x).mean() + net.kept.mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
with torch.no_grad():
    for x, y in batches:
        out = net(x)
        print(F.mse_loss(out, y))
"""
    new = migrate_source(HEAD + text, "train.py").text
    assert (
        "def similarity(z):\n"
        "    with torch.autocast(device_type=z.device.type, enabled=False):\n"
        "        product = torch.matmul(z.float(), z.float().t())\n"
        "    return product\n"
    ) in new


@pytest.mark.parametrize("turn", ["features.transpose(1, 2)", "features.permute(0, 2, 1).contiguous()", "features.mT"])
def test_a_gram_matrix_of_a_turned_copy_with_a_name(turn: str) -> None:
    script = f"""
def gram_matrix(x):
    b, c = x.size()
    features = x.view(b, c, 1)
    features_t = {turn}
    gram = features.bmm(features_t) / (c * b)
    return gram

for x, y in batches:
    out = model(x)
    loss = F.mse_loss(gram_matrix(out), gram_matrix(y))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""
    text = migrate_source(HEAD + script, "train.py").text
    assert (
        """\
    with torch.autocast(device_type=features.device.type, enabled=False):
        gram = features.float().bmm(features_t.float()) / (c * b)
"""
        in text
    )
