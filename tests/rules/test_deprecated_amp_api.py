"""AMP001: what is a finding, and where; what is none."""

from __future__ import annotations

import pytest

from amplint import check_source
from amplint.settings import Settings

ONLY = Settings(select=("AMP001",))


def found(text: str, settings: Settings = ONLY) -> list[tuple[int, int]]:
    """The rows and columns at which AMP001 stands."""
    return [(d.location.row, d.location.column) for d in check_source(text, "t.py", settings)]


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ("from torch.cuda.amp import autocast, GradScaler\n", [(1, 28), (1, 38)]),
        ("from torch.cuda.amp import (\n    autocast,\n    GradScaler as S,\n)\n", [(2, 5), (3, 5)]),
        ("from torch.cuda.amp import *\n", [(1, 28)]),
        ("from torch.cuda import amp, nccl\n", [(1, 24)]),
        ("from torch.cuda import amp\n@amp.custom_fwd\ndef f(ctx):\n    pass\n", [(1, 24), (2, 2)]),
        ("import torch.cuda.amp\n", [(1, 8)]),
        ("import os, torch.cuda.amp as amp\n", [(1, 12)]),
        ("from torch.cuda.amp.autocast_mode import autocast, custom_fwd\n", [(1, 42), (1, 52)]),
        ("from torch.cuda.amp import grad_scaler\n", [(1, 28)]),
        ("from torch.cpu.amp import autocast\n", [(1, 27)]),
        ("import torch.cpu.amp.grad_scaler as g\n", [(1, 8)]),
        ("import torch\ntorch.cuda.amp.GradScaler.step\n", [(2, 1)]),
        ("import torch\nx = (1, torch.cpu.amp.GradScaler())\n", [(2, 9)]),
        ("import torch as th\nwith th.cuda.amp.autocast_mode.autocast():\n    pass\n", [(2, 6)]),
        ("import torch\n@torch.cuda.amp.custom_bwd\ndef f(ctx):\n    pass\n", [(2, 2)]),
        ("import torch\nclass S(torch.cuda.amp.GradScaler):\n    pass\n", [(2, 9)]),
        ("import torch\nisinstance(1, torch.cuda.amp.GradScaler)\n", [(2, 15)]),
        ("import torch\nd = {'a': torch.cuda.amp.autocast}\n", [(2, 11)]),
        ("import torch\ndef f(c=torch.cuda.amp.autocast):\n    pass\n", [(2, 9)]),
        ("import torch\ndef f(s: torch.cuda.amp.GradScaler):\n    pass\n", [(2, 10)]),
        ("import torch\ndef f() -> 'torch.cuda.amp.GradScaler | None':\n    pass\n", [(2, 13)]),
        ("from torch import cuda\nx: cuda.amp.GradScaler\n", [(2, 4)]),
        ("def f():\n    from torch.cuda.amp import autocast\n    return autocast(True)\n", [(2, 32), (3, 12)]),
        ("x = torch.cuda.amp.GradScaler()  # torch comes with a star import\n", [(1, 5)]),
    ],
)
def test_found(text: str, want: list[tuple[int, int]]) -> None:
    assert found(text) == want


@pytest.mark.parametrize(
    "text",
    [
        "from torch.amp import autocast, GradScaler\nwith autocast('cuda'):\n    GradScaler('cuda')\n",
        "import torch\nwith torch.autocast('cuda'):\n    torch.amp.GradScaler('cuda')\n",
        "from paddle.amp import GradScaler, auto_cast\nGradScaler()\n",
        "from mmengine.runner import autocast\nwith autocast():\n    pass\n",
        "import torch\nwith torch.npu.amp.autocast():\n    torch.xpu.amp.GradScaler()\n",
        "# torch.cuda.amp.autocast\nx = 'torch.cuda.amp.GradScaler'\n",
        "class GradScaler:\n    pass\nGradScaler()  # not that of torch.cuda.amp\n",
        "from mine import torch\ntorch.cuda.amp.autocast()\n",
        "from torch.cuda.amp.common import amp_definitely_not_available\n",
        "import torch\ntorch.cuda.amp.autocast = None\n",
        "import torch\nhasattr(torch.cuda.amp, 'autocast')\n",
        "import torch\nif getattr(torch.cuda.amp, 'autocast') is not None:\n    pass\n",
        "import torch\nif 'autocast' in dir(torch.cuda.amp):\n    pass\n",
        "import torch\nx = torch.cuda.amp.amp_definitely_not_available()\n",
    ],
)
def test_silent(text: str) -> None:
    assert found(text) == []


def test_an_annotation_through_a_reported_import_is_none_of_its_own() -> None:
    text = (
        "from torch.cuda.amp import GradScaler\n"
        "from torch.cuda import amp\n"
        "def f(a: GradScaler, b: 'amp.GradScaler') -> GradScaler:\n"
        "    c: GradScaler = a\n"
        "    return c\n"
    )
    assert found(text) == [(1, 28), (2, 24)]


def test_a_question_whether_a_name_is_there_is_none_of_its_own() -> None:
    text = (
        "try:\n    from torch.cuda.amp import GradScaler\nexcept ImportError:\n    GradScaler = None\n"
        "assert GradScaler\nif GradScaler is not None and not None:\n    s = GradScaler()\n"
    )
    assert found(text) == [(2, 32), (7, 9)]


def test_a_call_through_a_variable_is_none_of_its_own() -> None:
    text = "import torch\nctx = torch.cuda.amp.autocast\nwith ctx():\n    pass\n"
    assert found(text) == [(2, 7)]
    text = "import torch\namp = torch.cuda.amp\nwith amp.autocast():\n    pass\n"
    assert found(text) == [(2, 7), (3, 6)]


def test_a_call_that_another_rule_reports_is_left_to_it() -> None:
    text = "import torch\ns = torch.cuda.amp.GradScaler('cuda')\nwith torch.cuda.amp.autocast:\n    pass\n"
    assert found(text) == []
    assert [(d.location.row, d.code) for d in check_source(text, "t.py")] == [(2, "AMP004"), (3, "AMP008")]


@pytest.mark.parametrize(
    "text",
    [
        "try:\n    from torch.amp import GradScaler\nexcept ImportError:\n    from torch.cuda.amp import GradScaler\n"
        "GradScaler()\n",
        "import torch\nif hasattr(torch.amp, 'GradScaler'):\n    s = torch.amp.GradScaler('cuda')\n"
        "else:\n    s = torch.cuda.amp.GradScaler()\n",
        "import torch\nfrom packaging.version import parse\nNEW = parse(torch.__version__) >= parse('2.4')\n"
        "s = torch.amp.GradScaler('cuda') if NEW else torch.cuda.amp.GradScaler()\n",
        "import torch\nfrom mine import V\nif V >= (2, 3):\n    s = torch.amp.GradScaler('cuda')\n"
        "else:\n    s = torch.cuda.amp.GradScaler()\n",
        "from functools import partial\ntry:\n    from torch.amp import custom_fwd as new\n"
        "    custom_fwd = partial(new, device_type='cuda')\nexcept ImportError:\n"
        "    from torch.cuda.amp import custom_fwd\n@custom_fwd\ndef f(ctx):\n    pass\n",
    ],
)
def test_fallbacks_are_left_alone(text: str) -> None:
    assert found(text) == []


def test_an_import_that_only_fallbacks_use_is_left_alone() -> None:
    text = (
        "import torch\nfrom torch.cuda import amp\nfrom torch.cuda.amp import GradScaler\n"
        "NEW = torch.__version__ >= (2, 4)\n"
        "s = torch.amp.GradScaler('cuda') if NEW else GradScaler()\n"
        "t = torch.amp.GradScaler('cuda') if NEW else amp.GradScaler()\n"
    )
    assert found(text) == []


def test_a_module_stays_for_a_fallback_and_its_other_uses_move() -> None:
    text = (
        "import torch\nfrom torch.cuda import amp\nNEW = torch.__version__ >= (2, 4)\n"
        "s = torch.amp.GradScaler('cuda') if NEW else amp.GradScaler()\nwith amp.autocast():\n    pass\n"
    )
    diagnostics = check_source(text, "t.py", ONLY)
    assert [d.location.row for d in diagnostics] == [5]
    assert diagnostics[0].fix is not None


def test_messages_name_the_replacement() -> None:
    text = (
        "import torch\nfrom torch.cuda import amp\namp.autocast()\ntorch.cpu.amp.GradScaler()\n"
        "@torch.cuda.amp.custom_fwd\ndef f(ctx):\n    pass\n"
    )
    head = "is deprecated since torch 2.4"
    assert [d.message for d in check_source(text, "t.py", ONLY)] == [
        f"`torch.cuda.amp` {head}, its contents moved to `torch.amp`",
        f'`torch.cuda.amp.autocast` {head} and warns on every use: use `torch.amp.autocast("cuda", ...)`',
        f'`torch.cpu.amp.GradScaler` {head} and warns on every use: use `torch.amp.GradScaler("cpu", ...)`',
        f'`torch.cuda.amp.custom_fwd` {head} and warns on every use: use `torch.amp.custom_fwd(device_type="cuda")`',
    ]


def test_an_import_carries_the_edits_of_all_uses_and_a_dotted_use_its_own() -> None:
    text = "import torch\nfrom torch.cuda.amp import autocast\nx = autocast()\ny = autocast(True)\n"
    fixes = [d.fix for d in check_source(text, "t.py", ONLY)]
    assert [len(fix.edits) if fix else 0 for fix in fixes] == [6, 2, 3]


def test_uses_of_a_kept_import_share_one_fix() -> None:
    text = "from torch.cuda.amp import autocast\nwith autocast():\n    pass\nwith autocast(True):\n    pass\n"
    fixes = [d.fix for d in check_source(text, "t.py", ONLY)]
    assert fixes[0] is not None
    assert fixes == [fixes[0]] * 3


def test_very_many_uses_of_a_kept_import_leave_the_fix_to_it() -> None:
    text = "from torch.cuda.amp import autocast\n" + "with autocast():\n    pass\n" * 201
    first, *rest = check_source(text, "t.py", ONLY)
    assert first.fix is not None
    assert {(d.fix, d.help) for d in rest} == {(None, "the fix of line 1 rewrites this line too")}
