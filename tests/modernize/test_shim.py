"""The fallback block: it runs on torch with and without the new names, and is left alone afterwards."""

from __future__ import annotations

import sys
from types import ModuleType

import pytest
import torch

from amplint import check_source, fix_source
from amplint.settings import Settings
from tests.modernize.execution import run

SHIM = Settings(select=("AMP001",), target_torch=(2, 0), compat="shim")

IMPORTED = """\
import torch
from torch.cuda.amp import GradScaler, autocast, custom_bwd, custom_fwd


class Double(torch.autograd.Function):
    @staticmethod
    @custom_fwd(cast_inputs=torch.float32)
    def forward(ctx, x):
        probe()
        return x * 2

    @staticmethod
    @custom_bwd
    def backward(ctx, gradient):
        probe()
        return gradient * 2


scaler = GradScaler(4.0, 3.0, enabled=True)
with autocast(False):
    probe()
Double.apply(torch.ones(2, requires_grad=True)).sum().backward()
"""

IMPORTED_FIXED = """\
import functools

import torch

try:
    from torch.amp import GradScaler, custom_bwd, custom_fwd
except ImportError:  # torch < 2.4
    from torch.cuda.amp import GradScaler, custom_bwd, custom_fwd
else:
    custom_bwd = functools.partial(custom_bwd, device_type="cuda")
    custom_fwd = functools.partial(custom_fwd, device_type="cuda")


class Double(torch.autograd.Function):
    @staticmethod
    @custom_fwd(cast_inputs=torch.float32)
    def forward(ctx, x):
        probe()
        return x * 2

    @staticmethod
    @custom_bwd
    def backward(ctx, gradient):
        probe()
        return gradient * 2


scaler = GradScaler(init_scale=4.0, growth_factor=3.0, enabled=True)
with torch.amp.autocast("cuda", enabled=False):
    probe()
Double.apply(torch.ones(2, requires_grad=True)).sum().backward()
"""

DOTTED = """\
import functools

import torch as th


class Own(th.cuda.amp.GradScaler):
    def __init__(self, scale):
        super().__init__(scale, 3.0)


made = [Own(2.0), th.cuda.amp.GradScaler(), th.cuda.amp.GradScaler(8.0)]
make = functools.partial(th.cuda.amp.GradScaler, 16.0)
make(growth_interval=5)
assert isinstance(made[1], th.cuda.amp.GradScaler)
fwd = th.cuda.amp.custom_fwd(lambda ctx, x: x)
"""

DOTTED_FIXED = """\
import functools

try:
    from torch.amp import GradScaler, custom_fwd
except ImportError:  # torch < 2.4
    from torch.cuda.amp import GradScaler, custom_fwd
else:
    custom_fwd = functools.partial(custom_fwd, device_type="cuda")


class Own(GradScaler):
    def __init__(self, scale):
        super().__init__(init_scale=scale, growth_factor=3.0)


made = [Own(2.0), GradScaler(), GradScaler(init_scale=8.0)]
make = functools.partial(GradScaler, init_scale=16.0)
make(growth_interval=5)
assert isinstance(made[1], GradScaler)
fwd = custom_fwd(lambda ctx, x: x)
"""

ALONE = "from torch.cuda.amp import GradScaler as Scaler\n\n\nscaler = Scaler(4.0)\n"
ALONE_FIXED = """\
try:
    from torch.amp import GradScaler as Scaler
except ImportError:  # torch < 2.3
    from torch.cuda.amp import GradScaler as Scaler


scaler = Scaler(init_scale=4.0)
"""

LOCAL = "def make():\n    from torch.cuda.amp import GradScaler\n\n    return GradScaler()\n"

EXPORTED = """\
import torch
from torch.cuda.amp import GradScaler as GradScaler
from torch.cuda.amp import custom_fwd  # noqa: F401

x: "torch.Tensor | None" = None
"""
EXPORTED_FIXED = """\
import functools

import torch

try:
    from torch.amp import GradScaler as GradScaler, custom_fwd as custom_fwd
except ImportError:  # torch < 2.4
    from torch.cuda.amp import GradScaler as GradScaler, custom_fwd as custom_fwd
else:
    custom_fwd = functools.partial(custom_fwd, device_type="cuda")

x: "torch.Tensor | None" = None
"""

PAIRS = [(IMPORTED, IMPORTED_FIXED), (DOTTED, DOTTED_FIXED), (ALONE, ALONE_FIXED)]


@pytest.mark.parametrize(("before", "after"), PAIRS, ids=["imported", "dotted", "alone"])
class TestBlock:
    def test_is_written(self, before: str, after: str) -> None:
        result = fix_source(before, "t.py", SHIM)
        assert result.text == after
        assert (result.remaining, result.messages) == ([], [])

    def test_is_left_alone_by_every_rule(self, before: str, after: str) -> None:
        found = check_source(after, "t.py", SHIM._replace(select=("AMP0",)))
        assert found == []

    def test_line_ends_stay(self, before: str, after: str) -> None:
        assert fix_source(before.replace("\n", "\r\n"), "t.py", SHIM).text == after.replace("\n", "\r\n")

    def test_does_the_same_on_the_current_torch(self, before: str, after: str) -> None:
        old, new = run(before), run(after)
        assert old.error == ""
        assert new._replace(deprecations=[]) == old._replace(deprecations=[])
        assert new.deprecations == []

    @pytest.mark.parametrize("missing", [("custom_fwd", "custom_bwd"), ("custom_fwd", "custom_bwd", "GradScaler")])
    def test_does_the_same_where_torch_lacks_the_new_names(
        self, before: str, after: str, missing: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        # Torch 2.3 has no `torch.amp.custom_fwd`, torch 2.2 no `torch.amp.GradScaler` either. Only imports see the old
        # module: the deprecated names of today's torch are themselves made of the new ones.
        older = ModuleType("torch.amp")
        vars(older).update((name, value) for name, value in vars(torch.amp).items() if name not in missing)
        monkeypatch.setitem(sys.modules, "torch.amp", older)
        old, new = run(before), run(after)
        assert bool(new.deprecations) == ("custom_fwd" in after or "GradScaler" in missing)
        assert new._replace(deprecations=[]) == old._replace(deprecations=[])


def test_from_2_3_on_the_scaler_needs_no_fallback() -> None:
    text = fix_source(IMPORTED, "t.py", SHIM._replace(target_torch=(2, 3))).text
    assert "    from torch.amp import custom_bwd, custom_fwd\nexcept ImportError:  # torch < 2.4\n" in text
    assert 'scaler = torch.amp.GradScaler("cuda", 4.0, 3.0, enabled=True)\n' in text


def test_without_the_setting_nothing_is_reported() -> None:
    found = check_source(IMPORTED, "t.py", SHIM._replace(compat="none"))
    assert [d.message.split("`")[1] for d in found] == ["torch.cuda.amp.autocast"] * 2


@pytest.mark.parametrize(
    ("text", "reasons"),
    [
        (
            "from torch.cuda.amp import GradScaler, custom_fwd\n\n\ndef f(*args):\n    return GradScaler(*args)\n\n\n"
            "@custom_fwd\ndef g(ctx):\n    pass\n",
            [
                (1, "it hangs together with line 5, where {}"),
                (1, "it hangs together with line 5, where {}"),
                (5, "{}"),
                (8, "it hangs together with line 5, where {}"),
            ],
        ),
        (
            "import torch\n\n\nclass GradScaler:\n    pass\n\n\ntorch.cuda.amp.GradScaler()\n",
            [(8, "line 4 binds `GradScaler` too")],
        ),
    ],
    ids=["starred", "taken"],
)
def test_all_or_nothing(text: str, reasons: list[tuple[int, str]]) -> None:
    result = fix_source(text, "t.py", SHIM)
    starred = "a `*` argument may hold positional arguments, whose order is another in the replacement"
    assert result.text == text
    assert [(d.location.row, d.help) for d in result.remaining] == [
        (row, "not rewritten: " + reason.format(starred)) for row, reason in reasons
    ]


def test_a_local_import_gives_way_to_the_block() -> None:
    text = "import torch\n\n\n" + LOCAL
    assert fix_source(text, "t.py", SHIM).text == (
        "import torch\n\ntry:\n    from torch.amp import GradScaler\nexcept ImportError:  # torch < 2.3\n"
        "    from torch.cuda.amp import GradScaler\n\n\ndef make():\n    return GradScaler()\n"
    )


def test_unused_names_are_not_imported_again() -> None:
    text = "import torch\nfrom torch.cuda.amp import GradScaler, custom_fwd\n\nscaler = GradScaler()\n"
    assert "custom_fwd" not in fix_source(text, "t.py", SHIM).text


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("import torch\nmake = torch.cuda.amp.GradScaler()\n", "{block}make = GradScaler()\n"),
        ("import torch\nimport torch.cuda.amp\nmake = torch.cuda.amp.GradScaler()\n", "{block}make = GradScaler()\n"),
        ("import torch, os\nos.s = torch.cuda.amp.GradScaler()\n", "import os\n\n{block}os.s = GradScaler()\n"),
        (
            "import torch\ns = torch.cuda.amp.GradScaler()\nwith torch.cuda.amp.autocast(): pass\n",
            'import torch\n\n{block}s = GradScaler()\nwith torch.amp.autocast("cuda"): pass\n',
        ),
        (
            "import torch\nfrom torch.cuda import amp\nmade = [torch.cuda.amp.GradScaler(), amp.autocast()]\n",
            'import torch\n\n{block}made = [GradScaler(), torch.amp.autocast("cuda")]\n',
        ),
        (
            "import torch  # noqa: E402\nmake = torch.cuda.amp.GradScaler()\n",
            "import torch  # noqa: E402\n\n{block}make = GradScaler()\n",
        ),
        (
            "import torch\n__all__ = ['torch']\nmake = torch.cuda.amp.GradScaler()\n",
            "import torch\n\n{block}__all__ = ['torch']\nmake = GradScaler()\n",
        ),
    ],
)
def test_no_unused_import_of_torch_is_left(before: str, after: str) -> None:
    block = ALONE_FIXED.partition("\n\n")[0].replace(" as Scaler", "") + "\n"
    assert fix_source(before, "t.py", SHIM).text == after.format(block=block)


def test_names_for_others_keep_a_form_that_says_so() -> None:
    assert fix_source(EXPORTED, "t.py", SHIM, unsafe=True).text == EXPORTED_FIXED


def test_code_that_shares_the_line_of_the_last_import() -> None:
    text = "import torch; s = torch.cuda.amp.GradScaler()\n"
    result = fix_source(text, "t.py", SHIM)
    assert result.text == text
    assert result.remaining[0].help == "not rewritten: the import of line 1 shares its line with other code"
