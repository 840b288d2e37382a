"""Losses in a model's forward: targets that it gets besides its input are not of half precision, nor are buffers that
values are written into."""

from __future__ import annotations

import pytest

from amplint.migrate import migrate_source
from tests.migrate.test_refusals import HEAD

DETECTOR = """
class Head(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 1)

    def offsets(self, size):
        self.stride = 32 / size

    def forward(self, x, {parameters}):
        out = self.conv(x)
        self.offsets(out.size(2))
        {lines}
        return F.mse_loss(out.mean((2, 3)), wanted)

class Detector(nn.Module):
    def __init__(self):
        super().__init__()
        self.heads = nn.ModuleList([Head(), Head()])

    def forward(self, x, targets):
        loss = 0
        for head in self.heads:
            loss = loss + head({given})
        return loss

model = Detector().to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x, y in batches:
    optimizer.zero_grad()
    loss = model(x, y)
    loss.backward()
    optimizer.step()
"""
LOGARITHM = "wanted = torch.log(targets / self.stride + 1e-16)"
BUFFER = """wanted = torch.zeros_like(targets)
        wanted[:, 0] = out.mean((1, 2, 3))
        wanted = wanted / (wanted.sum() + 1e-16)"""


@pytest.mark.parametrize("lines", [LOGARITHM, BUFFER])
def test_targets_stay_in_float32(lines: str) -> None:
    text = HEAD + DETECTOR.format(parameters="targets", lines=lines, given="x, targets")
    result = migrate_source(text, "train.py")
    assert [loop.status for loop in result.loops] == ["migrated"], result.loops
    assert lines in result.text


@pytest.mark.parametrize(
    ("parameters", "given"),
    [("targets", "x, x * head(x, targets)"), ("targets", "*(x, targets)"), ("targets", "x, **{'targets': targets}")],
)
def test_what_a_region_computes_or_can_not_be_seen_may_be_half(parameters: str, given: str) -> None:
    text = HEAD + DETECTOR.format(parameters=parameters, lines=LOGARITHM, given=given)
    result = migrate_source(text, "train.py")
    assert [loop.status for loop in result.loops] == ["refused"]
    assert "a logarithm is taken by hand" in result.loops[0].reason


def test_a_first_parameter_comes_from_containers_too() -> None:
    lines = "wanted = torch.log(x.mean((2, 3)) + 1e-16)"
    text = HEAD + DETECTOR.format(parameters="targets", lines=lines, given="x, targets")
    assert [loop.status for loop in migrate_source(text, "train.py").loops] == ["refused"]


def test_items_of_a_list_may_be_half() -> None:
    lines = "parts = [0, 0]\n        parts[0] = out\n        wanted = parts[0].mean((2, 3)) + 1e-16"
    text = HEAD + DETECTOR.format(parameters="targets", lines=lines, given="x, targets")
    result = migrate_source(text, "train.py")
    assert "        wanted = parts[0].float().mean((2, 3)) + 1e-16\n" in result.text
