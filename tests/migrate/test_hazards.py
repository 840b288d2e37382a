"""What runs in silence and means something else, or stops only at run time: written so that it can't, or refused."""

from __future__ import annotations

import textwrap

import pytest

from amplint.migrate import migrate_source
from tests.migrate.test_refusals import HEAD

REGION = "with torch.autocast(device_type=device.type, dtype=torch.float16, enabled=scaler.is_enabled()):"


def migrated(body: str) -> str:
    """The text behind the line that makes the scaler."""
    result = migrate_source(HEAD + textwrap.dedent(body), "train.py")
    assert {loop.status for loop in result.loops} == {"migrated"}, result.loops
    return result.text.split('enabled=device.type == "cuda")\n', 1)[1]


def refusal(body: str) -> str:
    text = HEAD + textwrap.dedent(body)
    result = migrate_source(text, "train.py")
    assert (result.text, {loop.status for loop in result.loops}) == (text, {"refused"})
    return result.loops[0].reason


ACCUMULATION = """
for i, (x, y) in enumerate(batches):
    loss = F.mse_loss(model(x), y)
    loss.backward()
    if (i + 1) % 2 == 0:
        optimizer.step()
        optimizer.zero_grad()
"""


class TestLeftoverStep:
    """`GradScaler.step` raises where no gradients are left for it."""

    def test_without_a_condition_it_is_refused(self) -> None:
        assert refusal(ACCUMULATION + "optimizer.step()\n") == (
            "line 15: the loop before has stepped already, and a scaler's step without gradients left is an error; "
            "put this step under a condition that some are left"
        )

    def test_a_condition_is_trusted(self) -> None:
        text = migrated(ACCUMULATION + "if (i + 1) % 2:\n    optimizer.step()\n")
        assert text.endswith("if (i + 1) % 2:\n    scaler.step(optimizer)\n    scaler.update()\n")


class TestCacheOfWeights:
    """Until torch 2.10 a forward with gradients took casts of weights from one without."""

    def test_a_helper_without_gradients_switches_it_off(self) -> None:
        text = migrated(
            """
            @torch.no_grad()
            def value(net, x):
                return net(x).max(1)[0]

            for x, y in batches:
                loss = F.mse_loss(model(x)[:, 0], value(model, x))
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
            """
        )
        assert (
            "    with torch.autocast(\n"
            "        device_type=device.type, dtype=torch.float16, enabled=scaler.is_enabled(), cache_enabled=False\n"
            "    ):\n"
            "        loss = F.mse_loss(model(x)[:, 0], value(model, x))\n"
        ) in text

    def test_weights_that_change_inside_switch_it_off(self) -> None:
        text = migrated(
            """
            for x, y in batches:
                first = F.mse_loss(model(x), y)
                with torch.no_grad():
                    for p in model.parameters():
                        p.mul_(0.99)
                loss = F.mse_loss(model(x + 1), y) + first.detach()
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
            """
        )
        assert text.count("cache_enabled=False") == 1

    def test_another_model_without_gradients_does_not(self) -> None:
        text = migrated(
            """
            target = nn.Linear(4, 2).to(device)
            for x, y in batches:
                with torch.no_grad():
                    best = target(x)
                    seen = 0
                    seen += 1
                loss = F.mse_loss(model(x), best)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
            """
        )
        assert REGION in text
        assert "cache_enabled" not in text


TRAIN = """
for x, y in batches:
    out = model(x)
    loss = F.mse_loss(out, y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


class TestReaders:
    """Outputs that meet float32 outside of the region, or NumPy."""

    @pytest.mark.parametrize(
        ("before", "after"),
        [
            ("bank[torch.arange(8)] = out.detach()", "bank[torch.arange(8)] = out.float().detach()"),
            (
                "p = F.softmax(out, dim=1)\n    bank[torch.arange(8)] = p[torch.arange(8)]",
                "p = F.softmax(out, dim=1)\n    bank[torch.arange(8)] = p[torch.arange(8)].float()",
            ),
            ("sums = out.detach() @ weights", "sums = out.float().detach() @ weights"),
            ("sums = torch.mm(out.detach().t(), y)", "sums = torch.mm(out.float().detach().t(), y)"),
            (
                "p = F.softmax(out, dim=1).detach().cpu().numpy()",
                "p = F.softmax(out.float(), dim=1).detach().cpu().numpy()",
            ),
            ("bank[0:8] = out.detach()", "bank[0:8] = out.detach()"),
            ("hits = out.argmax(1).cpu().numpy()", "hits = out.argmax(1).cpu().numpy()"),
        ],
    )
    def test_are_given_float32(self, before: str, after: str) -> None:
        assert migrated(f"{TRAIN}    {before}\n").endswith(f"    scaler.update()\n    {after}\n")


def test_a_gradient_that_getattr_reads_is_unscaled_first() -> None:
    text = migrated(
        """
        for x, y in batches:
            loss = F.mse_loss(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            print([getattr(p, "grad").norm() for p in model.parameters()])
            optimizer.step()
        """
    )
    assert '    scaler.unscale_(optimizer)\n    print([getattr(p, "grad")' in text


def test_an_averaging_scheduler_is_no_optimizer() -> None:
    text = migrated(
        "from torch.optim.swa_utils import SWALR\nslow = SWALR(optimizer, 0.05)" + TRAIN + "    slow.step()\n"
    )
    assert text.endswith("    scaler.step(optimizer)\n    scaler.update()\n    slow.step()\n")


def test_masks_beyond_float16_are_known_by_value() -> None:
    text = migrated(
        """
        LOW = -1 * 10**9
        for x, y in batches:
            scores = model(x)
            scores = scores.masked_fill(y > 0, LOW)
            scores = scores.masked_fill(y > 0, torch.finfo(torch.float32).min)
            scores = scores.masked_fill(y > 0, torch.finfo(scores.dtype).min)
            loss = F.cross_entropy(scores, y.argmax(1))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        """
    )
    assert [line.strip() for line in text.splitlines() if "masked_fill" in line] == [
        "scores = scores.float().masked_fill(y > 0, LOW)",
        "scores = scores.float().masked_fill(y > 0, torch.finfo(torch.float32).min)",
        "scores = scores.masked_fill(y > 0, torch.finfo(scores.dtype).min)",
    ]


@pytest.mark.parametrize(
    ("statement", "reason"),
    [
        (
            "assert out.dtype == torch.float32",
            "line 11: dtypes are compared here",
        ),
        (
            "out = torch.where(y > 0, out, torch.tensor(-1e9))",
            "line 11: a constant beyond the range of float16 is given",
        ),
        ("y = y.to_sparse_csr()", "line 11: sparse products have no half-precision kernel"),
    ],
)
def test_is_refused(statement: str, reason: str) -> None:
    body = TRAIN.replace("    loss = ", f"    {statement}\n    loss = ")
    assert refusal(body).startswith(reason)


SHARED = """
head = torch.optim.SGD(model{part}.parameters(), lr=0.1)
for x, y in batches:
    loss = F.mse_loss(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
{between}    head.step()
"""


@pytest.mark.parametrize("part", ["", "[0]", ".head"])
def test_optimizers_that_share_parameters_are_refused(part: str) -> None:
    assert refusal(SHARED.format(part=part, between="")) == (
        "line 15: two optimizers share parameters, whose gradients would be unscaled twice"
    )


def test_optimizers_with_a_backward_each_may_share_parameters() -> None:
    between = "    second = F.l1_loss(model(x), y)\n    head.zero_grad()\n    second.backward()\n"
    text = migrated(SHARED.format(part="", between=between))
    assert [line.strip() for line in text.splitlines() if "scaler." in line and "with" not in line] == [
        "scaler.scale(loss).backward()",
        "scaler.step(optimizer)",
        "scaler.scale(second).backward()",
        "scaler.step(head)",
        "scaler.update()",
    ]


class TestAfterthought:
    """What a loss is divided by after it was logged needs no autocast, and the region ends before the log."""

    BODY = """
    for i, (x, y) in enumerate(batches):
        loss = F.mse_loss(model(x), y)
        print(loss.item())
        {}
        loss.backward()
        if (i + 1) % steps == 0:
            optimizer.step()
            optimizer.zero_grad()
    """

    @pytest.mark.parametrize("after", ["loss = loss / steps", "loss /= 4", "loss = loss / args.steps"])
    def test_stays_outside(self, after: str) -> None:
        text = migrated(self.BODY.format(after))
        assert (
            f"        loss = F.mse_loss(model(x), y)\n    print(loss.item())\n    {after}\n    scaler.scale(loss)"
            in text
        )

    @pytest.mark.parametrize("after", ["loss = loss * 1000", "loss = loss / 0.001", "loss = loss + x.mean()"])
    def test_what_may_exceed_the_range_is_inside(self, after: str) -> None:
        assert f"\n        {after}\n    scaler.scale(loss).backward()" in migrated(self.BODY.format(after))
