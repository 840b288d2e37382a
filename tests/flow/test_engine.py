"""The engine on whole programs: exactly what is marked is found."""

from __future__ import annotations

import pytest

from amplint.flow import engine
from amplint.flow.violations import KINDS, Violation, find
from amplint.flow.violations import analyse as run_engine
from amplint.settings import DEFAULT
from amplint.source import SourceFile
from tests.flow import programs_found, programs_helpers, programs_objects, programs_variations  # noqa: F401
from tests.flow.programs import PROGRAMS, expected


def analyse(text: str) -> tuple[SourceFile, list[Violation]]:
    file = SourceFile(text, "train.py", DEFAULT)
    return file, find(file)


@pytest.mark.parametrize("name", PROGRAMS)
def test_program(name: str) -> None:
    file, found = analyse(PROGRAMS[name])
    assert {(file.row(v.span.start), v.kind) for v in found} == expected(PROGRAMS[name])


def test_every_kind_has_a_program() -> None:
    marked = {kind for text in PROGRAMS.values() for _, kind in expected(text)}
    assert marked == set(KINDS)


def only(name: str) -> tuple[SourceFile, Violation]:
    """The one violation of a program."""
    file, found = analyse(PROGRAMS[name])
    assert len(found) == 1
    return file, found[0]


def test_what_a_fix_of_a_clip_needs() -> None:
    file, violation = only("clip without unscale_")
    assert file.segment(violation.span) == "clip_grad_value_(model.parameters(), 1.0)"
    assert violation.place == violation.span
    assert violation.certain
    assert not violation.raises
    assert (violation.scaler, violation.optimizers, violation.threshold) == ("scaler", ("opt",), 1.0)
    assert [(file.segment(label.span), label.message) for label in violation.labels] == [
        ("scaler.scale(loss_fn(model(x), y)).backward()", "gradients are scaled here")
    ]


def test_a_clip_in_a_helper_is_blamed_on_its_call() -> None:
    file, violation = only("a helper method clips scaled gradients")
    assert file.segment(violation.span) == "self.clip()"
    assert file.segment(violation.place) == "clip_grad_norm_(self.model.parameters(), 1.0)"
    assert (violation.scaler, violation.optimizers) == ("self.gs", ("self.opt",))


def test_the_path_to_a_skipped_update() -> None:
    file, violation = only("update skipped by a continue")
    assert not violation.certain
    assert violation.raises
    assert [label.message for label in violation.path] == ["when `norm > 5` is true", "this `continue` is taken"]
    assert file.segment(violation.path[1].span) == "continue"


def test_a_missing_update_is_certain_although_the_first_round_is_right() -> None:
    _, violation = only("no update at all, in a nested loop")
    assert violation.certain
    assert violation.raises


def test_a_flag_decides_whether_the_scaler_is_there() -> None:
    _, violation = only("one flag tested twice, and unscale_ forgotten")
    assert violation.certain


@pytest.mark.parametrize(
    ("name", "again"), [("the whole loop in one region", True), ("only a step inside the region", False)]
)
def test_a_step_in_a_region_tells_whether_another_iteration_follows(name: str, again: bool) -> None:
    _, found = analyse(PROGRAMS[name])
    assert [v.again for v in found if v.kind == "step-in-autocast"] == [again]


@pytest.mark.parametrize(
    ("name", "per_iteration"),
    [("the scaler is made anew for every epoch", False), ("the scaler is made anew for every batch", True)],
)
def test_a_scaler_in_a_loop_tells_which_loop(name: str, per_iteration: bool) -> None:
    _, violation = only(name)
    assert violation.per_iteration is per_iteration


def test_the_class_of_an_optimizer_made_in_view() -> None:
    _, violation = only("a fixed multiplier with SGD")
    assert violation.optimizer_class == "SGD"


def test_beyond_the_budget_a_function_is_named_and_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    text = PROGRAMS["clip without unscale_"]
    monkeypatch.setattr(engine, "MAX_STEPS", 5)
    result = run_engine(SourceFile(text, "train.py", DEFAULT))
    assert result.unfinished == ["train"]
    assert result.violations == []


def test_beyond_the_budget_a_few_paths_are_followed(monkeypatch: pytest.MonkeyPatch) -> None:
    text = PROGRAMS["clip without unscale_"]
    made = [f"    scaler{i} = GradScaler() if x.flag{i} else None\n" for i in range(6)]
    used = [f"        if scaler{i} is not None:\n            scaler{i}.get_scale()\n" for i in range(6)]
    text = text.replace("    for x, y in loader:\n", "".join((*made, "    for x, y in loader:\n", *used)))
    monkeypatch.setattr(engine, "MAX_STEPS", 300)
    result = run_engine(SourceFile(text, "train.py", DEFAULT))
    assert result.unfinished == []
    assert [(v.kind, v.certain) for v in result.violations] == [("clip-before-unscale", False)]


WRAPPED = """\
from torch.amp import GradScaler
from mylib import amp


def train(model, opt, loader, loss_fn):
    scaler = GradScaler()
    for x in loader:
        opt.zero_grad()
        with amp.half():
            loss = loss_fn(model(x))
            scaler.scale(loss).backward()
        scaler.step(opt)
        scaler.update()


def train_wrapped(model, opt, loader, loss_fn):
    step = amp.Stepper()
    for x in loader:
        opt.zero_grad()
        step(loss_fn(model(x)), opt)
        opt.step()
"""


@pytest.mark.parametrize(
    ("wrappers", "kinds"),
    [
        ((), []),
        (("mylib.amp.half",), [(11, "backward-in-autocast")]),
        (("half", "Stepper"), [(11, "backward-in-autocast"), (21, "double-step")]),
    ],
)
def test_the_wrappers_of_the_settings(wrappers: tuple[str, ...], kinds: list[tuple[int, str]]) -> None:
    file = SourceFile(WRAPPED, "train.py", DEFAULT._replace(wrappers=wrappers))
    assert [(file.row(v.span.start), v.kind) for v in find(file)] == kinds
