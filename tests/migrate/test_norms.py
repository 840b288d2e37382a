"""Batch normalization with computed weights takes all of them in float32."""

from __future__ import annotations

import pytest

from amplint.migrate import migrate_source
from tests.migrate.test_refusals import HEAD

FROM_OUTSIDE = """
class AdaIN(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.weight = None
        self.bias = None
        self.register_buffer("mean", torch.zeros(features))
        self.register_buffer("var", torch.ones(features))

    def forward(self, x):
        b, c, h, w = x.shape
        flat = x.reshape(1, b * c, h, w)
        return F.batch_norm(flat, self.mean.repeat(b), self.var.repeat(b), self.weight, self.bias, True).view_as(x)

class Decoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3)
        self.norm = AdaIN(4)
        self.mlp = nn.Linear(2, 8)

    def forward(self, x, style):
        scale = self.mlp(style)
        self.norm.weight = scale[:, :4].reshape(-1)
        self.norm.bias = scale[:, 4:].reshape(-1)
        return self.norm(self.conv(x))
"""
OWN = """
class Conditional(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.gain = nn.Linear(2, features)
        self.bias = nn.Parameter(torch.zeros(features))

    def forward(self, x, y):
        gain = self.gain(y).mean(0)
        return F.instance_norm(x, weight=gain, bias=self.bias)
"""
PLAIN = """
class Plain(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(features))
        self.bias = nn.Parameter(torch.zeros(features))

    def forward(self, x):
        return F.batch_norm(x, None, None, self.weight, self.bias, True)
"""
LOOP = """
for x, y in batches:
    optimizer.zero_grad()
    loss = F.mse_loss(model(x), y)
    loss.backward()
    optimizer.step()
"""


@pytest.mark.parametrize(
    ("code", "call"),
    [
        (
            FROM_OUTSIDE,
            "F.batch_norm(flat.float(), self.mean.repeat(b), self.var.repeat(b), self.weight.float(), "
            "self.bias.float(), True)",
        ),
        (OWN, "F.instance_norm(x.float(), weight=gain.float(), bias=self.bias)"),
        (PLAIN, "F.batch_norm(x, None, None, self.weight, self.bias, True)"),
    ],
)
def test_computed_weights_and_their_input_become_float32(code: str, call: str) -> None:
    result = migrate_source(HEAD + code + LOOP, "train.py")
    assert [loop.status for loop in result.loops] == ["migrated"], result.loops
    assert call in result.text
