"""Whatever is put together, what the fix makes of it parses, does the same, and is left alone from then on."""

from __future__ import annotations

import pytest

from amplint import fix_source
from amplint.settings import Settings
from tests.modernize.execution import run
from tests.modernize.programs import program

ONLY = Settings(select=("AMP001", "AMP002"))
SETTINGS = {
    "current": ONLY,
    "torch.autocast": ONLY._replace(autocast="torch.autocast"),
    "1.10": ONLY._replace(target_torch=(1, 10)),
    "2.0": ONLY._replace(target_torch=(2, 0)),
    "shim": ONLY._replace(target_torch=(2, 0), compat="shim"),
}


@pytest.mark.parametrize("seed", range(80))
def test_random_program(seed: int) -> None:
    check(seed)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(80, 4000))
def test_more_random_programs(seed: int) -> None:
    check(seed)


def check(seed: int) -> None:
    """Fix one program under all settings."""
    before = program(seed)
    old = run(before)
    assert old.error == ""
    for name, settings in SETTINGS.items():
        result = fix_source(before, "t.py", settings)
        new = run(result.text)
        assert result.messages == []
        assert new._replace(deprecations=[]) == old._replace(deprecations=[]), name
        assert all(d.help or d.fix for d in result.remaining)
        assert fix_source(result.text, "t.py", settings).text == result.text
        if name in ("current", "torch.autocast", "shim") and not result.remaining:
            assert new.deprecations == []


def test_most_programs_are_fixed_completely() -> None:
    rest = [seed for seed in range(80) if fix_source(program(seed), "t.py", ONLY).remaining]
    assert rest == []
