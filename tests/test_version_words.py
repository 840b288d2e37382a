"""What names say of versions."""

from __future__ import annotations

import ast

import pytest

from amplint.versions.version_words import (
    flag_meaning,
    is_version_literal,
    is_version_name,
    operator_in_name,
    part_of_version,
    requirement,
)


@pytest.mark.parametrize(
    ("name", "meaning"),
    [
        ("_TORCH_GREATER_EQUAL_2_4", (">=", "2.4")),
        ("TORCH_2_4", (">=", "2.4")),
        ("TORCH_2_4_PLUS", (">=", "2.4")),
        ("IS_PYTORCH_2_4_0", (">=", "2.4")),
        ("is_torch_greater_or_equal_than_1_13", (">=", "1.13")),
        ("is_torch_greater_than_1_13", (">", "1.13")),
        ("is_torch_less_than_1_11", ("<", "1.11")),
        ("TORCH_LESS_EQUAL_2_0", ("<=", "2.0")),
        ("TORCH_VERSION_AT_LEAST_2_4", (">=", "2.4")),
        ("pt_lt_2_1", ("<", "2.1")),
        ("PYTORCH_V2", (">=", "2.0")),
        ("isTorch24", (">=", "2.4")),
        ("TORCH_AVAILABLE", None),
        ("torch_cuda_11_8", None),
        ("script_2_4", None),
        ("VERSION_2_4", None),
        ("torch", None),
    ],
)
def test_flag(name: str, meaning: tuple[str, str] | None) -> None:
    assert flag_meaning(name) == meaning


@pytest.mark.parametrize("name", ["TORCH_VERSION", "torch_version", "_pt_ver", "PYTORCH_VERSION", "torchVersion_"])
def test_version_name(name: str) -> None:
    assert is_version_name(name)


@pytest.mark.parametrize("name", ["version", "TORCH_VERSION_2", "cuda_version", "torch"])
def test_no_version_name(name: str) -> None:
    assert not is_version_name(name)


@pytest.mark.parametrize(
    ("name", "symbol"),
    [("torch_version_lt", "<"), ("check_min_torch", ">="), ("torch_version", ">="), ("torchVersionIsBelow", "<")],
)
def test_operator(name: str, symbol: str) -> None:
    assert operator_in_name(name) == symbol


def test_parts() -> None:
    assert [part_of_version(name) for name in ("TORCH_MAJOR", "torch_minor_version", "MAJOR")] == [0, 1, None]


def test_requirement() -> None:
    assert requirement("torch >= 2.4.0") == (">=", "2.4.0")
    assert requirement("torchvision>=0.10") is None


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ("(2, 3)", True),
        ("[1, 13, 0]", True),
        ("'2.4'", True),
        ("'2.4.0a0'", True),
        ("(2, x)", False),
        ("(2,)", False),
        ("(8, 0)", False),
        ("'0.5'", False),
        ("'O2.1'", False),
        ("2.4", False),
    ],
)
def test_literals_that_look_like_a_version(text: str, want: bool) -> None:
    assert is_version_literal(ast.parse(text, mode="eval").body) is want
