"""The real pre-commit runs this repository's hooks on a scratch repository."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent

OLD = "import torch\n\nscaler = torch.cuda.amp.GradScaler()\n"
NEW = 'import torch\n\nscaler = torch.amp.GradScaler("cuda")\n'


def git(where: Path, *arguments: str) -> str:
    """Run git in a directory with a fixed identity."""
    command = ["git", "-c", "user.name=a", "-c", "user.email=a@example.org", "-c", "commit.gpgsign=false", *arguments]
    return subprocess.run(command, cwd=where, check=True, capture_output=True, text=True).stdout


@pytest.fixture(scope="module")
def hook_source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A git repository that holds what this tree holds: pre-commit clones the hooks it installs."""
    source = tmp_path_factory.mktemp("hooks")
    for name in ("amplint", "rules"):
        shutil.copytree(ROOT / name, source / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md", "LICENSE", ".pre-commit-hooks.yaml"):
        shutil.copy(ROOT / name, source / name)
    git(source, "init", "--quiet")
    git(source, "add", "--all")
    git(source, "commit", "--quiet", "--message", "hooks")
    return source


@pytest.fixture
def scratch(tmp_path: Path, hook_source: Path) -> Path:
    """A git repository with one staged file in the deprecated spelling."""
    git(tmp_path, "init", "--quiet")
    (tmp_path / "train.py").write_text(OLD)
    git(tmp_path, "add", "train.py")
    return tmp_path


def pre_commit(scratch: Path, hook_source: Path, hook: str) -> subprocess.CompletedProcess[str]:
    """Run one hook of the hook source on all files of a scratch repository."""
    revision = git(hook_source, "rev-parse", "HEAD").strip()
    (scratch / ".pre-commit-config.yaml").write_text(
        f"repos:\n- repo: {hook_source}\n  rev: {revision}\n  hooks:\n  - id: {hook}\n"
    )
    home = hook_source.parent / "pre-commit-home"
    environment = {**os.environ, "PRE_COMMIT_HOME": str(home), "NO_COLOR": "1"}
    command = [sys.executable, "-m", "pre_commit", "run", "--all-files", "--color", "never"]
    return subprocess.run(command, cwd=scratch, env=environment, capture_output=True, text=True, check=False)


def test_check_hook_fails_on_a_finding(scratch: Path, hook_source: Path) -> None:
    ran = pre_commit(scratch, hook_source, "amplint")
    assert ran.returncode == 1, ran.stdout + ran.stderr
    assert "train.py:3:10: AMP001" in ran.stdout
    assert (scratch / "train.py").read_text() == OLD


def test_fix_hook_fixes_and_then_passes(scratch: Path, hook_source: Path) -> None:
    first = pre_commit(scratch, hook_source, "amplint-fix")
    assert first.returncode == 1, first.stdout + first.stderr
    assert (scratch / "train.py").read_text() == NEW
    git(scratch, "add", "train.py")
    second = pre_commit(scratch, hook_source, "amplint-fix")
    assert second.returncode == 0, second.stdout + second.stderr
