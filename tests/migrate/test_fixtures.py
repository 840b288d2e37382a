"""Every fixture pair: `after.py` is what the migration writes, and it stays as it is."""

from __future__ import annotations

from collections.abc import Container, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from amplint import check_source
from amplint.migrate import MigrationResult, Options, migrate_source
from amplint.settings import Settings
from tests.migrate.harness import Outcome, run_script
from tests.migrate.memory import SCALER

FIXTURES = Path(__file__).parent.parent.parent / "fixtures"
PAIRS = sorted(path.parent for path in FIXTURES.glob("*/before.py"))
FLAGS = {"time_and_memory": "use_amp"}
"""The option --flag with which a pair is made."""
NO_FLOAT16_ON_CPU = {"recurrent_state"}
"""oneDNN has no LSTM in float16."""
RECORDED = ("linear", "conv1d", "conv2d", "conv3d", "matmul", "mm", "bmm")
"""The operations that the recorder of the harness counts; the monitor counts more."""


def migrated(pair: Path) -> MigrationResult:
    """The migration of the first script of a pair."""
    before = (pair / "before.py").read_text(encoding="utf-8")
    return migrate_source(before, "before.py", Settings(), Options(flag=FLAGS.get(pair.name)))


@cache
def original(pair: Path, way: str) -> Outcome:
    """The outcome of the first script of a pair, which the proofs share; watched, which must not change anything."""
    return run_script(pair / "before.py", way, watched=True)


def assert_losses_follow(before: Outcome, after: Outcome, dtype: str) -> None:
    """Mixed precision changes losses by its rounding and no more."""
    assert len(after.losses) == len(before.losses)
    assert after.losses[0] == pytest.approx(before.losses[0], rel=0.02, abs=0.02)
    skipped = after.report["skipped"]  # float16 skips its first steps while the scale comes down, then follows late
    assert skipped == 0 or dtype == "float16"
    if not skipped:
        for expected, found in zip(before.losses, after.losses, strict=True):
            assert found == pytest.approx(expected, rel=0.05, abs=0.05)


def assert_two_observers_agree(run: Outcome) -> None:
    """The monitor and the recorder of the harness, which share nothing, must have seen the same."""
    report, scalers = run.report, [scaler for scaler in run.report["scalers"] if scaler["enabled"]]
    backward = report["backward"]
    events = {
        "scale": backward["scaled"],
        "unscale_": sum(scaler["unscales"] for scaler in scalers),
        "step": report["steps"],
        "update": sum(scaler["updates"] for scaler in scalers),
        "skipped": report["skipped"],
    }
    assert events == {event: run.live.get(event, 0) for event in events}
    assert backward["scaled"] + backward["plain"] + backward["mixed"] == run.protocol.count("backward")
    assert report["steps"] - report["skipped"] + report["plain_steps"] == len(run.steps)
    assert len(report["scalers"]) == run.protocol.count("scaler")
    assert sum(region["entries"] for region in report["regions"]) == run.protocol.count("enter")
    assert products(report, RECORDED) == (run.low, run.full)


def products(report: Mapping[str, Any], operations: Container[str] | None = None) -> tuple[int, int]:
    """How many matrix products with gradients ran in low and in full precision, by the monitor."""
    counts = [
        (product["dtype"] in ("float16", "bfloat16"), product["with_gradients"])
        for product in report["products"]
        if operations is None or product["operation"] in operations
    ]
    return sum(count for low, count in counts if low), sum(count for low, count in counts if not low)


def test_there_are_enough() -> None:
    assert len(PAIRS) >= 24


@pytest.mark.parametrize("pair", PAIRS, ids=lambda pair: pair.name)
class TestText:
    def test_after_is_what_is_written(self, pair: Path) -> None:
        result = migrated(pair)
        assert result.text == (pair / "after.py").read_text(encoding="utf-8")
        assert {loop.status for loop in result.loops if loop.training} == {"migrated"}

    def test_a_second_migration_changes_nothing(self, pair: Path) -> None:
        after = (pair / "after.py").read_text(encoding="utf-8")
        assert migrate_source(after, "after.py").text == after

    def test_no_rule_objects(self, pair: Path) -> None:
        after = (pair / "after.py").read_text(encoding="utf-8")
        assert [(d.code, d.location.row) for d in check_source(after, "after.py", Settings())] == []


@pytest.mark.smoke
@pytest.mark.parametrize("pair", PAIRS, ids=lambda pair: pair.name)
class TestRun:
    """The four ways of proving a migration by running it."""

    def test_exact(self, pair: Path) -> None:
        before, after = original(pair, "exact"), run_script(pair / "after.py", "exact")
        assert (before.code, after.code, after.faults) == (0, 0, []), before.error + after.error
        assert after.losses == before.losses
        assert after.steps == before.steps
        assert after.digest == before.digest
        assert after.output == before.output

    def test_no_device(self, pair: Path) -> None:
        before, after = original(pair, "plain"), run_script(pair / "after.py", "plain")
        if before.code:
            pytest.skip("the script runs on nothing but CUDA")
        assert (after.code, after.faults) == (0, []), after.error
        assert (after.losses, after.steps, after.digest) == (before.losses, before.steps, before.digest)
        assert after.output == before.output

    @pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
    def test_amp(self, pair: Path, dtype: str) -> None:
        if dtype == "float16" and pair.name in NO_FLOAT16_ON_CPU:
            pytest.skip("a layer of this script has no float16 on the CPU")
        before = original(pair, "exact")
        after = run_script(pair / "after.py", "amp", dtype=dtype, watched=True)
        assert (before.code, after.code, after.faults) == (0, 0, []), before.error + after.error
        assert_two_observers_agree(after)
        assert after.report["violations"] == []
        assert after.report["effective"] is True
        low, full = products(after.report)
        assert low > 0
        assert low >= full  # half of the timed comparison runs without
        assert (after.finite, after.moved) == (True, True)
        assert after.memory <= before.memory + SCALER
        assert_losses_follow(before, after, dtype)
