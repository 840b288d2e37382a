"""Binary cross entropy on probabilities: sigmoids and losses run in float32, or the file is left alone."""

from __future__ import annotations

import textwrap

import pytest

from amplint.migrate import migrate_source
from tests.migrate.test_refusals import HEAD

LOOP = """
for x, y in batches:
    optimizer.zero_grad()
    loss = criterion(net(x), y) + criterion(net(-x), 1 - y)
    loss.backward()
    optimizer.step()
"""
ADVICE = (
    "BCELoss takes probabilities, which CUDA autocast forbids; let the model return logits and use BCEWithLogitsLoss"
)


def migrated(body: str) -> str:
    result = migrate_source(HEAD + textwrap.dedent(body), "train.py")
    assert {loop.status for loop in result.loops} == {"migrated"}, result.loops
    return result.text


def refusal(body: str) -> str:
    text = HEAD + textwrap.dedent(body)
    result = migrate_source(text, "train.py")
    assert (result.text, {loop.status for loop in result.loops}) == (text, {"refused"})
    return result.loops[0].reason


def test_a_layer_and_a_loss_are_given_classes_behind_the_imports() -> None:
    text = migrated("net = nn.Sequential(model, nn.Sigmoid())\ncriterion = nn.BCELoss(reduction='sum')\n" + LOOP)
    assert text == (
        '''\
import torch
from torch import nn
import torch.nn.functional as F


class FullPrecisionSigmoid(nn.Sigmoid):
    """Sigmoid in float32: half precision rounds probabilities to 0 and 1."""

    def forward(self, input):
        return super().forward(input.float())


class FullPrecisionBCELoss(nn.BCELoss):
    """BCELoss in float32: autocast does not allow it in half precision."""

    def forward(self, input, target):
        with torch.autocast(device_type=input.device.type, enabled=False):
            return super().forward(input.float(), target.float())


device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
model = nn.Linear(4, 2).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
scaler = torch.amp.GradScaler("cuda", enabled=device.type == "cuda")
net = nn.Sequential(model, FullPrecisionSigmoid())
criterion = FullPrecisionBCELoss(reduction='sum')

for x, y in batches:
    optimizer.zero_grad()
    with torch.autocast(device_type=device.type, dtype=torch.float16, enabled=scaler.is_enabled()):
        loss = criterion(net(x), y) + criterion(net(-x), 1 - y)
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
'''
    )


@pytest.mark.parametrize(
    "net",
    [
        "layers = [model]\nlayers += [nn.Sigmoid()]\nnet = nn.Sequential(*layers)",
        "layers = [model]\nif not wgan:\n    layers.append(nn.Sigmoid())\nnet = nn.Sequential(*layers).to(device)",
        "from collections import OrderedDict\nnet = nn.Sequential(OrderedDict([('fc', model), ('out', nn.Sigmoid())]))",
        "net = nn.Sequential()\nnet.add_module('fc', model)\nnet.add_module('out', nn.Sigmoid())",
        "net = nn.Sequential(model, nn.Sigmoid(), nn.Flatten())",
        "net = nn.Sequential(model, nn.Sequential(nn.Linear(2, 2), nn.Sigmoid()))\nnet = nn.DataParallel(net)",
        "def block(n):\n    return [nn.Linear(2, n), nn.Sigmoid()]\n\nnet = nn.Sequential(model, *block(2))",
        "def make():\n    return nn.Sequential(model, nn.Sigmoid())\n\nnet = make().to(device)",
        """\
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.main = nn.Sequential(nn.Linear(4, 2), nn.Sigmoid())

    def forward(self, x):
        if x.is_cuda:
            output = nn.parallel.data_parallel(self.main, x, range(2))
        else:
            output = self.main(x)
        output = output.view(-1, 2)
        return output.squeeze(1)

net = Net()
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)""",
        """\
class Net(nn.Sequential):
    def __init__(self):
        super().__init__(nn.Linear(4, 2), nn.Sigmoid())

net = Net()
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)""",
    ],
)
def test_a_layer_is_found_at_the_end(net: str) -> None:
    before = f"{net}\ncriterion = nn.BCELoss()\n{LOOP}"
    text = migrated(before)
    assert net.replace("nn.Sigmoid()", "FullPrecisionSigmoid()") in text
    assert text.count("FullPrecisionSigmoid") == 2
    assert text.count("FullPrecisionBCELoss") == 2


def test_of_several_outputs_the_one_that_is_used_is_followed() -> None:
    text = migrated(
        """
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.kind = nn.Sequential(nn.Linear(4, 2), nn.Sigmoid())
                self.gate = nn.Sequential(nn.Linear(4, 2), nn.Sigmoid())

            def forward(self, x):
                return self.kind(x), self.gate(x)

        net = Net()
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        criterion = nn.BCELoss()
        for x, y in batches:
            _, gate = net(x)
            loss = criterion(gate, y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        """
    )
    assert "self.kind = nn.Sequential(nn.Linear(4, 2), nn.Sigmoid())" in text
    assert "self.gate = nn.Sequential(nn.Linear(4, 2), FullPrecisionSigmoid())" in text
    # One plain statement is an island as it is.
    assert (
        "        _, gate = net(x)\n"
        "        with torch.autocast(device_type=gate.device.type, enabled=False):\n"
        "            loss = criterion(gate.float(), y)\n"
    ) in text


def test_a_function_that_stands_in_an_expression_becomes_one_of_our_own() -> None:
    text = migrated(
        """
        for x, y in batches:
            loss = F.binary_cross_entropy(torch.sigmoid(model(x)), y) + model(x).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        """
    )
    assert (
        "def full_precision_bce(input, target, *args, **kwargs):\n"
        '    """Binary cross entropy in float32: autocast does not allow it in half precision."""\n'
        "    with torch.autocast(device_type=input.device.type, enabled=False):\n"
        "        return F.binary_cross_entropy(input.float(), target.float(), *args, **kwargs)\n"
    ) in text
    assert "loss = full_precision_bce(torch.sigmoid(model(x).float()), y) + model(x).mean()" in text


@pytest.mark.parametrize(
    "criterion",
    [
        "criterion = nn.BCELoss().to(device)",
        "criterion = nn.BCELoss(reduction='mean').cuda().train()",
        "def make():\n    return nn.BCELoss()\n\ncriterion = make()",
        "if wide:\n    criterion = nn.BCELoss().cuda()\nelse:\n    criterion = nn.BCELoss()",
    ],
)
def test_a_loss_is_known_however_it_is_made(criterion: str) -> None:
    text = migrated(f"{criterion}\nnet = nn.Sequential(model, nn.Sigmoid())\n{LOOP}")
    assert criterion.replace("nn.BCELoss", "FullPrecisionBCELoss") in text


@pytest.mark.parametrize(
    "criterion",
    [
        "class Loss(nn.BCELoss):\n    pass\n\ncriterion = Loss()",
        "losses = {'bce': nn.BCELoss()}\ncriterion = losses[name]",
        "settings.loss = nn.BCELoss()\n\ndef criterion(out, y):\n    return settings.loss(out, y)",
    ],
)
def test_a_loss_that_cannot_be_given_another_class_is_refused(criterion: str) -> None:
    assert ADVICE in refusal(f"{criterion}\nnet = nn.Sequential(model, nn.Sigmoid())\n{LOOP}")


def test_a_loss_from_an_import_of_everything_is_refused() -> None:
    assert refusal(
        f"from torch.nn import *\ncriterion = BCELoss()\nnet = nn.Sequential(model, nn.Sigmoid())\n{LOOP}"
    ) == ("line 9: what `BCELoss` is can't be seen; import it by name")


def test_a_sigmoid_may_be_given_as_an_activation() -> None:
    text = migrated(
        """
        class Net(nn.Module):
            def __init__(self, f):
                super().__init__()
                self.fc = model
                self.f = f

            def forward(self, x):
                return self.f(self.fc(x))

        net = Net(f=torch.sigmoid)
        criterion = nn.BCELoss()
        """
        + textwrap.indent(LOOP, "        ")
    )
    assert "        return self.f(self.fc(x).float())\n" in text


@pytest.mark.parametrize(
    ("forward", "loss"),
    [
        (
            "        out = self.fc(x)\n        if self.on:\n            out = torch.sigmoid(out)\n        return out",
            "net(x)",
        ),
        ("        if self.plain:\n            return torch.sigmoid(x)\n        else:\n            return x", "net(x)"),
        ("        return {'raw': x, 'prob': torch.sigmoid(x)}", "net(x)['prob']"),
    ],
)
def test_a_sigmoid_may_depend_on_a_setting_or_stand_in_a_dict(forward: str, loss: str) -> None:
    text = migrated(
        "class Net(nn.Module):\n    def __init__(self):\n        super().__init__()\n        self.fc = model\n\n"
        f"    def forward(self, x):\n{forward}\n\nnet = Net()\ncriterion = nn.BCELoss()\n"
        f"for x, y in batches:\n    loss = criterion({loss}, y) + model(x).mean()\n"
        "    optimizer.zero_grad()\n    loss.backward()\n    optimizer.step()\n"
    )
    assert ".float())" in text.split("net = Net()")[0].split("class Net")[1]


@pytest.mark.parametrize("given", ["out[0]", "out[0].view(-1)"])
def test_an_island_asks_the_tensor_for_its_device(given: str) -> None:
    text = migrated(
        f"""
        class Net(nn.Module):
            def forward(self, x):
                return torch.sigmoid(model(x)), x

        net = Net()
        criterion = nn.BCELoss()
        for x, y in batches:
            out = net(x)
            loss = criterion({given}, y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        """
    )
    assert (
        "        with torch.autocast(device_type=out[0].device.type, enabled=False):\n"
        f"            loss = criterion({given}.float(), y)\n"
    ) in text


def test_a_softmax_is_in_float32_already() -> None:
    text = migrated("net = nn.Sequential(model, nn.Softmax(dim=1))\ncriterion = nn.BCELoss()\n" + LOOP)
    assert "net = nn.Sequential(model, nn.Softmax(dim=1))" in text
    assert "criterion = FullPrecisionBCELoss()" in text


def test_names_that_are_taken_are_avoided() -> None:
    text = migrated(
        "FullPrecisionSigmoid = 1\nnet = nn.Sequential(model, nn.Sigmoid())\ncriterion = nn.BCELoss()\n" + LOOP
    )
    assert "net = nn.Sequential(model, AmpFullPrecisionSigmoid())" in text


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("import networks\nnet = networks.Net()\nnet.train()\ncriterion = nn.BCELoss()\n" + LOOP, f"line 15: {ADVICE}"),
        ("net = nn.Sequential(nn.Sigmoid(), model)\ncriterion = nn.BCELoss()\n" + LOOP, f"line 13: {ADVICE}"),
        (
            "net = nn.Sequential(model, nn.Sigmoid())\ncriterion = nn.BCELoss()\nsave([nn.BCELoss()])\n" + LOOP,
            f"line 10: where this loss is called can't be seen: {ADVICE}",
        ),
    ],
)
def test_what_is_not_in_view_is_refused(body: str, reason: str) -> None:
    assert refusal(body) == reason


@pytest.mark.parametrize("inner", ["self.forward(x)", "self(x)"])
def test_a_method_that_runs_its_own_module_is_followed(inner: str) -> None:
    text = migrated(
        f"""
        class Judge(nn.Module):
            def __init__(self):
                super().__init__()
                self.out = nn.Linear(4, 1)

            def forward(self, x):
                out = torch.sigmoid(self.out(x))
                return out

            def classify(self, x):
                out = {inner}
                return out.view(-1)

        judge = Judge()
        criterion = nn.BCELoss()
        for x, y in batches:
            optimizer.zero_grad()
            out = judge.classify(model(x))
            loss = criterion(out, y)
            loss.backward()
            optimizer.step()
        """
    )
    assert "        out = torch.sigmoid(self.out(x).float())\n" in text
    assert "            loss = criterion(out.float(), y)\n" in text
