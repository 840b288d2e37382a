"""AMP111: TorchScript drops the autocast decorator."""

from __future__ import annotations

import warnings
from pathlib import Path

from .helpers import torch

MODULE = """
import torch


class Decorated(torch.nn.Module):
    @torch.autocast("cpu")
    def forward(self, x):
        return x @ x


class Inside(torch.nn.Module):
    def forward(self, x: torch.Tensor):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return x @ x
"""


def test_the_decorator_is_dropped_and_the_block_is_kept(tmp_path: Path) -> None:
    import importlib.util

    path = tmp_path / "scripted_modules.py"
    path.write_text(MODULE)  # TorchScript reads the source from a file
    spec = importlib.util.spec_from_file_location("scripted_modules", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    ones = torch.ones(2, 2)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        decorated, inside = torch.jit.script(module.Decorated()), torch.jit.script(module.Inside())
    assert module.Decorated()(ones).dtype == torch.bfloat16
    assert decorated(ones).dtype == torch.float32
    assert inside(ones).dtype == torch.bfloat16
