"""Many files at once: which are looked at, what is said of each, and in which order."""

from __future__ import annotations

import gc
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from amplint import run as run_module
from amplint.cache import Cache
from amplint.model import Diagnostic, Level
from amplint.run import CHECK, Action, FileResult, RunResult, examine, run
from amplint.settings import DEFAULT, Settings
from tests.toys import FIXED, SOURCE, UNSAFELY_FIXED, toys

__all__ = ["toys"]

FIX = Action(fix=True)
APPLY = Action(fix=True, apply=True)
APPLY_UNSAFE = Action(fix=True, unsafe=True, apply=True)
REPORT = "please report this with the file"


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def write(here: Path, **files: str | bytes) -> list[tuple[str, Settings]]:
    """Write files, named without their suffix, and give them with the default settings."""
    for name, content in files.items():
        (here / f"{name}.py").write_bytes(content if isinstance(content, bytes) else content.encode())
    return [(f"{name}.py", DEFAULT) for name in files]


def codes(found: Sequence[Diagnostic]) -> list[str]:
    return [each.code for each in found]


def only(result: RunResult) -> FileResult:
    [file] = result.files
    return file


def test_findings_are_those_of_check_source(here: Path, toys: None) -> None:
    file = only(run(write(here, a=SOURCE)))
    assert (file.filename, codes(file.diagnostics)) == ("a.py", ["TOY001", "TOY003", "TOY004"])
    assert (file.applied, file.after, file.messages, file.error, file.text) == ((), None, [], None, SOURCE)


def test_files_with_nothing_to_say_are_counted_only(here: Path, toys: None) -> None:
    assert run(write(here, a="x = 1\n", b="autocast = 1\n", c="")) == RunResult([], 3)


def test_a_file_without_a_trigger_is_not_parsed(here: Path, toys: None, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise AssertionError("the file was examined")

    monkeypatch.setattr(run_module, "examine", fail)
    assert run(write(here, a="old = (\n")) == RunResult([], 1)


def test_results_are_in_the_order_of_the_files_however_they_are_made(
    here: Path, toys: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = write(here, **{f"f{n}": SOURCE * (1 + n * 7 % 5) for n in range(12)})
    alone = run(files, jobs=1)
    assert [file.filename for file in alone.files] == [path for path, _ in files]
    monkeypatch.setattr(run_module, "POOL_BYTES", 0)
    assert run(files, jobs=3) == alone


def test_a_small_run_starts_no_process(here: Path, toys: None, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise AssertionError("a process was started")

    monkeypatch.setattr("amplint.pool.map_in_processes", fail)
    assert run(write(here, a=SOURCE, b=SOURCE), jobs=4).checked == 2


@pytest.mark.skipif(sys.platform != "linux", reason="the worker is killed with a signal")
def test_a_worker_that_dies_is_told_for_its_file_and_the_others_are_done(
    here: Path, toys: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    examined = run_module.examine

    def die(filename: str, *rest: object) -> FileResult:
        if filename == "b.py":
            os.kill(os.getpid(), signal.SIGKILL)
        return examined(filename, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(run_module, "POOL_BYTES", 0)
    monkeypatch.setattr(run_module, "examine", die)
    result = run(write(here, a=SOURCE, b=SOURCE, c=SOURCE), jobs=2)
    assert [(file.filename, codes(file.diagnostics)) for file in result.files] == [
        ("a.py", ["TOY001", "TOY003", "TOY004"]),
        ("b.py", []),
        ("c.py", ["TOY001", "TOY003", "TOY004"]),
    ]
    died = "internal fault: the process that examined the file died (killed, or out of memory)"
    assert result.files[1].messages == [f"{died}; {REPORT}"]


@pytest.mark.parametrize("pool", [False, True])
def test_a_failing_rule_is_told_and_the_others_are_run(
    here: Path, toys: None, monkeypatch: pytest.MonkeyPatch, pool: bool
) -> None:
    monkeypatch.setattr(run_module, "POOL_BYTES", 0 if pool else 10**9)
    result = run(write(here, a=SOURCE + "crash\n", b=SOURCE), jobs=2)
    assert [codes(file.diagnostics) for file in result.files] == [["TOY001", "TOY003", "TOY004"]] * 2
    [message] = result.files[0].messages
    assert message.startswith("internal fault: rule TOY002 failed: ValueError: the toy broke (toys.py:")
    assert message.endswith(f"); {REPORT}")
    assert result.files[1].messages == []


def test_a_failing_rule_does_not_keep_others_from_fixing(here: Path, toys: None) -> None:
    file = only(run(write(here, a=SOURCE + "crash\n"), FIX))
    assert file.after == FIXED + "crash\n"
    assert len(file.messages) == 1


def test_a_file_with_a_fault_is_written_with_the_other_fixes_and_not_remembered(here: Path, toys: None) -> None:
    files = write(here, a=SOURCE + "crash\n")
    for _ in range(2):
        cache = Cache(".")
        assert len(only(run(files, APPLY, cache=cache)).messages) == 1
        cache.save()
    assert (here / "a.py").read_text() == FIXED + "crash\n"


def test_a_fault_outside_of_the_rules_is_told(here: Path, toys: None, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise RuntimeError("no\nluck")

    monkeypatch.setattr("amplint.check.check_source", fail)
    [message] = only(run(write(here, a=SOURCE))).messages
    assert message.startswith("internal fault: the check failed: RuntimeError: no luck (test_run.py:")


def test_a_file_that_cannot_be_decoded_is_a_finding_with_its_place(here: Path, toys: None) -> None:
    for data in (b"x = 1\ny = '\xe4'\n", b"autocast = 1\ny = '\xe4'\n"):
        [found] = only(run(write(here, a=data))).diagnostics
        assert (found.code, found.name, found.level, found.location) == (
            "AMP000",
            "unreadable-file",
            Level.ERROR,
            (2, 6),
        )
        assert found.message == "the file can't be decoded: byte 0xe4 is not utf-8, and no encoding is declared"


def test_a_file_that_does_not_parse_is_a_finding_if_it_has_a_trigger(here: Path, toys: None) -> None:
    result = run(write(here, a="x = (\n", b="autocast = (\n"))
    assert [(file.filename, codes(file.diagnostics)) for file in result.files] == [("b.py", ["AMP000"])]


def test_a_file_that_vanished_is_an_error(here: Path, toys: None) -> None:
    files = write(here, a=SOURCE, b=SOURCE)
    os.unlink("a.py")
    result = run(files)
    assert result.files[0] == FileResult("a.py", error="can't be read: no such file or directory")
    assert codes(result.files[1].diagnostics) == ["TOY001", "TOY003", "TOY004"]


def test_a_file_that_vanishes_before_it_is_examined_is_an_error(
    here: Path, toys: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    quick_look = run_module._quick_look

    def look_and_remove(path: str, *rest: object) -> object:
        size = quick_look(path, *rest)  # type: ignore[arg-type]
        os.unlink(path)
        return size

    monkeypatch.setattr(run_module, "_quick_look", look_and_remove)
    assert only(run(write(here, a=SOURCE))).error == "can't be read: no such file or directory"


def test_fixing_without_applying_writes_nothing(here: Path, toys: None) -> None:
    file = only(run(write(here, a=SOURCE), FIX))
    assert (file.after, codes(file.applied), codes(file.diagnostics)) == (FIXED, ["TOY001"], ["TOY003", "TOY004"])
    assert file.before is not None
    assert file.before.text == (here / "a.py").read_text() == SOURCE


@pytest.mark.parametrize(("action", "text"), [(APPLY, FIXED), (APPLY_UNSAFE, UNSAFELY_FIXED)])
def test_applying_writes_the_fixes(here: Path, toys: None, action: Action, text: str) -> None:
    file = only(run(write(here, a=SOURCE), action))
    assert (here / "a.py").read_text() == file.after == text
    assert run([("a.py", DEFAULT)], action).files[0].after is None
    assert (here / "a.py").read_text() == text


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (b"\xef\xbb\xbfautocast = old\r\nx = '\xc3\xa4'", b"\xef\xbb\xbfautocast = new\r\nx = '\xc3\xa4'"),
        (b"# coding: latin-1\nautocast = old, '\xe4'\n", b"# coding: latin-1\nautocast = new, '\xe4'\n"),
    ],
)
def test_encoding_mark_and_line_ends_are_kept(here: Path, toys: None, before: bytes, after: bytes) -> None:
    run(write(here, a=before), APPLY)
    assert (here / "a.py").read_bytes() == after


def test_a_fix_that_breaks_the_file_is_told_and_not_written(here: Path, toys: None) -> None:
    file = only(run(write(here, a="autocast = broken\n"), APPLY))
    assert codes(file.diagnostics) == ["TOY006"]
    assert file.messages == [f"internal fault: the fix 'Write (' was dropped: the result is not valid Python; {REPORT}"]
    assert (here / "a.py").read_text() == "autocast = broken\n"


def test_a_write_that_fails_leaves_the_findings(here: Path, toys: None, monkeypatch: pytest.MonkeyPatch) -> None:
    from amplint.files import FileError

    def fail(*_: object, **__: object) -> None:
        raise FileError("can't be written: no space left on device")

    monkeypatch.setattr(run_module, "write_atomically", fail)
    file = only(run(write(here, a=SOURCE), APPLY))
    assert file.error == "can't be written: no space left on device"
    assert (codes(file.diagnostics), file.applied, file.after) == (["TOY001", "TOY003", "TOY004"], (), None)


def test_examine_needs_no_file(toys: None) -> None:
    file = examine("<stdin>", SOURCE.encode(), DEFAULT, FIX)
    assert (file.filename, file.after) == ("<stdin>", FIXED)


def test_deep_expressions_are_checked(here: Path, toys: None) -> None:
    chain = "autocast = " + " + ".join(["old"] * 1000) + "\n"
    file = only(run(write(here, a=chain)))
    assert (len(file.diagnostics), set(codes(file.diagnostics))) == (1000, {"TOY001"})


@pytest.mark.parametrize("expression", ["(" * 5000, "-" * 100_000 + "1", "+".join("1" * 100_000), "a" + ".b" * 100_000])
def test_what_is_nested_too_deeply_is_a_finding(here: Path, toys: None, expression: str) -> None:
    file = only(run(write(here, a=f"autocast = plain, {expression}\n")))
    # Some versions of Python parse two of these, which is fine too.
    assert (codes(file.diagnostics), file.messages) in ((["AMP000"], []), (["TOY004"], []))


def test_a_rule_that_runs_out_of_stack_is_a_mild_finding(here: Path, toys: None) -> None:
    file = only(run(write(here, a=SOURCE + "too_deep\n")))
    assert codes(file.diagnostics) == ["AMP000", "TOY001", "TOY003", "TOY004"]
    assert file.diagnostics[0].level == Level.INFO
    assert file.diagnostics[0].message == "expressions are nested too deeply to be checked for TOY002"
    assert file.messages == []


def test_garbage_is_collected_in_a_batch_after_some_source_and_as_usual_afterwards(
    here: Path, toys: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    collections: list[str] = []
    files = write(here, **{f"f{n}": SOURCE for n in range(6)})

    def note(phase: str, _: dict[str, int]) -> None:
        collections.append(phase)

    monkeypatch.setattr(run_module, "_COLLECT_BYTES", 2 * len(SOURCE))
    monkeypatch.setattr(run_module, "_garbage", run_module._Garbage())
    gc.callbacks.append(note)
    try:
        run(files, jobs=1)
    finally:
        gc.callbacks.remove(note)
    assert collections.count("start") == 3
    assert (gc.isenabled(), gc.get_freeze_count()) == (True, 0)


def test_progress_goes_up_to_the_total(here: Path, toys: None) -> None:
    steps: list[tuple[int, int]] = []
    run(write(here, a=SOURCE, b="", c=SOURCE), progress=lambda done, total: steps.append((done, total)))
    assert steps[-1] == (3, 3)
    assert steps == sorted(steps)


@pytest.fixture
def cache_spy(here: Path, toys: None, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The files that were examined in spite of the cache."""
    examined: list[str] = []
    original = run_module.examine

    def spy(filename: str, *rest: object) -> FileResult:
        examined.append(filename)
        return original(filename, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(run_module, "examine", spy)
    return examined


def cached_run(files: list[tuple[str, Settings]], action: Action = CHECK) -> RunResult:
    cache = Cache(".")
    result = run(files, action, cache=cache)
    cache.save()
    return result


def without_text(result: RunResult) -> RunResult:
    """What is equal whether a file was read or not."""
    return RunResult(
        [
            file._replace(before=None, diagnostics=list(file.diagnostics), messages=list(file.messages))
            for file in result.files
        ],
        result.checked,
    )


def test_a_second_run_finds_the_same_without_a_look(here: Path, cache_spy: list[str]) -> None:
    files = write(here, a=SOURCE, b="x = 1\n", c="autocast = (\n", d=b"\xff")
    first = cached_run(files)
    assert cache_spy == ["a.py", "c.py"]
    assert without_text(cached_run(files)) == without_text(first)
    assert cache_spy == ["a.py", "c.py"]


def test_a_changed_file_is_looked_at_again(here: Path, cache_spy: list[str]) -> None:
    files = write(here, a=SOURCE, b=SOURCE)
    cached_run(files)
    write(here, b=FIXED)
    result = cached_run(files)
    assert cache_spy == ["a.py", "b.py", "b.py"]
    assert [codes(file.diagnostics) for file in result.files] == [["TOY001", "TOY003", "TOY004"], ["TOY003", "TOY004"]]


def test_other_settings_need_another_look(here: Path, cache_spy: list[str]) -> None:
    write(here, a=SOURCE)
    cached_run([("a.py", DEFAULT)])
    result = cached_run([("a.py", DEFAULT._replace(ignore=("TOY003",)))])
    assert codes(only(result).diagnostics) == ["TOY001", "TOY004"]
    assert cache_spy == ["a.py", "a.py"]


def test_faults_and_errors_are_not_remembered(here: Path, cache_spy: list[str]) -> None:
    files = write(here, a="autocast = crash\n")
    assert len(only(cached_run(files)).messages) == 1
    assert len(only(cached_run(files)).messages) == 1
    assert cache_spy == ["a.py", "a.py"]


def test_fixing_looks_only_at_files_with_a_fix(here: Path, cache_spy: list[str]) -> None:
    files = write(here, a=SOURCE, b="autocast = risky\n", c="autocast = plain\n")
    cached_run(files)
    cache_spy.clear()
    assert [file.after for file in cached_run(files, FIX).files] == [FIXED, None, None]
    assert cache_spy == ["a.py"]


def test_what_was_written_is_remembered(here: Path, cache_spy: list[str]) -> None:
    files = write(here, a=SOURCE)
    cached_run(files, APPLY)
    cache_spy.clear()
    assert codes(only(cached_run(files)).diagnostics) == ["TOY003", "TOY004"]
    assert cache_spy == []


def test_what_was_not_written_is_not_remembered(here: Path, cache_spy: list[str]) -> None:
    files = write(here, a=SOURCE)
    cached_run(files, FIX)
    assert codes(only(cached_run(files)).diagnostics) == ["TOY001", "TOY003", "TOY004"]
