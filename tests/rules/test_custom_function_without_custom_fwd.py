"""AMP108: an autograd.Function that autocast does not know of."""

from __future__ import annotations

import pytest

from amplint.settings import Settings

from .helpers import fixed, lines, rows

PROJECT = """
class Project(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, w):
        ctx.save_for_backward(x, w)
        return x @ w
    @staticmethod
    def backward(ctx, g):
        x, w = ctx.saved_tensors
        return g @ w.t(), x.t() @ g
"""
USE = """
def f(x, w):
    with torch.autocast("cuda"):
        return Project.apply(x, w)
"""
FWD = PROJECT.replace("    def forward", '    @torch.amp.custom_fwd(device_type="cuda")\n    def forward')
BWD = PROJECT.replace("    def backward", '    @torch.amp.custom_bwd(device_type="cuda")\n    def backward')
BOTH = FWD.replace("    def backward", '    @torch.amp.custom_bwd(device_type="cuda")\n    def backward')

FOUND = [
    pytest.param(PROJECT + USE, [13], id="neither"),
    pytest.param(PROJECT + "project = Project.apply\n" + USE.replace("Project.apply", "project"), [14], id="by a name"),
    pytest.param(
        PROJECT
        + """
class Layer(nn.Module):
    def forward(self, x, w):
        return Project.apply(x, w)
def f(x, w):
    layer = Layer()
    with torch.autocast("cuda"):
        return layer(x, w)
""",
        [13],
        id="in a module that is called in a region",
    ),
    pytest.param(FWD, [3], id="only custom_fwd"),
    pytest.param(BWD, [7], id="only custom_bwd"),
    pytest.param(BWD.replace(" @ ", " * "), [7], id="only custom_bwd raises without any product"),
]


@pytest.mark.parametrize(("snippet", "want"), FOUND)
def test_found(snippet: str, want: list[int]) -> None:
    assert rows("AMP108", snippet) == want


SILENT = {
    "both": BOTH + USE,
    "both, the old ones": BOTH.replace('torch.amp.custom_fwd(device_type="cuda")', "torch.cuda.amp.custom_fwd").replace(
        'torch.amp.custom_bwd(device_type="cuda")', "torch.cuda.amp.custom_bwd"
    )
    + USE,
    "both, by names of the project": """
import functools
fwd = functools.partial(torch.amp.custom_fwd, device_type="cuda")
bwd = torch.amp.custom_bwd(device_type="cuda")
"""
    + BOTH.replace('torch.amp.custom_fwd(device_type="cuda")', "fwd").replace(
        'torch.amp.custom_bwd(device_type="cuda")', "bwd"
    )
    + USE,
    "both, from a module of the project": "from .compat import amp_custom_fwd, amp_custom_bwd\n"
    + BOTH.replace("torch.amp.custom_", "amp_custom_")
    + USE,
    "cast_inputs alone is enough": FWD.replace('device_type="cuda"', 'device_type="cuda", cast_inputs=torch.float32')
    + USE,
    "not under autocast": PROJECT + USE.replace('torch.autocast("cuda")', "torch.no_grad()"),
    "where autocast is off": PROJECT + USE.replace('"cuda"', '"cuda", enabled=False'),
    "no product of matrices": PROJECT.replace("x @ w", "x * w").replace("g @ w.t(), x.t() @ g", "g * w, x * g") + USE,
    "gradient reversal": """
        class Reverse(torch.autograd.Function):
            @staticmethod
            def forward(ctx, x):
                return x.view_as(x)
            @staticmethod
            def backward(ctx, g):
                return -g
        def f(x):
            with torch.autocast("cuda"):
                return Reverse.apply(x)
        """,
    "another class": PROJECT.replace("torch.autograd.Function", "Base") + USE,
}


@pytest.mark.parametrize("snippet", SILENT.values(), ids=SILENT)
def test_silent(snippet: str) -> None:
    assert rows("AMP108", snippet) == []


def test_fix_adds_both() -> None:
    assert fixed("AMP108", PROJECT + USE) == lines(BOTH + USE)


def test_fix_adds_the_missing_one() -> None:
    assert fixed("AMP108", FWD + USE) == lines(BOTH + USE)
    assert fixed("AMP108", BWD + USE) == lines(BOTH + USE)


def test_fix_for_an_older_torch() -> None:
    got = fixed("AMP108", PROJECT + USE, Settings(target_torch=(2, 0)))
    assert "    @staticmethod\n    @torch.cuda.amp.custom_fwd\n    def forward" in got
    assert "    @staticmethod\n    @torch.cuda.amp.custom_bwd\n    def backward" in got
