"""Small problems and short names that the proofs share."""

from __future__ import annotations

import os
from typing import Any

import pytest

from amplint import check_source, fix_source
from amplint.settings import Settings

torch = pytest.importorskip("torch")
torch.set_num_threads(1)

TORCH = tuple(int(part) for part in torch.__version__.split(".")[:2])
"""The release that runs, as (major, minor)."""


def region(dtype: Any = None, **options: Any) -> Any:
    """Autocast on the CPU, in float16 unless another dtype is given."""
    return torch.autocast("cpu", dtype=dtype or torch.float16, **options)


def scaler(**options: Any) -> Any:
    """A scaler on the CPU."""
    return torch.amp.GradScaler("cpu", **options)


def problem(width: int = 16) -> tuple[Any, Any, Any]:
    """A model and a regression task for it, the same at each call."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(64, width, generator=generator)
    y = torch.tanh(x[:, :1])
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(width, 32), torch.nn.ReLU(), torch.nn.Linear(32, 1))
    return model, x, y


def run(text: str, **names: Any) -> dict[str, Any]:
    """Execute a snippet; returns its names. The snippet is the text that a rule judges."""
    space: dict[str, Any] = {**names}
    exec(compile(text, os.devnull, "exec"), space)
    return space


def cpu(text: str) -> str:
    """A snippet for CUDA as it runs on the CPU."""
    return text.replace('"cuda"', '"cpu"')


def fixed(code: str, text: str, *rows: int) -> str:
    """The text after the fix of one rule, which must find the given rows, and nothing afterwards."""
    only = Settings(select=(code,))
    assert [found.location.row for found in check_source(text, "train.py", only)] == list(rows)
    result = fix_source(text, "train.py", only, unsafe=True)
    assert result.remaining == []
    assert result.text != text
    return result.text
