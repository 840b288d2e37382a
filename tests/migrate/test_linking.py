"""Training that is spread over the files of a project: linked, migrated together, and taken apart."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from amplint.cli import main
from amplint.migrate.linking import callers
from amplint.migrate.linking.migration import migrate_files
from amplint.migrate.model import MigrationResult, Options
from amplint.settings import Settings
from tests.migrate.harness import run_script

ENGINE = """\
import torch


def train_one_epoch(model, criterion, data_loader, optimizer, device, epoch, max_norm=0):
    model.train()
    for samples, targets in data_loader:
        samples, targets = samples.to(device), targets.to(device)
        outputs = model(samples)
        loss = criterion(outputs, targets)
        optimizer.zero_grad()
        loss.backward()
        if max_norm > 0:
            torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm)
        optimizer.step()
    print(epoch, loss.item())


@torch.no_grad()
def evaluate(data_loader, model, device):
    model.eval()
    correct = 0
    for samples, targets in data_loader:
        output = model(samples.to(device))
        correct += (output.argmax(1) == targets.to(device)).sum().item()
    return correct
"""
MAIN = """\
import torch
from torch import nn
from engine import evaluate, train_one_epoch


def main():
    torch.manual_seed(0)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    model = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 4)).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    data = [(torch.randn(8, 6), torch.randint(0, 4, (8,))) for _ in range(4)]
    for epoch in range(2):
        train_one_epoch(model, nn.CrossEntropyLoss(), data, optimizer, device, epoch, 1.0)
        print(evaluate(data, model, device))


if __name__ == "__main__":
    main()
"""
ENGINE_AFTER = (
    ENGINE.replace("data_loader, optimizer, device", "data_loader, optimizer, scaler, device")
    .replace(
        """\
        outputs = model(samples)
        loss = criterion(outputs, targets)
""",
        """\
        with torch.autocast(device_type=device.type, dtype=torch.float16, enabled=scaler.is_enabled()):
            outputs = model(samples)
            loss = criterion(outputs, targets)
""",
    )
    .replace("loss.backward()\n", "scaler.scale(loss).backward()\n        scaler.unscale_(optimizer)\n")
    .replace("optimizer.step()\n", "scaler.step(optimizer)\n        scaler.update()\n")
    .replace(
        """\
        output = model(samples.to(device))
""",
        """\
        with torch.autocast(device_type=device.type, dtype=torch.float16, enabled=device.type == "cuda"):
            output = model(samples.to(device))
""",
    )
)
MADE = "optimizer = torch.optim.SGD(model.parameters(), lr=0.1)\n"
SCALER = 'scaler = torch.amp.GradScaler("cuda", enabled=device.type == "cuda")\n'
MAIN_AFTER = MAIN.replace(MADE, f"{MADE}    {SCALER}").replace(
    "data, optimizer, device", "data, optimizer, scaler, device"
)


@pytest.fixture(autouse=True)
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The directory of a repository, which is the current one."""
    (tmp_path / ".git").mkdir()
    monkeypatch.chdir(tmp_path)
    return tmp_path


def migrate(files: dict[str, str], given: list[str] | None = None, **options: str) -> dict[str, MigrationResult]:
    """Write files, and migrate those that are given (all of them by default)."""
    for name, text in files.items():
        Path(name).parent.mkdir(parents=True, exist_ok=True)
        Path(name).write_bytes(text.encode())
    texts = {name: files[name] for name in given or files}
    migrations = migrate_files(texts, lambda _: Settings(), Options(**options))
    assert migrations.failures == {}
    return migrations.results


def changed(files: dict[str, str], results: dict[str, MigrationResult]) -> dict[str, list[str]]:
    """The new lines of each file that has some."""
    found = {}
    for name, result in results.items():
        old = files[name].splitlines()
        if new := [line.strip() for line in result.text.splitlines() if line not in old]:
            found[name] = new
    return found


def reasons(results: dict[str, MigrationResult]) -> list[str]:
    """The reasons given, by file; nothing may have been changed."""
    assert all(not result.edits for result in results.values())
    return [f"{name}: {loop.reason}" for name, result in results.items() for loop in result.loops]


# -- what is migrated -------------------------------------------------------------------------------------------------


def test_function_in_one_file_and_optimizer_in_another() -> None:
    results = migrate({"main.py": MAIN, "engine.py": ENGINE})
    assert results["engine.py"].text == ENGINE_AFTER
    assert results["main.py"].text == MAIN_AFTER
    assert [(n, loop.line, loop.status, loop.reason) for n, r in results.items() for loop in r.loops] == [
        ("main.py", 11, "migrated", "changes together with engine.py"),
        ("engine.py", 6, "migrated", ""),
        ("engine.py", 22, "migrated", ""),
    ]
    assert all(loop.edits for result in results.values() for loop in result.loops)


@pytest.mark.smoke
def test_migrated_pair_does_what_it_did(project: Path) -> None:
    results = migrate({"main.py": MAIN, "engine.py": ENGINE})
    before = {way: run_script(project / "main.py", way) for way in ("exact", "plain")}
    for name, result in results.items():
        (project / name).write_text(result.text, encoding="utf-8")
    for way, old in before.items():
        new = run_script(project / "main.py", way)
        assert (new.code, new.faults) == (0, [])
        assert (new.output, new.losses, new.steps, new.digest) == (old.output, old.losses, old.steps, old.digest)
    amp = run_script(project / "main.py", "amp", dtype="bfloat16")
    assert (amp.code, amp.faults, amp.full) == (0, [], 0)
    assert amp.low == 16


@pytest.mark.parametrize(
    "names",
    [
        ("from engine import evaluate as test, train_one_epoch as train\n", "train(", "test("),
        ("import engine\n", "engine.train_one_epoch(", "engine.evaluate("),
        ("import engine as e\n", "e.train_one_epoch(", "e.evaluate("),
        ("from engine import *\n", "train_one_epoch(", "evaluate("),
        ("from engine import (\n    evaluate,\n    train_one_epoch,  # trains\n)\n", "train_one_epoch(", "evaluate("),
    ],
)
def test_names_by_which_a_function_is_called(names: tuple[str, str, str]) -> None:
    head, train, evaluate = names

    def spelled(text: str) -> str:
        text = text.replace("from engine import evaluate, train_one_epoch\n", head)
        return text.replace(" train_one_epoch(", f" {train}").replace("(evaluate(", f"({evaluate}")

    results = migrate({"main.py": spelled(MAIN), "engine.py": ENGINE})
    assert results["main.py"].text == spelled(MAIN_AFTER)
    assert results["engine.py"].text == ENGINE_AFTER


def test_global_names_of_both_files_stay_apart() -> None:
    own = "\n\ndef evaluate(x):\n    return x\n\n\ndevice = 'unused'\n"
    engine = ENGINE + '\n\ndevice = torch.device("cpu")\n'
    main = MAIN.replace("from engine import evaluate, train_one_epoch", "import engine" + own)
    main = main.replace(" train_one_epoch(", " engine.train_one_epoch(").replace("(evaluate(", "(engine.evaluate(")
    results = migrate({"main.py": main, "engine.py": engine})
    assert results["engine.py"].text == ENGINE_AFTER + '\n\ndevice = torch.device("cpu")\n'
    assert changed({"main.py": main}, {"main.py": results["main.py"]}) == {
        "main.py": [
            SCALER.strip(),
            "engine.train_one_epoch(model, nn.CrossEntropyLoss(), data, optimizer, scaler, device, epoch, 1.0)",
        ]
    }


def test_package_with_relative_imports_and_names_passed_on() -> None:
    files = {
        "main.py": MAIN.replace("from engine import", "from lib import"),
        "lib/__init__.py": "from .engine import *\n",
        "lib/engine.py": ENGINE.replace("import torch\n", "import torch\n\nfrom .meters import Meter\n", 1),
        "lib/meters.py": "class Meter:\n    pass\n",
    }
    results = migrate(files)
    assert results["main.py"].text == MAIN_AFTER.replace("from engine import", "from lib import")
    after = ENGINE_AFTER.replace("import torch\n", "import torch\n\nfrom .meters import Meter\n", 1)
    assert results["lib/engine.py"].text == after


def test_a_file_without_torch_gets_its_import() -> None:
    head = '"""The loop."""\n\nimport math\n\n\n'
    engine = head + ENGINE[: ENGINE.index("@torch")].removeprefix("import torch\n\n\n").replace(
        "        if max_norm > 0:\n            torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm)\n", ""
    )
    main = MAIN.replace("evaluate, ", "").replace("        print(evaluate(data, model, device))\n", "")
    results = migrate({"main.py": main, "engine.py": engine})
    assert results["engine.py"].text.startswith(
        '"""The loop."""\n\nimport torch\nimport math\n\n\ndef train_one_epoch('
    )
    assert "torch.autocast(" in results["engine.py"].text


def test_two_scripts_that_share_an_engine_and_checkpoints() -> None:
    saved = """\
import torch


def save(model, optimizer, path):
    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, path)


def load(model, optimizer, path):
    state = torch.load(path)
    model.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
"""
    main = (
        MAIN.replace("from engine", "from saving import load, save\nfrom engine")
        .replace("    for epoch", '    load(model, optimizer, "last.pt")\n    for epoch')
        .replace("        print(e", '        save(model, optimizer, "last.pt")\n        print(e')
    )
    files = {"engine.py": ENGINE, "main.py": main, "probe.py": MAIN, "saving.py": saved}
    results = migrate(files)
    assert results["engine.py"].text == ENGINE_AFTER
    assert results["probe.py"].text == MAIN_AFTER
    assert changed(files, {"main.py": results["main.py"], "saving.py": results["saving.py"]}) == {
        "main.py": [
            SCALER.strip(),
            'load(model, optimizer, scaler, "last.pt")',
            "train_one_epoch(model, nn.CrossEntropyLoss(), data, optimizer, scaler, device, epoch, 1.0)",
            'save(model, optimizer, scaler, "last.pt")',
        ],
        "saving.py": [
            "def save(model, optimizer, scaler, path):",
            'torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), '
            '"scaler": scaler.state_dict()}, path)',
            "def load(model, optimizer, scaler, path):",
            'if state.get("scaler"):',
            'scaler.load_state_dict(state["scaler"])',
        ],
    }


def test_trainer_that_gets_the_optimizer_takes_the_scaler_along_where_it_is_saved_outside() -> None:
    files = {
        "trainer.py": """\
class Trainer:
    def __init__(self, model, optimizer, criterion, device):
        self.model = model
        self.optimizer = optimizer
        self.criterion = criterion
        self.device = device

    def train(self, loader):
        for x, y in loader:
            self.optimizer.zero_grad()
            loss = self.criterion(self.model(x.to(self.device)), y.to(self.device))
            loss.backward()
            self.optimizer.step()
""",
        "main.py": """\
import torch
from torch import nn
from trainer import Trainer

device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
model = nn.Linear(4, 2).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
trainer = Trainer(model, optimizer, nn.CrossEntropyLoss(), device)
trainer.train([(torch.randn(8, 4), torch.randint(0, 2, (8,)))])
torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, "last.pt")
""",
    }
    results = migrate(files)
    assert changed(files, results)["main.py"] == [
        SCALER.strip(),
        "trainer = Trainer(model, optimizer, scaler, nn.CrossEntropyLoss(), device)",
        'torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), '
        '"scaler": scaler.state_dict()}, "last.pt")',
    ]
    assert changed(files, results)["trainer.py"][:3] == [
        "import torch",
        "def __init__(self, model, optimizer, scaler, criterion, device):",
        "self.scaler = scaler",
    ]
    files["main.py"] = files["main.py"][: files["main.py"].index("torch.save")]
    results = migrate(files)
    assert results["main.py"].text == files["main.py"]
    assert "self.scaler = torch.amp.GradScaler(" in results["trainer.py"].text


def test_forward_and_loss_in_another_file() -> None:
    files = {
        "losses.py": "def compute(model, x, y):\n    return ((model(x) - y) ** 2).mean()\n",
        "main.py": """\
import torch
from losses import compute

device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
model = torch.nn.Linear(4, 2).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(3):
    x, y = torch.randn(8, 4).to(device), torch.randn(8, 2).to(device)
    optimizer.zero_grad()
    loss = compute(model, x, y)
    loss.backward()
    optimizer.step()
""",
    }
    results = migrate(files)
    assert results["main.py"].loops[0].status == "migrated"
    assert "enabled=scaler.is_enabled()):\n        loss = compute(model, x, y)\n" in results["main.py"].text
    assert "losses.py" not in results


def test_line_ends_stay_as_they_are() -> None:
    windows = ENGINE.replace("\n", "\r\n")
    results = migrate({"main.py": MAIN.removesuffix("\n"), "engine.py": windows})
    assert results["engine.py"].text == ENGINE_AFTER.replace("\n", "\r\n")
    assert results["main.py"].text == MAIN_AFTER.removesuffix("\n")
    mixed = windows.replace("\r\n", "\n", 1)
    found = reasons(migrate({"main.py": MAIN, "engine.py": mixed}))
    assert found[1].endswith("(line 1 of engine.py: its lines do not all end in the same way)")


def test_scaler_is_imported_with_a_global_optimizer() -> None:
    files = {
        "setup.py": f"""\
import torch

device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
model = torch.nn.Linear(4, 2).to(device)
{MADE}""",
        "main.py": """\
import torch
from setup import (
    device, model,
    optimizer,  # plain
)

for _ in range(3):
    loss = model(torch.randn(8, 4).to(device)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
""",
    }
    results = migrate(files)
    assert results["setup.py"].text == files["setup.py"] + SCALER
    assert changed(files, results)["main.py"][0] == "optimizer, scaler,  # plain"
    files["setup.py"] = files["setup.py"].replace(
        MADE, f"\n\ndef make():\n    global optimizer\n    {MADE}\n\nmake()\n"
    )
    assert reasons(migrate(files)) == ["main.py: `scaler` would be needed in main.py, and comes from another file"]


def test_a_switch_stands_in_the_file_that_others_import() -> None:
    engine, main = ENGINE, MAIN.replace("from engine import evaluate, train_one_epoch\n", "import engine\n")
    main = main.replace(" train_one_epoch(", " engine.train_one_epoch(").replace("(evaluate(", "(engine.evaluate(")
    files = {"main.py": main, "engine.py": engine}
    results = migrate(files, flag="use_amp")
    assert changed(files, results)["main.py"][:2] == [
        "from engine import use_amp",
        'scaler = torch.amp.GradScaler("cuda", enabled=use_amp and device.type == "cuda")',
    ]
    assert changed(files, results)["engine.py"] == [
        "use_amp = True",
        "def train_one_epoch(model, criterion, data_loader, optimizer, scaler, device, epoch, max_norm=0):",
        "with torch.autocast(device_type=device.type, dtype=torch.float16, enabled=scaler.is_enabled()):",
        "outputs = model(samples)",
        "loss = criterion(outputs, targets)",
        "scaler.scale(loss).backward()",
        "scaler.unscale_(optimizer)",
        "scaler.step(optimizer)",
        "scaler.update()",
        "with torch.autocast(",
        'device_type=device.type, dtype=torch.float16, enabled=use_amp and device.type == "cuda"',
        "):",
        "output = model(samples.to(device))",
    ]


def test_dtype_of_the_gpu_is_asked_by_one_function() -> None:
    files = {"main.py": MAIN, "engine.py": ENGINE}
    results = migrate(files, dtype="auto")
    assert results["engine.py"].text.count("def amp_dtype():") == 1
    assert changed(files, results)["main.py"][:2] == [
        "from engine import evaluate, train_one_epoch, amp_dtype",
        'scaler = torch.amp.GradScaler("cuda", enabled=device.type == "cuda" and amp_dtype() == torch.float16)',
    ]


def test_sigmoid_of_a_model_in_another_file() -> None:
    files = {
        "models.py": """\
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(4, 1)

    def forward(self, x):
        return torch.sigmoid(self.fc(x))
""",
        "main.py": """\
import torch
from models import Net

device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
model = Net().to(device)
criterion = torch.nn.BCELoss()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(3):
    out = model(torch.randn(8, 4).to(device))
    loss = criterion(out, torch.rand(8, 1).to(device))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
""",
    }
    results = migrate(files)
    assert changed(files, results)["models.py"] == ["return torch.sigmoid(self.fc(x).float())"]
    assert [loop.status for loop in results["main.py"].loops] == ["migrated"]
    assert "models.py, whose line" not in str(results)
    assert reasons(migrate(files, ["main.py"])) == [
        "main.py: line 10: BCELoss takes probabilities, which CUDA autocast forbids; let the model return logits and "
        "use BCEWithLogitsLoss"
    ]


def test_bfloat16_needs_no_other_file() -> None:
    results = migrate({"main.py": MAIN, "engine.py": ENGINE}, dtype="bfloat16")
    assert results["main.py"].text == MAIN
    assert 'dtype=torch.bfloat16, enabled=device.type == "cuda"' in results["engine.py"].text


# -- what is refused --------------------------------------------------------------------------------------------------


def test_one_file_of_two_is_refused_and_the_other_named() -> None:
    files = {"main.py": MAIN, "engine.py": ENGINE}
    assert reasons(migrate(files, ["engine.py"])) == [
        "engine.py: line 14: the optimizer comes as a parameter of `train_one_epoch`, which this file does not call; "
        "give `amplint migrate` the file that calls it too, or write the scaler by hand, beside the optimizer "
        "(it is called in `main.py`: give both: `amplint migrate main.py engine.py`)"
    ]
    assert reasons(migrate(files, ["main.py"])) == [
        "main.py: line 10: an optimizer is made here and nothing goes backward in this file; migrate the file that "
        "holds the training loop, and make the scaler there or beside this optimizer "
        "(that is `engine.py`: give both: `amplint migrate engine.py main.py`)"
    ]


def test_a_file_keeps_what_stands_against_it_where_one_that_it_imports_has_the_obstacle_too() -> None:
    """The linked text is refused at the first of both lines, which is in a file that does not train."""
    library = "import torch.distributed.rpc as rpc\n\n\ndef remote(f):\n    return rpc.rpc_sync('a', f)\n"
    main = (
        "import torch\nimport torch.distributed.autograd as dist_autograd\nimport library\n\n"
        "optimizer = torch.optim.SGD(library.remote(list), lr=0.1)\n"
        "with dist_autograd.context() as context:\n    dist_autograd.backward(context, [])\n    optimizer.step()\n"
    )
    assert reasons(migrate({"main.py": main, "library.py": library})) == [
        "main.py: line 2: distributed autograd has its own way of going backward"
    ]


def test_another_caller_in_the_project_is_named() -> None:
    files = {"main.py": MAIN, "engine.py": ENGINE, "probe.py": MAIN}
    assert reasons(migrate(files, ["engine.py", "main.py"])) == [
        "engine.py: `probe.py` calls what would change; give it too: `amplint migrate probe.py engine.py main.py`"
    ]


def test_a_file_whose_functions_others_call_is_refused_by_itself() -> None:
    whole = ENGINE + "\n\n" + MAIN[MAIN.index("def main") :].replace("nn.", "torch.nn.")
    assert migrate({"train.py": whole})["train.py"].text != whole
    files = {"train.py": whole, "sweep.py": "import train\n\ntrain.train_one_epoch(1, 2, 3, 4, 5, 6)\n"}
    assert reasons(migrate(files, ["train.py"])) == [
        "train.py: `sweep.py` calls what would change here; give both: `amplint migrate sweep.py train.py`"
    ]
    files["sweep.py"] = "import train\n\ntrain.evaluate(1, 2, 3)\n"
    assert migrate(files, ["train.py"])["train.py"].text != whole


def test_a_class_that_is_added_changes_no_method_of_another() -> None:
    old = "class Net:\n    def __init__(self, a):\n        pass\n\n    def forward(self, x):\n        return x\n"
    added = "class Added:\n    def forward(self, a, b):\n        return a\n\n\n"
    assert callers.changed(old, added + old) == set()
    assert callers.changed(old, old.replace("self, x", "self, scaler, x")) == {".forward"}
    assert callers.changed(old, old.replace("self, a", "self, scaler, a")) == {"Net"}


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        (
            "@keep\ndef",
            "",
            "engine.py: line 12: `train_one_epoch` may be called by what keeps it here, so its parameters can't "
            "change; call it by name",
        ),
        (
            "        train_one_epoch(model, nn.CrossEntropyLoss(), data, optimizer, device, epoch, 1.0)\n",
            "        run(train_one_epoch, model, nn.CrossEntropyLoss(), data, optimizer, device, epoch, 1.0)\n",
            "engine.py: line 13 of main.py: `train_one_epoch` is used otherwise than by a plain call, so its "
            "parameters can't change",
        ),
        (
            "data, optimizer, device, epoch, 1.0)",
            "data, *[optimizer, device, epoch, 1.0])",
            "engine.py: line 13 of main.py: the optimizer that `train_one_epoch` gets here can't be told",
        ),
        (
            "from engine import evaluate, train_one_epoch\n",
            "from engine import evaluate, train_one_epoch\n\nif True:\n    train_one_epoch = print\n",
            "engine.py: line 14: the optimizer comes as a parameter of `train_one_epoch`, which this file does not "
            "call; give `amplint migrate` the file that calls it too, or write the scaler by hand, beside the "
            "optimizer (line 3 of main.py: what `train_one_epoch` stands for can't be told from here)",
        ),
    ],
)
def test_calls_that_cannot_be_told(old: str, new: str, reason: str) -> None:
    engine = ENGINE
    if old == "@keep\ndef":
        kept = "kept = {}\n\n\ndef keep(function):\n    kept[function.__name__] = function\n    return function\n\n\n"
        engine = ENGINE.replace("def train", f"{kept}@keep\ndef train", 1)
    assert reason in reasons(migrate({"main.py": MAIN.replace(old, new), "engine.py": engine}))


def test_a_module_that_may_be_two_files() -> None:
    files = {"main.py": MAIN, "engine.py": ENGINE, "sub/main.py": MAIN, "sub/engine.py": ENGINE}
    results = migrate(files)
    assert [result.text for result in results.values()] == [MAIN_AFTER, ENGINE_AFTER] * 2
    found = reasons(migrate({**files, "sub/__init__.py": ""}))
    reason = "(line 3 of sub/main.py: what `train_one_epoch` stands for can't be told from here)"
    assert [text.endswith(reason) for text in found] == [True] * 4


WRAPPED = """import torch


class Warmup:
    def __init__(self, optimizer):
        self.optimizer = optimizer

    def step(self):
        self.optimizer.step()


"""
WRAPS = """import torch
import torch.nn.functional as F

model = torch.nn.Linear(4, 2).cuda()
opt = Warmup(torch.optim.SGD(model.parameters(), lr=0.1))
for x, y in batches:
    model.zero_grad()
    loss = F.mse_loss(model(x), y)
    loss.backward()
    opt.step()
"""


def test_a_class_around_an_optimizer_may_stand_in_another_file() -> None:
    files = {"warmup.py": WRAPPED, "main.py": "from warmup import Warmup\n" + WRAPS}
    found = changed(files, migrate(files))
    assert found["warmup.py"] == ["def step(self, scaler):", "scaler.step(self.optimizer)", "scaler.update()"]
    assert found["main.py"][-1] == "opt.step(scaler)"


def test_a_method_of_a_class_is_not_called_by_files_that_can_have_no_object_of_it() -> None:
    files = {"main.py": WRAPPED + WRAPS, "other.py": "import torch\n\ntorch.optim.SGD(p, lr=1).step()\n"}
    assert migrate(files, ["main.py"])["main.py"].text != files["main.py"]
    files["third.py"] = "import main\nimport other\n\nother.go(main.Warmup(1))\n"
    assert reasons(migrate(files, ["main.py"])) == [
        "main.py: `other.py` calls what would change here; give both: `amplint migrate other.py main.py`"
    ]


def test_command_writes_both_files_or_none(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    for name, text in (("main.py", MAIN), ("engine.py", ENGINE)):
        Path(name).write_text(text, encoding="utf-8")
    with monkeypatch.context() as patched:
        patched.setattr("amplint.files.os.access", lambda path, mode: not path.endswith("main.py"))
        assert main(["migrate", "--apply", "."]) == 2
    assert (Path("main.py").read_text(), Path("engine.py").read_text()) == (MAIN, ENGINE)
    assert "amplint: engine.py and main.py: main.py can't be written: it is read-only" in capsys.readouterr().err
    assert main(["migrate", "--output-format", "json", "--apply", "."]) == 0
    assert (Path("main.py").read_text(), Path("engine.py").read_text()) == (MAIN_AFTER, ENGINE_AFTER)
    entries = json.loads(capsys.readouterr().out)
    assert [(entry["file"], entry["line"], bool(entry["edits"])) for entry in entries] == [
        ("engine.py", 6, True),
        ("engine.py", 22, True),
        ("main.py", 11, True),
    ]
    assert main(["check", "."]) == 0
