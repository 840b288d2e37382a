"""Whatever lies in a tree, and whatever happens meanwhile: a message, the right exit code, no file damaged."""

from __future__ import annotations

import errno
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from amplint.cli import main
from tests.toys import FIXED, SOURCE, toys

__all__ = ["toys"]

ROOT = Path(__file__).parent.parent
posix_only = pytest.mark.skipif(os.name != "posix", reason="needs POSIX users, limits or signals")


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def check(capsys: pytest.CaptureFixture[str], *options: str) -> tuple[int, list[tuple[str, int]], str]:
    """The exit code, the codes and rows of the findings, and standard error of a check of the current directory."""
    capsys.readouterr()
    code = main(["check", "--output-format", "json", "--no-cache", *options])
    out, err = capsys.readouterr()
    return code, [(found["code"], found["location"]["row"]) for found in json.loads(out)], err


# -- what may lie in a tree -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("content", "code", "found"),
    [
        pytest.param(b"", 0, [], id="empty"),
        pytest.param(b"\xef\xbb\xbf", 0, [], id="byte order mark only"),
        pytest.param(b"\n\n\x0c", 0, [], id="white space only"),
        pytest.param(b"\x7fELF\x02\x01\0\0torch.autocast", 1, [("AMP000", 1)], id="binary"),
        pytest.param(b"\0" * 1000, 1, [("AMP000", 1)], id="zeros"),
        pytest.param(b"# torch.autocast\nname = '\xe4'\n", 1, [("AMP000", 2)], id="latin-1 without cookie"),
        pytest.param(b"# coding: latin-1\n# torch.autocast\nname = '\xe4'\n", 0, [], id="latin-1 with cookie"),
        pytest.param(b"# coding: klingon\n# torch.autocast\n", 1, [("AMP000", 1)], id="unknown encoding"),
        pytest.param("# torch.autocast\n".encode("utf-16"), 1, [("AMP000", 1)], id="UTF-16"),
        pytest.param(b"import torch\nwith torch.autocast('cuda', dtype=", 1, [("AMP000", 2)], id="truncated in a call"),
        pytest.param(b"# torch.autocast\ntext = '''\n\n", 1, [("AMP000", 2)], id="truncated in a string"),
        pytest.param(b"# torch.autocast\nif x:\n", 1, [("AMP000", 2)], id="truncated before a block"),
        pytest.param(
            b"# torch.autocast\ntry:\n    pass\nexcept E, e:\n    print 'x'\n", 1, [("AMP000", 4)], id="Python 2"
        ),
        pytest.param(b"# torch.autocast\nif x:\n\ty\n        z\n", 1, [("AMP000", 4)], id="tabs and blanks mixed"),
        pytest.param(b"# torch.autocast\nx = " + b"(" * 5000 + b")" * 5000, 1, [("AMP000", 2)], id="5000 parentheses"),
    ],
)
def test_contents(capsys: pytest.CaptureFixture[str], content: bytes, code: int, found: list[tuple[str, int]]) -> None:
    Path("a.py").write_bytes(content)
    assert check(capsys) == (code, found, "")
    assert main(["fix", "--apply", "--quiet"]) == code
    assert Path("a.py").read_bytes() == content


@pytest.mark.parametrize(
    "code",
    [
        pytest.param(b"x = " + b" + ".join([b"y"] * 3000), id="3000 terms"),
        pytest.param(b"x = y" + b".z()" * 3000, id="3000 calls"),
        pytest.param(b"x = " + b"not " * 3000 + b"y", id="3000 operators"),
        pytest.param(b"".join(b" " * n + b"if x:\n" for n in range(99)) + b" " * 99 + b"y", id="99 blocks"),
        pytest.param(b"if x: pass\n" + b"elif y: pass\n" * 2500, id="2500 branches"),
    ],
)
def test_deep_nesting_is_checked_or_reported(capsys: pytest.CaptureFixture[str], code: bytes) -> None:
    Path("a.py").write_bytes(b"# torch.autocast\n" + code)
    ran = check(capsys)
    # Python 3.12 and 3.13 give their parser less room than the others.
    assert ran == (0, [], "") or (ran == (1, [("AMP000", 1)], "") and sys.version_info[:2] in ((3, 12), (3, 13)))


@pytest.mark.skipif(sys.version_info >= (3, 15), reason="this Python knows the syntax")
def test_newer_syntax_is_a_mild_finding(capsys: pytest.CaptureFixture[str]) -> None:
    Path("a.py").write_text("lazy import torch  # torch.autocast\n")
    assert check(capsys) == (0, [("AMP000", 1)], "")


def test_five_megabytes_of_generated_code(capsys: pytest.CaptureFixture[str], toys: None) -> None:
    line = "values_{0:06} = [{0}, 'some text that a generator wrote', 'and some more of it']\n"
    text = "autocast = old\n" + "".join(line.format(n) for n in range(65_000)) + "autocast = old\n"
    assert len(text) > 5_000_000
    Path("a.py").write_text(text)
    assert main(["fix", "--apply", "--quiet"]) == 0
    assert Path("a.py").read_text() == text.replace("old", "new")


def test_a_broken_link(capsys: pytest.CaptureFixture[str]) -> None:
    Path("link.py").symlink_to("nowhere.py")
    assert check(capsys) == (2, [], "amplint: link.py: broken symbolic link\n")
    assert check(capsys, "link.py") == (2, [], "amplint: link.py: broken symbolic link\n")


def test_a_link_to_itself(capsys: pytest.CaptureFixture[str]) -> None:
    Path("loop.py").symlink_to("loop.py")
    code, found, err = check(capsys)
    assert (code, found) == (2, [])
    assert err.startswith("amplint: loop.py: ")


def test_a_directory_with_the_name_of_a_file(capsys: pytest.CaptureFixture[str]) -> None:
    Path("a.py").mkdir()
    Path("a.py/b.py").write_text("# torch.autocast\nx = (\n")
    assert check(capsys) == (1, [("AMP000", 2)], "")


@posix_only
def test_a_pipe_is_not_waited_for(capsys: pytest.CaptureFixture[str]) -> None:
    os.mkfifo("pipe.py")
    assert check(capsys) == (0, [], "amplint: warning: no Python files found\n")
    reason = "can't be read: not a regular file (`-` reads standard input)"
    assert check(capsys, "pipe.py") == (2, [], f"amplint: pipe.py: {reason}\n")


@pytest.mark.parametrize("name", ["with blank.py", "new\nline.py", "-dash.py", "ä.py", "quo'te.py"])
def test_odd_file_names(capsys: pytest.CaptureFixture[str], toys: None, name: str) -> None:
    Path(name).write_text(SOURCE)
    code, found, err = check(capsys)
    assert (code, [rule for rule, _ in found], err) == (1, ["TOY001", "TOY003", "TOY004"], "")
    assert main(["fix", "--apply", "--quiet"]) == 1
    assert Path(name).read_text() == FIXED


@posix_only
def test_a_file_name_that_is_not_utf8(capsys: pytest.CaptureFixture[str], toys: None) -> None:
    name = os.fsdecode(b"odd\xff.py")
    try:
        Path(name).write_text(SOURCE)
    except OSError:
        pytest.skip("the file system takes no such name")
    for output_format in ("text", "concise", "json", "sarif", "junit", "gitlab", "github", "json-lines"):
        assert main(["check", "--output-format", output_format]) == 1
        assert capsys.readouterr().err == ""
    assert main(["fix"]) == 1
    assert capsys.readouterr().out.startswith('--- "a/odd\\377.py"\n')


# -- what may happen meanwhile ----------------------------------------------------------------------------------------


@pytest.fixture
def nobody() -> Iterator[None]:
    """Give up the rights of root, which stand above all permissions, in a directory that nobody owns."""
    if os.name != "posix":
        pytest.skip("needs POSIX users")
    main(["check", "--quiet", "--no-cache"])  # imports what an ordinary user might not be able to read
    before = os.getcwd()
    directory = tempfile.mkdtemp()
    root = os.geteuid() == 0
    if root:
        os.chown(directory, 65534, 65534)
        os.setresuid(65534, 65534, 0)
    os.chdir(directory)
    yield
    if root:
        os.setresuid(0, 0, 0)
    os.chdir(before)
    shutil.rmtree(directory)


def test_a_directory_without_permission(capsys: pytest.CaptureFixture[str], toys: None, nobody: None) -> None:
    Path("open.py").write_text(SOURCE)
    Path("closed").mkdir()
    Path("closed/a.py").write_text(SOURCE)
    os.chmod("closed", 0)
    code, found, err = check(capsys)
    os.chmod("closed", 0o700)
    assert (code, [rule for rule, _ in found]) == (2, ["TOY001", "TOY003", "TOY004"])
    assert err == "amplint: closed: permission denied\n"


def test_a_file_without_permission(capsys: pytest.CaptureFixture[str], toys: None, nobody: None) -> None:
    Path("a.py").write_text(SOURCE)
    os.chmod("a.py", 0)
    assert check(capsys) == (2, [], "amplint: a.py: can't be read: permission denied\n")


@pytest.mark.parametrize(
    ("mode", "directory_mode", "reason"), [(0o444, 0o755, "it is read-only"), (0o644, 0o555, "permission denied")]
)
def test_what_may_not_be_written_is_left_alone(
    capsys: pytest.CaptureFixture[str], toys: None, nobody: None, mode: int, directory_mode: int, reason: str
) -> None:
    Path("d").mkdir()
    Path("d/a.py").write_text(SOURCE)
    os.chmod("d/a.py", mode)
    os.chmod("d", directory_mode)
    code = main(["fix", "--apply", "--quiet", "--no-cache"])
    os.chmod("d", 0o755)
    assert (code, capsys.readouterr().err) == (2, f"amplint: d/a.py: can't be written: {reason}\n")
    assert os.listdir("d") == ["a.py"]
    assert Path("d/a.py").read_text() == SOURCE


def test_a_file_that_vanishes_after_it_was_found(
    capsys: pytest.CaptureFixture[str], toys: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    from amplint import discover as module

    Path("a.py").write_text(SOURCE)
    Path("b.py").write_text(SOURCE)
    discover = module.discover

    def discover_and_remove(*arguments: object) -> object:
        found = discover(*arguments)  # type: ignore[arg-type]
        os.unlink("a.py")
        return found

    monkeypatch.setattr(module, "discover", discover_and_remove)
    code, found, err = check(capsys)
    assert (code, [rule for rule, _ in found]) == (2, ["TOY001", "TOY003", "TOY004"])
    assert err == "amplint: a.py: can't be read: no such file or directory\n"


def test_a_file_that_is_edited_while_it_is_fixed(
    capsys: pytest.CaptureFixture[str], toys: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    from amplint import run as module

    Path("a.py").write_text(SOURCE)
    examine = module.examine

    def examine_and_edit(*arguments: object) -> object:
        result = examine(*arguments)  # type: ignore[arg-type]
        Path("a.py").write_text("an editor saved this\n")
        return result

    monkeypatch.setattr(module, "examine", examine_and_edit)
    assert main(["fix", "--apply", "--quiet"]) == 2
    assert capsys.readouterr().err == "amplint: a.py: changed on disk while it was being fixed; not written\n"
    assert Path("a.py").read_text() == "an editor saved this\n"


def test_a_full_disk(capsys: pytest.CaptureFixture[str], toys: None, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("a.py", "b.py"):
        Path(name).write_text(SOURCE)

    def fail(*_: object) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(os, "write", fail)
        assert main(["fix", "--apply", "--quiet", "--no-cache"]) == 2
    assert capsys.readouterr().err == (
        "amplint: a.py: can't be written: no space left on device\n"
        "amplint: b.py: can't be written: no space left on device\n"
    )
    assert sorted(os.listdir()) == ["a.py", "b.py"]
    assert [Path(name).read_text() for name in ("a.py", "b.py")] == [SOURCE, SOURCE]


@posix_only
def test_a_real_limit_on_what_may_be_written(here: Path) -> None:
    Path("small.py").write_text(SOURCE)
    Path("large.py").write_text(SOURCE * 500)
    ran = drive(
        "import resource, signal\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (8192, 8192))\n"
    )
    _, err = ran.communicate()
    assert ran.returncode == 2
    assert "amplint: large.py: can't be written: file too large\n" in err
    assert (Path("small.py").read_text(), Path("large.py").read_text()) == (FIXED, SOURCE * 500)
    assert sorted(name for name in os.listdir() if not name.startswith(".amplint_cache")) == ["large.py", "small.py"]


# -- interrupted and killed -------------------------------------------------------------------------------------------

FILES = 40


def drive(before: str, jobs: int = 1, pool: bool = False) -> subprocess.Popen[str]:
    """Start `amplint fix --apply` with the toy rules in a process of its own, after some code of the test."""
    code = (
        f"import sys\nsys.path.insert(0, {str(ROOT)!r})\n"
        "import os, signal, time, amplint.run, amplint.files\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"  # which a job in the background ignores
        "from tests.toys import install_toys\n"
        "install_toys()\n"
        f"amplint.run.POOL_BYTES = {0 if pool else 10**9}\n"
        f"{before}\n"
        "from amplint.cli import main\n"
        f"sys.exit(main(['fix', '--apply', '--jobs', '{jobs}', '--quiet']))\n"
    )
    return subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def old_text(number: int) -> str:
    return SOURCE + f"x = {number}\n" * (number + 1)


def write_files() -> None:
    for number in range(FILES):
        Path(f"f{number}.py").write_text(old_text(number))


def fixed_files() -> int:
    """How many files are fixed; each must hold its old or its new text, and no other Python file may be there."""
    fixed = 0
    for number in range(FILES):
        text, old = Path(f"f{number}.py").read_text(), old_text(number)
        new = old.replace("old", "new")
        assert text in (old, new)
        fixed += text == new
    assert len(list(Path().rglob("*.py"))) == FILES
    return fixed


def temporary_files() -> list[str]:
    return [name for name in os.listdir() if name.startswith(".amplint-")]


def wait_for(path: str, process: subprocess.Popen[str]) -> None:
    while not os.path.exists(path):
        assert process.poll() is None, process.communicate()
        time.sleep(0.005)


@posix_only
@pytest.mark.parametrize("call", ["os.open", "os.write", "os.fsync", "os.close", "os.replace"])
@pytest.mark.parametrize("when", ["before", "after"])
def test_killed_at_any_step_of_a_write(toys: None, call: str, when: str) -> None:
    write_files()
    function = call.removeprefix("os.")
    kill = "os.kill(os.getpid(), 9)"
    ran = drive(
        f"calls, original = [], {call}\n"
        "def killed(*arguments, **keywords):\n"
        "    calls.append(1)\n"
        f"    if len(calls) == 8 and '{when}' == 'before': {kill}\n"
        "    result = original(*arguments, **keywords)\n"
        f"    if len(calls) == 8: {kill}\n"
        "    return result\n"
        "write = amplint.run.write_atomically\n"
        "def write_and_be_killed(*arguments, **keywords):\n"
        f"    os.{function} = killed\n"
        "    try:\n"
        "        write(*arguments, **keywords)\n"
        "    finally:\n"
        f"        os.{function} = original\n"
        "amplint.run.write_atomically = write_and_be_killed\n"
    )
    ran.communicate()
    assert ran.returncode == -signal.SIGKILL
    assert 0 < fixed_files() < FILES
    assert len(temporary_files()) <= 1
    assert main(["fix", "--apply", "--quiet", "--ignore", "TOY003"]) == 0
    assert fixed_files() == FILES


@posix_only
@pytest.mark.parametrize("pool", [False, True])
def test_killed_from_outside(toys: None, pool: bool) -> None:
    write_files()
    ran = drive(
        "examine = amplint.run.examine\n"
        "def slowly(*arguments):\n"
        "    time.sleep(0.02)\n"
        "    return examine(*arguments)\n"
        "amplint.run.examine = slowly\n"
        "fsync = os.fsync\n"
        "def fsync_and_tell(descriptor):\n"
        "    open('started', 'w').close()\n"
        "    fsync(descriptor)\n"
        "os.fsync = fsync_and_tell\n",
        jobs=2,
        pool=pool,
    )
    wait_for("started", ran)
    time.sleep(0.05)
    ran.kill()
    ran.communicate()  # returns when the workers have ended too
    assert ran.returncode == -signal.SIGKILL
    assert fixed_files() < FILES
    assert main(["fix", "--apply", "--quiet", "--ignore", "TOY003"]) == 0
    assert fixed_files() == FILES


@posix_only
@pytest.mark.parametrize("pool", [False, True])
def test_interrupted(toys: None, pool: bool) -> None:
    write_files()
    ran = drive(
        "examine = amplint.run.examine\n"
        "def slowly(*arguments):\n"
        "    open('started', 'w').close()\n"
        "    time.sleep(0.2)\n"
        "    return examine(*arguments)\n"
        "amplint.run.examine = slowly\n",
        jobs=2,
        pool=pool,
    )
    wait_for("started", ran)
    ran.send_signal(signal.SIGINT)
    out, err = ran.communicate()
    assert (ran.returncode, out, err) == (130, "", "\namplint: interrupted\n")
    assert fixed_files() < FILES
    assert temporary_files() == []
