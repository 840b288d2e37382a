"""AMP007: internals of torch.amp and private members of scalers."""

from __future__ import annotations

import pytest
import torch

from amplint import check_source
from amplint.private_api import MOVED, SCALER_MEMBERS, TELLTALE, what_became
from amplint.settings import Settings

ONLY = Settings(select=("AMP007",))


def places(text: str) -> list[tuple[int, int]]:
    return [tuple(diagnostic.location) for diagnostic in check_source(text, "test.py", ONLY)]  # type: ignore[misc]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("from torch.cuda.amp.grad_scaler import OptState, GradScaler\nOptState.READY\n", [(1, 40)]),
        ("from torch.amp.grad_scaler import OptState\n", []),
        ("from torch.amp.grad_scaler import _refresh_per_optimizer_state as r\nr()\n", [(1, 35)]),
        ("import torch\nx = torch.cuda.amp.autocast_mode._cast(value, dtype)\n", [(2, 5)]),
        ("from torch.cuda.amp import autocast_mode\nautocast_mode._cast(v, d)\n", [(2, 1)]),
        ("import torch\ntorch.amp.autocast_mode._enter_autocast('cuda', None, True, False)\n", [(2, 1)]),
        ("import torch\ntorch.cuda.amp.GradScaler._unscale_grads_ = mine\n", [(2, 1)]),
        ("from torch.autocast_mode import autocast\n", [(1, 33)]),
        ("import torch\ntorch.amp.autocast_mode.autocast_decorator(a, f)\ntorch.amp.__name__\n", []),
        ("try:\n    from torch.amp.grad_scaler import OptState\nexcept ImportError:\n"
         "    from torch.cuda.amp.grad_scaler import OptState\n", []),
        ("try:\n    from torch.cuda.amp.grad_scaler import OptState\nexcept ImportError:\n    pass\n", [(2, 44)]),
        ("from torch.cuda.amp.common import amp_definitely_not_available\n", []),
        ("from paddle.amp.grad_scaler import _refresh_per_optimizer_state\nGradScaler = 1\n", []),
    ],
)  # fmt: skip
def test_names(text: str, expected: list[tuple[int, int]]) -> None:
    assert places(text) == expected


MADE = "import torch\nscaler = torch.amp.GradScaler('cuda')\n"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (f"{MADE}scaler._scale\n", [(3, 1)]),
        (f"{MADE}scaler._enabled = False\n", [(3, 1)]),
        (f"{MADE}scaler._own\n", []),
        ("import torch\nclass T:\n    def __init__(self):\n        self.s = torch.amp.GradScaler()\n"
         "    def f(self):\n        return self.s._scale\n", [(6, 16)]),
        ("from torch.amp import GradScaler\ndef f(s: GradScaler):\n    return s._growth_factor\n", [(3, 12)]),
        ("import torch\ndef f(scaler):\n    torch.autocast('cuda')\n    scaler._per_optimizer_states[0]\n", [(4, 5)]),
        ("import torch\ndef f(scaler):\n    torch.autocast('cuda')\n    scaler._scale\n", []),
        ("from torch.amp import GradScaler\nclass S(GradScaler):\n    def f(self):\n        return self._scale\n", []),
        ("import torch\ndef f(x):\n    torch.autocast('cuda')\n    x._growth_tracker\n", []),
        ("from paddle.amp import GradScaler\nscaler = GradScaler()\nscaler._scale\n", []),
    ],
)  # fmt: skip
def test_members(text: str, expected: list[tuple[int, int]]) -> None:
    assert places(text) == expected


def test_messages() -> None:
    [moved] = check_source("from torch.cuda.amp.grad_scaler import _MultiDeviceReplicator\n", "test.py", ONLY)
    assert moved.message == (
        "`torch.cuda.amp.grad_scaler._MultiDeviceReplicator` is moved to `torch.amp.grad_scaler` in torch 2.3"
    )
    [member] = check_source(f"{MADE}scaler._scale\n", "test.py", ONLY)
    assert member.message == "`_scale` is an internal of GradScaler, which may move or disappear in any version"
    assert member.help == "use `get_scale()`"


def test_members_are_those_of_torch() -> None:
    scaler = torch.amp.GradScaler("cpu")
    private = {name for name in dir(scaler) if name.startswith("_") and not name.endswith("__")}
    assert set(SCALER_MEMBERS) == private
    assert set(SCALER_MEMBERS) > TELLTALE
    public = {text.strip("`").removesuffix("()") for text in SCALER_MEMBERS.values() if text}
    assert all(hasattr(scaler, name) for name in public)


def test_what_became() -> None:
    assert all(what_became(name) == fate for name, fate in MOVED.items())
    assert what_became("torch.amp.autocast_mode._cast") == ""
    assert what_became("torch.amp.GradScaler") is None
    assert what_became("torch._C._get_tracing_state") is None
