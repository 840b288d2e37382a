"""Which files are found below the paths that a user names, and what is reported of those that are not."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from amplint.discover import Discovery, Problem, discover
from amplint.settings import SettingsError, SettingsResolver


@pytest.fixture(autouse=True)
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty directory, which is the current one."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def write(*paths: str, text: str = "") -> None:
    """Make files below the current directory."""
    for path in paths:
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        Path(path).write_text(text)


def found(*paths: str) -> list[str]:
    """The files found below paths; there must be no problem."""
    result = discover(paths or ["."])
    assert result.problems == []
    return result.files


def test_files_of_python_in_order() -> None:
    write("b.py", "a/z.pyi", "a/b.pyw", "a/c.txt", "a/d.pyc", "a-b/x.py", "B.PY", "py")
    (Path("dir.py")).mkdir()
    write("dir.py/in.py")
    assert found() == ["a-b/x.py", "a/b.pyw", "a/z.pyi", "b.py", "dir.py/in.py"]


def test_paths_are_shown_as_they_were_written(tree: Path) -> None:
    write("a/b/c.py")
    assert found(".") == ["a/b/c.py"]
    assert found("./a") == ["a/b/c.py"]
    assert found("a/") == ["a/b/c.py"]
    assert found("a/../a/b/c.py") == ["a/b/c.py"]
    assert found(str(tree / "a")) == [str(tree / "a/b/c.py")]
    os.chdir("a/b")
    assert found("..") == ["../b/c.py"]
    assert found(".") == ["c.py"]


def test_every_file_is_there_once(tree: Path) -> None:
    write("a/b.py", "c.py")
    assert found("a", "a/b.py", ".", str(tree)) == ["a/b.py", "c.py"]
    assert found(str(tree / "a/b.py"), "a") == [str(tree / "a/b.py")]


def test_no_paths_give_no_files() -> None:
    write("a.py")
    assert discover([]) == Discovery([], [])


def test_a_named_file_is_always_taken() -> None:
    write("script", "build/a.py", "ignored.py", ".gitignore", text="ignored.py")
    Path(".git").mkdir()
    assert found("script", "build/a.py", "ignored.py") == ["build/a.py", "ignored.py", "script"]


@pytest.mark.parametrize(
    "directory",
    [".git", ".venv", "venv", "node_modules", "__pycache__", "site-packages", "build", "dist", ".tox", ".nox"],
)
def test_directories_of_tools_are_left_out(directory: str) -> None:
    write("a.py", f"{directory}/b.py", f"deep/{directory}/deeper/c.py")
    assert found() == ["a.py"]
    assert found(directory) == [f"{directory}/b.py"]


@pytest.mark.parametrize("mark", ["pyvenv.cfg", "conda-meta/history"])
def test_environments_are_known_by_what_is_in_them(mark: str) -> None:
    write("a.py", "mine/bin/b.py", f"mine/{mark}")
    assert found() == ["a.py"]
    assert found("mine") == ["mine/bin/b.py"]


def test_a_package_may_be_called_build_or_dist() -> None:
    write("p/dist/__init__.py", "p/dist/a.py", "dist/lib/a.py", "p/venv/__init__.py")
    assert found() == ["p/dist/__init__.py", "p/dist/a.py"]
    write("amplint.toml", text='extend-exclude = ["dist"]')
    assert found() == []


def test_exclude_replaces_and_extend_exclude_adds() -> None:
    write("build/a.py", "gen/b.py", "src/gen/c.py", "src/d.py", "src/d_pb2.py")
    write("amplint.toml", text='extend-exclude = ["/gen", "*_pb2.py"]')
    assert found() == ["src/d.py", "src/gen/c.py"]
    write("amplint.toml", text='exclude = ["gen"]')
    assert found() == ["build/a.py", "src/d.py", "src/d_pb2.py"]
    write("amplint.toml", text='extend-exclude = ["!build", "src"]')
    assert found() == ["build/a.py", "gen/b.py"]


def test_exclude_is_relative_to_its_file(tree: Path) -> None:
    write("src/gen/a.py", "src/sub/gen/b.py", "src/sub/c.py", "gen/d.py")
    write("amplint.toml", text='extend-exclude = ["src/gen"]')
    assert found("src") == ["src/sub/c.py", "src/sub/gen/b.py"]
    assert found(str(tree / "src")) == [str(tree / "src/sub/c.py"), str(tree / "src/sub/gen/b.py")]
    write("src/sub/pyproject.toml", text='[tool.amplint]\nextend-exclude = ["/gen"]')
    assert found() == ["gen/d.py", "src/sub/c.py"]
    os.chdir("src/sub")
    assert found() == ["c.py"]


def test_options_exclude_too() -> None:
    write("a/b.py", "c.py")
    assert discover(["."], SettingsResolver({"extend-exclude": ["a"]})).files == ["c.py"]


def test_wrong_settings_are_an_error() -> None:
    write("deep/er/amplint.toml", text="nonsense = 1")
    with pytest.raises(SettingsError) as caught:
        discover(["."])
    assert str(caught.value) == "deep/er/amplint.toml: unknown setting `nonsense`"


def test_gitignore() -> None:
    Path(".git").mkdir()
    write("a.py", "out/b.py", "deep/out/c.py", "deep/keep_gen.py", "deep/x_gen.py", "only/here.py", "deep/only/here.py")
    write(".gitignore", text="# comment\nout/\n*_gen.py\n!keep_gen.py\n/only\n")
    assert found() == ["a.py", "deep/keep_gen.py", "deep/only/here.py"]
    assert found("deep") == ["deep/keep_gen.py", "deep/only/here.py"]


def test_nested_gitignores_win_below() -> None:
    Path(".git").mkdir()
    write("a/x.py", "a/y.py", "a/b/x.py", "a/b/y.py", "y.py")
    write(".gitignore", text="x.py\n")
    write("a/.gitignore", text="!x.py\n/y.py\n")
    write("a/b/.gitignore", text="x.py\n")
    assert found() == ["a/b/y.py", "a/x.py", "y.py"]
    assert found("a/b") == ["a/b/y.py"]
    os.chdir("a")
    assert found() == ["b/y.py", "x.py"]


def test_a_notebook_is_passed_over_and_refused_by_name() -> None:
    write("a.py", "b.ipynb")
    why = "notebooks are not checked; convert it first (jupyter nbconvert --to script)"
    assert discover(["."]) == Discovery(["a.py"], [])
    assert discover(["a.py", "b.ipynb"]) == Discovery(["a.py"], [Problem("b.ipynb", why, True)])


def test_a_named_directory_is_walked_although_git_ignores_it() -> None:
    Path(".git").mkdir()
    write("out/a.py", "out/b_gen.py")
    write(".gitignore", text="out/\n*_gen.py\n")
    assert found("out") == ["out/a.py"]


def test_info_exclude() -> None:
    write(".git/info/exclude", text="a.py\nb.py\n")
    write(".gitignore", text="!b.py\n")
    write("a.py", "b.py", "c/a.py", "c/d.py")
    assert found() == ["b.py", "c/d.py"]
    assert found("c") == ["c/d.py"]


def test_a_repository_within_has_its_own_rules() -> None:
    write(".git/info/exclude", text="b.py\n")
    write(".gitignore", text="a.py\nvendored\n")
    write("module/.git", text="gitdir: ../.git/modules/module\n")
    write("module/.gitignore", text="c.py\n")
    write("module/a.py", "module/b.py", "module/c.py", "module/d/a.py", "vendored/.git/HEAD", "vendored/e.py")
    assert found() == ["module/a.py", "module/b.py", "module/d/a.py"]
    assert found("module/d") == ["module/d/a.py"]


def test_gitignores_above_the_repository_do_not_count() -> None:
    write("repository/.git/HEAD", "repository/a.py")
    write(".gitignore", text="a.py\n")
    assert found("repository") == ["repository/a.py"]


def test_gitignore_without_a_repository() -> None:
    write("a.py", "b.py")
    write(".gitignore", text="a.py\n")
    assert found() == ["b.py"]


def test_an_unreadable_gitignore_ignores_nothing() -> None:
    write("a.py")
    Path(".gitignore").mkdir()
    assert found() == ["a.py"]
    Path(".gitignore").rmdir()
    Path(".gitignore").write_bytes(b"\xff\xfe\na.py\n")
    assert found() == []


def test_linked_directories_are_not_entered() -> None:
    write("a/b.py")
    Path("a/loop").symlink_to("..", target_is_directory=True)
    Path("link").symlink_to("a", target_is_directory=True)
    assert found() == ["a/b.py"]
    assert found("link") == ["link/b.py"]
    assert found("a", "link") == ["a/b.py"]


def test_linked_files_are_checked_once(tree: Path) -> None:
    write("z/real.py", "elsewhere.txt")
    Path("a.py").symlink_to("z/real.py")
    Path("b.py").symlink_to("elsewhere.txt")
    Path("c.py").symlink_to("b.py")
    Path("d.py").symlink_to("z")
    assert found() == ["b.py", "z/real.py"]
    assert found("a.py", "z") == ["a.py"]


def test_broken_links_are_reported() -> None:
    write("a.py")
    Path("b.py").symlink_to("nowhere.py")
    Path("c.py").symlink_to("c.py")
    Path("d.txt").symlink_to("nowhere.txt")
    Path(".#a.py").symlink_to("me@host.1234:5678")
    broken = "broken symbolic link"
    assert discover(["."]) == Discovery(["a.py"], [Problem("b.py", broken), Problem("c.py", broken)])
    assert discover(["b.py"]) == Discovery([], [Problem("b.py", broken, True)])


def test_missing_paths_are_reported() -> None:
    write("a.py")
    missing = "no such file or directory"
    assert discover(["nowhere", "a.py", "", "nowhere"]) == Discovery(
        ["a.py"], [Problem("", missing, True), Problem("nowhere", missing, True)]
    )
    assert discover(["a.py/b"]) == Discovery([], [Problem("a.py/b", "not a directory", True)])


def test_directories_that_cannot_be_read_are_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    write("a.py", "locked/b.py", "open/c.py")
    scandir = os.scandir

    def refuse(path: str) -> object:
        if path.endswith(("locked", "locked/")):
            raise PermissionError(13, "Permission denied", path)
        return scandir(path)

    monkeypatch.setattr(os, "scandir", refuse)
    assert discover(["."]) == Discovery(["a.py", "open/c.py"], [Problem("locked", "permission denied")])
    assert discover(["locked"]) == Discovery([], [Problem("locked", "permission denied")])


def test_only_regular_files_are_read() -> None:
    os.mkfifo("pipe.py")
    write("a.py")
    assert found() == ["a.py"]


def test_names_that_are_not_unicode() -> None:
    name = os.fsdecode(b"caf\xe9.py")
    write(name)
    assert found() == [name]
