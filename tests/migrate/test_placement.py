"""Where the scaler is made, and on what device it asks to be."""

from __future__ import annotations

import textwrap

import pytest

from amplint.check import check_source
from amplint.migrate import migrate_source
from amplint.settings import DEFAULT
from tests.migrate.test_refusals import HEAD

SCALER = 'scaler = torch.amp.GradScaler("cuda", enabled=device.type == "cuda")'
STEP = """\
loss = F.mse_loss(net(x), y)
opt.zero_grad()
loss.backward()
opt.step()
"""


LOOP = "for x, y in batches:\n" + textwrap.indent(STEP, "    ")
TRAIN = "def train(net, opt{more}):\n" + textwrap.indent(LOOP, "    ") + "\n"
MAKE = "opt = torch.optim.{kind}(model.parameters(), lr=0.1)\n"


def migrated(body: str) -> list[str]:
    """The lines of the migrated text behind the head, which has an optimizer of its own that nothing uses."""
    text = HEAD + body
    result = migrate_source(text, "train.py")
    assert {loop.status for loop in result.loops} == {"migrated"}, result.loops
    assert check_source(result.text, "train.py", DEFAULT) == check_source(text, "train.py", DEFAULT)
    return result.text.removeprefix(HEAD).splitlines()


def refusal(body: str) -> str:
    text = HEAD + body
    result = migrate_source(text, "train.py")
    assert result.text == text
    return result.loops[0].reason


def test_optimizers_of_a_loop_share_one_from_before_it() -> None:
    fold = "net = nn.Linear(4, 2).to(device)\nopt = torch.optim.SGD(net.parameters(), lr=0.1)\n" + LOOP
    lines = migrated("for fold in range(3):\n" + textwrap.indent(fold, "    "))
    assert lines[:2] == [SCALER, "for fold in range(3):"]


def test_what_is_used_first_has_it_first() -> None:
    lines = migrated(
        TRAIN.format(more=", epochs=2")
        + "first = torch.optim.SGD(model.parameters(), lr=0.1)\n"
        + "train(model, first)\n"
        + "second = torch.optim.SGD(model.parameters(), lr=0.01)\n"
        + "train(model, second, epochs=1)\n"
    )
    assert lines[0] == "def train(net, opt, scaler, epochs=2):"
    assert lines[-5:] == [
        "first = torch.optim.SGD(model.parameters(), lr=0.1)",
        SCALER,
        "train(model, first, scaler)",
        "second = torch.optim.SGD(model.parameters(), lr=0.01)",
        "train(model, second, scaler, epochs=1)",
    ]


def test_each_branch_that_makes_and_uses_has_its_own() -> None:
    arms = [textwrap.indent(MAKE.format(kind=kind) + "train(model, opt)\n", "    ") for kind in ("SGD", "Adam")]
    lines = migrated(TRAIN.format(more="") + f'if device.type == "cuda":\n{arms[0]}else:\n{arms[1]}')
    assert lines.count("    " + SCALER) == 2


def test_none_at_first_is_no_optimizer() -> None:
    arms = ["    " + MAKE.format(kind=kind) for kind in ("SGD", "Adam")]
    lines = migrated(f'opt = None\nif device.type == "cuda":\n{arms[0]}else:\n{arms[1]}net = model\n' + LOOP)
    assert lines[5:7] == [SCALER, "net = model"]


def test_a_global_optimizer_has_a_global_scaler() -> None:
    make = "    " + MAKE.format(kind="SGD")
    lines = migrated(
        "opt = None\nnet = model\n\ndef train():\n"
        + textwrap.indent(LOOP, "    ")
        + f"def main():\n    global opt\n{make}    train()\n\nmain()\n"
    )
    at = lines.index("    global opt, scaler")
    assert lines[at + 2] == "    " + SCALER


def test_a_use_before_the_loop_that_makes_it_is_refused() -> None:
    loop = "for fold in range(2):\n    " + MAKE.format(kind="SGD") + "    train(model, opt)\n"
    body = TRAIN.format(more="") + "train(model, opt)\n" + loop
    assert refusal(body).endswith("the optimizer is used before it is made")


ASKED = """\
import argparse
import torch
from torch import nn
import torch.nn.functional as F

{setup}
net = nn.Linear(4, 2)
{move}
opt = torch.optim.SGD(net.parameters(), lr=0.1)
for x, y in batches:
    loss = F.mse_loss(net(x), y)
    opt.zero_grad()
    loss.backward()
    opt.step()
"""
PARSER = """\
parser = argparse.ArgumentParser()
parser.add_argument("--no-cuda", action="store_true")
args = parser.parse_args()
args.cuda = not args.no_cuda and torch.cuda.is_available()
"""


@pytest.mark.parametrize(
    ("setup", "move", "enabled"),
    [
        (PARSER, "if args.cuda:\n    net.cuda()", "bool(args.cuda)"),
        ("", "if torch.cuda.is_available():\n    net.cuda()", "torch.cuda.is_available()"),
        ("gpu = torch.cuda.is_available()", "if gpu:\n    net.cuda()", "gpu"),
        (
            "",
            "if not torch.cuda.is_available():\n    print('slow')\nelse:\n    net.cuda()",
            "torch.cuda.is_available()",
        ),
        # conditions that differ, or are out of sight: CUDA is asked for
        (
            PARSER + "gpu = None",
            "if args.cuda:\n    net.cuda()\nif gpu is not None:\n    net.cuda(gpu)",
            "torch.cuda.is_available()",
        ),
        (
            "def put(module, on_gpu):\n    if on_gpu:\n        module.cuda()\n    return module",
            "put(net, True)",
            "torch.cuda.is_available()",
        ),
    ],
)
def test_it_asks_what_the_script_asks(setup: str, move: str, enabled: str) -> None:
    text = migrate_source(ASKED.format(setup=setup, move=move), "train.py").text
    assert f'scaler = torch.amp.GradScaler("cuda", enabled={enabled})\n' in text
    assert 'with torch.autocast(device_type="cuda", dtype=torch.float16, enabled=scaler.is_enabled()):\n' in text


def test_a_scheduler_of_the_file_is_no_optimizer() -> None:
    lines = migrated(
        "from torch.optim.lr_scheduler import _LRScheduler\n\n"
        "class WarmUp(_LRScheduler):\n    def get_lr(self):\n        return [0.1]\n\n"
        "net = model\n" + MAKE.format(kind="SGD") + "slow = WarmUp(opt)\n"
        "for epoch in range(2):\n" + textwrap.indent(LOOP + "    if epoch < 1:\n        slow.step()\n", "    ")
    )
    assert lines[-3:] == ["        scaler.update()", "        if epoch < 1:", "            slow.step()"]


GLOBAL = """\
def train():
    for x, y in batches:
        loss = F.mse_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

"""


def test_a_scaler_that_a_function_reads_as_a_global_is_made_before_its_first_call() -> None:
    again = "    optimizer = torch.optim.ASGD(model.parameters())\n"
    lines = migrated(GLOBAL + "for epoch in range(3):\n    train()\n" + again)
    assert lines[0] == SCALER
    assert lines[-3:] == ["for epoch in range(3):", "    train()", again.rstrip()]


def test_it_is_made_behind_the_branches_that_make_optimizers() -> None:
    text = HEAD.replace("optimizer = ", "if fast:\n    optimizer = ", 1)
    loop = "for epoch in range(3):\n    train()\n    optimizer = torch.optim.ASGD(model.parameters())\n"
    result = migrate_source(text + GLOBAL + loop, "train.py")
    assert f"lr=0.1)\n{SCALER}\n" in result.text


def test_the_type_of_an_accelerator_is_a_string_without_a_number() -> None:
    asked = 'torch.accelerator.current_accelerator().type if torch.accelerator.is_available() else "cpu"'
    text = HEAD.replace('torch.device("cuda" if torch.cuda.is_available() else "cpu")', asked) + LOOP
    text = text.replace("net(x)", "model(x)").replace("opt.", "optimizer.")
    result = migrate_source(text, "train.py")
    assert 'scaler = torch.amp.GradScaler("cuda", enabled=device == "cuda")\n' in result.text
    assert "with torch.autocast(device_type=device, dtype=torch.float16, enabled=scaler.is_enabled()):\n" in result.text


@pytest.mark.parametrize("name", ["to_device", "default_device", "num_device"])
def test_a_device_is_no_function_and_no_number(name: str) -> None:
    """`to_device(batch, device)` ends like the name of a device."""
    define = {"num_device": "num_device = 2\n"}.get(name, f"def {name}(data, device='cpu'):\n    return data\n")
    use = "print(num_device)\n" if name == "num_device" else f"{name}(model)\n"
    head = "import torch\nfrom torch import nn\nimport torch.nn.functional as F\n" + define
    body = f"model = nn.Linear(4, 2)\n{use}if torch.cuda.is_available():\n    model.cuda()\n"
    text = migrate_source(
        head + body + MAKE.format(kind="SGD") + LOOP.replace("net", "model"), "train.py"
    ).text.splitlines()
    assert 'scaler = torch.amp.GradScaler("cuda", enabled=torch.cuda.is_available())' in text


def test_the_number_of_the_current_gpu_is_a_device() -> None:
    text = """
import torch
from torch import nn

class Trainer:
    def __init__(self, model):
        self.model = model
        self.device = "cpu"
        if torch.cuda.is_available():
            self.device = torch.cuda.current_device()
            self.model = nn.DataParallel(self.model).to(self.device)

    def fit(self, batches):
        optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)
        for x, y in batches:
            optimizer.zero_grad()
            loss = nn.functional.mse_loss(self.model(x.to(self.device)), y.to(self.device))
            loss.backward()
            optimizer.step()

Trainer(nn.Linear(2, 1)).fit([(torch.ones(3, 2), torch.ones(3, 1))])
"""
    lines = [line.strip() for line in migrate_source(text).text.splitlines()]
    assert 'scaler = torch.amp.GradScaler("cuda", enabled=torch.device(self.device).type == "cuda")' in lines
    assert "device_type=torch.device(self.device).type, dtype=torch.float16, enabled=scaler.is_enabled()" in lines


def test_a_device_that_the_base_class_makes_is_in_view() -> None:
    text = """
import torch
from torch import nn

class Base:
    def __init__(self):
        self.device = self._find_device()
        self.model = nn.Linear(2, 1).to(self.device)

    def _find_device(self):
        device = torch.device("cpu")
        if torch.cuda.is_available():
            device = torch.device("cuda:0")
        return device

class Experiment(Base):
    def train(self, batches):
        optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)
        for x, y in batches:
            optimizer.zero_grad()
            loss = nn.functional.mse_loss(self.model(x.to(self.device)), y.to(self.device))
            loss.backward()
            optimizer.step()

Experiment().train([(torch.ones(3, 2), torch.ones(3, 1))])
"""
    lines = [line.strip() for line in migrate_source(text).text.splitlines()]
    assert 'scaler = torch.amp.GradScaler("cuda", enabled=self.device.type == "cuda")' in lines
    assert (
        "with torch.autocast(device_type=self.device.type, dtype=torch.float16, enabled=scaler.is_enabled()):" in lines
    )


MOVED = """
import torch
from torch import nn

def cuda(tensor, uses_cuda):
    return tensor.cuda() if uses_cuda else tensor

class Solver:
    def __init__(self, args):
        self.use_cuda = args.cuda and torch.cuda.is_available()
        self.net = cuda(nn.Linear(4, 2), self.use_cuda)
        self.optim = torch.optim.Adam(self.net.parameters())

    def train(self, loader):
        for x, y in loader:
            loss = nn.functional.mse_loss(self.net(cuda(x, self.use_cuda)), cuda(y, {other}))
            self.optim.zero_grad()
            loss.backward()
            self.optim.step()
"""


@pytest.mark.parametrize(
    ("other", "enabled"), [("self.use_cuda", "self.use_cuda"), ("True", "torch.cuda.is_available()")]
)
def test_a_helper_that_moves_things_says_by_its_argument_whether_it_does(other: str, enabled: str) -> None:
    text = migrate_source(MOVED.format(other=other), "train.py").text
    assert f'        self.scaler = torch.amp.GradScaler("cuda", enabled={enabled})\n' in text


NAMED_LATE = HEAD.replace('device = torch.device("cuda" if torch.cuda.is_available() else "cpu")\n', "").replace(
    ".to(device)", ""
)
NAMES_DEVICE = 'device = torch.device("cuda" if torch.cuda.is_available() and not args.cpu else "cpu")\n'


def test_it_is_made_behind_the_device_that_is_named_after_the_optimizer() -> None:
    """Else the scaler would be on, and with it a region on the CPU, where the user asks for the CPU beside a GPU."""
    text = (
        NAMED_LATE + NAMES_DEVICE + "model.to(device)\n" + LOOP.replace("net(", "model(").replace("opt.", "optimizer.")
    )
    result = migrate_source(text, "train.py")
    assert f"{NAMES_DEVICE}{SCALER}\nmodel.to(device)\n" in result.text
    assert "device_type=device.type, dtype=torch.float16, enabled=scaler.is_enabled()" in result.text
