"""Functions beyond the engine's budget are named by `--verbose`, whether the cache answers or not."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from amplint.cli import main
from amplint.flow import engine
from tests.flow.programs import PROGRAMS

NOTE = "amplint: train.py: `train` was not followed to its end: too many paths\n"


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("train.py").write_text(PROGRAMS["clip without unscale_"])
    os.utime("train.py", (1_000_000, 1_000_000))
    monkeypatch.setattr(engine, "MAX_STEPS", 5)


def test_verbose_names_what_was_not_followed(capsys: pytest.CaptureFixture[str]) -> None:
    for _ in range(2):
        assert main(["check", "--verbose"]) == 0
        assert capsys.readouterr().err == f"1 file checked for the current torch\n{NOTE}"


def test_without_verbose_nothing_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check"]) == 0
    assert capsys.readouterr() == ("All checks passed!\n", "")
