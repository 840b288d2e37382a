"""The engine looks only at files that can take part in the protocol."""

from __future__ import annotations

import pytest

from amplint.flow import lower, violations
from amplint.settings import DEFAULT
from amplint.source import SourceFile


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("loss.backward()\noptimizer.step()\n", id="plain training"),
        pytest.param("import torch\nwith torch.autocast('cuda'):\n    out = model(x)\n", id="a model"),
        pytest.param("self._load_scaler(path)\naccelerator.backward(loss)\n", id="somebody else's scaler"),
    ],
)
def test_a_file_without_part_in_the_protocol_is_not_lowered(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise AssertionError("the file was lowered")

    monkeypatch.setattr(lower, "lower", fail)
    assert violations.analyse(SourceFile(text, "t.py", DEFAULT)) == ([], [])


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("scaler.scale(loss).backward()\n", id="a scaler"),
        pytest.param("s.scale(loss).backward()\n", id="under another name"),
        pytest.param("loss_scaler(loss, optimizer)\n", id="called"),
        pytest.param("import torch\nwith torch.autocast('cuda'):\n    loss.backward()\n", id="a region"),
    ],
)
def test_a_file_with_part_in_the_protocol_is_lowered(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("the file was lowered")

    monkeypatch.setattr(lower, "lower", fail)
    with pytest.raises(RuntimeError, match="the file was lowered"):
        violations.analyse(SourceFile(text, "t.py", DEFAULT))
