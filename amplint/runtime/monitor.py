"""The monitor: puts its hooks into torch, takes them out again, and reports what it saw."""

from __future__ import annotations

import sys
from types import TracebackType
from typing import Any, ClassVar

import torch

from amplint.runtime.gradients import GradientCounter
from amplint.runtime.hooks import Hooks
from amplint.runtime.optimizers import existing
from amplint.runtime.patches import Patches
from amplint.runtime.products import ProductCounter
from amplint.runtime.results import Report
from amplint.runtime.scalers import scaler_class


class Monitor:
    """Watches the AMP protocol of this process while it is installed, as a context manager or by hand.

    `dtypes` counts matrix products by precision, `gradients` counts values that are 0, subnormal or not finite; both
    cost time. Only one monitor can be installed at a time. Needs torch 1.13 or newer; what torch.compile has compiled
    is seen from outside only.
    """

    _installed: ClassVar[Monitor | None] = None

    def __init__(self, dtypes: bool = False, gradients: bool = False) -> None:
        self._products = ProductCounter() if dtypes else None
        self._gradients = GradientCounter() if gradients else None
        self._patches = Patches()
        self._hooks = Hooks(self._gradients, self._patches)
        self._handle: Any = None

    def install(self) -> None:
        """Begin to watch. Raises `RuntimeError` if a monitor is installed already."""
        if Monitor._installed is not None:
            raise RuntimeError("a monitor is installed already")
        Monitor._installed = self
        try:
            self._hook()
        except BaseException:
            self.uninstall()
            raise

    def uninstall(self) -> None:
        """Stop watching and leave torch exactly as it was; does nothing if this monitor is not installed."""
        if Monitor._installed is not self:
            return
        if self._handle is not None:
            self._handle.remove()
            self._handle = None
        self._patches.undo()
        Monitor._installed = None

    def __enter__(self) -> Monitor:
        self.install()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.uninstall()

    def report(self) -> Report:
        """What was seen so far; may be asked for at any time."""
        hooks = self._hooks
        return Report(
            torch=torch.__version__,
            effective=self._effective(),
            violations=hooks.tracker.violations(),
            regions=hooks.regions.report(),
            backward=hooks.backward_report(),
            scalers=hooks.scaler_reports(),
            plain_steps=hooks.plain_steps,
            products=None if self._products is None else self._products.report(),
            gradients=None if self._gradients is None else self._gradients.report(),
        )

    def _effective(self) -> bool | None:
        if not self._hooks.regions.any_enabled():
            return False
        counted = None if self._products is None else self._products.any_low()
        return self._hooks.low_precision if counted is None else counted

    def _hook(self) -> None:
        hooks, patches = self._hooks, self._patches
        scaler: Any = scaler_class()
        optimizer: Any = torch.optim.Optimizer
        autocast: Any = torch.amp.autocast_mode.autocast
        for owner, name, wrap in (
            (scaler, "__init__", hooks.made_scaler),
            (scaler, "scale", hooks.scale),
            (scaler, "unscale_", hooks.unscale),
            (scaler, "step", hooks.step),
            (scaler, "update", hooks.update),
            (scaler, "get_scale", hooks.get_scale),
            (optimizer, "__init__", hooks.made_optimizer),
            (optimizer, "zero_grad", hooks.optimizer_zero_grad),
            (torch.nn.Module, "zero_grad", hooks.module_zero_grad),
            (autocast, "__enter__", hooks.autocast_enter),
            (autocast, "__exit__", hooks.autocast_exit),
        ):
            patches.attribute(owner, name, wrap(getattr(owner, name)))
        hooks.watch_subclasses()
        patches.attribute(torch.Tensor, "grad", hooks.grad())
        patches.function(torch.autograd, "backward", hooks.backward)
        clipping = torch.nn.utils.clip_grad
        patches.function(clipping, "clip_grad_norm_", hooks.clip(norm=True))
        patches.function(clipping, "clip_grad_value_", hooks.clip(norm=False))
        if self._products is not None:
            self._products.install(patches)
        patches.apply_functions()
        self._handle = _before_every_step(hooks, patches)
        for known in existing(optimizer):
            if hasattr(known, "param_groups"):
                hooks.watch_optimizer(known)


def _before_every_step(hooks: Hooks, patches: Patches) -> Any:
    """Call a hook before every optimizer's step: torch's own way where there is one (2.0), else by wrapping."""
    module = sys.modules[torch.optim.Optimizer.__module__]
    register = getattr(module, "register_optimizer_step_pre_hook", None)
    if register is not None:
        return register(hooks.before_optimizer_step)
    todo: list[Any] = [torch.optim.Optimizer]
    while todo:
        found = todo.pop()
        todo.extend(found.__subclasses__())
        if found is not torch.optim.Optimizer and "step" in vars(found):
            patches.attribute(found, "step", hooks.optimizer_step(found.step))
    return None
