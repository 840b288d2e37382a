"""A rule's page is its first test: every `bad` block is reported, every `good` one is silent, the fix leads from one to
the other."""

from __future__ import annotations

import re

import pytest

from amplint import check_source, fix_source
from amplint.rule import Rule, all_rules
from amplint.settings import Settings

BLOCK = re.compile(r"```python (bad|good)\n(.*?)```", re.DOTALL)
RULES = list(all_rules().values())


def blocks(rule: Rule, kind: str) -> list[str]:
    """The examples of one kind on a rule's page."""
    return [text for found, text in BLOCK.findall(rule.page) if found == kind]


def only(rule: Rule) -> Settings:
    """Settings that run one rule alone."""
    return Settings(select=(rule.code,))


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.code)
class TestPage:
    def test_has_pairs(self, rule: Rule) -> None:
        kinds = [kind for kind, _ in BLOCK.findall(rule.page)]
        assert kinds
        assert kinds == ["bad", "good"] * (len(kinds) // 2)

    def test_bad_is_reported(self, rule: Rule) -> None:
        for text in blocks(rule, "bad"):
            assert rule.code in {d.code for d in check_source(text, "bad.py", only(rule))}

    def test_good_is_silent(self, rule: Rule) -> None:
        for text in blocks(rule, "good"):
            assert [d for d in check_source(text, "good.py", only(rule)) if d.code != "AMP000"] == []

    def test_good_is_silent_for_every_rule(self, rule: Rule) -> None:
        for text in blocks(rule, "good"):
            assert [(d.code, d.location.row) for d in check_source(text, "good.py", Settings())] == []

    def test_fix_leads_from_bad_to_good(self, rule: Rule) -> None:
        if rule.fix is None:
            return
        for bad, good in zip(blocks(rule, "bad"), blocks(rule, "good"), strict=True):
            assert fix_source(bad, "bad.py", only(rule), unsafe=True).text == good

    def test_examples_parse(self, rule: Rule) -> None:
        if rule.code == "AMP000":
            return
        for _, text in BLOCK.findall(rule.page):
            compile(text, rule.code, "exec", dont_inherit=True)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.code)
class TestConventions:
    def test_code_and_name(self, rule: Rule) -> None:
        assert re.fullmatch(r"AMP\d{3}", rule.code)
        assert re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", rule.name)

    def test_module_is_named_after_the_rule(self, rule: Rule) -> None:
        assert rule.check.__module__ == f"amplint.rules.{rule.name.replace('-', '_')}"

    def test_messages_are_lower_case_without_a_full_stop(self, rule: Rule) -> None:
        for text in blocks(rule, "bad"):
            for d in check_source(text, "bad.py", only(rule)):
                for message in (d.message, *(place.message for place in d.related)):
                    assert not message.endswith("."), message
                    assert message[0] == message[0].lower() or message.split()[0].isupper(), message

    def test_first_paragraph_says_why(self, rule: Rule) -> None:
        paragraph = rule.page.split("\n\n", 1)[0]
        assert len(paragraph.split()) >= 8
        assert paragraph.endswith(".")
