"""The fixture pairs on a CUDA device: what the smoke tests prove on a CPU that stands in for one."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.migrate.harness import run_script
from tests.migrate.test_fixtures import PAIRS

pytestmark = pytest.mark.gpu


@pytest.fixture(autouse=True)
def _needs_cuda(monkeypatch: pytest.MonkeyPatch) -> None:
    """Asked through NVML, so that CUDA is not initialized before the harness forks."""
    import torch

    monkeypatch.setitem(os.environ, "PYTORCH_NVML_BASED_CUDA_CHECK", "1")
    if not torch.cuda.is_available():
        pytest.skip(f"no CUDA device (torch {torch.__version__})")


@pytest.mark.parametrize("pair", PAIRS, ids=lambda pair: pair.name)
class TestRun:
    """Kernels on CUDA may add in another order from run to run, so that numbers are compared within float32's reach."""

    def test_exact(self, pair: Path) -> None:
        before, after = (run_script(pair / name, "gpu exact") for name in ("before.py", "after.py"))
        assert (before.code, after.code, after.faults) == (0, 0, []), before.error + after.error
        assert after.losses == pytest.approx(before.losses, rel=1e-3, abs=1e-4)
        assert after.steps == pytest.approx(before.steps, rel=1e-3, abs=1e-4)

    @pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
    def test_amp(self, pair: Path, dtype: str) -> None:
        before = run_script(pair / "before.py", "gpu exact")
        after = run_script(pair / "after.py", "gpu amp", dtype=dtype)
        assert (before.code, after.code, after.faults) == (0, 0, []), before.error + after.error
        assert len(after.losses) == len(before.losses)
        assert after.losses[0] == pytest.approx(before.losses[0], rel=0.02, abs=0.02)
        if "cpu" not in pair.name:  # a script that puts nothing on the GPU stays in float32
            assert after.low >= max(after.full, 1)
