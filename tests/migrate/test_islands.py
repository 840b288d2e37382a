"""Angles of cosines and linear algebra: the products that they are computed of run in fp32 islands."""

from __future__ import annotations

import pytest

from amplint.migrate import migrate_source
from tests.migrate.test_hazards import refusal
from tests.migrate.test_refusals import HEAD

LOOP = """
class Margin(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(3, 2))

    def forward(self, v):
        {first}
        return {result}

margin = Margin().to(device)
{setup}
for x, y in batches:
    out = model(x)
    loss = {loss}
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""
ISLAND = "with torch.autocast(device_type=v.device.type, enabled=False):"
COSINE = "cosine = F.linear(F.normalize(v), F.normalize(self.weight))"
BEYOND = (
    "a value that half precision may have rounded beyond 1 goes into `{}`, which is NaN there; compute it in float32, "
    "with `.float()`"
)
HALF = "`{}` does not take half precision on CUDA"
ALGEBRA = "linear algebra in half precision is not implemented on CUDA"


def script(first: str = "pass", result: str = "v", loss: str = "margin(out).mean()", setup: str = "") -> str:
    return LOOP.format(first=first, result=result, loss=loss, setup=setup)


def migrated(body: str) -> str:
    result = migrate_source(HEAD + body, "train.py")
    assert {report.status for report in result.loops} == {"migrated"}, result.loops
    return result.text


@pytest.mark.parametrize(
    ("first", "result", "island"),
    [
        (
            COSINE,
            "torch.sqrt(1.0 - cosine ** 2)",
            "cosine = F.linear(F.normalize(v.float()), F.normalize(self.weight))",
        ),
        (
            COSINE,
            "torch.acos(cosine.clamp(-1, 1))",
            "cosine = F.linear(F.normalize(v.float()), F.normalize(self.weight))",
        ),
        (
            "cosine = F.normalize(v) @ F.normalize(self.weight).t()",
            "cosine.acos()",
            "cosine = F.normalize(v.float()) @ F.normalize(self.weight).t()",
        ),
        (
            "cosine = torch.mm(v / v.norm(dim=1, keepdim=True), self.weight.t())",
            "cosine.acos()",
            "cosine = torch.mm(v.float() / v.float().norm(dim=1, keepdim=True), self.weight.t())",
        ),
    ],
)
def test_a_cosine_is_computed_in_float32(first: str, result: str, island: str) -> None:
    assert f"        {ISLAND}\n            {island}\n        return {result}\n" in migrated(script(first, result))


def test_unit_vectors_with_a_name_are_float32_from_the_start() -> None:
    first = "u = F.normalize(v)\n        cosine = F.linear(u, F.normalize(self.weight))"
    text = migrated(script(first, "cosine.acos()"))
    assert (
        "        u = F.normalize(v.float())\n"
        "        with torch.autocast(device_type=u.device.type, enabled=False):\n"
        "            cosine = F.linear(u, F.normalize(self.weight))\n"
    ) in text


@pytest.mark.parametrize(
    ("loss", "written"),
    [
        ("torch.atanh(torch.tanh(out) * 0.9).mean()", "torch.atanh(torch.tanh(out.float()) * 0.9).mean()"),
        ("torch.sqrt(1 - torch.sigmoid(out)).mean()", "torch.sqrt(1 - torch.sigmoid(out.float())).mean()"),
        ("torch.acos(F.cosine_similarity(out, y)).mean()", "torch.acos(F.cosine_similarity(out.float(), y)).mean()"),
        ("torch.lerp(y, out, 0.5).mean()", "torch.lerp(y, out.float(), 0.5).mean()"),
    ],
)
def test_what_needs_no_island_is_cast(loss: str, written: str) -> None:
    assert f"        loss = {written}\n" in migrated(script(loss=loss))


@pytest.mark.parametrize(
    "result", ["torch.inverse(k)", "k.logdet()", "torch.linalg.cholesky(k)", "torch.linalg.inv(k)"]
)
def test_a_matrix_is_decomposed_as_it_was_computed_in_float32(result: str) -> None:
    text = migrated(script("k = v.t() @ v + torch.eye(2)", result))
    assert (
        f"        {ISLAND}\n            k = v.float().t() @ v.float() + torch.eye(2)\n        return {result}\n" in text
    )


def test_what_a_model_gives_is_decomposed_in_float32() -> None:
    assert "        out = model(x).float()\n        loss = torch.svd(out)[1].sum()\n" in migrated(
        script(loss="torch.svd(out)[1].sum()")
    )


@pytest.mark.parametrize(
    ("first", "result", "loss", "name"),
    [
        ("pass", "v", "torch.acos(out).mean()", "acos"),
        ("pass", "v", "torch.acos(F.linear(F.normalize(model(x)), F.normalize(y))).mean()", "acos"),
        ("pass", "v", "torch.acos(utils.cosine(out, y)).mean()", "acos"),
        ("for w in (v @ v, v):\n            w = w.acos()", "w", "margin(out).mean()", "acos"),
    ],
)
def test_cosines_that_are_not_in_view_are_refused(first: str, result: str, loss: str, name: str) -> None:
    assert refusal(script(first, result, loss, "import utils")).endswith(f": {BEYOND.format(name)}")


@pytest.mark.parametrize(
    ("first", "loss", "reason"),
    [
        ("pass", "torch.inverse(model(x).t() @ model(x)).sum()", HALF.format("inverse")),
        ("k = F.dropout(v @ v)\n        v = torch.cholesky(k)", "margin(out).sum()", HALF.format("cholesky")),
        ("k = v @ v\n        v = torch.linalg.eig(k)", "margin(out).sum()", ALGEBRA),
    ],
)
def test_other_matrices_are_refused(first: str, loss: str, reason: str) -> None:
    assert refusal(script(first, "v", loss)).endswith(f": {reason}")


def test_what_a_module_keeps_is_of_half_precision_for_all_who_read_it() -> None:
    assert refusal(script("self.kept = v @ v", "v", "margin(out).sum() + torch.inverse(margin.kept).sum()")) == (
        "line 22: `inverse` does not take half precision on CUDA"
    )
