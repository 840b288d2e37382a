"""Rules of other packages are found through their entry points."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from amplint import plugins

RULE = '''
from amplint.model import Finding, Level, Span
from amplint.rule import rule


@rule("XYZ001", "no-loss", level=Level.WARNING, triggers=("loss",), gated=False)
def no_loss(file):
    """Says that there is a loss, which is all that it says."""
    yield Finding("XYZ001", Span(0, 4), "there is a loss")
'''


def package(site: Path, module: str, text: str) -> None:
    """Lay a package with one entry point into a directory, as an installer would."""
    (site / f"{module}.py").write_text(text)
    info = site / f"{module}-1.0.dist-info"
    info.mkdir()
    (info / "entry_points.txt").write_text(f"[console_scripts]\nx = y:z\n\n[amplint.rules]\nmine = {module}\n")


def run(site: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run amplint with a directory on the path."""
    command = [sys.executable, "-m", "amplint", *arguments]
    environment = {"PYTHONPATH": str(site), "PATH": "", "NO_COLOR": "1"}
    return subprocess.run(command, cwd=site, env=environment, capture_output=True, text=True, check=False)


def test_rule_of_another_package_runs(tmp_path: Path) -> None:
    package(tmp_path, "their_rules", RULE)
    (tmp_path / "t.py").write_text("loss = 1\n")
    ran = run(tmp_path, "check", "--no-cache", "--output-format", "concise", "t.py")
    assert (ran.returncode, ran.stdout.splitlines()[0]) == (1, "t.py:1:1: XYZ001 there is a loss")


def test_package_that_can_not_be_imported_is_named(tmp_path: Path) -> None:
    package(tmp_path, "broken_rules", "raise RuntimeError('not today')\n")
    (tmp_path / "t.py").write_text("import torch.cuda.amp\n")
    ran = run(tmp_path, "check", "--no-cache", "t.py")
    assert ran.returncode == 2
    assert "the rules in broken_rules can't be loaded: RuntimeError: not today" in ran.stderr


def test_group_is_read_from_its_section_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package(tmp_path, "one", "")
    other = tmp_path / "two-1.0.dist-info"
    other.mkdir()
    (other / "entry_points.txt").write_text("[other]\nthing = two\n")
    monkeypatch.setattr(sys, "path", [str(tmp_path), str(tmp_path / "missing")])
    plugins.modules.cache_clear()
    assert plugins.modules() == ("one",)
    monkeypatch.undo()
    plugins.modules.cache_clear()
