"""Normalization with computed weights takes all of them in float32; spectral normalization by hand keeps float32."""

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


SPECTRAL = """
def l2normalize(v, eps=1e-12):
    return v / (v.norm() + eps)

class Spectral(nn.Module):
    def __init__(self, module):
        super().__init__()
        self.module = module
        w = module.weight
        self.u = nn.Parameter(l2normalize(w.data.new(w.shape[0]).normal_()), requires_grad=False)
        self.v = nn.Parameter(l2normalize(w.data.new(w.shape[1]).normal_()), requires_grad=False)
        self.bar = nn.Parameter(w.data)
        del module._parameters["weight"]

    def update(self):
        self.v.data = l2normalize(torch.mv(self.bar.t().data, self.u.data))
        self.u.data = l2normalize(torch.mv(self.bar.data, self.v.data))
        self.u.data = l2normalize(self.u.data)
        self.bar.data = self.bar.data * 0.999 + self.bar.data * 0.001
        self.module.weight = self.bar / self.u.dot(self.bar.mv(self.v)).expand_as(self.bar)

    def forward(self, x):
        self.update()
        return self.module(x)

model = Spectral(nn.Linear(4, 2)).to(device)
optimizer = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=0.1)
"""


def test_spectral_normalization_by_hand_keeps_float32() -> None:
    result = migrate_source(HEAD + SPECTRAL + LOOP, "train.py")
    assert [loop.status for loop in result.loops] == ["migrated"], result.loops
    assert [line.strip() for line in result.text.splitlines() if ".data = " in line] == [
        "self.v.data = l2normalize(torch.mv(self.bar.t().data, self.u.data)).float()",
        "self.u.data = l2normalize(torch.mv(self.bar.data, self.v.data)).float()",
        "self.u.data = l2normalize(self.u.data)",
        "self.bar.data = self.bar.data * 0.999 + self.bar.data * 0.001",
    ]
