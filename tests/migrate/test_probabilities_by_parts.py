"""Binary cross entropy of probabilities that are put together: lists of heads and layers, several models, arithmetic;
and losses in places from which their calls can't be told."""

from __future__ import annotations

import pytest

from amplint.migrate import migrate_source
from tests.migrate.test_hazards import refusal
from tests.migrate.test_probabilities import ADVICE
from tests.migrate.test_refusals import HEAD

LOOP = """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(4, 2)
        self.heads = nn.ModuleList([nn.Linear(4, 1) for _ in range(2)])
        {init}

    def forward(self, x):
        out = self.fc(x)
        {result}

{setup}
net = Net().to(device)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for x, y in batches:
    p = net(x)
    {loss}
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""
UNSEEN = f"where this loss is called can't be seen: {ADVICE}"
CRITERION = "criterion = nn.BCELoss()"
RUN = "for layer in self.layers:\n            x = layer(x)\n        return x"


def script(result: str, loss: str = "loss = criterion(p, y)", *, init: str = "pass", setup: str = CRITERION) -> str:
    return LOOP.format(result=result, loss=loss, init=init, setup=setup)


def migrated(body: str) -> str:
    result = migrate_source(HEAD + body, "train.py")
    assert {report.status for report in result.loops} == {"migrated"}, result.loops
    return result.text


@pytest.mark.parametrize(
    ("result", "loss", "written"),
    [
        (
            "return torch.cat([torch.sigmoid(h(x)) for h in self.heads], 1)",
            "loss = criterion(p, y)",
            "torch.cat([torch.sigmoid(h(x).float()) for h in self.heads], 1)",
        ),
        (
            "outs = []\n        for h in self.heads:\n            outs.append(h(x).sigmoid())\n        return outs",
            "loss = sum(criterion(o, y[:, i]) for i, o in enumerate(p))",
            "outs.append(h(x).float().sigmoid())",
        ),
        (
            "return {'a': out.sigmoid(), 'b': torch.sigmoid(-out)}",
            "loss = sum(criterion(p[key], y) for key in ('a', 'b'))",
            "return {'a': out.float().sigmoid(), 'b': torch.sigmoid((-out).float())}",
        ),
        ("return torch.sigmoid(out)", "a, b = p.chunk(2, 1)\n    loss = criterion(b, y)", "torch.sigmoid(out.float())"),
        (
            "return torch.sigmoid(out)",
            "loss = F.binary_cross_entropy(torch.where(y > 0, p, 1 - p), y)",
            "torch.sigmoid(out.float())",
        ),
        ("return (torch.tanh(out) + 1) / 2", "loss = criterion(p, y)", "return (torch.tanh(out.float()) + 1) / 2"),
        (
            "return torch.sigmoid(out)",
            "loss = criterion(torch.stack([p, net(-x)]).mean(0), y)",
            "torch.sigmoid(out.float())",
        ),
    ],
)
def test_all_parts_are_followed(result: str, loss: str, written: str) -> None:
    assert written in migrated(script(result, loss))


@pytest.mark.parametrize(
    "init",
    [
        "self.layers = nn.ModuleList([nn.Linear(4, 2), nn.Sigmoid()])",
        "self.layers = nn.ModuleList()\n        self.layers.append(nn.Linear(4, 2))\n"
        "        self.layers.append(nn.Sigmoid())",
    ],
)
def test_layers_that_a_loop_runs_end_in_the_last(init: str) -> None:
    text = migrated(script(RUN, init=init))
    assert init.replace("nn.Sigmoid()", "FullPrecisionSigmoid()") in text


def test_models_of_a_list_are_each_followed() -> None:
    setup = f"{CRITERION}\nnets = nn.ModuleList([nn.Sequential(nn.Linear(4, 1), nn.Sigmoid()) for _ in range(2)])"
    text = migrated(script("return out", "loss = sum(criterion(n(x), y) for n in nets) + p.mean()", setup=setup))
    assert "nn.Sequential(nn.Linear(4, 1), FullPrecisionSigmoid())" in text


def test_an_island_holds_no_other_half_precision() -> None:
    text = migrated(script("return out", "loss = criterion(torch.sigmoid(p), y) + F.mse_loss(p, y)"))
    assert "    loss = criterion(torch.sigmoid(p.float()), y) + F.mse_loss(p, y)\n" in text
    assert "criterion = FullPrecisionBCELoss()" in text


@pytest.mark.parametrize(
    ("result", "loss", "init"),
    [
        ("return out.clamp(0, 1)", "loss = criterion(p, y)", "pass"),
        ("return F.hardtanh(out, 0, 1)", "loss = criterion(p, y)", "pass"),
        ("return torch.exp(-out.abs())", "loss = criterion(p, y)", "pass"),
        ("return [out.sigmoid(), out]", "loss = sum(criterion(o, y) for o in p)", "pass"),
        ("return {'a': out.sigmoid(), 'b': out}", "loss = sum(criterion(o, y) for o in p.values())", "pass"),
        (RUN, "loss = criterion(p, y)", "self.layers = nn.ModuleList([nn.Sigmoid(), nn.Linear(4, 2)])"),
        (
            RUN.replace("self.layers", "self.layers[:-1]"),
            "loss = criterion(p, y)",
            "self.layers = nn.ModuleList([nn.Linear(4, 2), nn.Linear(2, 2), nn.Sigmoid()])",
        ),
        (
            RUN.replace("self.layers", "reversed(self.layers)"),
            "loss = criterion(p, y)",
            "self.layers = nn.ModuleList([nn.Linear(4, 2), nn.Sigmoid()])",
        ),
        (
            RUN,
            "loss = criterion(p, y)",
            "self.layers = nn.ModuleList([nn.Linear(4, 2), nn.Sigmoid()])\n        self.layers.append(nn.ReLU())",
        ),
        (
            RUN,
            "net.layers.append(nn.ReLU())\n    loss = criterion(p, y)",
            "self.layers = nn.ModuleList([nn.Linear(4, 2), nn.Sigmoid()])",
        ),
        (
            "out = self.layers[1](x)\n        return out",
            "loss = criterion(p, y)",
            "self.layers = nn.ModuleList([nn.Linear(4, 2), nn.Sigmoid()])",
        ),
    ],
)
def test_one_part_that_is_no_sigmoid_is_refused(result: str, loss: str, init: str) -> None:
    assert refusal(script(result, loss, init=init)).endswith(f": {ADVICE}")


@pytest.mark.parametrize(
    ("setup", "loss"),
    [
        ("class Task:\n    criterion = nn.BCELoss()\n", "loss = Task.criterion(p, y)"),
        ("class Task:\n    criterion = nn.BCELoss()\n", "loss = getattr(Task, 'criterion')(p, y)"),
        (CRITERION, "loss = sum(f(p, y) for f in (criterion, F.mse_loss))"),
        (f"{CRITERION}\nparts = [criterion]", "loss = parts[0](p, y)"),
        (f"{CRITERION}\nparts = {{'a': criterion}}", "loss = sum(parts[key](p, y) for key in parts)"),
        ("parts = {'a': nn.BCELoss()}", "loss = parts['a'](p, y) + sum(parts[key](p, y) for key in parts)"),
        (CRITERION, "loss = sum(map(criterion, [p], [y]))"),
        (f"from functools import partial\n{CRITERION}\nf = partial(criterion)", "loss = f(p, y)"),
    ],
)
def test_a_loss_whose_calls_can_not_be_told_is_refused(setup: str, loss: str) -> None:
    assert refusal(script("return torch.sigmoid(out)", loss, setup=setup)).endswith(f": {UNSEEN}")


def test_items_of_constant_keys_are_told() -> None:
    setup = f"{CRITERION}\nparts = {{'a': criterion, 'b': nn.MSELoss()}}"
    text = migrated(script("return torch.sigmoid(out)", "loss = parts['a'](p, y) + parts['b'](p, y)", setup=setup))
    assert "criterion = FullPrecisionBCELoss()" in text
