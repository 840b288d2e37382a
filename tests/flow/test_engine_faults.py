"""A fault of the engine itself: met once, told once, and no reason to say nothing about the rest of the file."""

from __future__ import annotations

import pytest

from amplint.check import RuleError, check_source, fix_source
from amplint.flow.engine import Engine
from amplint.run import CHECK, Action, examine
from amplint.settings import DEFAULT
from amplint.source import SourceFile

TEXT = """\
import torch


def train(model, loader, optimizer):
    scaler = torch.cuda.amp.GradScaler()
    for x in loader:
        optimizer.zero_grad()
        scaler.scale(model(x).mean()).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
"""


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The runs of an engine that breaks."""
    counted: list[int] = []

    def broken(engine: Engine) -> None:
        counted.append(1)
        raise ValueError("the engine broke")

    monkeypatch.setattr(Engine, "run", broken)
    return counted


def test_one_message_names_all_rules_of_the_engine(runs: list[int]) -> None:
    result = examine("train.py", TEXT.encode(), DEFAULT, CHECK)
    (message,) = result.messages
    assert message.startswith("internal fault: rules AMP201, ")
    assert ", AMP301, " in message
    assert " failed: ValueError: the engine broke (test_engine_faults.py:" in message
    assert [found.code for found in result.diagnostics] == ["AMP001"]
    assert len(runs) == 1


def test_one_message_although_fixing_takes_several_passes(runs: list[int]) -> None:
    result = examine("train.py", TEXT.encode(), DEFAULT, Action(fix=True))
    assert len(result.messages) == 1
    assert result.after is not None
    assert 'torch.amp.GradScaler("cuda")' in result.after


def test_without_a_list_of_faults_the_first_rule_raises(runs: list[int]) -> None:
    with pytest.raises(RuleError, match=r"rule AMP201 failed on train\.py: ValueError: the engine broke"):
        check_source(TEXT, "train.py")
    with pytest.raises(RuleError):
        fix_source(TEXT, "train.py")


def test_every_question_raises_the_same(runs: list[int]) -> None:
    file = SourceFile(TEXT, "train.py", DEFAULT)
    raised: list[BaseException] = []
    for kind in ("missing-update", "clip-before-unscale"):
        with pytest.raises(ValueError, match="the engine broke") as caught:
            file.violations(kind)
        raised.append(caught.value)
    assert raised[0] is raised[1]
    assert len(runs) == 1
