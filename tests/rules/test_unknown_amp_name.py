"""AMP005: names that torch does not have are reported, those that it has are not."""

from __future__ import annotations

import importlib
from textwrap import dedent

import pytest

from amplint import check_source, fix_source
from amplint.calls.near_names import meant_by
from amplint.settings import Settings
from amplint.torch_api import PUBLIC_NAMES, TORCH_STATE_NAMES

ONLY = Settings(select=("AMP005",))


def found(text: str) -> list[tuple[int, int]]:
    """The (row, column) of what is found in a text."""
    return [(d.location.row, d.location.column) for d in check_source(dedent(text), "t.py", ONLY)]


def fixed(text: str) -> str:
    """A text after the safe fixes."""
    result = fix_source(dedent(text), "t.py", ONLY)
    assert result.messages == []
    return result.text


PAIRS = [
    ("torch.amp.Autocast", "torch.amp.autocast"),
    ("torch.amp.auto_cast", "torch.amp.autocast"),
    ("torch.amp.autoCast", "torch.amp.autocast"),
    ("torch.amp.GradScalar", "torch.amp.GradScaler"),
    ("torch.amp.Gradscaler", "torch.amp.GradScaler"),
    ("torch.amp.GradientScaler", "torch.amp.GradScaler"),
    ("torch.amp.custom_forward", "torch.amp.custom_fwd"),
    ("torch.amp.custom_backward", "torch.amp.custom_bwd"),
    ("torch.amp.is_autocast_enabled", "torch.is_autocast_enabled"),
    ("torch.amp.get_autocast_dtype", "torch.get_autocast_dtype"),
    ("torch.cuda.amp.gradscaler", "torch.cuda.amp.GradScaler"),
    ("torch.cuda.amp.Autocast", "torch.cuda.amp.autocast"),
    ("torch.cuda.amp.amp_autocast", "torch.cuda.amp.autocast"),
    ("torch.cuda.amp.is_autocast_enabled", "torch.is_autocast_enabled"),
    ("torch.cuda.amp.grad_scaler.GradScalar", "torch.cuda.amp.grad_scaler.GradScaler"),
    ("torch.cuda.amp.autocast_mode.auto_cast", "torch.cuda.amp.autocast_mode.autocast"),
    ("torch.cuda.autocast", "torch.cuda.amp.autocast"),
    ("torch.cuda.GradScaler", "torch.cuda.amp.GradScaler"),
    ("torch.cpu.autocast", "torch.cpu.amp.autocast"),
    ("torch.cpu.amp.Autocast", "torch.cpu.amp.autocast"),
    ("torch.Autocast", "torch.autocast"),
    ("torch.auto_cast", "torch.autocast"),
    ("torch.GradScalar", "torch.GradScaler"),
]


@pytest.mark.parametrize(("bad", "good"), PAIRS)
def test_torch_has_not_what_is_reported_and_has_what_is_written(bad: str, good: str) -> None:
    module, _, name = bad.rpartition(".")
    assert not hasattr(importlib.import_module(module), name)
    module, _, name = good.rpartition(".")
    assert hasattr(importlib.import_module(module), name)
    text = "import torch\nx = {}(1)\ny = torch.is_autocast_enabled()\n"
    assert found(text.format(bad)) == [(2, 5)]
    assert fixed(text.format(bad)) == text.format(good)
    assert found(text.format(good)) == []


@pytest.mark.parametrize("module", [*PUBLIC_NAMES, "torch", "torch.cuda", "torch.cpu"])
def test_nothing_that_torch_has_is_reported(module: str) -> None:
    assert [name for name in dir(importlib.import_module(module)) if meant_by(module, name) is not None] == []


@pytest.mark.parametrize("module", PUBLIC_NAMES)
def test_the_table_holds_what_torch_has(module: str) -> None:
    # Dropped or added in other versions than the one at hand.
    other_versions = {"torch.cuda.amp.autocast_mode": {"autocast_decorator"}}
    assert {name for name in PUBLIC_NAMES[module] if not hasattr(importlib.import_module(module), name)} == (
        other_versions.get(module, set())
    )


def test_the_state_functions_stand_in_torch() -> None:
    import torch

    assert [name for name in sorted(TORCH_STATE_NAMES) if not hasattr(torch, name)] == []


@pytest.mark.parametrize(
    "text",
    [
        "import torch\ntorch.amp.autocast_mode.autocast",
        "import torch\ntorch.cuda.amp.common.amp_definitely_not_available()",
        "import torch\ntorch.cuda.amp.frobnicate",
        "import torch\ntorch.amp._enter_autocast",
        "import torch\ntorch.npu.amp.GradScalar",
        "import torch\ntorch.autocast_mode",
        "import torch\ntorch.autograd, torch.broadcast_to, torch.cast",
        "from torch.amp import autocast_mode, grad_scaler",
        "from paddle.amp import auto_cast, GradScalar",
        "from .amp import GradScalar",
        "from amp import auto_cast",
        "try:\n    from torch.amp import Autocast\nexcept ImportError:\n    Autocast = None",
        "try:\n    from torch.amp import Autocast\nexcept Exception:\n    Autocast = None",
        "import torch\ntry:\n    x = torch.amp.Autocast\nexcept AttributeError:\n    x = None",
        "import torch\nif hasattr(torch.amp, 'Autocast'):\n    x = torch.amp.Autocast",
        "import torch\ntorch.amp.Autocast = Own\nx = torch.amp.Autocast",
        "import torch\nx = getattr(torch.amp, 'Autocast', None)",
        "try:\n    from torch.amp import GradScaler\nexcept ImportError:\n    from other import GradScalar",
    ],
)
def test_silence(text: str) -> None:
    assert found(text) == []


class TestImports:
    def test_the_import_and_all_uses_change_together(self) -> None:
        text = """\
            from torch.cuda.amp import GradScalar, autocast


            def make(amp) -> "GradScalar":
                scaler: GradScalar = GradScalar(enabled=amp)
                return scaler
            """
        assert found(text) == [(1, 28)]
        assert fixed(text) == dedent(text).replace("GradScalar", "GradScaler")

    def test_the_uses_are_labelled(self) -> None:
        [diagnostic] = check_source("from torch.amp import Autocast\n\nAutocast('cuda')\n", "t.py", ONLY)
        assert [(place.location, place.message) for place in diagnostic.related] == [
            ((3, 1), "`Autocast` is used here")
        ]

    def test_an_alias_keeps_the_uses(self) -> None:
        assert fixed("from torch.amp import Autocast as AC\nAC('cuda')\n") == (
            "from torch.amp import autocast as AC\nAC('cuda')\n"
        )

    def test_another_module(self) -> None:
        assert fixed("from torch.amp import is_autocast_enabled\n") == "from torch import is_autocast_enabled\n"
        assert fixed("from torch.cuda import autocast\n") == "from torch.cuda.amp import autocast\n"
        assert fixed("from torch.cuda import autocast, Stream\n") == "from torch.cuda import autocast, Stream\n"
        assert found("from torch.cuda import autocast, Stream\n") == [(1, 24)]

    @pytest.mark.parametrize(
        "text",
        [
            "from torch.amp import GradScalar, GradScaler\n",
            "from torch.amp import GradScalar\n\n__all__ = ['GradScalar']\n",
            "from torch.amp import Autocast\n\nautocast = Autocast\n",
        ],
    )
    def test_no_fix_where_the_right_name_is_taken_or_the_wrong_one_is_exported(self, text: str) -> None:
        assert len(found(text)) == 1
        assert fixed(text) == text

    def test_a_function_of_another_device_needs_more_than_a_name(self) -> None:
        text = "import torch\n\n\n@torch.cpu.amp.custom_fwd\ndef forward(ctx): ...\n"
        [diagnostic] = check_source(text, "t.py", ONLY)
        assert (diagnostic.location.row, diagnostic.fix, diagnostic.help) == (4, None, "use `torch.amp.custom_fwd`")


def test_a_broad_except_around_a_whole_program_is_no_guard() -> None:
    text = """\
        import torch

        try:
            model = build()
            scaler = torch.cuda.amp.GradScalar()
            train(model, scaler)
        except Exception:
            log()
        """
    assert found(text) == [(5, 14)]


@pytest.mark.parametrize("name", ["Autocast", "AutoCast", "auto_cast", "GradScalar", "Gradscaler"])
def test_found_in_a_file_that_names_no_other_part_of_the_api(name: str) -> None:
    assert found(f"import torch\nx = torch.{name}('cuda')\n") == [(2, 5)]
    assert found(f"from torch import {name}\n") == [(1, 19)]
