"""Similarities, distances and losses by hand, as metric and contrastive learning have them."""

from __future__ import annotations

import textwrap

import pytest

from amplint.migrate import migrate_source
from tests.migrate.test_refusals import HEAD

LOOP = """
for x, y in batches:
    out = model(x)
{lines}
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""

LOGARITHM = (
    "a logarithm is taken by hand of a value that half precision may have rounded to 0 or 1; use log_softmax, "
    "logsigmoid or a loss that takes logits"
)


def written(lines: str) -> list[str]:
    """The statements of the region, or the reason of a refusal without its line."""
    text = HEAD + LOOP.format(lines=textwrap.indent(lines, "    "))
    result = migrate_source(text, "train.py")
    if result.text == text:
        return [result.loops[0].reason.split(": ", 1)[1]]
    start = result.text.index("        out = model(x)\n")
    return textwrap.dedent(result.text[start : result.text.index("    optimizer.zero_grad()")]).splitlines()[1:]


@pytest.mark.parametrize(
    ("lines", "after"),
    [
        # bounds and masks outside of float16
        (
            "loss = (out - y).pow(2).mean() + out.clamp(min=1e-12).sqrt().mean()",
            ["loss = (out - y).pow(2).mean() + out.float().clamp(min=1e-12).sqrt().mean()"],
        ),
        ("loss = torch.clamp(out * y, max=1e12).mean()", ["loss = torch.clamp((out * y).float(), max=1e12).mean()"]),
        ("loss = out.clamp(-1, 1).mean()", ["loss = out.clamp(-1, 1).mean()"]),
        (
            "scores = out / 0.1\nscores.masked_fill_(y > 0, -9e15)\nloss = F.cross_entropy(scores, y)",
            [
                "scores = out / 0.1",
                "scores = scores.float().masked_fill(y > 0, -9e15)",
                "loss = F.cross_entropy(scores, y)",
            ],
        ),
        (
            "scores = out.view(4, -1)\nscores[y > 0] = -1e9\nloss = F.cross_entropy(scores, y)",
            ["scores = out.view(4, -1).float()", "scores[y > 0] = -1e9", "loss = F.cross_entropy(scores, y)"],
        ),
        (
            "table = torch.zeros(4, 4)\ntable[0, 0] = -1e9\nloss = (out + table).mean()",
            ["table = torch.zeros(4, 4)", "table[0, 0] = -1e9", "loss = (out + table).mean()"],
        ),
        (
            "scores = out + 1\nif y.sum() > 0:\n    scores = scores * 2\nscores[y > 0] = -1e9\nloss = scores.mean()",
            ["values are written into a tensor that may be of half precision; use --dtype bfloat16"],
        ),
        # logarithms of exponentials, which CUDA computes in float32
        (
            "same = torch.exp(out[:, 0] / 0.1)\nevery = torch.exp(out / 0.1)\n"
            "loss = -torch.log(same / every.sum(1)).mean()",
            [
                "same = torch.exp((out[:, 0] / 0.1).float())",
                "every = torch.exp((out / 0.1).float())",
                "loss = -torch.log(same / every.sum(1)).mean()",
            ],
        ),
        (
            "loss = -torch.log(out / out.sum(1, keepdim=True)).mean()",
            [LOGARITHM],
        ),
        (
            "p = F.softmax(out, dim=1)\nloss = -torch.log(1 - p).mean()",
            ["p = F.softmax(out.float(), dim=1)", "loss = -torch.log(1 - p).mean()"],
        ),
        # products of a matrix with itself
        (
            "f = F.normalize(out, dim=1)\nloss = torch.matmul(f, f.T).mean()",
            ["f = F.normalize(out, dim=1)", "loss = torch.matmul(f, f.T).mean()"],
        ),
        (
            "f = torch.cat([F.normalize(out), F.normalize(y)])\nloss = (f @ f.t()).mean()",
            ["f = torch.cat([F.normalize(out), F.normalize(y)])", "loss = (f @ f.t()).mean()"],
        ),
        (
            "loss = (out @ out.T).mean()",
            [
                "with torch.autocast(device_type=out.device.type, enabled=False):",
                "    loss = (out.float() @ out.float().T).mean()",
            ],
        ),
        (
            "loss = torch.mm(out, out.t().contiguous()).mean() * out.sum()",
            [
                "with torch.autocast(device_type=out.device.type, enabled=False):",
                "    loss = torch.mm(out.float(), out.float().t().contiguous()).mean() * out.float().sum()",
            ],
        ),
        *(
            (
                f"loss = ({product}).mean()",
                ["Gram matrices of images exceed the range of float16; use --dtype bfloat16"],
            )
            for product in (
                "model(x) @ out.T @ (out @ out.T)",
                "torch.mm(out.exp(), out.exp().t())",
                "gram_matrix(out)",
            )
        ),
    ],
)
def test_in_a_region(lines: str, after: list[str]) -> None:
    assert written(lines) == after


def test_rows_that_a_model_normalizes_are_known() -> None:
    text = """\
import torch
from torch import nn
import torch.nn.functional as F

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.f = nn.Linear(4, 2)

    def forward(self, x):
        h = self.f(x)
        return h, F.normalize(h, dim=-1)

net = Net().cuda()
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for x, y in batches:
    h, z = net(x)
    loss = torch.mm({factor}, {factor}.t()).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""
    assert "autocast" in migrate_source(text.format(factor="z"), "train.py").text
    new = migrate_source(text.format(factor="h"), "train.py").text
    assert new.count("enabled=False):\n            loss = torch.mm(h.float(), h.float().t()).mean()\n") == 1
