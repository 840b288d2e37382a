"""The scaler's state in checkpoints: saved and loaded where the optimizer's is, however it comes there."""

from __future__ import annotations

import pytest

from amplint.check import check_source
from amplint.migrate import migrate_source
from amplint.settings import DEFAULT
from tests.migrate.test_refusals import HEAD

LOOP = """
for x, y in batches:
    loss = F.mse_loss(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""
SAVE = """
def save(path, model, optimizer, epoch):
    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "epoch": epoch}, path)
"""
LOAD = """
def load(path, model, optimizer):
    state = torch.load(path)
    model.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
    return state["epoch"]
"""


def migrated(body: str) -> list[str]:
    result = migrate_source(HEAD + body, "train.py")
    assert {loop.status for loop in result.loops} == {"migrated"}, result.loops
    assert check_source(result.text, "train.py", DEFAULT) == []
    return result.text.removeprefix(HEAD).splitlines()


def test_functions_that_get_the_optimizer_get_the_scaler() -> None:
    lines = migrated(
        SAVE
        + LOAD
        + 'epoch = load("last.pt", model, optimizer)\n'
        + LOOP
        + 'save("last.pt", model, optimizer, epoch)\n'
    )
    assert "def save(path, model, optimizer, scaler, epoch):" in lines
    at = lines.index("def load(path, model, optimizer, scaler):")
    assert lines[at + 3 : at + 6] == [
        '    optimizer.load_state_dict(state["optimizer"])',
        '    if state.get("scaler"):',
        '        scaler.load_state_dict(state["scaler"])',
    ]
    assert '"optimizer": optimizer.state_dict(), "scaler": scaler.state_dict(), "epoch"' in "".join(lines)
    assert 'epoch = load("last.pt", model, optimizer, scaler)' in lines
    assert lines[-1] == 'save("last.pt", model, optimizer, scaler, epoch)'


def test_a_function_that_sees_the_optimizer_sees_the_scaler() -> None:
    lines = migrated(
        LOOP
        + "def save(path):\n    state = {\n        'net': model.state_dict(),\n"
        + "        'opt': optimizer.state_dict() if model else None,\n    }\n    torch.save(state, path)\n\nsave('a')\n"
    )
    assert lines[-7:-4] == [
        "        'net': model.state_dict(),",
        "        'opt': optimizer.state_dict() if model else None,",
        "        'scaler': scaler.state_dict(),",
    ]


def test_a_function_that_may_get_no_optimizer_may_get_no_scaler() -> None:
    save = SAVE.replace("optimizer, epoch", "epoch, optimizer=None").replace(
        "optimizer.state_dict()", "optimizer.state_dict() if optimizer else None"
    )
    load = LOAD.replace("optimizer)", "optimizer=None)").replace(
        "    optimizer.load", "    if optimizer is not None:\n        optimizer.load"
    )
    lines = migrated(
        save
        + load
        + 'epoch = load("last.pt", model)\nload("last.pt", model, optimizer)\n'
        + LOOP
        + 'save("last.pt", model, epoch, optimizer)\nsave("best.pt", model, epoch)\n'
    )
    assert "def save(path, model, epoch, optimizer=None, scaler=None):" in lines
    saved = '"scaler": scaler.state_dict() if scaler is not None else None, "epoch"'
    assert f'"optimizer": optimizer.state_dict() if optimizer else None, {saved}' in "".join(lines)
    at = lines.index('        optimizer.load_state_dict(state["optimizer"])')
    assert lines[at + 1] == '        if scaler is not None and state.get("scaler"):'
    assert lines[-2:] == ['save("last.pt", model, epoch, optimizer, scaler)', 'save("best.pt", model, epoch)']


@pytest.mark.parametrize(
    "save",
    [
        # the function is called by other files
        SAVE,
        # the function is another file's
        "from helpers import save_checkpoint\nsave_checkpoint(model, optimizer, 'last.pt')\n",
    ],
)
def test_what_it_can_not_be_brought_to_is_left_to_the_user(save: str) -> None:
    result = migrate_source(HEAD + save + LOOP, "train.py")
    assert "state_dict(), " not in result.text.replace(SAVE.strip(), "")
    assert sorted((loop.status, loop.reason, loop.training) for loop in result.loops) == [
        ("migrated", "", True),
        (
            "partly",
            "the scaler can't be brought to where checkpoints are written; save and load its state_dict() beside the "
            "optimizer's",
            False,
        ),
    ]
