"""No file in which a rule can fire is left unparsed, and few others are parsed."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from amplint import check_source
from amplint.prefilter import GATE, worth_parsing
from amplint.rule import Rule, all_rules
from amplint.settings import DEFAULT, Settings

CASES = sorted((Path(__file__).parent / "cases").glob("*.py"))
RULES = [rule for rule in all_rules().values() if rule.code != "AMP000"]


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.code)
def test_every_bad_example_is_worth_parsing_and_holds_a_trigger(rule: Rule) -> None:
    settings = Settings(select=(rule.code,))
    for text in re.findall(r"```python bad\n(.*?)```", rule.page, re.DOTALL):
        assert worth_parsing(text.encode(), settings)
        assert any(trigger in text for trigger in rule.triggers)


@pytest.mark.parametrize("path", CASES, ids=lambda path: path.stem)
def test_every_case_with_findings_is_worth_parsing(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    found = {diagnostic.code for diagnostic in check_source(text)}
    assert not found or worth_parsing(text.encode(), DEFAULT)
    for code in found:
        assert any(trigger in text for trigger in all_rules()[code].triggers)


@pytest.mark.parametrize(
    "text",
    [
        "from torch.cuda import amp",
        "from apex import amp",
        "import torch.amp as tamp",
        "torch.is_autocast_cpu_enabled()",
        "def clip(scaler, opt):\n    scaler.unscale_(opt)",
        "x = 1  # noqa: AMP301",
        "x = 1  # amplint: ignore[AMP301]",
        "from accelerate import Accelerator\nloss.backward()",
    ],
)
def test_worth_parsing(text: str) -> None:
    assert worth_parsing(text.encode(), DEFAULT)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "import torch\nloss.backward()\noptimizer.step()",
        "with maybe_autocast(device_type):\n    pass",
        "if torch.is_autocast_enabled():\n    pass",
        "class Accelerator:\n    pass",
        "amplitude = 3",
        "x = 1  # noqa: F401",
    ],
)
def test_not_worth_parsing(text: str) -> None:
    assert not worth_parsing(text.encode(), DEFAULT)


def test_wrappers_of_the_settings_are_words_too() -> None:
    settings = Settings(wrappers=("mylib.amp.maybe_low",))
    assert worth_parsing(b"with maybe_low():\n    pass", settings)


def test_the_gate_has_no_word_twice() -> None:
    assert [word for word in GATE for other in GATE if other != word and other in word] == []
