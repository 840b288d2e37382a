"""AMP501 to AMP504: the scaler's state in checkpoints, and the scale after an update."""

from __future__ import annotations

from textwrap import dedent

import pytest

from amplint import check_source, fix_source
from amplint.settings import Settings

ONLY = Settings(select=("AMP501", "AMP502", "AMP503", "AMP504"))
SCALES = "scaler.scale(loss).backward()"


def found(code: str) -> list[tuple[str, int]]:
    """The (code, row) pairs of a text."""
    return [(d.code, d.location.row) for d in check_source(dedent(code), "t.py", ONLY)]


def script(save: str, start: str = 'scaler = torch.amp.GradScaler("cuda")') -> str:
    """A script that scales and then saves."""
    return f"import torch\n\n{start}\n{SCALES}\n{save}\n"


@pytest.mark.parametrize(
    ("save", "rows"),
    [
        pytest.param('torch.save({"model": m.state_dict(), "optimizer": opt.state_dict()}, p)', [5], id="direct"),
        pytest.param('ckpt = {"model": m.state_dict(), "optimizer": optimizer.state_dict()}', [5], id="in a variable"),
        pytest.param("ckpt = dict(model=m.state_dict(), optimizer=optimizer.state_dict())", [5], id="dict call"),
        pytest.param("s = Snapshot(model_state=m.state_dict(), opt_state=optimizer.state_dict())", [5], id="dataclass"),
        pytest.param(
            'x = {"model": m, "optim_g": optim_g.state_dict(), "optim_d": optim_d.state_dict()}', [5, 5], id="2"
        ),
        pytest.param("save_checkpoint(model, optimizer, epoch)", [5], id="a helper elsewhere"),
        pytest.param("save_checkpoint(model, optimizer, scaler, epoch)", [], id="a helper that is given the scaler"),
        pytest.param('x = {"model": m.state_dict()}', [], id="no optimizer state: not for resuming"),
        pytest.param('x = {"epoch": 1, "optimizer": optimizer.state_dict()}', [], id="no model: a log entry"),
        pytest.param('x = {**base, "model": m, "optimizer": optimizer.state_dict()}', [], id="unpacks who knows what"),
        pytest.param(
            'x = {"model": m, "optimizer": optimizer.state_dict(), "amp": s.state_dict()}', [], id="saved as amp"
        ),
        pytest.param(
            'x = {"model": m, "optimizer": optimizer.state_dict()}\nx["scaler"] = scaler.state_dict()',
            [],
            id="added later",
        ),
    ],
)
def test_scaler_not_checkpointed(save: str, rows: list[int]) -> None:
    assert found(script(save)) == [("AMP501", row) for row in rows]


def test_a_file_without_a_scaler_of_its_own_is_silent() -> None:
    assert found(script('x = {"model": m, "optimizer": optimizer.state_dict()}', "scaler = make()")) == []


def test_a_scaler_that_scales_nothing_is_silent() -> None:
    text = script('x = {"model": m, "optimizer": optimizer.state_dict()}').replace(SCALES, "loss.backward()")
    assert found(text) == []


def test_fix_keeps_quotes_key_style_and_line_ends() -> None:
    text = script(
        "x = {\r\n    'model_state_dict': m.state_dict(),\r\n    'optimizer_state_dict': opt.state_dict()\r\n}"
    )
    fixed = fix_source(text, "t.py", ONLY, unsafe=True).text
    assert fixed.endswith(
        "    'optimizer_state_dict': opt.state_dict(),\r\n    'scaler_state_dict': scaler.state_dict()\r\n}\n"
    )


def test_no_fix_where_the_checkpoint_is_loaded_before_the_scaler_exists() -> None:
    text = script(
        'x = {"model": m, "optimizer": opt.state_dict()}',
        'opt.load_state_dict(old["optimizer"])\nscaler = torch.amp.GradScaler("cuda")',
    )
    assert fix_source(text, "t.py", ONLY, unsafe=True).text == text
    assert [d.help for d in check_source(text, "t.py", ONLY)] == [
        "save `scaler.state_dict()` beside the optimizer's state and load it where the optimizer is loaded"
    ]


def test_scaler_built_again_under_a_test_of_itself_is_silent() -> None:
    assert (
        found(
            """
            import torch

            class T:
                def __init__(self, ckpt):
                    self.scaler = torch.amp.GradScaler("cuda")
                    self.scaler.load_state_dict(ckpt)

                def fit(self):
                    if self.scaler is None:
                        self.scaler = torch.amp.GradScaler("cuda")
            """
        )
        == []
    )


def test_scaler_built_in_the_other_arm_is_silent() -> None:
    assert (
        found(
            """
            import torch

            scaler = torch.amp.GradScaler("cuda")
            if resume:
                scaler.load_state_dict(ckpt)
            else:
                scaler = torch.amp.GradScaler("cuda")
            """
        )
        == []
    )


@pytest.mark.parametrize(
    ("last", "rows"),
    [
        pytest.param("x = scaled.item() / scaler.get_scale()", [9], id="divided"),
        pytest.param("x = scaled.item() * (1.0 / scaler.get_scale())", [9], id="multiplied by the inverse"),
        pytest.param("value = scaled.item()\nx = value / scaler.get_scale()", [10], id="by another name"),
        pytest.param("skipped = before > scaler.get_scale()", [], id="compared"),
        pytest.param("x = loss.item() / scaler.get_scale()", [], id="not scaled"),
        pytest.param("log(scaler.get_scale())", [], id="logged"),
    ],
)
def test_scale_read_after_update(last: str, rows: list[int]) -> None:
    text = (
        'import torch\n\nscaler = torch.amp.GradScaler("cuda")\nloss = f()\nscaled = scaler.scale(loss)\n'
        f"scaled.backward()\nscaler.step(opt)\nscaler.update()\n{last}\n"
    )
    assert found(text) == [("AMP504", row) for row in rows]


def test_scale_read_before_update_is_silent() -> None:
    text = (
        'import torch\n\nscaler = torch.amp.GradScaler("cuda")\nscaled = scaler.scale(loss)\nscaled.backward()\n'
        "scaler.step(opt)\nx = scaled.item() / scaler.get_scale()\nscaler.update()\n"
    )
    assert found(text) == []


def test_schedule_of_an_epoch_is_silent() -> None:
    assert (
        found(
            """
            import torch

            scaler = torch.amp.GradScaler("cuda")
            for epoch in range(9):
                for x in loader:
                    scaler.step(optimizer)
                    scaler.update()
                scheduler.step()
            """
        )
        == []
    )


def test_scaler_that_is_rebuilt_after_a_method_loaded_it() -> None:
    text = """
        import torch

        class Task:
            def __init__(self, path):
                self.scaler = torch.amp.GradScaler("cuda")
                self.resume(path)
                self.scaler = torch.amp.GradScaler("cuda", growth_interval=500)

            def resume(self, path):
                self.scaler.load_state_dict(torch.load(path)["scaler"])
        """
    assert found(text) == [("AMP502", 8)]
