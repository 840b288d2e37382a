"""What a run is asked to do: which rules, which files, which torch, and where each of these values came from."""

from __future__ import annotations

from functools import lru_cache
from typing import Literal, NamedTuple

from amplint.model import Level

Compat = Literal["none", "shim"]
Autocast = Literal["torch.amp.autocast", "torch.autocast"]

UNREADABLE_FILE = "AMP000"
"""The code of files that do not parse or decode; no setting turns it off."""

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
    directory to which patterns are relative. `origins` pairs every setting that was set with the place where it was.
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


def enabled_codes(settings: Settings, filename: str) -> frozenset[str]:
    """The codes of the rules that are on for a file.

    The longest selector wins between selection and ignoring, and ignoring wins between equals. Raises `SettingsError`
    for a selector that matches no rule.
    """
    return _selected(
        settings.select + settings.extend_select,
        settings.ignore + settings.extend_ignore,
    )


@lru_cache(maxsize=256)
def _selected(select: tuple[str, ...], ignore: tuple[str, ...]) -> frozenset[str]:
    verdicts: dict[str, tuple[int, bool]] = {}
    for selectors, wanted in ((select, True), (ignore, False)):
        for selector in selectors:
            for code in matching_codes(selector):
                rank = 0 if selector in ("ALL", "DEFAULT") else min(len(selector), len(code))
                if rank >= verdicts.get(code, (-1, False))[0]:
                    verdicts[code] = (rank, wanted)
    return frozenset([UNREADABLE_FILE, *(code for code, (_, wanted) in verdicts.items() if wanted)])


def matching_codes(selector: str) -> frozenset[str]:
    """The codes that a selector stands for; raises `SettingsError` when there is none."""
    from amplint.rule import all_rules

    rules = all_rules()
    if selector == "ALL":
        return frozenset(rules)
    if selector == "DEFAULT":
        return frozenset(code for code, rule in rules.items() if rule.default)
    codes = frozenset(code for code, rule in rules.items() if code.startswith(selector) or rule.name == selector)
    if not codes and selector != UNREADABLE_FILE:
        raise SettingsError(f"unknown rule `{selector}`")
    return codes
