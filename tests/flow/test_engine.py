"""The engine on whole programs: exactly what is marked is found."""

from __future__ import annotations

import pytest

from amplint.flow.violations import KINDS, Violation, find
from amplint.settings import DEFAULT
from amplint.source import SourceFile
from tests.flow import programs_objects  # noqa: F401
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
