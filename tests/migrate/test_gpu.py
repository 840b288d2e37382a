"""The fixture pairs on a CUDA device: what the smoke tests prove on a CPU that stands in for one.

One device is enough, and only one is used. Kernels are asked to be deterministic; what still adds in another order from
run to run is compared within float32's reach. On CUDA autocast keeps more operations in float32 than on the CPU
(softmax, norms, losses), and a toy, whose layers are no larger than its outputs, pays for the copies.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest

from tests.migrate.harness import Outcome, run_script
from tests.migrate.memory import SCALER
from tests.migrate.test_fixtures import PAIRS, assert_losses_follow, assert_two_observers_agree, products

pytestmark = pytest.mark.gpu

ON_CPU = {"cpu_only"}
"""Pairs that put nothing on the GPU, whose products stay in float32."""
COPIES = 1.25


@cache
def original(pair: Path) -> Outcome:
    """The outcome of the first script of a pair."""
    return run_script(pair / "before.py", "gpu exact", watched=True)


@pytest.fixture(autouse=True)
def _one_device(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the scripts see one device; they run in forks, which a CUDA that this process has initialized would break."""
    import torch

    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    assert not torch.cuda.is_initialized()


@pytest.mark.parametrize("pair", PAIRS, ids=lambda pair: pair.name)
class TestRun:
    """The proofs that need a device."""

    def test_exact(self, pair: Path) -> None:
        before, after = original(pair), run_script(pair / "after.py", "gpu exact")
        assert (before.code, after.code, after.faults) == (0, 0, []), before.error + after.error
        assert after.losses == pytest.approx(before.losses, rel=1e-3, abs=1e-4)
        assert after.steps == pytest.approx(before.steps, rel=1e-3, abs=1e-4)

    @pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
    def test_amp(self, pair: Path, dtype: str) -> None:
        before = original(pair)
        after = run_script(pair / "after.py", "gpu amp", dtype=dtype, watched=True)
        assert (before.code, after.code, after.faults) == (0, 0, []), before.error + after.error
        assert_two_observers_agree(after)
        assert after.report["violations"] == []
        assert (after.finite, after.moved) == (True, True)
        assert after.memory <= COPIES * before.memory + SCALER
        assert_losses_follow(before, after, dtype)
        low, full = products(after.report)
        assert after.report["effective"] is (pair.name not in ON_CPU)
        assert low >= full or pair.name in ON_CPU
