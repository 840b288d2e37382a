"""AMP404: a dtype can be chosen, and autocast never hears of it."""

from __future__ import annotations

import pytest

from .helpers import rows

SCRIPT = """
import argparse
parser = argparse.ArgumentParser()
parser.add_argument("--amp-dtype", default="bfloat16", choices=["bfloat16", "float16"])
args = parser.parse_args()
print("dtype", args.amp_dtype)
scaler = torch.amp.GradScaler("cuda", enabled=args.amp_dtype == "float16")
def train(model, x):
    with torch.autocast("cuda"):
        return model(x)
"""

PARAMETER = """
def train(model, x, amp_dtype=torch.bfloat16):
    with torch.autocast("cuda"):
        return model(x)
"""

FOUND = [
    pytest.param(SCRIPT, [8], id="argparse"),
    pytest.param(SCRIPT.replace("amp-dtype", "precision").replace("amp_dtype", "precision"), [8], id="precision"),
    pytest.param(SCRIPT.replace("torch.autocast", "torch.amp.autocast"), [8], id="the other spelling"),
    pytest.param(PARAMETER, [2], id="a parameter that nothing reads"),
    pytest.param(PARAMETER.replace("torch.bfloat16", '"bf16"'), [2], id="a parameter that is a text"),
]


@pytest.mark.parametrize(("snippet", "want"), FOUND)
def test_found(snippet: str, want: list[int]) -> None:
    assert rows("AMP404", snippet) == want


SILENT = {
    "it reaches autocast": SCRIPT.replace('"cuda"):', '"cuda", dtype=getattr(torch, args.amp_dtype)):'),
    "through a name": SCRIPT.replace("print(", "dtype = DTYPES[args.amp_dtype]\nprint("),
    "it decides whether autocast is on": SCRIPT.replace('"cuda"):', '"cuda", enabled=args.amp_dtype != "no"):'),
    "it sets the dtype of the model": SCRIPT.replace("print(", "model.to(args.amp_dtype)\nprint("),
    "some autocast has a dtype": SCRIPT + '    with torch.autocast("cuda", dtype=torch.float16):\n        pass\n',
    "only float16 to choose from": SCRIPT.replace('"bfloat16", "float16"', '"float16"').replace(
        'default="bfloat16"', 'default="float16"'
    ),
    "the CPU runs in bfloat16 anyway": SCRIPT.replace('torch.autocast("cuda")', 'torch.autocast("cpu")'),
    "autocast is off": SCRIPT.replace('torch.autocast("cuda")', 'torch.autocast("cuda", enabled=False)'),
    "arguments in a dict": SCRIPT.replace('torch.autocast("cuda")', "torch.autocast(**kwargs)"),
    "all options are handed on": SCRIPT.replace("print(", "run(**vars(args))\nprint("),
    "a parameter that reaches it": PARAMETER.replace('"cuda"', '"cuda", dtype=amp_dtype'),
    "a parameter that is used otherwise": PARAMETER.replace("model(x)", "model(x.to(amp_dtype))"),
    "a parameter without a default": PARAMETER.replace("=torch.bfloat16", ""),
    "a parameter of another function": "def build(dtype=torch.bfloat16):\n    pass\n"
    + PARAMETER.replace(", amp_dtype=torch.bfloat16", "").lstrip("\n"),
}


@pytest.mark.parametrize("snippet", SILENT.values(), ids=SILENT)
def test_silent(snippet: str) -> None:
    assert rows("AMP404", snippet) == []
