"""Helpers in other files of the run: followed like those of the file, blamed on the call in the file."""

from __future__ import annotations

from pathlib import Path

import pytest

from amplint.flow.violations import find
from amplint.model import Label
from amplint.modules import Project
from amplint.settings import DEFAULT
from amplint.source import SourceFile

OPTIM = """\
import torch


def shrink(model, limit):
    torch.nn.utils.clip_grad_norm_(model.parameters(), limit)


def shrink_unscaled(model, opt, scaler, limit):
    scaler.unscale_(opt)
    shrink(model, limit)


def finish(scaler, opt):
    scaler.step(opt)
    scaler.update()


def wrong_by_itself(model, opt, scaler, loss):
    scaler.scale(loss).backward()
    shrink(model, 1.0)
    scaler.step(opt)
    scaler.update()
"""
MISC = """\
import torch
from torch.amp import GradScaler
from .optim import finish


class Scaler:
    def __init__(self):
        self.inner = GradScaler()

    def __call__(self, loss, optimizer, clip=None, parameters=None):
        self.inner.scale(loss).backward()
        if clip is not None:
            self.inner.unscale_(optimizer)
            torch.nn.utils.clip_grad_norm_(parameters, clip)
        finish(self.inner, optimizer)
"""
HEAD = """\
from torch.amp import GradScaler
{imports}


def train(model, opt, loader, loss_fn):
    scaler = GradScaler()
    for x in loader:
        opt.zero_grad()
        scaler.scale(loss_fn(model(x))).backward()
"""
STEP = "        scaler.step(opt)\n        scaler.update()\n"


@pytest.fixture(autouse=True)
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("utils").mkdir()
    Path("utils/__init__.py").write_text("from .optim import shrink\n")
    Path("utils/optim.py").write_text(OPTIM)
    Path("utils/misc.py").write_text(MISC)


def analyse(text: str, *missing: str) -> tuple[SourceFile, list[tuple[int, str, bool, list[tuple[int, str]]]]]:
    paths = {"train.py", "utils/__init__.py", "utils/optim.py", "utils/misc.py"}.difference(missing)
    file = SourceFile(text, "train.py", DEFAULT, Project(paths))

    def shown(label: Label) -> tuple[int, str]:
        return file.row(label.span.start), label.message

    return file, [(file.row(v.span.start), v.kind, v.certain, [shown(label) for label in v.labels]) for v in find(file)]


CLIPPED = [
    (10, "clip-before-unscale", True, [(9, "gradients are scaled here"), (10, "clipped in utils/optim.py:5")]),
]


@pytest.mark.parametrize(
    ("imports", "call"),
    [
        ("from utils.optim import shrink", "shrink(model, 1.0)"),
        ("from utils import shrink", "shrink(model, 1.0)"),
        ("from utils import optim as o", "o.shrink(model, 1.0)"),
        ("import utils.optim", "utils.optim.shrink(model, 1.0)"),
        ("import utils", "utils.shrink(model, limit=1.0)"),
        ("from .utils.optim import shrink as clip_it", "clip_it(model, 1.0)"),
    ],
)
def test_a_clip_in_another_file(imports: str, call: str) -> None:
    text = HEAD.format(imports=imports) + f"        {call}\n{STEP}"
    assert analyse(text)[1] == CLIPPED
    assert analyse(text, "utils/optim.py")[1] == []


def test_helpers_that_do_it_right_are_silent() -> None:
    text = HEAD.format(imports="from utils.optim import finish, shrink_unscaled")
    text += "        shrink_unscaled(model, opt, scaler, 1.0)\n        finish(scaler, opt)\n"
    assert analyse(text)[1] == []


def test_what_is_wrong_within_the_other_file_is_reported_there() -> None:
    text = "from torch.amp import GradScaler\nfrom utils.optim import wrong_by_itself\n\n\n"
    text += "def train(model, opt, loader, loss_fn):\n    scaler = GradScaler()\n    for x in loader:\n"
    text += "        opt.zero_grad()\n        wrong_by_itself(model, opt, scaler, loss_fn(model(x)))\n"
    assert analyse(text)[1] == []


def test_a_step_after_the_helper_stepped() -> None:
    text = HEAD.format(imports="from utils.optim import finish") + "        finish(scaler, opt)\n        opt.step()\n"
    expected = [(9, "gradients are scaled here"), (10, "unscaled or stepped in utils/optim.py:14")]
    assert analyse(text)[1] == [(11, "double-step", True, expected)]


WRAPPED = """\
from utils.misc import Scaler


def train(model, opt, loader, loss_fn):
    scaler = Scaler()
    for x in loader:
        opt.zero_grad()
        scaler(loss_fn(model(x)), opt, clip=1.0, parameters=model.parameters())
"""


def test_a_wrapper_that_is_called() -> None:
    assert analyse(WRAPPED)[1] == []
    labels = [(8, "gradients are scaled in utils/misc.py:11"), (8, "unscaled or stepped in utils/optim.py:14")]
    assert analyse(WRAPPED + "        opt.step()\n")[1] == [(9, "double-step", True, labels)]


def test_what_was_asked_is_remembered() -> None:
    file, _ = analyse(WRAPPED)
    assert file.lookups == {("utils.misc", "train.py"): "utils/misc.py", (".optim", "utils/misc.py"): "utils/optim.py"}
    file, _ = analyse(WRAPPED, "utils/misc.py")
    assert file.lookups == {("utils.misc", "train.py"): ""}


def test_without_a_project_nothing_is_looked_into() -> None:
    file = SourceFile(HEAD.format(imports="from utils.optim import shrink"), "train.py", DEFAULT)
    assert (find(file), file.lookups) == ([], {})


def test_another_file_that_does_not_parse_is_left_alone() -> None:
    Path("utils/optim.py").write_text(OPTIM + "def broken(:\n")
    text = HEAD.format(imports="from utils.optim import shrink") + f"        shrink(model, 1.0)\n{STEP}"
    assert analyse(text)[1] == []
