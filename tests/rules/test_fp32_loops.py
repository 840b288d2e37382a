"""AMP901 and AMP902: the migration as a fix."""

from __future__ import annotations

from pathlib import Path

import pytest

from amplint import check_source, fix_source
from amplint.settings import Settings

FIXTURES = Path(__file__).parent.parent.parent / "fixtures"
TRAINING = Settings(select=("AMP901",))
EVALUATION = Settings(select=("AMP902",))


@pytest.mark.parametrize("name", ["gan", "class_trainer", "train_function", "vae"])
def test_the_fix_is_what_migrate_writes(name: str) -> None:
    before = (FIXTURES / name / "before.py").read_text(encoding="utf-8")
    after = (FIXTURES / name / "after.py").read_text(encoding="utf-8")
    assert fix_source(before, "train.py", TRAINING, unsafe=True).text == after
    assert fix_source(before, "train.py", TRAINING).text == before


def test_a_refused_loop_is_reported_without_a_fix() -> None:
    body = "    for x in batches:\n        net(x).mean().backward()\n"
    text = f"import torch\n\n\ndef train(net, optimizer, batches):\n{body}"
    found = check_source(text, "train.py", TRAINING)
    assert [(d.code, d.location.row, d.location.column, d.fix) for d in found] == [("AMP901", 5, 5, None)]
    assert found[0].help.startswith("not migrated: line 6: ")


def test_code_under_amp_is_silent() -> None:
    after = (FIXTURES / "gan" / "after.py").read_text(encoding="utf-8")
    assert check_source(after, "train.py", TRAINING) == []


EVALUATE = """\
import torch


def train(net, batches, optimizer, scaler, device: torch.device):
    for x, y in batches:
        optimizer.zero_grad()
        with torch.autocast(device_type=device.type, dtype=torch.float16):
            loss = torch.nn.functional.cross_entropy(net(x), y)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()


def evaluate(net, batches, device: torch.device):
    correct = 0
    with torch.no_grad():
        for x, y in batches:
            output = net(x.to(device))
            correct += USE
    return correct
"""


def test_an_order_is_evaluated_under_autocast() -> None:
    text = EVALUATE.replace("USE", "(output.argmax(1) == y).sum().item()")
    fixed = fix_source(text, "train.py", EVALUATION, unsafe=True).text
    assert fixed == text.replace(
        "            output = net(x.to(device))\n",
        "            with torch.autocast("
        'device_type=device.type, dtype=torch.float16, enabled=device.type == "cuda"):\n'
        "                output = net(x.to(device))\n",
    )


def test_a_threshold_stays_in_float32() -> None:
    assert check_source(EVALUATE.replace("USE", "(output > 0.5).sum().item()"), "train.py", EVALUATION) == []


def test_without_training_under_amp_nothing_is_said() -> None:
    text = EVALUATE.replace("USE", "output.argmax(1).sum().item()").replace("scaler.scale(loss)", "loss")
    text = text.replace("        with torch.autocast(device_type=device.type, dtype=torch.float16):\n    ", "")
    assert check_source(text, "train.py", EVALUATION) == []
