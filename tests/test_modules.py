"""Modules are found as Python finds them, among the files of the run and nowhere else."""

from __future__ import annotations

from pathlib import Path

import pytest

from amplint.cache import content_digest
from amplint.modules import Answer, Project

FILES = (
    "pkg/__init__.py",
    "pkg/train.py",
    "pkg/utils/__init__.py",
    "pkg/utils/optim.py",
    "src/lib/core.py",
    "tools/run.py",
    "tools/helpers.py",
    "helpers.py",
)


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Project:
    monkeypatch.chdir(tmp_path)
    for name in FILES:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"# {name}\n")
    (tmp_path / "left_out.py").write_text("")
    return Project(FILES)


@pytest.mark.parametrize(
    ("module", "asker", "path"),
    [
        (".utils", "pkg/train.py", "pkg/utils/__init__.py"),
        (".utils.optim", "pkg/train.py", "pkg/utils/optim.py"),
        (".optim", "pkg/utils/__init__.py", "pkg/utils/optim.py"),
        ("..train", "pkg/utils/optim.py", "pkg/train.py"),
        (".", "pkg/train.py", "pkg/__init__.py"),
        ("pkg.utils.optim", "pkg/utils/optim.py", "pkg/utils/optim.py"),
        ("utils.optim", "pkg/train.py", "pkg/utils/optim.py"),
        ("lib.core", "tools/run.py", "src/lib/core.py"),
        ("helpers", "tools/run.py", "tools/helpers.py"),
        ("helpers", "pkg/train.py", "helpers.py"),
        ("left_out", "tools/run.py", None),
        ("torch", "pkg/train.py", None),
        ("...train", "pkg/train.py", None),
    ],
)
def test_where_a_module_is_found(project: Project, module: str, asker: str, path: str | None) -> None:
    assert project.find(module, asker) == path


def test_a_file_is_read_once(project: Project) -> None:
    source = project.source("utils.optim", "pkg/train.py")
    assert source is not None
    assert (source.filename, source.text) == ("pkg/utils/optim.py", "# pkg/utils/optim.py\n")
    assert project.source(".optim", "pkg/utils/__init__.py") is source


def test_what_can_not_be_read_is_none(project: Project) -> None:
    Path("helpers.py").write_bytes(b"\xff\xfe\x00")
    Path("tools/helpers.py").unlink()
    assert project.source("helpers", "pkg/train.py") is None
    assert project.source("helpers", "tools/run.py") is None
    assert project.digest("tools/helpers.py") == ""


def test_answers_hold_while_nothing_changes(project: Project) -> None:
    digest = content_digest(b"# helpers.py\n")
    assert project.holds([Answer("helpers", "pkg/train.py", "helpers.py", digest), Answer("nothing", "x.py", "", "")])
    assert not project.holds([Answer("helpers", "tools/run.py", "helpers.py", digest)])
    assert not project.holds([Answer("helpers", "pkg/train.py", "helpers.py", "another")])


def test_no_files() -> None:
    assert Project(()).find("a", "b.py") is None
