"""Statements that share a line get lines of their own where a region or a new line must stand between them."""

from __future__ import annotations

import textwrap

import pytest

from amplint.migrate import migrate_source
from tests.migrate.test_gradients import HEAD

REGION = "with torch.autocast(device_type=device.type, dtype=torch.float16, enabled=scaler.is_enabled()):\n"


def loop_of(body: str) -> str:
    """The migrated text from the first loop on."""
    result = migrate_source(HEAD + textwrap.dedent(body), "train.py")
    assert {loop.status for loop in result.loops} == {"migrated"}, result.loops
    return result.text[result.text.index("for x, y in") :]


def test_a_line_with_the_whole_step() -> None:
    assert loop_of(
        """
        for x, y in batches:
            loss = F.mse_loss(net(x), y)
            opt.zero_grad(); loss.backward(); opt.step()
        """
    ) == (
        "for x, y in batches:\n"
        f"    {REGION}"
        "        loss = F.mse_loss(net(x), y)\n"
        "    opt.zero_grad(); scaler.scale(loss).backward(); scaler.step(opt); scaler.update()\n"
    )


def test_a_forward_beside_others() -> None:
    assert loop_of(
        """
        for x, y in batches:
            opt.zero_grad(); loss = F.mse_loss(net(x), y)  # the loss
            loss.backward(); opt.step()
        """
    ) == (
        "for x, y in batches:\n"
        "    opt.zero_grad()\n"
        f"    {REGION}"
        "        loss = F.mse_loss(net(x), y)  # the loss\n"
        "    scaler.scale(loss).backward(); scaler.step(opt); scaler.update()\n"
    )


def test_a_loop_on_one_line() -> None:
    assert loop_of(
        """
        for x, y in batches: opt.zero_grad(); F.mse_loss(net(x), y).backward(); opt.step()
        """
    ) == (
        "for x, y in batches:\n"
        "    opt.zero_grad()\n"
        f"    {REGION}"
        "        loss = F.mse_loss(net(x), y)\n"
        "    scaler.scale(loss).backward()\n"
        "    scaler.step(opt)\n"
        "    scaler.update()\n"
    )


@pytest.mark.parametrize("newline", ["\n", "\r\n"])
def test_line_ends_and_reports_are_those_of_the_file(newline: str) -> None:
    body = "x = 1; y = 2\nfor x, y in batches:\n    opt.zero_grad(); loss = F.mse_loss(net(x), y); z = x\n"
    text = (HEAD + body + "    loss.backward()\n    opt.step()\n").replace("\n", newline)
    result = migrate_source(text, "train.py")
    assert [loop.line for loop in result.loops] == [11]
    assert f"    opt.zero_grad(){newline}    with torch" in result.text
    assert f"y){newline}    z = x{newline}    scaler" in result.text
    refused = migrate_source(text + f"    loss.backward(){newline}    opt.step(){newline}", "train.py")
    assert [(loop.line, loop.reason[:8]) for loop in refused.loops] == [(11, "line 16:")]
    assert (refused.text, refused.edits) == (text + f"    loss.backward(){newline}    opt.step(){newline}", ())
