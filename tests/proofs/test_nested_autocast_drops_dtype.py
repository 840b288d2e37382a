"""AMP110: an inner region goes back to the default dtype."""

from __future__ import annotations

import warnings

from amplint import check_source, fix_source
from amplint.settings import Settings

from .helpers import region, run, torch

ONLY = Settings(select=("AMP110",))
SNIPPET = """
import torch


def nested(x):
    with torch.autocast("cpu", dtype=torch.float16):
        with torch.cpu.amp.autocast():
            return (x @ x).dtype
"""


def test_the_old_class_falls_back_and_the_fix_removes_that() -> None:
    assert [d.location.row for d in check_source(SNIPPET, "t.py", ONLY)] == [7]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        assert run(SNIPPET)["nested"](torch.ones(2, 2)) == torch.bfloat16
        after = fix_source(SNIPPET, "t.py", ONLY, unsafe=True).text
        assert run(after)["nested"](torch.ones(2, 2)) == torch.float16


def test_the_new_class_inherits_where_it_is_constructed() -> None:
    ones, outside = torch.ones(2, 2), torch.autocast("cpu")
    with region():
        with torch.autocast("cpu"):
            assert (ones @ ones).dtype == torch.float16
        with outside:
            assert (ones @ ones).dtype == torch.bfloat16
