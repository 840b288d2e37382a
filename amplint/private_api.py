"""The internals of torch.amp that projects reach for, what became of them and what to use instead.

Source: the Python sources of the released wheels 1.5.1 to 2.15.0.
"""

from __future__ import annotations

import re

MODULES = re.compile(r"torch\.(?:amp|cuda\.amp|cpu\.amp|GradScaler|autocast)\.")
"""What the qualified name of an internal starts with; `torch.GradScaler` and `torch.autocast` are classes."""

_REPLICATOR = "moved to `torch.amp.grad_scaler` in torch 2.3"

MOVED: dict[str, str] = {
    "torch.cuda.amp.grad_scaler._MultiDeviceReplicator": _REPLICATOR,
    "torch.cuda.amp.grad_scaler._refresh_per_optimizer_state": _REPLICATOR,
    "torch.cuda.amp.grad_scaler.OptState": _REPLICATOR,
    "torch.cuda.amp.autocast_mode._cast": "deprecated since torch 2.4: `torch.amp.autocast_mode._cast` takes a device",
    "torch.autocast_mode": "there in torch 1.10 and 1.11 only; it is `torch.amp.autocast_mode` since 1.12",
}
"""Internals that moved or went away, and what became of them."""

SCALER_MEMBERS: dict[str, str] = {
    "_scale": "`get_scale()`",
    "_enabled": "`is_enabled()`",
    "_growth_factor": "`get_growth_factor()`",
    "_backoff_factor": "`get_backoff_factor()`",
    "_growth_interval": "`get_growth_interval()`",
    "_init_scale": "`get_scale()`",
    "_device": "",
    "_growth_tracker": "`state_dict()`",
    "_get_growth_tracker": "`state_dict()`",
    "_get_scale_async": "`get_scale()`",
    "_init_growth_tracker": "",
    "_per_optimizer_states": "",
    "_lazy_init_scale_growth_tracker": "",
    "_check_scale_growth_tracker": "",
    "_unscale_grads_": "`unscale_()`",
    "_maybe_opt_step": "`step()`",
    "_found_inf_per_device": "",
    "_check_inf_per_device": "`unscale_()`",
}
"""The private members of `GradScaler`, with the public method that answers the same question, "" where none does."""

TELLTALE = frozenset(
    (
        "_growth_tracker",
        "_get_growth_tracker",
        "_get_scale_async",
        "_init_growth_tracker",
        "_per_optimizer_states",
        "_lazy_init_scale_growth_tracker",
        "_check_scale_growth_tracker",
        "_unscale_grads_",
        "_maybe_opt_step",
        "_found_inf_per_device",
        "_check_inf_per_device",
    )
)
"""The private members that no class but `GradScaler` has: they tell what an object is that is called a scaler."""


def what_became(name: str) -> str | None:
    """What became of an internal of torch.amp by its qualified name, "" if it only is private, None if it is public."""
    for known, fate in MOVED.items():
        if name == known or name.startswith(f"{known}."):
            return fate
    if not MODULES.match(name):
        return None
    parts = name.split(".")
    return "" if any(part.startswith("_") and not part.endswith("__") for part in parts) else None
