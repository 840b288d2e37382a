"""Parameters that an optimizer gets twice in one group, of which torch only warns."""

from __future__ import annotations

from pathlib import Path

import pytest

from amplint.migrate import Options, migrate_source

REASON = (
    "this optimizer gets parameters of models that share them twice, and would have their gradients unscaled twice; "
    "give each parameter once"
)
HEAD = """\
import itertools
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self, shared=None):
        super().__init__()
        self.shared = shared
        self.fc = nn.Linear(4, 4)

    def forward(self, x):
        return self.fc(x) if self.shared is None else self.fc(self.shared(x))

"""
LOOP = """
for x, y in batches:
    optimizer.zero_grad()
    loss = nn.functional.mse_loss(one(x) + two(x), y)
    loss.backward()
    optimizer.step()
"""
TWICE = {
    "models made with the same part": """
shared = nn.Linear(4, 4)
one, two = Net(shared=shared), Net(shared)
optimizer = torch.optim.Adam(itertools.chain(one.parameters(), two.parameters()))
""",
    "a model and a part of it": """
one = Net()
two = one.fc
optimizer = torch.optim.Adam(list(one.parameters()) + list(one.fc.parameters()))
""",
    "a list that grows": """
shared = Net()
one = Net(shared)
two = nn.Linear(4, 4)
params = list(one.parameters())
params += list(two.parameters())
params.extend(shared.parameters())
optimizer = torch.optim.Adam(params)
""",
    "a part that is set": """
one, two = Net(), Net()
two.fc.weight = one.fc.weight
optimizer = torch.optim.Adam([*one.parameters(), *two.parameters()])
""",
    "models in turn": """
shared = nn.Linear(4, 4)
one, two = Net(shared), Net(shared)
optimizer = torch.optim.Adam([p for net in (one, two) for p in net.parameters()])
""",
    "one group of several": """
one, two = Net(), Net()
optimizer = torch.optim.Adam(
    [{"params": itertools.chain(one.parameters(), one.parameters())}, {"params": two.parameters()}]
)
""",
}
ONCE = {
    "models with parts of their own": """
one, two = Net(nn.Linear(4, 4)), Net(nn.Linear(4, 4))
optimizer = torch.optim.Adam(itertools.chain(one.parameters(), two.parameters()))
""",
    "a part that is frozen": """
shared = nn.Linear(4, 4)
for p in shared.parameters():
    p.requires_grad = False
one, two = Net(shared), Net(shared)
optimizer = torch.optim.Adam(itertools.chain(one.parameters(), two.parameters()))
""",
    "a set": """
shared = nn.Linear(4, 4)
one, two = Net(shared), Net(shared)
optimizer = torch.optim.Adam(set(itertools.chain(one.parameters(), two.parameters())))
""",
    "parameters that are filtered": """
one = Net()
two = nn.Linear(4, 4)
biases = [p for n, p in one.named_parameters() if "bias" in n]
weights = [p for n, p in one.named_parameters() if "bias" not in n]
optimizer = torch.optim.Adam(biases + weights + list(two.parameters()))
""",
    "parts beside each other": """
one = Net(nn.Linear(4, 4))
two = nn.Linear(4, 4)
optimizer = torch.optim.Adam([*one.fc.parameters(), *one.shared.parameters(), *two.parameters()])
""",
    "a setting that both models get": """
size = dict(shared=None)
one, two = Net(**size), Net(**size)
optimizer = torch.optim.Adam(itertools.chain(one.parameters(), two.parameters()))
""",
}


@pytest.mark.parametrize("body", TWICE.values(), ids=TWICE)
def test_parameters_that_stand_twice_are_refused(body: str) -> None:
    text = HEAD + body + LOOP
    result = migrate_source(text, "train.py")
    row = next(number for number, line in enumerate(text.splitlines(), 1) if line.startswith("optimizer ="))
    assert (result.text, [loop.reason for loop in result.loops]) == (text, [f"line {row}: {REASON}"])


@pytest.mark.parametrize("body", ONCE.values(), ids=ONCE)
def test_parameters_that_stand_once_are_no_obstacle(body: str) -> None:
    result = migrate_source(HEAD + body + LOOP, "train.py")
    assert [loop.status for loop in result.loops] == ["migrated"], result.loops


def test_without_a_scaler_nothing_is_unscaled() -> None:
    text = HEAD + TWICE["models made with the same part"] + LOOP
    assert [loop.status for loop in migrate_source(text, "train.py", options=Options(dtype="bfloat16")).loops] == [
        "migrated"
    ]


@pytest.mark.parametrize("imported", ["from parts import *", "from parts import Block, Coder"])
def test_parts_of_other_files_count(tmp_path: Path, imported: str) -> None:
    (tmp_path / "parts.py").write_text(
        "from torch import nn\n\nclass Block(nn.Module):\n    pass\n\nclass Coder(nn.Module):\n    pass\n\n"
        "class Config:\n    pass\n"
    )
    script = tmp_path / "train.py"
    for given, expected in (("Block()", "refused"), ("Config()", "migrated")):
        text = (
            f"import itertools\nimport torch\nfrom torch import nn\n{imported}\n\n"
            f"given = {given}\none, two = Coder(given), Coder(given)\n"
            "optimizer = torch.optim.Adam(itertools.chain(one.parameters(), two.parameters()))\n" + LOOP
        )
        script.write_text(text)
        result = migrate_source(text, str(script))
        assert [loop.status for loop in result.loops] == [expected], result.loops
