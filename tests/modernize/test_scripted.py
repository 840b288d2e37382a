"""Code that TorchScript compiles is reported and left as it is."""

from __future__ import annotations

import pytest

from amplint import check_source, fix_source
from amplint.settings import Settings

ONLY = Settings(select=("AMP001",))
REASON = "not rewritten: TorchScript may compile this code, which has rules of its own for autocast"

DECORATED = """\
import torch


@torch.jit.script
def scripted(x):
    with torch.cuda.amp.autocast(False):
        return helper(x)


def helper(x):
    with torch.cuda.amp.autocast(False):
        return x


def train(model):
    scaler = torch.cuda.amp.GradScaler()
    with torch.cuda.amp.autocast():
        return scaler, model
"""

CALLED = """\
import torch
from torch import jit


class Net(torch.nn.Module):
    def forward(self, x):
        with torch.cuda.amp.autocast(False):
            return x


def other():
    with torch.cuda.amp.autocast(False):
        pass


net = Net()
jit.script(net.eval()).save("net.pt")
"""

UNKNOWN = """\
import torch


def export(model):
    with torch.cuda.amp.autocast(False):
        return torch.jit.script(model)


scaler = torch.cuda.amp.GradScaler()
context = torch.cuda.amp.autocast()
"""

METHOD = """\
import torch


class Net(torch.jit.ScriptModule):
    @torch.jit.script_method
    def forward(self, x):
        with torch.cuda.amp.autocast(False):
            return x
"""

IMPORTED = """\
from torch.cuda.amp import GradScaler, autocast
from torch.jit import script


@script
def scripted(x):
    with autocast(False):
        return x


scaler = GradScaler()
"""

TRACED = """\
import torch


def f(x):
    with torch.cuda.amp.autocast(False):
        return x


torch.jit.trace(f, torch.ones(1))
"""


@pytest.mark.parametrize(
    ("text", "found", "kept"),
    [
        (DECORATED, [6, 11, 16, 17], [6, 11]),
        (CALLED, [7, 12], [7]),
        (UNKNOWN, [5, 9, 10], [5]),
        (METHOD, [7], [7]),
        (TRACED, [5], []),
    ],
    ids=["decorated", "called", "unknown", "method", "traced"],
)
def test_what_may_be_scripted_stays(text: str, found: list[int], kept: list[int]) -> None:
    assert [d.location.row for d in check_source(text, "t.py", ONLY)] == found
    result = fix_source(text, "t.py", ONLY, unsafe=True)
    assert [(d.location.row, d.help) for d in result.remaining] == [(row, REASON) for row in kept]


def test_an_import_that_scripted_code_uses_stays() -> None:
    text = fix_source(IMPORTED, "t.py", ONLY).text
    assert text == IMPORTED.replace(
        "from torch.cuda.amp import GradScaler, autocast\n",
        "from torch.amp import GradScaler\nfrom torch.cuda.amp import autocast\n",
    ).replace("GradScaler()", 'GradScaler("cuda")')
