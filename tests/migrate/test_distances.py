"""Squared distances by products run in float32."""

from __future__ import annotations

import textwrap

import pytest

from tests.migrate.test_hazards import migrated

SCRIPT = """
def distance(a, b):
{body}

for x, y in batches:
    out = model(x)
    loss = distance(out, y).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""
ISLAND = "    with torch.autocast(device_type=a.device.type, enabled=False):\n"


@pytest.mark.parametrize(
    ("body", "product"),
    [
        (
            "dist = -2 * torch.matmul(a, b.permute(1, 0))\ndist += torch.sum(a ** 2, -1).view(8, 1)\nreturn dist",
            "dist = -2 * torch.matmul(a.float(), b.float().permute(1, 0))",
        ),
        (
            "cross = a @ b.t()\nreturn a.pow(2).sum(1, keepdim=True) + b.pow(2).sum(1) - 2.0 * cross",
            "cross = a.float() @ b.float().t()",
        ),
        (
            "cross = torch.mm(a, b.T)\nreturn torch.square(a.float()).sum(1) - cross * 2",
            "cross = torch.mm(a.float(), b.float().T)",
        ),
    ],
)
def test_the_product_has_an_island(body: str, product: str) -> None:
    text = migrated(SCRIPT.format(body=textwrap.indent(body, "    ")))
    assert f"{ISLAND}        {product}\n" in text


@pytest.mark.parametrize(
    "body",
    [
        "return 2 * torch.matmul(a, b.t())",  # nothing cancels out
        "return torch.matmul(a, b.t()) + a.pow(2).sum()",
        "return model(a).pow(2).sum() - 2 * torch.matmul(model(a), b.t())",  # more than the product
    ],
)
def test_other_products_are_left(body: str) -> None:
    text = migrated(SCRIPT.format(body=textwrap.indent(body, "    ")))
    assert "enabled=False" not in text


def test_the_weight_of_a_codebook_is_float32_already() -> None:
    text = migrated(
        """
        class Quantizer(nn.Module):
            def __init__(self):
                super().__init__()
                self.codes = nn.Embedding(16, 2)

            def forward(self, flat):
                return flat.pow(2).sum(1, keepdim=True) - 2 * torch.matmul(flat, self.codes.weight.t())

        quantizer = Quantizer().to(device)
        for x, y in batches:
            loss = quantizer(model(x)).min(1)[0].mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        """
    )
    assert (
        "        with torch.autocast(device_type=flat.device.type, enabled=False):\n"
        "            return flat.float().pow(2).sum(1, keepdim=True) - "
        "2 * torch.matmul(flat.float(), self.codes.weight.t())\n"
    ) in text
