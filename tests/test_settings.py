"""Settings: read from files, overridden by options, wrong ones refused with a hint."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from amplint import selectors
from amplint.model import Level
from amplint.rule import Rule
from amplint.settings import (
    DEFAULT,
    DEFAULT_EXCLUDE,
    Settings,
    SettingsError,
    SettingsResolver,
    enabled_codes,
    load_settings,
)

RULES = {
    code: Rule(code, name, Level.ERROR, lambda file: iter(()), default=default)
    for code, name, default in [
        ("AMP000", "unreadable-file", True),
        ("AMP001", "deprecated-amp-api", True),
        ("AMP002", "deprecated-autocast-state", True),
        ("AMP301", "clip-before-unscale", True),
        ("AMP303", "unscale-twice", True),
        ("AMP503", "scheduler-on-skipped-step", False),
        ("OUR001", "our-own-rule", True),
    ]
}


@pytest.fixture(autouse=True)
def registry(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A small registry, so that no expectation here depends on the rules that there are."""
    monkeypatch.setattr(selectors, "all_rules", lambda: RULES)
    caches = (selectors.canonical, selectors.selected_codes)
    for cache in caches:
        cache.cache_clear()
    yield
    for cache in caches:
        cache.cache_clear()


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The root of a repository, which is the current directory."""
    (tmp_path / ".git").mkdir()
    monkeypatch.chdir(tmp_path)
    return tmp_path


def codes(settings: Settings, filename: str = "a.py") -> str:
    """The enabled codes without AMP000, which must be among them."""
    enabled = enabled_codes(settings, filename)
    assert "AMP000" in enabled
    return " ".join(sorted(enabled - {"AMP000"}))


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        (DEFAULT, "AMP001 AMP002 AMP301 AMP303 OUR001"),
        (Settings(select=()), ""),
        (Settings(select=("ALL",)), "AMP001 AMP002 AMP301 AMP303 AMP503 OUR001"),
        (Settings(select=("AMP",)), "AMP001 AMP002 AMP301 AMP303 AMP503"),
        (Settings(select=("AMP3",)), "AMP301 AMP303"),
        (Settings(select=("AMP301",)), "AMP301"),
        (Settings(select=("clip-before-unscale",)), "AMP301"),
        (Settings(extend_select=("AMP503",)), "AMP001 AMP002 AMP301 AMP303 AMP503 OUR001"),
        (Settings(ignore=("AMP3",)), "AMP001 AMP002 OUR001"),
        (Settings(ignore=("ALL",)), ""),
        (Settings(ignore=("ALL",), extend_select=("AMP3",)), "AMP301 AMP303"),
        (Settings(select=("AMP301",), ignore=("AMP3",)), "AMP301"),
        (Settings(select=("AMP3",), ignore=("AMP301",)), "AMP303"),
        (Settings(select=("AMP3",), extend_ignore=("unscale-twice",)), "AMP301"),
        (Settings(select=("AMP301",), ignore=("clip-before-unscale",)), ""),
        (Settings(select=("AMP3",), ignore=("AMP3",)), ""),
        (Settings(select=("AMP",), ignore=("AMP3",), extend_select=("AMP303",)), "AMP001 AMP002 AMP303 AMP503"),
        (Settings(select=("OUR",)), "OUR001"),
    ],
)
def test_the_longest_selector_wins(settings: Settings, expected: str) -> None:
    assert codes(settings) == expected


def test_a_selector_without_rules_is_an_error() -> None:
    with pytest.raises(SettingsError) as caught:
        enabled_codes(Settings(select=("AMP31",)), "a.py")
    assert str(caught.value) == "unknown rule `AMP31`, did you mean `AMP301`?"


@pytest.mark.parametrize(
    ("pattern", "filename", "expected"),
    [
        ("tests", "tests/deep/a.py", "AMP303"),
        ("tests/*", "tests/deep/a.py", "AMP303"),
        ("*_test.py", "x/a_test.py", "AMP303"),
        ("a.py", "x/a.py", "AMP303"),
        ("/a.py", "x/a.py", "AMP301 AMP303"),
        ("tests", "src/a.py", "AMP301 AMP303"),
        ("!src", "src/a.py", "AMP301 AMP303"),
        ("!src", "tests/a.py", "AMP303"),
        ("*", "../a.py", "AMP301 AMP303"),
    ],
)
def test_per_file_ignores(project: Path, pattern: str, filename: str, expected: str) -> None:
    settings = Settings(select=("AMP3",), per_file_ignores=((pattern, ("AMP301",)),), root=str(project))
    assert codes(settings, filename) == expected
    assert codes(settings, str(project / filename)) == expected


def test_per_file_ignores_win_over_every_selection(project: Path) -> None:
    settings = Settings(select=("AMP301",), per_file_ignores=(("a.py", ("AMP3",)), ("*.py", ("ALL",))))
    assert codes(settings, "a.py") == ""
    assert codes(settings, "a.pyi") == "AMP301"


FULL = """
[tool.amplint]
select = ["AMP", "our-own-rule"]
ignore = ["deprecated-amp-api"]
extend-select = ["AMP503"]
extend-ignore = ["AMP002"]
per-file-ignores = { "./tests/*" = ["AMP3"] }
exclude = ["third_party", "./gen"]
extend-exclude = ["*_pb2.py"]
target-torch = "1.13"
compat = "shim"
autocast = "torch.autocast"
wrappers = ["my.Scaler"]
fail-level = "error"
"""


def test_every_key(project: Path) -> None:
    (project / "pyproject.toml").write_text(FULL)
    settings = load_settings("src/a.py")
    place = "pyproject.toml [tool.amplint]"
    assert settings == Settings(
        select=("AMP", "OUR001"),
        ignore=("AMP001",),
        extend_select=("AMP503",),
        extend_ignore=("AMP002",),
        per_file_ignores=(("/tests/*", ("AMP3",)),),
        exclude=("third_party", "/gen"),
        extend_exclude=("*_pb2.py",),
        target_torch=(1, 13),
        target_torch_source='pyproject.toml [tool.amplint] target-torch = "1.13"',
        compat="shim",
        autocast="torch.autocast",
        wrappers=("my.Scaler",),
        fail_level=Level.ERROR,
        root=str(project),
        origins=tuple(
            (key, place)
            for key in (
                "select",
                "ignore",
                "extend-select",
                "extend-ignore",
                "per-file-ignores",
                "exclude",
                "extend-exclude",
                "target-torch",
                "compat",
                "autocast",
                "wrappers",
                "fail-level",
            )
        ),
    )
    assert codes(settings, "src/a.py") == "AMP301 AMP303 AMP503 OUR001"
    assert codes(settings, "tests/a.py") == "AMP503 OUR001"


def test_without_settings_files(project: Path) -> None:
    assert load_settings("a.py") == DEFAULT
    (project / "pyproject.toml").write_text("[tool.other]\nx = 'amplint'\n")
    assert load_settings("a.py") == DEFAULT


def test_an_empty_table_still_is_the_root_of_its_files(project: Path) -> None:
    (project / "pyproject.toml").write_text("[tool]\namplint = {}\n")
    assert load_settings("a.py") == Settings(root=str(project))


def test_the_nearest_file_wins_alone(project: Path) -> None:
    (project / "sub" / "deep").mkdir(parents=True)
    (project / "amplint.toml").write_text('ignore = ["AMP3"]\nwrappers = ["x"]\n')
    (project / "sub" / "pyproject.toml").write_text('[tool.amplint]\nselect = ["AMP3"]\n')
    resolver = SettingsResolver()
    assert resolver.for_file("a.py") == Settings(
        ignore=("AMP3",),
        wrappers=("x",),
        root=str(project),
        origins=(("ignore", "amplint.toml"), ("wrappers", "amplint.toml")),
    )
    near = Settings(
        select=("AMP3",), root=str(project / "sub"), origins=(("select", "sub/pyproject.toml [tool.amplint]"),)
    )
    assert resolver.for_file("sub/a.py") == near
    assert resolver.for_file(str(project / "sub" / "deep" / "a.py")) == near


def test_amplint_toml_wins_over_pyproject_in_one_directory(project: Path) -> None:
    (project / "amplint.toml").write_text('compat = "shim"\n')
    (project / "pyproject.toml").write_text("[tool.amplint]\nnonsense = 1\n")
    assert load_settings(str(project)).compat == "shim"


def test_settings_are_found_above_the_repository(project: Path) -> None:
    (project / "inner" / ".git").mkdir(parents=True)
    (project / "amplint.toml").write_text('compat = "shim"\n')
    assert load_settings("inner/a.py").origins == (("compat", "amplint.toml"),)


def test_a_pyproject_that_says_nothing_about_amplint_may_be_broken(project: Path) -> None:
    (project / "pyproject.toml").write_text("[tool")
    assert load_settings("a.py") == DEFAULT


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('selct = ["AMP"]', ": unknown setting `selct`, did you mean `select`?"),
        ('target_torch = "2.3"', ": unknown setting `target_torch`, did you mean `target-torch`?"),
        ("zzz = 1", ": unknown setting `zzz`"),
        ('tool.amplint.select = ["AMP"]', ": unknown setting `tool`; write the settings without [tool.amplint]"),
        ('select = ["AMP300"]', " select: unknown rule `AMP300`, did you mean `AMP303`?"),
        ('select = ["amp301"]', " select: unknown rule `amp301`, did you mean `AMP301`?"),
        (
            'ignore = ["clip-before-unscaled"]',
            " ignore: unknown rule `clip-before-unscaled`, did you mean `clip-before-unscale`?",
        ),
        ('extend-select = ["A"]', " extend-select: unknown rule `A`"),
        ('extend-ignore = ["E501"]', " extend-ignore: unknown rule `E501`"),
        ('ignore = ["unreadable-file"]', " ignore: `AMP000` cannot be ignored, leave such files out with `exclude`"),
        ('select = "AMP"', ' select: expected a list of strings, not a string; write ["AMP"]'),
        ("select = 3", " select: expected a list of strings, not an integer"),
        ("exclude = [1.5]", " exclude: expected a list of strings, not one with a number in it"),
        ("per-file-ignores = []", " per-file-ignores: expected a table of patterns and lists of rules, not a list"),
        (
            'per-file-ignores = { "*.py" = ["XYZ9"] }',
            ' per-file-ignores."*.py": unknown rule `XYZ9`',
        ),
        ("target-torch = 1.13", ' target-torch: expected a string such as "2.3" or "current", not a number'),
        (
            'target-torch = "2"',
            ' target-torch: `2` is not a version of torch such as "1.13", "2.3.1" or "current"',
        ),
        (
            'target-torch = ">=2.0"',
            ' target-torch: `>=2.0` is not a version of torch such as "1.13", "2.3.1" or "current"',
        ),
        ('compat = "shims"', ' compat: `shims` is not one of "none", "shim", did you mean `shim`?'),
        ("compat = true", ' compat: expected one of "none", "shim", not a boolean'),
        (
            'autocast = "torch.autocasts"',
            ' autocast: `torch.autocasts` is not one of "torch.amp.autocast", "torch.autocast"'
            ", did you mean `torch.autocast`?",
        ),
        (
            'fail-level = "Error"',
            ' fail-level: `Error` is not one of "info", "warning", "error", did you mean `error`?',
        ),
        ('wrappers = ["a.b()"]', " wrappers: `a.b()` is not a dotted name such as `timm.utils.NativeScaler`"),
        ("fail-level = 1979-05-27", ' fail-level: expected one of "info", "warning", "error", not a date'),
    ],
)
def test_what_is_wrong_is_named_with_a_hint(project: Path, text: str, message: str) -> None:
    (project / "pyproject.toml").write_text(f"[tool.amplint]\n{text}\n")
    with pytest.raises(SettingsError) as caught:
        load_settings("a.py")
    assert str(caught.value) == f"pyproject.toml [tool.amplint]{message}"


def test_the_table_must_be_one(project: Path) -> None:
    (project / "pyproject.toml").write_text("tool.amplint = 3\n")
    with pytest.raises(SettingsError) as caught:
        load_settings("a.py")
    assert str(caught.value) == "pyproject.toml [tool.amplint]: expected a table"


def test_broken_toml_has_file_line_and_reason(project: Path) -> None:
    (project / "sub").mkdir()
    (project / "sub" / "amplint.toml").write_text("\nselect = [,]\n")
    with pytest.raises(SettingsError) as caught:
        load_settings("sub/a.py")
    assert str(caught.value) == "sub/amplint.toml: not valid TOML: Invalid value (at line 2, column 11)"


def test_a_file_that_is_not_below_the_current_directory_has_its_whole_path(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (project / "sub").mkdir()
    (project / "amplint.toml").write_text("x = 1\n")
    monkeypatch.chdir(project / "sub")
    with pytest.raises(SettingsError) as caught:
        load_settings("a.py")
    assert str(caught.value) == f"{project}/amplint.toml: unknown setting `x`"


def test_a_settings_file_that_cannot_be_read(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: str, mode: str) -> None:
        raise PermissionError(13, "Permission denied", path)

    monkeypatch.setattr("builtins.open", refuse)
    with pytest.raises(SettingsError) as caught:
        load_settings("a.py")
    assert str(caught.value) == "amplint.toml: Permission denied"


def test_a_directory_is_no_settings_file(project: Path) -> None:
    (project / "amplint.toml").mkdir()
    assert load_settings("a.py") == DEFAULT


def overridden(text: str, **overrides: object) -> Settings:
    """The settings of a file in the current directory, overridden by options."""
    Path("amplint.toml").write_text(text)
    return load_settings("a.py", {key.replace("_", "-"): value for key, value in overrides.items()})


@pytest.mark.parametrize(
    ("text", "overrides", "expected"),
    [
        ('select = ["AMP0"]\nextend-select = ["AMP3"]', {"select": ["AMP503"]}, "AMP503"),
        ('ignore = ["AMP301"]', {"select": ["AMP301"]}, "AMP301"),
        ('ignore = ["AMP301"]', {"select": ["clip-before-unscale,AMP0"]}, "AMP001 AMP002 AMP301"),
        ('extend-ignore = ["AMP301"]', {"select": ["AMP3"]}, "AMP303"),
        ('ignore = ["AMP503"]', {"select": ["ALL"]}, "AMP001 AMP002 AMP301 AMP303 OUR001"),
        ('select = ["AMP301", "AMP0"]', {"ignore": ["AMP3"]}, "AMP001 AMP002"),
        ('select = ["AMP3"]', {"ignore": ["AMP301"]}, "AMP303"),
        ('ignore = ["AMP0"]', {"ignore": ["AMP3"]}, "OUR001"),
        ('extend-select = ["AMP503"]', {"ignore": ["ALL"]}, ""),
        ('select = ["AMP0"]', {"extend-select": ["AMP3"]}, "AMP001 AMP002 AMP301 AMP303"),
        (
            'select = ["AMP0"]\nextend-select = ["AMP503"]',
            {"extend-select": ("AMP301",)},
            "AMP001 AMP002 AMP301 AMP503",
        ),
        ('ignore = ["AMP301"]', {"extend-select": ["AMP301"]}, "AMP001 AMP002 AMP301 AMP303 OUR001"),
        ('select = ["AMP"]', {"select": None}, "AMP001 AMP002 AMP301 AMP303 AMP503"),
        ("", {"select": ["AMP3"], "ignore": ["AMP303"]}, "AMP301"),
        ("", {"extend-ignore": ["AMP3", " OUR , AMP001,"]}, "AMP002"),
    ],
)
def test_options_win(project: Path, text: str, overrides: dict[str, object], expected: str) -> None:
    assert codes(overridden(text, **overrides)) == expected


def test_other_options_replace(project: Path) -> None:
    text = 'target-torch = "1.13"\ncompat = "shim"\nextend-exclude = ["a"]\n'
    settings = overridden(
        text, target_torch="2.3.1", compat="none", fail_level="info", extend_exclude=["b"], exclude=["c"]
    )
    assert settings == Settings(
        exclude=("c",),
        extend_exclude=("a", "b"),
        target_torch=(2, 3),
        target_torch_source="--target-torch 2.3",
        fail_level=Level.INFO,
        root=str(project),
        origins=(
            ("target-torch", "command line"),
            ("compat", "command line"),
            ("extend-exclude", "amplint.toml, command line"),
            ("fail-level", "command line"),
            ("exclude", "command line"),
        ),
    )


def test_options_work_without_a_file(project: Path) -> None:
    assert load_settings("a.py", {"target-torch": "current"}) == Settings(
        target_torch_source="--target-torch current", origins=(("target-torch", "command line"),)
    )


def test_the_origins_of_selection(project: Path) -> None:
    text = 'extend-select = ["AMP503"]\nignore = ["AMP0"]\n'
    assert overridden(text, ignore=["AMP3"]).origins == (
        ("extend-select", "amplint.toml"),
        ("ignore", "amplint.toml, command line"),
    )
    assert overridden(text, select=["AMP3"]).origins == (("ignore", "amplint.toml"), ("select", "command line"))


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ({"select": ["AMP31"]}, "--select: unknown rule `AMP31`, did you mean `AMP301`?"),
        (
            {"target-torch": "two"},
            '--target-torch: `two` is not a version of torch such as "1.13", "2.3.1" or "current"',
        ),
        ({"selekt": ["AMP"]}, "command line: unknown setting `selekt`, did you mean `select`?"),
    ],
)
def test_wrong_options(overrides: dict[str, object], message: str) -> None:
    with pytest.raises(SettingsError) as caught:
        SettingsResolver(overrides)
    assert str(caught.value) == message


def test_the_oldest_torch_comes_from_the_dependencies(project: Path) -> None:
    (project / "sub").mkdir()
    (project / "pyproject.toml").write_text('[project]\ndependencies = ["torch>=1.13"]\n[tool.amplint]\ncompat="shim"')
    (project / "sub" / "requirements.txt").write_text("torch==2.3.0")
    resolver = SettingsResolver()
    source = "pyproject.toml [project] dependencies: torch>=1.13"
    top = Settings(
        compat="shim",
        target_torch=(1, 13),
        target_torch_source=source,
        root=str(project),
        origins=(("compat", "pyproject.toml [tool.amplint]"), ("target-torch", source)),
    )
    assert resolver.for_file("a.py") == top
    below = resolver.for_file("sub/a.py")
    assert below.target_torch == (2, 3)
    assert below.target_torch_source == "sub/requirements.txt:1: torch==2.3.0"
    assert resolver.config("sub") == Settings(
        compat="shim", root=str(project), origins=(("compat", "pyproject.toml [tool.amplint]"),)
    )


@pytest.mark.parametrize(("value", "version"), [("1.12", (1, 12)), ("2.3.1", (2, 3)), ("current", None)])
def test_target_torch_wins_over_dependencies(project: Path, value: str, version: tuple[int, int] | None) -> None:
    (project / "sub").mkdir()
    (project / "amplint.toml").write_text(f'target-torch = "{value}"')
    (project / "sub" / "requirements.txt").write_text("torch==2.5")
    settings = load_settings("sub/a.py")
    assert settings.target_torch == version
    assert settings.target_torch_source == f'amplint.toml target-torch = "{value}"'
    assert load_settings("sub/a.py", {"target-torch": "2.1"}).target_torch == (2, 1)


def test_directories_with_the_same_settings_share_them(project: Path) -> None:
    (project / "requirements.txt").write_text("torch==2.3.0")
    resolver = SettingsResolver()
    assert resolver.for_file("a/b.py") is resolver.for_file("c/d/e.py")
    assert resolver.for_file("a/b.py") is resolver.for_file(str(project / "a" / "f.py"))


def test_every_settings_file_is_read_once(project: Path) -> None:
    path = project / "amplint.toml"
    path.write_text('compat = "shim"')
    resolver = SettingsResolver()
    first = resolver.for_file("a/b.py")
    path.unlink()
    assert resolver.for_file("a/c.py") is first
    assert resolver.for_file("d.py") is first


def test_messages_tell_what_was_passed_over(project: Path) -> None:
    (project / "setup.py").write_text("import torch ~")
    resolver = SettingsResolver()
    assert resolver.messages == []
    resolver.for_file("a.py")
    assert resolver.messages == [
        f"{project}/setup.py: not read for the oldest torch: invalid syntax (<unknown>, line 1)"
    ]


def test_rules_are_not_imported_for_settings_without_codes(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> dict[str, Rule]:
        raise AssertionError("the registry was asked")

    monkeypatch.setattr(selectors, "all_rules", fail)
    (project / "amplint.toml").write_text('exclude = []\ntarget-torch = "2.3"\nfail-level = "info"')
    assert load_settings("a.py", {"compat": "shim"}).fail_level is Level.INFO


def test_defaults() -> None:
    assert Settings() == DEFAULT
    assert DEFAULT.select == ("DEFAULT",)
    assert DEFAULT.exclude is DEFAULT_EXCLUDE
    assert DEFAULT.fail_level is Level.WARNING
    assert DEFAULT.root == ""
