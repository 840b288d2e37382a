"""The command line: what goes to which stream, and the exit code."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from amplint.cli import main
from amplint.report import FORMATS
from tests.toys import FIXED, SOURCE, UNSAFELY_FIXED, toys

__all__ = ["toys"]

WARNING = "autocast = old\n"
ERROR = "autocast = risky\n"
INFO = "autocast = plain\n"
CLEAN = "autocast = 1\n"


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty project, and no wish about colours in the environment."""
    monkeypatch.chdir(tmp_path)
    for name in ("NO_COLOR", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


class Ran:
    """How a call of the command line ended."""

    def __init__(self, code: int, out: str, err: str) -> None:
        self.code, self.out, self.err = code, out, err

    @property
    def codes(self) -> list[str]:
        return [found["code"] for found in json.loads(self.out)]


@pytest.fixture
def amplint(toys: None, capsys: pytest.CaptureFixture[str]) -> Amplint:
    return Amplint(capsys)


class Amplint:
    """Calls the command line with toy rules."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys

    def __call__(self, *arguments: str) -> Ran:
        self._capsys.readouterr()
        code = main(arguments)
        return Ran(code, *self._capsys.readouterr())


def stdin(monkeypatch: pytest.MonkeyPatch, data: bytes) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data)))


def run_module(*arguments: str, **environment: str) -> subprocess.CompletedProcess[bytes]:
    """Run the real program in a process of its own."""
    return subprocess.run(
        [sys.executable, "-m", "amplint", *arguments],
        env={**os.environ, **environment},
        capture_output=True,
        check=False,
    )


# -- check ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("source", "options", "code"),
    [
        (CLEAN, [], 0),
        (INFO, [], 0),
        (WARNING, [], 1),
        (ERROR, [], 1),
        (INFO, ["--fail-level", "info"], 1),
        (WARNING, ["--fail-level", "error"], 0),
        (ERROR, ["--fail-level", "error"], 1),
        (ERROR, ["--exit-zero"], 0),
        ("autocast = (\n", [], 1),
        ("autocast = (\n", ["--exit-zero"], 0),
    ],
)
def test_exit_code_of_check(amplint: Amplint, source: str, options: list[str], code: int) -> None:
    Path("a.py").write_text(source)
    assert amplint("check", *options).code == code


def test_check_reads_the_current_directory_and_writes_to_standard_output(amplint: Amplint) -> None:
    Path("a.py").write_text(SOURCE)
    ran = amplint("check", "--output-format", "concise")
    assert (ran.code, ran.err) == (1, "")
    assert ran.out == (
        "a.py:1:12: TOY001 [*] old is found\n"
        "a.py:1:17: TOY003 risky is found\n"
        "a.py:1:24: TOY004 plain is found\n"
        "Found 1 error, 1 warning, 1 info (1 fixable with `amplint fix`, 1 more with --unsafe-fixes).\n"
    )


def test_the_default_output_shows_the_source(amplint: Amplint) -> None:
    Path("a.py").write_text(WARNING)
    ran = amplint("check")
    assert "a.py:1:12: TOY001 toy-safe [warning] old is found\n" in ran.out
    assert "1 | autocast = old\n" in ran.out


def test_a_cached_run_prints_the_same(amplint: Amplint) -> None:
    Path("a.py").write_text(SOURCE)
    os.utime("a.py", (1, 1))
    first = amplint("check")
    assert Path(".amplint_cache/findings.json").exists()
    second = amplint("check")
    assert (second.code, second.out, second.err) == (first.code, first.out, first.err)


def test_no_cache_writes_none(amplint: Amplint) -> None:
    Path("a.py").write_text(SOURCE)
    amplint("check", "--no-cache")
    assert os.listdir() == ["a.py"]


def test_the_cache_stands_beside_the_settings(amplint: Amplint, monkeypatch: pytest.MonkeyPatch) -> None:
    Path("amplint.toml").write_text("")
    Path("sub").mkdir()
    monkeypatch.chdir("sub")
    Path("a.py").write_text(SOURCE)
    amplint("check")
    assert os.listdir() == ["a.py"]
    assert sorted(os.listdir("..")) == [".amplint_cache", "amplint.toml", "sub"]


def test_findings_are_in_the_order_of_files_and_places(amplint: Amplint) -> None:
    for name in ("b", "a", "c"):
        Path(f"{name}.py").write_text(WARNING)
    ran = amplint("check", "c.py", "b.py", "a.py", "--output-format", "json")
    assert [found["filename"] for found in json.loads(ran.out)] == ["a.py", "b.py", "c.py"]


@pytest.mark.parametrize(
    ("options", "codes"),
    [
        (["--select", "TOY001"], ["TOY001"]),
        (["--select", "TOY001,toy-plain"], ["TOY001", "TOY004"]),
        (["--select", "TOY001", "--select", "TOY003"], ["TOY001", "TOY003"]),
        (["--ignore", "toy-unsafe"], ["TOY001", "TOY004"]),
        (["--extend-select", "TOY005"], ["TOY001", "TOY003", "TOY004", "TOY005"]),
        (["--select", "ALL", "--extend-ignore", "TOY00", "--extend-select", "TOY001"], ["TOY001"]),
        (["--per-file-ignores", "*.py:TOY001,TOY003"], ["TOY004"]),
        (["--per-file-ignores", "b.py:TOY001"], ["TOY001", "TOY003", "TOY004"]),
    ],
)
def test_rules_are_chosen_by_code_prefix_and_name(amplint: Amplint, options: list[str], codes: list[str]) -> None:
    Path("a.py").write_text(SOURCE.replace("plain", "plain, quiet"))
    assert amplint("check", "--output-format", "json", *options).codes == codes


def test_files_are_left_out_by_pattern(amplint: Amplint) -> None:
    for name in ("a", "b"):
        Path(f"{name}.py").write_text(WARNING)
    for option in ("--exclude", "--extend-exclude"):
        ran = amplint("check", option, "b.py", "--output-format", "json")
        assert [found["filename"] for found in json.loads(ran.out)] == ["a.py"]
    assert amplint("check", "b.py", "--exclude", "b.py", "--output-format", "json").codes == ["TOY001"]


def test_settings_of_the_project_are_used_and_those_of_the_command_line_win(amplint: Amplint) -> None:
    Path("a.py").write_text(SOURCE)
    Path("pyproject.toml").write_text('[tool.amplint]\nselect = ["TOY003"]\nfail-level = "error"\n')
    assert amplint("check", "--output-format", "json").codes == ["TOY003"]
    assert amplint("check", "--output-format", "json", "--select", "TOY001").codes == ["TOY001"]
    assert amplint("check", "--select", "TOY001").code == 0
    assert amplint("check", "--isolated", "--output-format", "json").codes == ["TOY001", "TOY003", "TOY004"]
    Path("other.toml").write_text('select = ["TOY004"]\n')
    assert amplint("check", "--config", "other.toml", "--output-format", "json").codes == ["TOY004"]


def test_reports_go_to_files_and_one_to_standard_output(amplint: Amplint) -> None:
    Path("a.py").write_text(WARNING)
    ran = amplint(
        "check", "--output-format", "json=out.json", "--output-format", "sarif=out.sarif", "--output-format", "concise"
    )
    assert ran.out.startswith("a.py:1:12: TOY001 [*] old is found\n")
    assert [found["code"] for found in json.loads(Path("out.json").read_text())] == ["TOY001"]
    assert json.loads(Path("out.sarif").read_text())["version"] == "2.1.0"


def test_a_report_in_a_file_does_not_silence_standard_output(amplint: Amplint) -> None:
    Path("a.py").write_text(WARNING)
    assert "TOY001 toy-safe" in amplint("check", "--output-format", "json=out.json").out


@pytest.mark.parametrize("output_format", FORMATS)
@pytest.mark.parametrize("source", [SOURCE, CLEAN])
def test_every_format_writes_the_same_to_a_file(amplint: Amplint, output_format: str, source: str) -> None:
    Path("a.py").write_text(source)
    ran = amplint("check", "--output-format", output_format, "--output-format", f"{output_format}=out")
    assert Path("out").read_text() == ran.out


def test_a_report_that_cannot_be_written_is_a_failure(amplint: Amplint) -> None:
    Path("a.py").write_text(CLEAN)
    ran = amplint("check", "--output-format", "json=missing/out.json")
    assert (ran.code, ran.err) == (2, "amplint: missing/out.json: can't be written: no such file or directory\n")


def test_statistics_count_the_rules(amplint: Amplint) -> None:
    Path("a.py").write_text(SOURCE + "autocast = old, risky\n")
    Path("b.py").write_text(WARNING * 8)
    ran = amplint("check", "--statistics")
    assert (ran.code, ran.err) == (1, "")
    assert ran.out == "10  TOY001  [*]  toy-safe\n 2  TOY003       toy-unsafe\n 1  TOY004       toy-plain\n"


def test_statistics_do_not_spoil_other_formats(amplint: Amplint) -> None:
    Path("a.py").write_text(WARNING)
    ran = amplint("check", "--statistics", "--output-format", "json")
    assert ran.codes == ["TOY001"]
    assert ran.err == "1  TOY001  [*]  toy-safe\n"


def test_quiet_prints_findings_only(amplint: Amplint) -> None:
    Path("a.py").write_text(CLEAN)
    assert amplint("check").out == "All checks passed!\n"
    ran = amplint("check", "--quiet")
    assert (ran.code, ran.out, ran.err) == (0, "", "")
    Path("a.py").write_text(WARNING)
    assert "TOY001" in amplint("check", "--quiet").out


def test_a_directory_without_python_is_told(amplint: Amplint) -> None:
    ran = amplint("check")
    assert (ran.code, ran.out, ran.err) == (0, "All checks passed!\n", "amplint: warning: no Python files found\n")


def test_verbose_tells_the_torch_that_is_assumed(amplint: Amplint) -> None:
    Path("a.py").write_text(CLEAN)
    assert amplint("check", "-v").err == "1 file checked for the current torch\n"
    Path("requirements.txt").write_text("torch>=1.13\n")
    err = amplint("check", "--verbose").err
    assert err.startswith("1 file checked for torch 1.13 and newer (")
    assert "requirements.txt" in err
    assert (
        amplint("check", "-v", "--target-torch", "2.1").err
        == "1 file checked for torch 2.1 and newer (--target-torch 2.1)\n"
    )


def test_a_missing_path_is_a_failure_and_the_others_are_checked(amplint: Amplint) -> None:
    Path("a.py").write_text(WARNING)
    ran = amplint("check", "a.py", "missing.py", "--output-format", "json")
    assert (ran.code, ran.codes) == (2, ["TOY001"])
    assert ran.err == "amplint: missing.py: no such file or directory\n"


def test_no_success_is_claimed_when_something_failed(amplint: Amplint) -> None:
    ran = amplint("check", "missing.py")
    assert (ran.code, ran.out) == (2, "")


def test_an_internal_fault_is_a_failure_that_asks_for_a_report(amplint: Amplint) -> None:
    Path("a.py").write_text("autocast = old\ncrash\n")
    Path("b.py").write_text(WARNING)
    for options in ([], ["--exit-zero"]):
        ran = amplint("check", "--output-format", "json", *options)
        assert (ran.code, ran.codes) == (2, ["TOY001", "TOY001"])
        first, second = ran.err.splitlines()
        assert first.startswith(
            "amplint: a.py: internal fault: rule TOY002 failed: ValueError: the toy broke (toys.py:"
        )
        assert first.endswith("; please report this with the file")
        assert second == (
            "amplint: internal faults are bugs of amplint; please report them at https://github.com/amplint/amplint/issues"
        )


# -- usage ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["check", "--select", "TOY0O1"], "amplint: --select: unknown rule `TOY0O1`, did you mean `TOY001`?"),
        (["check", "--ignore", "toy-save"], "amplint: --ignore: unknown rule `toy-save`, did you mean `toy-safe`?"),
        (["check", "--target-torch", "two"], "amplint: --target-torch: `two` is not a version of torch"),
        (["check", "--fail-level", "bad"], "'bad' is not one of 'info', 'warning', 'error'."),
        (
            ["check", "--output-format", "sariff"],
            "unknown format `sariff`, did you mean `sarif`? (one of text, concise,",
        ),
        (["check", "--output-format", "json="], "no file after `json=`"),
        (
            ["check", "--output-format", "json", "--output-format", "text"],
            "only one --output-format can go to standard output",
        ),
        (["check", "--per-file-ignores", "AMP001"], "`AMP001` is not like `tests/*.py:AMP1,AMP301`"),
        (["check", "--jobs", "0"], "0 is not in the range x>=1"),
        (["check", "-", "a.py"], "`-` (standard input) can't be combined with other paths"),
        (["check", "--stdin-filename", "a.py"], "--stdin-filename needs the path `-`"),
        (["check", "-", "--add-noqa"], "--add-noqa writes files, and standard input is none"),
        (["fix", "-", "--apply"], "--apply writes files, and standard input is none"),
        (
            ["fix", "--output-format", "json"],
            "standard output is for the diff; use --output-format FORMAT=FILE, or --apply",
        ),
        (
            ["fix", "-", "--output-format", "json"],
            "standard output is for the fixed code; use --output-format FORMAT=FILE\n",
        ),
        (
            ["check", "--output-format", "json=a", "--output-format", "junit=a"],
            "two --output-format can't go to the same file",
        ),
        (["check", "--config", "missing.toml"], "amplint: missing.toml: No such file or directory"),
        (["check", "--bogus"], "No such option"),
        (["chekc"], "No such command 'chekc'"),
        (["rule"], "name one rule, or use --all"),
        (["rule", "TOY001", "--all"], "name one rule, or use --all"),
        (["rule", "TOY9"], "unknown rule `TOY9`"),
        (["rule", "TOY"], "`TOY` stands for several rules; name one, or use --all"),
        (["config", "missing"], "Path 'missing' does not exist."),
        (["completion", "tcsh"], "'tcsh' is not one of 'bash', 'zsh', 'fish'."),
    ],
)
def test_wrong_usage(amplint: Amplint, arguments: list[str], message: str) -> None:
    ran = amplint(*arguments)
    assert (ran.code, ran.out) == (2, "")
    assert message in ran.err


def test_wrong_settings_are_a_failure(amplint: Amplint) -> None:
    Path("pyproject.toml").write_text('[tool.amplint]\nselct = ["AMP"]\n')
    ran = amplint("check")
    assert (ran.code, ran.out) == (2, "")
    assert ran.err == "amplint: pyproject.toml [tool.amplint]: unknown setting `selct`, did you mean `select`?\n"


def test_a_crash_is_an_internal_fault(amplint: Amplint, monkeypatch: pytest.MonkeyPatch) -> None:
    def crash(*_: object) -> int:
        raise ZeroDivisionError("oh")

    monkeypatch.setattr("amplint.commands.check", crash)
    ran = amplint("check")
    assert (ran.code, ran.out) == (2, "")
    assert ran.err.endswith(
        "ZeroDivisionError: oh\namplint: internal fault; please report this at https://github.com/amplint/amplint/issues\n"
    )


@pytest.mark.parametrize("arguments", [["--help"], ["-h"], ["check", "--help"], ["fix", "-h"], ["rule", "--help"]])
def test_help(amplint: Amplint, arguments: list[str]) -> None:
    ran = amplint(*arguments)
    assert (ran.code, ran.err) == (0, "")
    assert ran.out.startswith("Usage: amplint")


def test_help_tells_every_command_in_a_whole_sentence(amplint: Amplint) -> None:
    listed = amplint("--help").out.split("Commands:\n")[1].splitlines()
    assert [line.split()[0] for line in listed] == ["check", "completion", "config", "fix", "migrate", "rule", "trace"]
    assert [line for line in listed if not line.endswith(".") or line.endswith("...")] == []


# -- fix --------------------------------------------------------------------------------------------------------------


def test_fix_prints_a_diff_that_git_applies(amplint: Amplint) -> None:
    Path("a.py").write_text(SOURCE)
    ran = amplint("fix")
    assert (ran.code, Path("a.py").read_text()) == (1, SOURCE)
    assert ran.out == f"--- a/a.py\n+++ b/a.py\n@@ -1 +1 @@\n-{SOURCE}+{FIXED}"
    assert ran.err == (
        "Would fix 1 finding in 1 file; 2 remain (1 fixable with --unsafe-fixes); "
        "`amplint fix --apply` writes the changes.\n"
    )
    subprocess.run(["git", "apply", "-"], input=ran.out.encode(), check=True)
    assert Path("a.py").read_text() == FIXED


@pytest.mark.parametrize(
    "source",
    [
        b"\xef\xbb\xbfautocast = old\r\nx = '\xc3\xa4'",
        b"# coding: latin-1\nx = '\xe4'\nautocast = old\n",
        b"autocast = old\rx = 1\r",
    ],
)
def test_the_diff_is_written_in_the_encoding_of_the_file(
    here: Path, capfdbinary: pytest.CaptureFixture[bytes], toys: None, source: bytes
) -> None:
    Path("a.py").write_bytes(source)
    assert main(["fix", "--quiet"]) == 1
    diff = capfdbinary.readouterr().out
    subprocess.run(["git", "apply", "-"], input=diff, check=True)
    assert Path("a.py").read_bytes() == source.replace(b"old", b"new")


def test_diffs_of_files_named_by_absolute_paths_are_relative(amplint: Amplint, here: Path) -> None:
    Path("a.py").write_text(WARNING)
    assert amplint("fix", str(here / "a.py")).out.startswith("--- a/a.py\n+++ b/a.py\n")


def test_fix_with_nothing_to_fix(amplint: Amplint) -> None:
    Path("a.py").write_text(CLEAN)
    ran = amplint("fix")
    assert (ran.code, ran.out, ran.err) == (0, "", "Nothing to fix.\n")


def test_fix_fails_when_unfixable_findings_remain(amplint: Amplint) -> None:
    Path("a.py").write_text(ERROR)
    for options in ([], ["--apply"]):
        ran = amplint("fix", "--quiet", *options)
        assert ran.code == 1
        assert ran.err == ""


@pytest.mark.parametrize(
    ("source", "options", "code", "text"),
    [
        (WARNING, [], 0, "autocast = new\n"),
        (WARNING, ["--exit-non-zero-on-fix"], 1, "autocast = new\n"),
        (SOURCE, [], 1, FIXED),
        (SOURCE, ["--exit-zero"], 0, FIXED),
        (SOURCE, ["--unsafe-fixes"], 0, UNSAFELY_FIXED),
        (SOURCE, ["--ignore", "TOY001"], 1, SOURCE),
        (CLEAN, ["--exit-non-zero-on-fix"], 0, CLEAN),
    ],
)
def test_fix_apply(amplint: Amplint, source: str, options: list[str], code: int, text: str) -> None:
    Path("a.py").write_text(source)
    assert amplint("fix", "--apply", *options).code == code
    assert Path("a.py").read_text() == text


def test_fix_apply_reports_what_was_fixed_and_what_remains(amplint: Amplint) -> None:
    Path("a.py").write_text(SOURCE)
    ran = amplint("fix", "--apply", "--output-format", "json")
    assert ran.codes == ["TOY003", "TOY004"]
    assert ran.err == (
        "fixed a.py:1:12: TOY001 old is found\nFixed 1 finding in 1 file; 2 remain (1 fixable with --unsafe-fixes).\n"
    )


def test_fixing_twice_changes_nothing(amplint: Amplint) -> None:
    Path("a.py").write_text(WARNING)
    amplint("fix", "--apply")
    ran = amplint("fix", "--apply")
    assert (ran.code, ran.out, ran.err) == (0, "All checks passed!\n", "Nothing to fix.\n")


def test_a_file_that_cannot_be_written_is_a_failure_and_the_others_are_fixed(
    amplint: Amplint, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("a", "b"):
        Path(f"{name}.py").write_text(WARNING)
    access = os.access
    monkeypatch.setattr(os, "access", lambda path, mode: Path(path).name != "a.py" and access(path, mode))
    ran = amplint("fix", "--apply", "--output-format", "json")
    assert (ran.code, ran.codes) == (2, ["TOY001"])
    assert ran.err == (
        "fixed b.py:1:12: TOY001 old is found\nFixed 1 finding in 1 file; 1 remains.\n"
        "amplint: a.py: can't be written: it is read-only\n"
    )
    assert [Path(f"{name}.py").read_text() for name in ("a", "b")] == [WARNING, "autocast = new\n"]


# -- standard input ---------------------------------------------------------------------------------------------------


def test_check_standard_input(amplint: Amplint, monkeypatch: pytest.MonkeyPatch) -> None:
    stdin(monkeypatch, SOURCE.encode())
    ran = amplint("check", "-", "--output-format", "json")
    assert (ran.code, ran.codes) == (1, ["TOY001", "TOY003", "TOY004"])
    assert {found["filename"] for found in json.loads(ran.out)} == {"<stdin>"}
    assert os.listdir() == []


def test_the_name_of_standard_input_decides_the_settings(amplint: Amplint, monkeypatch: pytest.MonkeyPatch) -> None:
    Path("sub").mkdir()
    Path("sub/amplint.toml").write_text('select = ["TOY004"]\n')
    stdin(monkeypatch, SOURCE.encode())
    ran = amplint("check", "-", "--stdin-filename", "sub/a.py", "--output-format", "json")
    assert [(found["code"], found["filename"]) for found in json.loads(ran.out)] == [("TOY004", "sub/a.py")]


def test_fix_standard_input(amplint: Amplint, monkeypatch: pytest.MonkeyPatch) -> None:
    stdin(monkeypatch, SOURCE.encode())
    ran = amplint("fix", "-")
    assert (ran.code, ran.out) == (1, FIXED)
    assert ran.err == "Fixed 1 finding in 1 file; 2 remain (1 fixable with --unsafe-fixes).\n"


@pytest.mark.parametrize(
    ("data", "out", "code"),
    [
        (WARNING.encode(), b"autocast = new\n", 0),
        (CLEAN.encode(), CLEAN.encode(), 0),
        (b"x = \xff\n", b"x = \xff\n", 1),
        (b"\xef\xbb\xbfautocast = old\r\n", b"\xef\xbb\xbfautocast = new\r\n", 0),
        (b"# coding: latin-1\nautocast = old, '\xe4'", b"# coding: latin-1\nautocast = new, '\xe4'", 0),
        (b"autocast = old\ncrash\n", b"autocast = new\ncrash\n", 2),
    ],
)
def test_fixed_standard_input_keeps_its_bytes(
    toys: None,
    capfdbinary: pytest.CaptureFixture[bytes],
    monkeypatch: pytest.MonkeyPatch,
    data: bytes,
    out: bytes,
    code: int,
) -> None:
    stdin(monkeypatch, data)
    assert main(["fix", "-"]) == code
    assert capfdbinary.readouterr().out == out


# -- add-noqa ---------------------------------------------------------------------------------------------------------


def test_add_noqa(amplint: Amplint) -> None:
    Path("a.py").write_text(SOURCE)
    Path("b.py").write_bytes(b"\xef\xbb\xbf" + WARNING.replace("\n", "\r\n").encode())
    Path("c.py").write_text(CLEAN)
    ran = amplint("check", "--add-noqa")
    assert (ran.code, ran.out, ran.err) == (0, "", "Suppressed 4 findings in 2 files.\n")
    assert Path("a.py").read_text() == "autocast = old, risky, plain  # noqa: TOY001, TOY003, TOY004\n"
    assert Path("b.py").read_bytes() == b"\xef\xbb\xbfautocast = old  # noqa: TOY001\r\n"
    assert amplint("check").out == "All checks passed!\n"


def test_add_noqa_tells_what_it_cannot_suppress(amplint: Amplint) -> None:
    Path("a.py").write_text("autocast = (\n")
    ran = amplint("check", "--add-noqa")
    assert (ran.code, Path("a.py").read_text()) == (2, "autocast = (\n")
    assert "AMP000 can't be suppressed" in ran.err


# -- rule, config, completion, version --------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["TOY001", "toy001", "toy-safe", "TOY-SAFE"])
def test_rule_page(amplint: Amplint, name: str) -> None:
    ran = amplint("rule", name)
    assert (ran.code, ran.err) == (0, "")
    assert ran.out == "# toy-safe (TOY001)\n\nLevel: warning, on by default. Fix: safe.\n\nFind a word.\n"


def test_rule_page_as_json(amplint: Amplint) -> None:
    assert json.loads(amplint("rule", "TOY005", "--output-format", "json").out) == {
        "code": "TOY005",
        "name": "toy-off",
        "level": "error",
        "default": False,
        "fix": None,
        "summary": "Find a word.",
        "page": "# toy-off (TOY005)\n\nLevel: error, off by default. Fix: none.\n\nFind a word.\n",
        "url": "https://github.com/amplint/amplint/blob/main/docs/rules/TOY005-toy-off.md",
    }


def test_all_rule_pages(amplint: Amplint) -> None:
    codes = ["AMP000", "TOY001", "TOY002", "TOY003", "TOY004", "TOY005", "TOY006"]
    assert amplint("rule", "--all", "--output-format", "json").codes == codes
    text = amplint("rule", "--all").out
    assert [line.split("(")[1][:-1] for line in text.splitlines() if line.startswith("# ")] == codes


def test_config_tells_values_and_their_places(amplint: Amplint, here: Path) -> None:
    Path("pyproject.toml").write_text(
        '[tool.amplint]\nselect = ["TOY001"]\nper-file-ignores = { "t.py" = ["TOY003"] }\n'
    )
    Path("requirements.txt").write_text("torch>=2.1\n")
    ran = amplint("config", "--fail-level", "error")
    assert (ran.code, ran.err) == (0, "")
    lines = ran.out.splitlines()
    assert 'select = ["TOY001"]  # pyproject.toml [tool.amplint]' in lines
    assert 'per-file-ignores = {"t.py" = ["TOY003"]}  # pyproject.toml [tool.amplint]' in lines
    assert 'fail-level = "error"  # command line' in lines
    assert "ignore = []  # default" in lines
    assert f"# patterns are relative to {here}" in lines
    assert "# rules: AMP000 TOY001" in lines
    [torch] = [line for line in lines if line.startswith("target-torch")]
    assert torch.startswith('target-torch = "2.1"  # ')
    assert "requirements.txt" in torch


def test_config_as_json(amplint: Amplint, here: Path) -> None:
    data = json.loads(amplint("config", "--output-format", "json", "--ignore", "TOY001").out)
    assert data["settings"]["ignore"] == {"value": ["TOY001"], "origin": "command line"}
    assert data["settings"]["target-torch"] == {"value": "current", "origin": None}
    assert data["root"] == str(here)
    assert data["rules"] == ["AMP000", "TOY002", "TOY003", "TOY004", "TOY006"]


def test_config_is_toml_that_can_be_used(amplint: Amplint) -> None:
    Path("amplint.toml").write_text(amplint("config").out)
    assert amplint("config").code == 0


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_prints_code_for_the_shell(amplint: Amplint, shell: str) -> None:
    ran = amplint("completion", shell)
    assert (ran.code, ran.err) == (0, "")
    assert f"_AMPLINT_COMPLETE={shell}_complete" in ran.out


def test_completion_offers_commands_options_and_rules() -> None:
    def words(line: str, position: int) -> list[str]:
        ran = run_module(_AMPLINT_COMPLETE="bash_complete", COMP_WORDS=line, COMP_CWORD=str(position))
        return [word.split(",")[1] for word in ran.stdout.decode().split()]

    assert words("amplint ", 1) == ["check", "completion", "config", "fix", "migrate", "rule", "trace"]
    assert words("amplint fix --un", 2) == ["--unsafe-fixes"]
    assert words("amplint check --select AMP0", 3)[:1] == ["AMP000"]
    assert words("amplint check --output-format js", 3) == ["json", "json-lines"]
    assert words("amplint rule clip-b", 2) == ["clip-before-unscale"]


def test_version() -> None:
    ran = run_module("--version")
    assert (ran.returncode, ran.stdout.replace(b"\r", b""), ran.stderr) == (0, b"amplint 0.1.0\n", b"")


def test_the_version_needs_no_imports() -> None:
    code = (
        "import sys; sys.argv[1:] = ['--version']; from amplint.__main__ import main; main(); print(list(sys.modules))"
    )
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert [module for module in ("click", "ast", "json", "amplint.cli") if f"'{module}'" in loaded] == []


def test_files_without_a_trigger_import_no_rule() -> None:
    Path("a.py").write_text("x = 1\n")
    code = "import sys; from amplint.cli import main; main(['check', '--quiet']); print(sorted(sys.modules))"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    unwanted = ("libcst", "amplint.check", "amplint.source", "amplint.edits", "multiprocessing", "pathspec", "logging")
    assert [module for module in unwanted if f"'{module}'" in loaded] == []


# -- streams ----------------------------------------------------------------------------------------------------------


def test_output_can_be_encoded_whatever_the_locale() -> None:
    Path("ä.py").write_bytes("'ß'; torch.autocast = (\n".encode())
    ran = run_module("check", PYTHONIOENCODING="ascii", PYTHONUTF8="0")
    assert ran.returncode == 1
    assert b"\\xe4.py:1:23: AMP000" in ran.stdout
    assert b"Traceback" not in ran.stderr


@pytest.mark.skipif(sys.platform == "win32", reason="a pipe is closed")
@pytest.mark.parametrize("arguments", [["check", "--output-format", "concise"], ["rule", "--all"]])
def test_a_broken_pipe_is_quiet(arguments: list[str]) -> None:
    for n in range(50):
        Path(f"f{n}.py").write_text("torch.autocast = (\n")
    process = subprocess.Popen(
        [sys.executable, "-m", "amplint", *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.close()
    assert process.stderr.read() == b""
    process.stderr.close()
    assert process.wait() == (1 if "check" in arguments else 0)


@pytest.mark.parametrize(
    ("options", "environment", "colored"),
    [
        ([], {}, False),
        ([], {"FORCE_COLOR": "1"}, True),
        ([], {"FORCE_COLOR": "0"}, False),
        ([], {"FORCE_COLOR": "1", "NO_COLOR": "1"}, False),
        ([], {"NO_COLOR": ""}, False),
        (["--color", "always"], {"NO_COLOR": "1"}, True),
        (["--color", "never"], {"FORCE_COLOR": "1"}, False),
    ],
)
@pytest.mark.parametrize("command", ["check", "fix"])
def test_colors(
    amplint: Amplint,
    monkeypatch: pytest.MonkeyPatch,
    command: str,
    options: list[str],
    environment: dict[str, str],
    colored: bool,
) -> None:
    Path("a.py").write_text(WARNING)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert ("\033[" in amplint(command, *options).out) is colored


def test_a_coloured_diff_without_its_colours_is_the_diff(amplint: Amplint) -> None:
    import re

    Path("a.py").write_text(SOURCE)
    colored = amplint("fix", "--color", "always").out
    assert re.sub(r"\033\[\d*m", "", colored) == amplint("fix").out


def test_progress_is_shown_after_a_second_and_wiped_out(monkeypatch: pytest.MonkeyPatch) -> None:
    from amplint import console

    now = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    stream = io.StringIO()
    bar = console.Progress(stream)
    bar(1, 10)
    assert stream.getvalue() == ""
    now[0] = 101.0
    bar(5, 10)
    bar(6, 10)
    assert stream.getvalue() == f"\r[{'#' * 15}{' ' * 15}] 5/10 files"
    bar.close()
    assert stream.getvalue().endswith("\r\033[K")


def test_there_is_no_progress_bar_without_a_terminal() -> None:
    from amplint import console

    assert console.progress(quiet=False) is None
