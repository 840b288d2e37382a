"""What a rule is, and the registry of all rules.

A rule is a function in a module of its own under `rules/`, decorated with `@rule`. Its docstring is its page: the first
paragraph says what is wrong and why, the fenced blocks `python bad` and `python good` are its first tests.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from typing import TYPE_CHECKING, NamedTuple

from amplint.model import Applicability, Finding, Level

if TYPE_CHECKING:
    from amplint.source import SourceFile

Check = Callable[["SourceFile"], Iterator[Finding]]

DOCS_URL = "https://github.com/amplint/amplint/blob/main/docs/rules/"
ISSUES_URL = "https://github.com/amplint/amplint/issues"

AMP_TRIGGERS = ("autocast", "GradScaler", "cuda.amp", "cpu.amp")
"""The words without which a file has nothing to do with automatic mixed precision."""

AMP_NAME_TRIGGERS = ("cuda.amp", "cpu.amp", "torch.amp", "import amp", "autocast", "GradScaler")
"""The words of `AMP_TRIGGERS` and the module's name, after which a name may be misspelt."""


class Rule(NamedTuple):
    """One rule: its public names, how bad it is, what it needs and the function that finds it.

    `fix` is the best applicability that a fix of this rule can have, None where it never has one. `triggers` are
    words one of which stands in every file in which the rule can fire; it is not asked about other files. A `gated`
    rule fires only in files that hold a word of `amplint.prefilter.GATE` as well: other files are never parsed for it.
    """

    code: str
    name: str
    level: Level
    check: Check
    fix: Applicability | None = None
    default: bool = True
    triggers: tuple[str, ...] = AMP_TRIGGERS
    gated: bool = True

    @property
    def url(self) -> str:
        """Where the rule's page is published."""
        return f"{DOCS_URL}{self.code}-{self.name}.md"

    @property
    def page(self) -> str:
        """The rule's documentation in Markdown, without its title."""
        from inspect import cleandoc

        return cleandoc(self.check.__doc__ or "")


_registered: dict[str, Rule] = {}


def rule(
    code: str,
    name: str,
    *,
    level: Level,
    fix: Applicability | None = None,
    default: bool = True,
    triggers: tuple[str, ...] = AMP_TRIGGERS,
    gated: bool = True,
) -> Callable[[Check], Check]:
    """Register the decorated check under a code (`AMP301`) and a name (`clip-before-unscale`).

    Raises `ValueError` when the code or the name is taken.
    """

    def register(check: Check) -> Check:
        for other in _registered.values():
            if code == other.code or name == other.name:
                raise ValueError(f"rule {code} {name} is already registered by {other.check.__module__}")
        _registered[code] = Rule(code, name, level, check, fix, default, triggers, gated)
        return check

    return register


@cache
def all_rules() -> dict[str, Rule]:
    """Every rule by code, in the order of the codes: our own and those of other packages (`amplint.plugins`).

    Raises `SettingsError` where the rules of another package can't be loaded.
    """
    import importlib
    import pkgutil

    package = importlib.import_module("amplint.rules")
    for module in pkgutil.iter_modules(package.__path__):
        importlib.import_module(f"amplint.rules.{module.name}")
    from amplint import plugins

    plugins.load()
    return dict(sorted(_registered.items()))
