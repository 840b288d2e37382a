"""A whole run: other files are looked into in any process, and what the cache knows depends on them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from amplint import run as run_module
from amplint.cache import Cache
from amplint.run import run
from amplint.settings import DEFAULT

HELPER = "import torch\n\n\ndef shrink(model):\n    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)\n"
TRAIN = """\
from torch.amp import GradScaler
from helper import shrink


def train(model, opt, loader, loss_fn):
    scaler = GradScaler()
    for x in loader:
        opt.zero_grad()
        scaler.scale(loss_fn(model(x))).backward()
        shrink(model)
        scaler.step(opt)
        scaler.update()
"""
FILES = [("train.py", DEFAULT), ("helper.py", DEFAULT)]


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name, text in (("train.py", TRAIN), ("helper.py", HELPER)):
        Path(name).write_text(text)
        os.utime(name, (1_000_000, 1_000_000))


def found(
    cache: Cache | None = None, files: list[tuple[str, object]] | None = None, jobs: int = 1
) -> list[tuple[str, int]]:
    result = run(FILES if files is None else files, cache=cache, jobs=jobs)  # type: ignore[arg-type]
    return [(each.code, each.location.row) for file in result.files for each in file.diagnostics]


def test_a_helper_in_another_file_of_the_run() -> None:
    assert found() == [("AMP301", 10)]
    assert found(files=[("train.py", DEFAULT)]) == []


def test_in_several_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_module, "POOL_BYTES", 0)
    Path("copy.py").write_text(TRAIN)
    assert found(files=[*FILES, ("copy.py", DEFAULT)], jobs=2) == [("AMP301", 10), ("AMP301", 10)]


def test_the_cache_asks_the_other_files_again() -> None:
    cache = Cache(".")
    assert found(cache) == [("AMP301", 10)]
    cache.save()
    assert found(Cache(".")) == [("AMP301", 10)]
    assert found(Cache("."), [("train.py", DEFAULT)]) == []
    Path("helper.py").write_text(HELPER.replace("clip_grad_norm_", "parameters_to_vector"))
    assert found(Cache(".")) == []
