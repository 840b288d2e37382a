"""What a run is asked to do: which rules, which files, which torch, and where each of these values came from."""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from amplint.model import Level

if TYPE_CHECKING:
    from amplint.patterns import Patterns
    from amplint.torch_floor import Floor, FloorFinder

Compat = Literal["none", "shim"]
Autocast = Literal["torch.amp.autocast", "torch.autocast"]

COMMAND_LINE = "command line"
"""The place of settings that were given as options."""

DEFAULT_EXCLUDE = (
    ".bzr",
    ".direnv",
    ".eggs",
    ".git",
    ".git-rewrite",
    ".hg",
    ".ipynb_checkpoints",
    ".mypy_cache",
    ".nox",
    ".pants.d",
    ".pyenv",
    ".pytest_cache",
    ".pytype",
    ".ruff_cache",
    ".svn",
    ".tox",
    ".venv",
    ".vscode",
    "__pycache__",
    "__pypackages__",
    "_build",
    "buck-out",
    "build",
    "dist",
    "node_modules",
    "site-packages",
    "venv",
)
"""Names of directories that hold no code of the project."""


class SettingsError(Exception):
    """Settings that cannot be used; the message names the place, the key and, where there is one, a near match."""


class Settings(NamedTuple):
    """Everything that the check of one file depends on besides its text.

    Rules are selected by code (`AMP301`), prefix (`AMP3`, `AMP`), name (`clip-before-unscale`), `ALL`, or `DEFAULT`,
    which stands for the rules that are on by default. `target_torch` is the oldest torch (major, minor) that the
    project supports, None for the current one; `target_torch_source` says in words where it was read. `root` is the
    directory to which patterns are relative, as an absolute path, or empty for the current directory. `origins` pairs
    the key of every setting that does not have its default value with the place where it was set.
    """

    select: tuple[str, ...] = ("DEFAULT",)
    ignore: tuple[str, ...] = ()
    extend_select: tuple[str, ...] = ()
    extend_ignore: tuple[str, ...] = ()
    per_file_ignores: tuple[tuple[str, tuple[str, ...]], ...] = ()
    exclude: tuple[str, ...] = DEFAULT_EXCLUDE
    extend_exclude: tuple[str, ...] = ()
    target_torch: tuple[int, int] | None = None
    target_torch_source: str = ""
    compat: Compat = "none"
    autocast: Autocast = "torch.amp.autocast"
    wrappers: tuple[str, ...] = ()
    fail_level: Level = Level.WARNING
    root: str = ""
    origins: tuple[tuple[str, str], ...] = ()


DEFAULT = Settings()


_NAMES = ("amplint.toml", "pyproject.toml")
"""The files that may hold settings; the first of them wins in a directory."""

_TABLE = "[tool.amplint]"


def enabled_codes(settings: Settings, filename: str) -> frozenset[str]:
    """The codes of the rules that are on for a file; AMP000 always is.

    The longest selector wins between selection and ignoring, and ignoring wins between equals; what is ignored for the
    file is off whatever selects it. Raises `SettingsError` for a selector that stands for no rule.
    """
    from amplint.selectors import UNREADABLE_FILE, selected_codes

    try:
        codes = selected_codes(
            settings.select + settings.extend_select,
            settings.ignore + settings.extend_ignore,
        )
        if settings.per_file_ignores:
            ignored = _ignored_for_file(settings, filename)
            codes -= selected_codes(ignored, ()) - {UNREADABLE_FILE}
    except ValueError as error:
        raise SettingsError(str(error)) from None
    return codes


def load_settings(path: str, overrides: Mapping[str, object] | None = None) -> Settings:
    """The settings for a file, or for the files right in a directory; see `SettingsResolver`."""
    resolver = SettingsResolver(overrides)
    return resolver.for_directory(path) if os.path.isdir(path) else resolver.for_file(path)


class SettingsResolver:
    """Finds the settings of the files of one run, reading every settings file once.

    The nearest directory above a file that has an amplint.toml, or a pyproject.toml with `[tool.amplint]`, holds its
    settings; nothing is merged with those further up. `overrides` are the settings of the command line, by the keys of
    the settings file; those that are None were not given. They win: what is selected there is not ignored by the same
    selector in the file, what is ignored there is not selected by a longer one in the file. With `config_file` that
    file holds the settings of all files, and its patterns are relative to the current directory; `isolated` reads
    neither settings files nor lists of dependencies.

    Raises `SettingsError` when settings cannot be read or used.
    """

    def __init__(
        self,
        overrides: Mapping[str, object] | None = None,
        *,
        config_file: str | None = None,
        isolated: bool = False,
    ) -> None:
        given = {key: value for key, value in (overrides or {}).items() if value is not None}
        self._overrides = _parse(given, COMMAND_LINE) if given else {}
        self._default = _override(DEFAULT, self._overrides)
        self._isolated = isolated
        self._only: Settings | None = self._default if isolated else None
        if config_file is not None:
            self._only = _override(_read_named(config_file), self._overrides)
        self._configs: dict[str, Settings] = {}
        self._settings: dict[str, Settings] = {}
        self._shared: dict[tuple[int, Floor | None], Settings] = {}
        self._floors: FloorFinder | None = None

    @property
    def messages(self) -> list[str]:
        """What could not be read of the projects' lists of dependencies, one line each."""
        return [] if self._floors is None else self._floors.messages

    def for_file(self, filename: str) -> Settings:
        """The settings of a file, which need not exist."""
        return self.for_directory(os.path.dirname(filename))

    def for_directory(self, directory: str) -> Settings:
        """The settings of the files right in a directory."""
        settings = self._settings.get(directory)
        if settings is None:
            settings = self._settings[directory] = self._with_floor(os.path.abspath(directory))
        return settings

    def config(self, directory: str) -> Settings:
        """The settings of a directory as they are written, without the oldest torch that its dependencies tell."""
        if self._only is not None:
            return self._only
        directory = os.path.abspath(directory)
        waiting: list[str] = []
        settings = self._configs.get(directory)
        while settings is None:
            waiting.append(directory)
            settings = _read_directory(directory)
            parent = os.path.dirname(directory)
            if settings is not None:
                settings = _override(settings, self._overrides)
            elif parent == directory:
                settings = self._default
            else:
                directory = parent
                settings = self._configs.get(directory)
        for below in waiting:
            self._configs[below] = settings
        return settings

    def _with_floor(self, directory: str) -> Settings:
        config = self.config(directory)
        if self._isolated or any(key == "target-torch" for key, _ in config.origins):
            return config
        if self._floors is None:
            from amplint.torch_floor import FloorFinder

            self._floors = FloorFinder()
        floor = self._floors.find(directory)
        if floor is None:
            return config
        version, source = floor
        # One object for all directories with the same settings keeps what is keyed on settings small.
        return self._shared.setdefault(
            (id(config), floor),
            config._replace(
                target_torch=version,
                target_torch_source=source,
                origins=(*config.origins, ("target-torch", source)),
            ),
        )


def _parse(table: Mapping[str, object], place: str) -> dict[str, Any]:
    from amplint.settings_table import parse_table

    return parse_table(table, place)


def _read_directory(directory: str) -> Settings | None:
    """The settings that stand in a directory, None when there are none."""
    for name in _NAMES:
        path = os.path.join(directory, name)
        try:
            with open(path, "rb") as stream:
                data = stream.read()
        except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
            continue
        except OSError as error:
            raise SettingsError(f"{_shown(path)}: {error.strerror}") from None
        if name == "amplint.toml" or b"amplint" in data:
            settings = _read_file(path, data)
            if settings is not None:
                return settings
    return None


def _read_named(path: str) -> Settings:
    """The settings in a file that the user named."""
    path = os.path.abspath(path)
    try:
        with open(path, "rb") as stream:
            data = stream.read()
    except OSError as error:
        raise SettingsError(f"{_shown(path)}: {error.strerror}") from None
    settings = _read_file(path, data)
    if settings is None:
        raise SettingsError(f"{_shown(path)}: there is no {_TABLE} in it")
    return settings._replace(root=os.getcwd())


def _read_file(path: str, data: bytes) -> Settings | None:
    from amplint.project import parse_toml, path_from, repository_root

    directory, name = os.path.split(path)
    place, origin = _shown(path), path_from(repository_root(directory) or directory, path)
    try:
        table: Any = parse_toml(data)
    except ValueError as error:
        raise SettingsError(f"{place}: not valid TOML: {error}") from None
    if name == "pyproject.toml":
        tool = table.get("tool")
        table = tool.get("amplint") if isinstance(tool, dict) else None
        if table is None:
            return None
        place, origin = f"{place} {_TABLE}", f"{origin} {_TABLE}"
        if not isinstance(table, dict):
            raise SettingsError(f"{place}: expected a table")
    settings = DEFAULT._replace(
        **(_parse(table, place) if table else {}),
        root=directory,
        origins=tuple((key, origin) for key in table),
    )
    if "target-torch" in table:
        settings = settings._replace(target_torch_source=f'{origin} target-torch = "{table["target-torch"]}"')
    return settings


def _override(settings: Settings, overrides: dict[str, Any]) -> Settings:
    """Settings with those of the command line put over them."""
    if not overrides:
        return settings
    selected = overrides.get("select", ()) + overrides.get("extend_select", ())
    ignored = overrides.get("ignore", ()) + overrides.get("extend_ignore", ())
    origins = dict(settings.origins)
    if "select" in overrides:
        settings = settings._replace(select=(), extend_select=())
        origins.pop("extend-select", None)
    values = dict(overrides)
    for field in ("select", "extend_select"):
        values[field] = _outside(getattr(settings, field), ignored) + overrides.get(field, ())
    for field in ("ignore", "extend_ignore"):
        kept = tuple(selector for selector in getattr(settings, field) if selector not in selected)
        values[field] = kept + overrides.get(field, ())
    values["extend_exclude"] = settings.extend_exclude + overrides.get("extend_exclude", ())
    if "target_torch" in overrides:
        version = overrides["target_torch"]
        shown = "current" if version is None else ".".join(map(str, version))
        values["target_torch_source"] = f"--target-torch {shown}"
    for field in overrides:
        key = field.replace("_", "-")
        added = key in origins and key in ("ignore", "extend-select", "extend-ignore", "extend-exclude")
        origins[key] = f"{origins[key]}, {COMMAND_LINE}" if added else COMMAND_LINE
    return settings._replace(**values, origins=tuple(origins.items()))


def _outside(selectors: tuple[str, ...], ignored: tuple[str, ...]) -> tuple[str, ...]:
    """The selectors of which not all rules are ignored."""
    if not ignored:
        return selectors
    from amplint.selectors import is_part_of

    return tuple(selector for selector in selectors if not any(is_part_of(selector, other) for other in ignored))


def _shown(path: str) -> str:
    """An absolute path as messages show it: from the current directory where it lies below that."""
    here = os.path.join(os.getcwd(), "")
    return path.removeprefix(here)


@lru_cache(maxsize=64)
def _compiled(
    per_file_ignores: tuple[tuple[str, tuple[str, ...]], ...],
) -> list[tuple[Patterns, bool, tuple[str, ...]]]:
    from amplint.patterns import Patterns

    return [
        (Patterns([pattern.removeprefix("!")]), not pattern.startswith("!"), codes)
        for pattern, codes in per_file_ignores
    ]


def _ignored_for_file(settings: Settings, filename: str) -> tuple[str, ...]:
    try:
        path = os.path.relpath(filename, settings.root or None).replace(os.sep, "/")
    except ValueError:  # another drive of Windows
        return ()
    if path.startswith("../"):
        return ()
    return tuple(
        code
        for patterns, wanted, codes in _compiled(settings.per_file_ignores)
        if patterns.covers(path) is wanted
        for code in codes
    )
