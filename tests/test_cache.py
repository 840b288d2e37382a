"""What the cache knows, it knows about the very same file under the very same conditions."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from amplint import cache as cache_module
from amplint.cache import DIRECTORY, Cache, Known, content_digest, context_digest
from amplint.model import Applicability, Diagnostic, FixInfo, Level, Location, RelatedPlace, TextEdit
from amplint.modules import Answer, Project
from amplint.settings import DEFAULT

FOUND = Diagnostic(
    "AMP001",
    "deprecated-amp-api",
    Level.WARNING,
    "message",
    "a.py",
    Location(1, 2),
    Location(1, 9),
    (RelatedPlace("there", Location(3, 4), Location(5, 6)),),
    FixInfo(Applicability.SAFE, "Fix it", (TextEdit(Location(1, 2), Location(1, 3), "text"),)),
    "https://example.org/AMP001",
    "help",
)
KNOWN = Known([FOUND], ())


@pytest.fixture
def source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file that has not changed for long, in the current directory."""
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "a.py"
    path.write_bytes(b"x = 1\n")
    os.utime(path, (1_000_000, 1_000_000))
    return path


def remember(path: str, *found: Diagnostic) -> None:
    cache = Cache(".")
    cache.store(path, os.stat(path), content_digest(Path(path).read_bytes()), DEFAULT, found)
    cache.save()


def entries(root: Path) -> dict[str, object]:
    files: dict[str, object] = json.loads((root / DIRECTORY / "findings.json").read_bytes())["files"]
    return files


def test_findings_come_back_complete(source: Path) -> None:
    remember("a.py", FOUND)
    assert Cache(".").find("a.py", os.stat("a.py"), DEFAULT) == KNOWN


def test_findings_get_the_name_under_which_the_file_is_asked_for(source: Path) -> None:
    remember("a.py", FOUND)
    found = Cache(".").find(str(source), source.stat(), DEFAULT)
    assert found == Known([FOUND._replace(filename=str(source))], ())


def test_that_nothing_was_found_is_known_too(source: Path) -> None:
    remember("a.py")
    assert Cache(".").find("a.py", os.stat("a.py"), DEFAULT) == Known([], ())


def test_an_unknown_file_is_unknown(source: Path) -> None:
    assert Cache(".").find("a.py", os.stat("a.py"), DEFAULT) is None
    assert Cache(".").find_by_content("a.py", os.stat("a.py"), content_digest(b"x = 1\n"), DEFAULT) is None


def test_a_new_modification_time_needs_the_same_content(source: Path) -> None:
    remember("a.py", FOUND)
    os.utime(source, (2_000_000, 2_000_000))
    cache = Cache(".")
    assert cache.find("a.py", source.stat(), DEFAULT) is None
    assert cache.find_by_content("a.py", source.stat(), content_digest(b"x = 2\n"), DEFAULT) is None
    assert cache.find_by_content("a.py", source.stat(), content_digest(b"x = 1\n"), DEFAULT) == KNOWN
    cache.save()
    assert Cache(".").find("a.py", source.stat(), DEFAULT) == KNOWN


def test_another_size_is_another_file(source: Path) -> None:
    remember("a.py", FOUND)
    source.write_bytes(b"x = 10\n")
    os.utime(source, (1_000_000, 1_000_000))
    assert Cache(".").find("a.py", source.stat(), DEFAULT) is None


def test_a_file_changed_just_now_is_known_by_its_content_only(source: Path) -> None:
    source.write_bytes(b"x = 1\n")
    remember("a.py", FOUND)
    cache = Cache(".")
    assert cache.find("a.py", source.stat(), DEFAULT) is None
    assert cache.find_by_content("a.py", source.stat(), content_digest(b"x = 1\n"), DEFAULT) == KNOWN


def test_a_file_without_digest_is_not_known_by_content(source: Path) -> None:
    cache = Cache(".")
    cache.store("a.py", source.stat(), "", DEFAULT, [])
    assert cache.find_by_content("a.py", source.stat(), content_digest(b"x = 1\n"), DEFAULT) is None


@pytest.mark.parametrize(
    ("changed", "same"),
    [
        (DEFAULT._replace(select=("AMP3",)), False),
        (DEFAULT._replace(target_torch=(1, 13)), False),
        (DEFAULT._replace(per_file_ignores=(("a.py", ("AMP001",)),)), False),
        (DEFAULT._replace(origins=(("select", "command line"),)), True),
        (DEFAULT._replace(exclude=("b",)), True),
        (DEFAULT._replace(fail_level=Level.ERROR), True),
    ],
)
def test_settings_that_change_what_is_found_make_another_context(changed: object, same: bool) -> None:
    assert (context_digest(changed, "/r") == context_digest(DEFAULT, "/r")) is same  # type: ignore[arg-type]


def test_the_version_and_the_modules_are_part_of_the_context(monkeypatch: pytest.MonkeyPatch) -> None:
    before = context_digest(DEFAULT, "/r")
    monkeypatch.setattr(cache_module, "VERSION", "9.9.9")
    assert context_digest(DEFAULT, "/r") != before
    monkeypatch.undo()
    assert context_digest(DEFAULT, "/r") == before
    monkeypatch.setattr(cache_module, "_tool_files", lambda: [("rule.py", 1, 2)])
    assert context_digest(DEFAULT, "/r") != before


def test_the_modules_of_the_rules_are_listed() -> None:
    names = [name for name, _, _ in cache_module._tool_files()]
    assert {"run.py", "protocol.py", "unreadable_file.py"} <= set(names)


def test_the_same_values_from_a_moved_project_are_the_same_context() -> None:
    moved = [context_digest(DEFAULT._replace(root=root), root) for root in ("/one", "/two")]
    assert moved[0] == moved[1]


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"[]",
        b"\xff",
        b'{"contexts": 1, "files": {}}',
        b'{"contexts": [], "files": {"a.py": [1, 2, 0, 0, "", []]}}',
        b'{"contexts": ["c"], "files": {"a.py": ["1", 2, 0, 0, "", []]}}',
        b'{"contexts": ["c"], "files": {"a.py": [1]}}',
        b'{"contexts": ["c"], "files": {"a.py": 7}}',
        b"[" * 100_000,
    ],
)
def test_a_damaged_cache_is_ignored_and_replaced(source: Path, content: bytes) -> None:
    remember("a.py", FOUND)
    (source.parent / DIRECTORY / "findings.json").write_bytes(content)
    assert Cache(".").find("a.py", source.stat(), DEFAULT) is None
    remember("a.py", FOUND)
    assert Cache(".").find("a.py", source.stat(), DEFAULT) == KNOWN


@pytest.mark.parametrize("packed", ['["AMP001"]', '"text"', "7", '["","",9,"","",[1,1],[1,1],[],null,"",""]'])
def test_damaged_findings_are_ignored(source: Path, packed: str) -> None:
    remember("a.py", FOUND)
    path = source.parent / DIRECTORY / "findings.json"
    data = json.loads(path.read_bytes())
    data["files"]["a.py"][5] = [json.loads(packed)]
    path.write_text(json.dumps(data))
    assert Cache(".").find("a.py", source.stat(), DEFAULT) is None


def test_the_directory_is_hidden_from_git_and_from_backups(source: Path) -> None:
    remember("a.py")
    directory = source.parent / DIRECTORY
    assert sorted(os.listdir(directory)) == [".gitignore", "CACHEDIR.TAG", "findings.json"]
    assert (directory / ".gitignore").read_text() == "*\n"
    assert (directory / "CACHEDIR.TAG").read_text().startswith("Signature: 8a477f597d28d172789f06886806bc55\n")


def test_nothing_is_written_when_nothing_changed(source: Path) -> None:
    remember("a.py", FOUND)
    path = source.parent / DIRECTORY / "findings.json"
    os.utime(path, (1, 1))
    cache = Cache(".")
    cache.find("a.py", source.stat(), DEFAULT)
    cache.save()
    assert path.stat().st_mtime == 1


def test_a_directory_that_cannot_be_written_is_no_error(source: Path) -> None:
    (source.parent / DIRECTORY).write_text("a file stands in the way")
    remember("a.py", FOUND)
    assert (source.parent / DIRECTORY).read_text() == "a file stands in the way"


def test_entries_of_files_not_met_for_long_are_dropped(source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    other = source.with_name("b.py")
    other.write_bytes(b"")
    remember("a.py")
    remember("b.py")
    assert sorted(entries(source.parent)) == ["a.py", "b.py"]
    later = Cache(".")
    later._today += cache_module.DAYS_KEPT
    later.find("a.py", source.stat(), DEFAULT)
    later.save()
    assert sorted(entries(source.parent)) == ["a.py", "b.py"]
    much_later = Cache(".")
    much_later._today += cache_module.DAYS_KEPT + 1
    much_later.store("a.py", source.stat(), "", DEFAULT, [])
    much_later.save()
    assert sorted(entries(source.parent)) == ["a.py"]


def test_the_number_of_entries_is_bounded_and_the_latest_stay(source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache_module, "MOST_ENTRIES", 2)
    cache = Cache(".")
    for day, name in ((3, "a"), (1, "b"), (2, "c")):
        cache._today = 20_000 + day
        cache.store(f"{name}.py", source.stat(), "", DEFAULT, [])
    cache.save()
    assert sorted(entries(source.parent)) == ["a.py", "c.py"]


def test_contexts_that_no_entry_needs_are_dropped(source: Path) -> None:
    remember("a.py")
    cache = Cache(".")
    cache.store("a.py", source.stat(), "", DEFAULT._replace(select=("AMP3",)), [])
    cache.save()
    data = json.loads((source.parent / DIRECTORY / "findings.json").read_bytes())
    assert data["contexts"] == [context_digest(DEFAULT._replace(select=("AMP3",)), str(source.parent))]


def test_findings_hold_while_the_other_files_answer_the_same(source: Path) -> None:
    other = source.with_name("b.py")
    other.write_bytes(b"y = 1\n")
    answers = [
        Answer("b", "a.py", "b.py", content_digest(b"y = 1\n")),
        Answer("c", "a.py", "", ""),
    ]
    cache = Cache(".")
    cache.store("a.py", source.stat(), content_digest(b"x = 1\n"), DEFAULT, [FOUND], answers, ["train"])
    cache.save()

    def known(*files: str) -> Known | None:
        return Cache(".").find("a.py", source.stat(), DEFAULT, Project(files))

    assert known("a.py", "b.py") == Known([FOUND], ("train",))
    assert known("a.py") is None
    assert known("a.py", "b.py", "c.py") is None
    assert Cache(".").find("a.py", source.stat(), DEFAULT) is None
    other.write_bytes(b"y = 2\n")
    assert known("a.py", "b.py") is None
