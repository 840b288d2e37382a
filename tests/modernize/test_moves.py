"""What moves, and where to, for the oldest torch that a project supports."""

from __future__ import annotations

import pytest

from amplint import check_source, fix_source
from amplint.modernize.moves import Move, deprecated_api, deprecated_state
from amplint.settings import Settings

ONLY = Settings(select=("AMP001",))
TEXT = """\
import torch
from torch.cuda.amp import GradScaler, autocast, custom_fwd

with autocast(True), torch.cpu.amp.autocast():
    scaler = GradScaler(4.0)


@custom_fwd
def forward(ctx, x):
    return x
"""


def fixed(text: str, settings: Settings) -> str:
    """A text after the safe fixes."""
    result = fix_source(text, "t.py", settings)
    assert result.messages == []
    return result.text


@pytest.mark.parametrize("floor", [(1, 6), (1, 9)])
def test_nothing_is_found_where_nothing_can_take_its_place(floor: tuple[int, int]) -> None:
    settings = ONLY._replace(target_torch=floor)
    assert check_source(TEXT, "t.py", settings) == []
    assert check_source("import torch.cuda.amp\n\ntorch.cuda.amp.autocast()\n", "t.py", settings) == []
    assert check_source("from torch.cuda.amp import *\n\nautocast()\n", "t.py", settings) == []


@pytest.mark.parametrize(
    ("floor", "autocast", "kept"),
    [
        ((1, 10), "torch.autocast", ("GradScaler", "custom_fwd")),
        ((1, 11), "torch.autocast", ("GradScaler", "custom_fwd")),
        ((1, 12), "torch.amp.autocast", ("GradScaler", "custom_fwd")),
        ((2, 2), "torch.amp.autocast", ("GradScaler", "custom_fwd")),
        ((2, 3), "torch.amp.autocast", ("custom_fwd",)),
        ((2, 4), "torch.amp.autocast", ()),
        (None, "torch.amp.autocast", ()),
    ],
)
def test_each_name_moves_from_the_torch_on_that_has_its_replacement(
    floor: tuple[int, int] | None, autocast: str, kept: tuple[str, ...]
) -> None:
    scaler = "GradScaler(4.0)" if "GradScaler" in kept else 'torch.amp.GradScaler("cuda", 4.0)'
    custom = "custom_fwd" if "custom_fwd" in kept else 'torch.amp.custom_fwd(device_type="cuda")'
    old = f"from torch.cuda.amp import {', '.join(kept)}\n" if kept else ""
    assert fixed(TEXT, ONLY._replace(target_torch=floor)) == (
        f"import torch\n{old}\n"
        f'with {autocast}("cuda", enabled=True), {autocast}("cpu"):\n'
        f"    scaler = {scaler}\n\n\n"
        f"@{custom}\ndef forward(ctx, x):\n    return x\n"
    )


def test_the_shorter_spelling_is_a_setting() -> None:
    settings = ONLY._replace(autocast="torch.autocast")
    text = "import torch\nfrom torch.cuda.amp import GradScaler, autocast\nwith autocast():\n    GradScaler()\n"
    want = 'import torch\nwith torch.autocast("cuda"):\n    torch.amp.GradScaler("cuda")\n'
    assert fixed(text, settings) == want


def test_the_shorter_spelling_without_torch() -> None:
    settings = ONLY._replace(autocast="torch.autocast")
    text = "from torch.cuda.amp import GradScaler, autocast\nwith autocast():\n    GradScaler()\n"
    want = (
        'from torch.amp import GradScaler\nfrom torch import autocast\nwith autocast("cuda"):\n    GradScaler("cuda")\n'
    )
    assert fixed(text, settings) == want


def test_a_module_without_torch_gives_way_to_torch() -> None:
    settings = ONLY._replace(autocast="torch.autocast")
    text = "from torch.cuda import amp\nimport torch.cpu.amp as cpu\nwith amp.autocast(), cpu.autocast():\n    pass\n"
    want = 'import torch\nwith torch.autocast("cuda"), torch.autocast("cpu"):\n    pass\n'
    assert fixed(text, settings) == want


def test_a_module_stays_for_what_cannot_move() -> None:
    settings = ONLY._replace(target_torch=(2, 0))
    text = "import torch\nfrom torch.cuda import amp\nwith amp.autocast():\n    amp.GradScaler()\n"
    assert [d.location.row for d in check_source(text, "t.py", settings)] == [3]
    want = 'import torch\nfrom torch.cuda import amp\nwith torch.amp.autocast("cuda"):\n    amp.GradScaler()\n'
    assert fixed(text, settings) == want


def test_a_star_stays_for_what_cannot_move() -> None:
    settings = ONLY._replace(target_torch=(2, 0))
    text = "import torch\nfrom torch.cuda.amp import *\nwith autocast():\n    GradScaler()\n"
    assert [d.location.row for d in check_source(text, "t.py", settings)] == [3]
    want = 'import torch\nfrom torch.cuda.amp import *\nwith torch.amp.autocast("cuda"):\n    GradScaler()\n'
    assert fixed(text, settings) == want


def test_the_families() -> None:
    api = deprecated_api(Settings(target_torch=(2, 0)))
    assert api.moves["torch.cpu.amp.autocast"] == Move(
        "torch.cpu.amp.autocast", "torch.amp.autocast", "autocast", "cpu"
    )
    assert "torch.cuda.amp.grad_scaler.GradScaler" in api.left
    assert api.knows("torch.cuda.amp.custom_bwd")
    assert not api.knows("torch.amp.autocast")
    assert deprecated_state(Settings(target_torch=(2, 3))).moves == {}
    assert deprecated_state(Settings()).moves["torch.set_autocast_gpu_dtype"] == Move(
        "torch.set_autocast_gpu_dtype", "torch.set_autocast_dtype", "query", "cuda"
    )


@pytest.mark.parametrize(
    ("text", "filename", "floor", "since"),
    [
        ("import torch\namp = torch.cuda.amp\n", "t.py", (1, 11), "1.12 and later have `torch.amp`"),
        ("from torch.cuda import amp\n", "__init__.py", (2, 3), "2.4 and later have all of `torch.amp`"),
        ("from torch.cuda.amp import *\n", "__init__.py", (2, 3), "2.4 and later have all of `torch.amp`"),
        (
            "from torch.cuda.amp import grad_scaler as grad_scaler\n",
            "t.py",
            (2, 2),
            "2.3 and later have all of `torch.amp.grad_scaler`",
        ),
    ],
)
def test_a_module_stays_where_the_oldest_torch_lacks_the_new_one(
    text: str, filename: str, floor: tuple[int, int], since: str
) -> None:
    settings = ONLY._replace(target_torch=floor)
    result = fix_source(text, filename, settings, unsafe=True)
    assert result.text == text
    assert [d.help for d in result.remaining] == [f"not rewritten: only torch {since}"]
    newer = ONLY._replace(target_torch=(floor[0], floor[1] + 1))
    assert "torch.cuda" not in fix_source(text, filename, newer, unsafe=True).text


def test_a_variable_for_a_module_is_left_alone_where_all_its_uses_stay() -> None:
    text = "import torch\namp = torch.cuda.amp\nscaler = amp.GradScaler()\n"
    assert check_source(text, "t.py", ONLY._replace(target_torch=(2, 2))) == []
