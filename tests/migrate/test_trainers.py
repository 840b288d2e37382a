"""Shapes of trainers: an optimizer that may be None, factories, steps behind a try, banks of features."""

from __future__ import annotations

import pytest

from amplint.migrate import migrate_source
from tests.migrate.test_refusals import HEAD

RUN = """
def run(model, opt{default}, train=True):
    for x, y in batches:
        loss = F.mse_loss(model(x), y)
        if opt is not None:
            opt.zero_grad()
            loss.backward()
            opt.step()

"""


def migrated(body: str) -> list[str]:
    result = migrate_source(HEAD + body, "train.py")
    assert {loop.status for loop in result.loops} == {"migrated"}, result.loops
    return result.text.removeprefix(HEAD).splitlines()


def test_a_forward_of_an_object_out_of_view_is_in_the_region() -> None:
    learner = """
class Learner:
    def __init__(self, mac):
        self.mac = mac
        self.optimiser = torch.optim.SGD(mac.parameters(), lr=0.1)

    def train(self, batch):
        outs = []
        for t in range(3):
            outs.append(self.mac.forward(batch, t=t))
        outs = torch.stack(outs, dim=1)
        outs[batch["mask"]] = -9999999
        loss = outs.mean()
        self.optimiser.zero_grad()
        loss.backward()
        self.optimiser.step()
"""
    lines = [line.strip() for line in migrated(learner)]
    region = lines.index("for t in range(3):")
    assert lines[region - 1].startswith("with torch.autocast(")
    assert "outs = torch.stack(outs, dim=1).float()" in lines


@pytest.mark.parametrize(
    ("default", "call", "after"),
    [
        ("=None", "run(model)", "run(model)"),
        ("=None", "run(model, None, False)", "run(model, None, None, False)"),
        ("=None", "run(model, opt=None)", "run(model, opt=None)"),
        ("", "run(model, None)", "run(model, None, None)"),
        ("", "run(model, opt=None)", "run(model, opt=None, scaler=None)"),
    ],
)
def test_an_evaluation_without_optimizer_has_no_scaler(default: str, call: str, after: str) -> None:
    lines = migrated(RUN.format(default=default) + "run(model, optimizer)\n" + call + "\n")
    scaler = "scaler=None" if default else "scaler"
    assert f"def run(model, opt{default}, {scaler}, train=True):" in lines
    region = '        with torch.autocast(device_type=device.type, dtype=torch.float16, enabled=device.type == "cuda"):'
    assert region in lines
    assert lines[-2:] == ["run(model, optimizer, scaler)", after]


def test_a_call_that_hides_its_arguments_is_refused() -> None:
    body = RUN.format(default="=None") + "run(model, optimizer)\nrun(*given)\n"
    reason = migrate_source(HEAD + body, "train.py").loops[0].reason
    assert reason == "line 18: the optimizer that `run` gets here can't be told"


def test_an_optimizer_among_others_that_a_function_returns() -> None:
    lines = migrated(
        """
def build():
    model = nn.Linear(4, 2).to(device)
    return model, torch.optim.SGD(model.parameters(), lr=0.1)

net, opt = build()
for x, y in batches:
    loss = F.mse_loss(net(x), y)
    opt.zero_grad()
    loss.backward()
    opt.step()
"""
    )
    at = lines.index("net, opt = build()")
    assert lines[at + 1] == 'scaler = torch.amp.GradScaler("cuda", enabled=device.type == "cuda")'


def test_a_step_behind_a_try_that_goes_backward() -> None:
    lines = migrated(
        """
for x, y in batches:
    optimizer.zero_grad()
    try:
        loss = F.mse_loss(model(x), y)
        loss.backward()
    except RuntimeError:
        continue
    else:
        optimizer.step()
"""
    )
    assert lines[-3:] == ["    else:", "        scaler.step(optimizer)", "        scaler.update()"]


@pytest.mark.parametrize("loss", ["Variable(loss, requires_grad=True)", "torch.tensor(loss, requires_grad=True)"])
def test_a_loss_that_is_cut_from_its_graph_is_refused(loss: str) -> None:
    body = f"""
from torch.autograd import Variable
for x, y in batches:
    loss = F.mse_loss(model(Variable(x, requires_grad=True)), y)
    loss = {loss}
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""
    reason = migrate_source(HEAD + body, "train.py").loops[0].reason
    assert reason == "line 12: a new graph starts here, so that backward() gives the model no gradients"


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("bank[index] = feature.detach()", "bank[index] = feature.float().detach()"),
        ("bank.index_copy_(0, index, feature.detach())", "bank.index_copy_(0, index, feature.float().detach())"),
        ("bank.index_fill_(0, index, 1.0)", "bank.index_fill_(0, index, 1.0)"),
    ],
)
def test_banks_of_features_stay_float32(before: str, after: str) -> None:
    lines = migrated(
        f"""
bank = torch.zeros(8, 2, device=device)
for index, x, y in batches:
    feature = F.normalize(model(x), dim=1)
    loss = F.mse_loss(feature, y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    {before}
"""
    )
    assert lines[-1] == f"    {after}"
