"""Logarithms by hand: what comes between the last product and them runs in float32, or the file is left alone."""

from __future__ import annotations

import pytest

from amplint.migrate import migrate_source
from tests.migrate.test_hazards import refusal
from tests.migrate.test_refusals import HEAD

LOOP = """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(4, 2)
        self.softmax = nn.Softmax(dim=1)
        self.head = nn.Sequential(nn.Linear(4, 2), nn.Sigmoid())

    def forward(self, x):
        out = self.fc(x)
        return {result}

{setup}
net = Net().to(device)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for x, y in batches:
    p = net(x)
    loss = {loss}
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""
REASON = (
    "a logarithm is taken by hand of a value that half precision may have rounded to 0 or 1; use log_softmax, "
    "logsigmoid or a loss that takes logits"
)


def migrated(body: str) -> str:
    result = migrate_source(HEAD + body, "train.py")
    assert {report.status for report in result.loops} == {"migrated"}, result.loops
    return result.text


def loop(loss: str, result: str = "out", setup: str = "") -> str:
    return LOOP.format(loss=loss, result=result, setup=setup)


@pytest.mark.parametrize(
    ("result", "loss", "written"),
    [
        (
            "torch.sigmoid(out)",
            "-torch.log(1 - p).mean()",
            "        return torch.sigmoid(out.float())\n",
        ),
        ("out.sigmoid()", "-(p + 1e-12).log().mean()", "        return out.float().sigmoid()\n"),
        ("torch.tanh(out)", "torch.log(1 - p.pow(2) + 1e-6).mean()", "        return torch.tanh(out.float())\n"),
        ("self.softmax(out)", "-(p * torch.log(p + 1e-10)).sum()", "        return self.softmax(out.float())\n"),
        ("out", "-torch.log(torch.sigmoid(p[:, 0] - p[:, 1])).mean()", "torch.sigmoid((p[:, 0] - p[:, 1]).float())"),
        ("out", "torch.log(F.softplus(p) ** 2).mean()", "torch.log(F.softplus(p.float()) ** 2)"),
        ("out", "torch.log(torch.cosh(p - y)).mean()", "torch.log(torch.cosh((p - y).float()))"),
        ("out", "torch.logit(p.sigmoid(), eps=1e-6).mean()", "torch.logit(p.float().sigmoid(), eps=1e-6)"),
        ("out", "torch.where(y > 0, p.sigmoid(), 1 - p.sigmoid()).log().mean()", "torch.where(y > 0, p.float()"),
        ("self.head(x)", "-torch.log(1 - p).mean()", "nn.Sequential(nn.Linear(4, 2), FullPrecisionSigmoid())"),
        ("(out.sigmoid(), out)", "-torch.log(1 - p[0]).mean()", "        return (out.float().sigmoid(), out)\n"),
    ],
)
def test_what_is_in_view_is_given_float32(result: str, loss: str, written: str) -> None:
    assert written in migrated(loop(loss, result))


def test_a_loss_of_the_file_is_followed_to_its_calls() -> None:
    setup = "def focal(p, t):\n    pt = p * t + (1 - p) * (1 - t)\n    return (-(1 - pt) ** 2 * pt.log()).mean()"
    text = migrated(loop("focal(torch.sigmoid(p), y)", setup=setup))
    assert "        loss = focal(torch.sigmoid(p.float()), y)\n" in text
    assert setup in text


def test_distances_are_float32_on_cuda_by_themselves() -> None:
    result = "(1.0 / (1.0 + ((out.unsqueeze(1) - self.fc.weight[:, :2]) ** 2).sum(2))).pow(1.5)"
    assert f"        return {result}\n" in migrated(loop("F.kl_div((p / p.sum(1, keepdim=True)).log(), y)", result))


@pytest.mark.parametrize(
    ("result", "loss"),
    [
        ("torch.sigmoid(out) @ self.fc.weight", "-torch.log(p).mean()"),
        ("F.hardsigmoid(out)", "-torch.log(1 - p + 1e-6).mean()"),
        ("out", "-torch.log(1 - p).mean()"),
        ("out", "-torch.log(1 - p.pow(2) + 1e-6).mean()"),
        ("out", "torch.log1p(-p.pow(2)).mean()"),
        ("out", "torch.logit(p.sum(1)).mean()"),
        ("out", "p.logit(1e-6).mean()"),
        ("out", "torch.xlogy(x[:, :2], p).mean()"),
        ("out", "torch.log(1 - F.cosine_similarity(p, y)).mean()"),
        ("(out.sigmoid(), out)", "-torch.log(1 - p[1]).mean()"),
        ("{'p': out.sigmoid(), 'v': out}", "-torch.log(1 - p['v']).mean()"),
        ("self.head(x) if x.sum() > 0 else out", "-torch.log(1 - p).mean()"),
        ("out", "torch.log(utils.probability(p)).mean()"),
        ("out", "sum(torch.log(1 - q).mean() for q in p)"),
        ("out", "sum(map(lambda q: torch.log(1 - q).mean(), [p]))"),
    ],
)
def test_what_is_not_is_refused(result: str, loss: str) -> None:
    assert refusal(loop(loss, result, "import utils")).endswith(REASON)


def test_one_call_with_something_else_refuses_the_function() -> None:
    setup = "def entropy(p):\n    return -(p * torch.log(p + 1e-6)).sum()"
    assert refusal(loop("entropy(p.softmax(1)) + entropy(p)", setup=setup)) == f"line 21: {REASON}"


class TestLambdas:
    """They run under the regions as functions do."""

    @pytest.mark.parametrize(
        ("setup", "reason"),
        [
            ("f = lambda v: torch.log(1 - v).mean()", REASON),
            (
                "f = lambda v: F.binary_cross_entropy(v, v)",
                "BCELoss takes probabilities, which CUDA autocast forbids; let the model return logits and use "
                "BCEWithLogitsLoss",
            ),
            ("f = lambda v: torch.inverse(v.t() @ v).sum()", "`inverse` does not take half precision on CUDA"),
        ],
    )
    def test_what_they_do_is_read(self, setup: str, reason: str) -> None:
        assert refusal(loop("f(p)", setup=setup)) == f"line 20: {reason}"

    def test_a_lambda_that_an_object_keeps_is_read(self) -> None:
        setup = "class A:\n    def __init__(self):\n        self.f = lambda v: torch.log(1 - v).mean()\n\nlosses = A()"
        assert refusal(loop("losses.f(p)", setup=setup)) == f"line 22: {REASON}"

    def test_their_parameters_are_followed_to_the_calls(self) -> None:
        setup = "f = lambda v, scale=1.0: -torch.log(1 - v * scale + 1e-10).mean()"
        text = migrated(loop("f(p)", "torch.sigmoid(out)", setup))
        assert "        return torch.sigmoid(out.float())\n" in text
        assert setup in text

    def test_their_masks_are_repaired(self) -> None:
        text = migrated(loop("f(p)", setup="f = lambda v: v.masked_fill(v < 0, -1e9).softmax(1).mean()"))
        assert "f = lambda v: v.float().masked_fill(v < 0, -1e9).softmax(1).mean()\n" in text


@pytest.mark.parametrize("end", ["nn.Sequential(nn.Linear(2, 2), nn.Softplus())", "nn.Softplus()"])
def test_a_softplus_layer_is_float32_on_cuda(end: str) -> None:
    text = migrated(
        f"""
std = {end}
for x, y in batches:
    loss = torch.log(std(model(x)) + 1e-5).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""
    )
    assert "        loss = torch.log(std(model(x)) + 1e-5).mean()\n" in text
