"""The commands that tell something: a rule's page, the settings in effect, the code that completes in a shell."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import click

from amplint.cli import RuleSelector, cli, overrides, settings_options

if TYPE_CHECKING:
    from amplint.rule import Rule
    from amplint.settings import Settings

_INFO_FORMAT = click.option(
    "--output-format", type=click.Choice(["text", "json"]), default="text", help="How to write it. [default: text]"
)


@click.command(short_help="Print the page of a rule.")
@click.argument("rule_name", metavar="CODE|NAME", required=False, type=RuleSelector())
@click.option("--all", "every", is_flag=True, help="Print the pages of all rules.")
@_INFO_FORMAT
def rule(rule_name: str | None, every: bool, output_format: str) -> int:
    """Print the page of a rule: what it finds, why it hurts, examples."""
    from amplint.pages import page
    from amplint.rule import all_rules

    rules = list(all_rules().values())
    if every is (rule_name is not None):
        raise click.UsageError("name one rule, or use --all")
    if rule_name is not None:
        rules = [each for each in rules if rule_name.upper() == each.code or rule_name.lower() == each.name]
        if not rules:
            from amplint.selectors import canonical, unknown_rule

            if canonical(rule_name) is not None:
                raise click.UsageError(f"`{rule_name}` stands for several rules; name one, or use --all")
            raise click.UsageError(unknown_rule(rule_name))
    if output_format == "json":
        found = [_rule_json(each) for each in rules]
        _print_json(found if every else found[0])
    else:
        _print("\n".join(page(each) for each in rules))
    return 0


@click.command(short_help="Print the settings in effect and their origins.")
@click.argument("path", default=".", type=click.Path(exists=True))
@settings_options
@_INFO_FORMAT
def config(path: str, output_format: str, **options: Any) -> int:
    """Print the settings in effect for a file or directory, and where each of them comes from."""
    from amplint.commands import Request, resolver_for
    from amplint.settings import enabled_codes

    given = overrides(options)
    resolver = resolver_for(Request((), overrides=given, **options))
    settings = resolver.for_directory(path) if os.path.isdir(path) else resolver.for_file(path)
    origins = dict(settings.origins)
    values = _settings_json(settings)
    codes = sorted(enabled_codes(settings, path))
    if output_format == "json":
        _print_json(
            {
                "settings": {key: {"value": value, "origin": origins.get(key)} for key, value in values.items()},
                "root": settings.root or os.getcwd(),
                "rules": codes,
            }
        )
        return 0
    lines = [f"{key} = {_toml(value)}  # {origins.get(key, 'default')}" for key, value in values.items()]
    _print(
        "\n".join(
            [
                *lines,
                "",
                f"# patterns are relative to {settings.root or os.getcwd()}",
                f"# rules: {' '.join(codes)}",
                "",
            ]
        )
    )
    return 0


@click.command(short_help="Print the completion code for a shell.")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> int:
    """Print the code with which a shell completes amplint's commands and options.

    For bash: eval "$(amplint completion bash)"
    """
    from click.shell_completion import get_completion_class

    found = get_completion_class(shell)
    if found is None:
        raise click.UsageError(f"click can't complete in {shell}")
    _print(found(cli, {}, "amplint", "_AMPLINT_COMPLETE").source() + "\n")
    return 0


def _rule_json(each: Rule) -> dict[str, object]:
    from amplint.pages import page, summary

    return {
        "code": each.code,
        "name": each.name,
        "level": each.level.label,
        "default": each.default,
        "fix": None if each.fix is None else each.fix.label,
        "summary": summary(each),
        "page": page(each),
        "url": each.url,
    }


def _settings_json(settings: Settings) -> dict[str, object]:
    """The settings by the keys of the settings file, as plain values."""
    target = settings.target_torch
    hidden = ("root", "origins", "target_torch_source")
    values = {key.replace("_", "-"): value for key, value in settings._asdict().items() if key not in hidden}
    return {
        **{key: list(value) if isinstance(value, tuple) else value for key, value in values.items()},
        "per-file-ignores": {pattern: list(rules) for pattern, rules in settings.per_file_ignores},
        "target-torch": "current" if target is None else f"{target[0]}.{target[1]}",
        "fail-level": settings.fail_level.label,
    }


def _toml(value: object) -> str:
    """A value as TOML, whose strings and lists of strings are written like those of JSON."""
    import json

    if isinstance(value, dict):
        return "{" + ", ".join(f"{json.dumps(key)} = {_toml(item)}" for key, item in value.items()) + "}"
    return json.dumps(value)


def _print_json(value: object) -> None:
    import json

    _print(json.dumps(value, indent=2) + "\n")


def _print(text: str) -> None:
    from amplint.console import Console

    Console().write(text)
