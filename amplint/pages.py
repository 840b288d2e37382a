"""A rule's page in Markdown, as `amplint rule` prints it and docs/rules/ publishes it."""

from __future__ import annotations

import re
from collections.abc import Iterable

from amplint.rule import Rule

_EXAMPLE = re.compile(r"^```python (bad|good)$", re.MULTILINE)
_CAPTION = {"bad": "Reported:", "good": "Silent:"}


def page(rule: Rule) -> str:
    """The whole page of a rule: title, facts, and its documentation with captioned examples."""
    fix = "none" if rule.fix is None else rule.fix.label
    default = "on by default" if rule.default else "off by default"
    return f"# {rule.name} ({rule.code})\n\nLevel: {rule.level.label}, {default}. Fix: {fix}.\n\n{body(rule)}\n"


def body(rule: Rule) -> str:
    """The documentation of a rule, with captions that tell what is reported from what is silent."""
    return _EXAMPLE.sub(lambda match: f"{_CAPTION[match[1]]}\n\n```python", rule.page)


def index(rules: Iterable[Rule]) -> str:
    """The table of all rules that opens docs/rules/."""
    rows = [
        f"| [{rule.code}]({rule.code}-{rule.name}.md) | {rule.name} | {rule.level.label} "
        f"| {'yes' if rule.default else 'no'} | {'-' if rule.fix is None else rule.fix.label} | {summary(rule)} |"
        for rule in rules
    ]
    head = "| code | name | level | on | fix | what it finds |\n| --- | --- | --- | --- | --- | --- |\n"
    return "# The rules\n\nMade from the rules themselves by `python docs/make.py`.\n\n" + head + "\n".join(rows) + "\n"


def summary(rule: Rule) -> str:
    """The first sentence of a rule's page, on one line."""
    paragraph = " ".join(rule.page.split("\n\n", 1)[0].split())
    return re.split(r"(?<=\.) (?=[A-Z])", paragraph, maxsplit=1)[0]
