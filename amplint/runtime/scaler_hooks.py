"""The wrappers round the scaler's own methods, and round those of subclasses that override them."""

from __future__ import annotations

import functools
from threading import get_ident
from typing import Any

import torch

from amplint.runtime import graphs
from amplint.runtime.gradients import GradientCounter
from amplint.runtime.optimizers import WatchedOptimizer
from amplint.runtime.patches import Patches
from amplint.runtime.places import Place, user_place
from amplint.runtime.scalers import METHODS, WatchedScaler, scaler_class
from amplint.runtime.tracking import WITHOUT_GRADIENTS
from amplint.runtime.watched import Function, Watched, found_inf


class _Override:
    """A call of a subclass's method: where it was called from, and whether it came to the scaler's own method."""

    __slots__ = ("came_through", "method", "place", "scaler")

    def __init__(self, scaler: Any, method: str, place: Place) -> None:
        self.scaler = scaler
        self.method = method
        self.place = place
        self.came_through = False


class ScalerHooks(Watched):
    """The hooks of scalers.

    A subclass's method that calls the scaler's own one is seen through that: what it does besides is events like any
    other, and all of them are said to happen where it was called. One that does without, in code that is not torch's,
    has ways of its own, of which the automata know nothing.
    """

    def __init__(self, gradients: GradientCounter | None, patches: Patches) -> None:
        super().__init__(gradients)
        self._patches = patches
        self._base: Any = scaler_class()
        self._wrappers = {"scale": self.scale, "unscale_": self.unscale, "step": self.step, "update": self.update}
        self._seen_through: set[type] = set()
        self._overrides: list[_Override] = []  # that are running

    def watch_subclasses(self) -> None:
        """Wrap what the subclasses that are there override."""
        self._seen_through = {self._base}
        todo: list[Any] = self._base.__subclasses__()
        while todo:
            found = todo.pop()
            todo.extend(found.__subclasses__())
            self._see_through(found)

    def made_scaler(self, original: Function) -> Function:
        @functools.wraps(original)
        def init(scaler: Any, *args: Any, **kwargs: Any) -> None:
            original(scaler, *args, **kwargs)
            self.watch_scaler(scaler, user_place())
            for kind in type(scaler).__mro__:
                if kind is not object and issubclass(kind, self._base):
                    self._see_through(kind)

        return init

    def _see_through(self, kind: Any) -> None:
        if kind in self._seen_through:
            return
        self._seen_through.add(kind)
        for name in METHODS:
            original = vars(kind).get(name)
            if not callable(original):
                continue
            if kind.__module__.startswith("torch."):  # keeps to the protocol, but does not call the base's method
                self._patches.attribute(kind, name, self._wrappers[name](original))
            else:
                self._patches.attribute(kind, name, self._override(name, original))

    def _override(self, name: str, original: Function) -> Function:
        @functools.wraps(original)
        def method(scaler: Any, *args: Any, **kwargs: Any) -> Any:
            if self._stepping is not None:  # called by the scaler's own step
                return original(scaler, *args, **kwargs)
            watched = self.watch_scaler(scaler)
            if watched is None or any(each.scaler is scaler and each.method == name for each in self._overrides):
                return original(scaler, *args, **kwargs)
            running = _Override(scaler, name, self._overrides[0].place if self._overrides else user_place())
            self._overrides.append(running)
            try:
                result = original(scaler, *args, **kwargs)
            finally:
                self._overrides.remove(running)
            if name == "scale":
                watched.scale = "set"
                graphs.mark(result, watched)
            if not running.came_through:
                reason = f"{name}() of {type(scaler).__name__} does without that of GradScaler"
                self.tracker.give_up(watched, reason)
                self._look_again()
            return result

        return method

    def _place(self, method: str) -> Place:
        """Where the event that the method is happens: where the outermost override was called, if there is one."""
        if not self._overrides:
            return user_place(2)
        for each in self._overrides:
            if each.method == method:
                each.came_through = True
        return self._overrides[0].place

    # -- the scaler's methods -----------------------------------------------------------------------------------------

    def scale(self, original: Function) -> Function:
        @functools.wraps(original)
        def scale(scaler: Any, outputs: Any) -> Any:
            result = original(scaler, outputs)
            watched = self.watch_scaler(scaler)
            if watched is not None:
                watched.scale = "set"
                graphs.mark(result, watched)
                if self._overrides:
                    self._place("scale")
            return result

        return scale

    def unscale(self, original: Function) -> Function:
        @functools.wraps(original)
        def unscale_(scaler: Any, optimizer: Any) -> None:
            watched = self.watch_scaler(scaler)
            if watched is None or self._stepping is not None or not hasattr(optimizer, "param_groups"):
                original(scaler, optimizer)
                return
            if self._busy is not None:
                self._watch_threads()
            place = self._place("unscale_")
            target = self.watch_optimizer(optimizer)
            tracker = self.tracker
            tracker.begin()
            nothing = self._before_use(target, place, stepping=False)
            tracker.unscale(watched, target, place, nothing and watched.needs_gradients)
            self._scaled_now.clear()  # torch itself reads them now
            try:
                original(scaler, optimizer)
            except BaseException:
                tracker.raised()
                raise
            target.note_version()
            self._look_again()

        return unscale_

    def step(self, original: Function) -> Function:
        @functools.wraps(original)
        def step(scaler: Any, optimizer: Any, *args: Any, **kwargs: Any) -> Any:
            watched = self.watch_scaler(scaler)
            if self._busy is not None:
                self._watch_threads()
            if watched is None or self._stepping is not None or not hasattr(optimizer, "param_groups"):
                return original(scaler, optimizer, *args, **kwargs)
            place = self._place("step")
            target = self.watch_optimizer(optimizer)
            tracker = self.tracker
            tracker.begin()
            if any(arg is not None for arg in args) or "closure" in kwargs:
                tracker.report("scaler-step-with-closure", place)
            nothing = self._before_use(target, place, stepping=True)
            tracker.step(watched, target, place, nothing and watched.needs_gradients)
            if self._scaled_now:
                self._look_again()
            self._stepping, self._stepped, self._busy = optimizer, False, get_ident()
            try:
                result = original(scaler, optimizer, *args, **kwargs)
            except BaseException:
                tracker.raised()
                raise
            finally:
                self._stepping = self._busy = None
            self._after_step(watched, scaler, optimizer, place)
            if self.counter is not None:
                self.counter.at_step(target.gradients_now())
            return result

        return step

    def update(self, original: Function) -> Function:
        @functools.wraps(original)
        def update(scaler: Any, *args: Any, **kwargs: Any) -> None:
            watched = self.watch_scaler(scaler)
            if watched is None:
                original(scaler, *args, **kwargs)
                return
            if self._busy is not None:
                self._watch_threads()
            new_scale = args[0] if args else kwargs.get("new_scale")
            tracker = self.tracker
            tracker.begin()
            tracker.update(watched, self._place("update"), new_scale is not None)
            try:
                original(scaler, *args, **kwargs)
            except BaseException:
                tracker.raised()
                raise
            watched.note_scale(scaler)
            watched.asked_for_scale = False

        return update

    def get_scale(self, original: Function) -> Function:
        @functools.wraps(original)
        def get_scale(scaler: Any) -> float:
            watched = self.watch_scaler(scaler)
            if watched is not None:
                watched.asked_for_scale = True
            scale: float = original(scaler)
            return scale

        return get_scale

    def _before_use(self, target: WatchedOptimizer, place: Place, stepping: bool) -> bool:
        """Bring the state up to date with what nobody reported; whether there are no gradients at all."""
        gradient = target.first_gradient()
        if gradient is None:
            if target.gradients not in WITHOUT_GRADIENTS:
                self.tracker.zero_grad(target, None)
            return True
        if gradient.dtype is torch.float16:
            self.tracker.report("half-parameters-with-scaler", place)
        if target.gradients in WITHOUT_GRADIENTS:
            if not target.all_zero():  # somebody put them there by hand
                target.gradients = "unknown"
            elif stepping and target.gradients == "cleared":
                self.tracker.thrown_away(target, place)
        elif target.reads and target.was_changed() and self._distributed():
            target.reads.clear()  # averaged over processes, which is right at any scale
        return False

    def _after_step(self, watched: WatchedScaler, scaler: Any, optimizer: Any, place: Place) -> None:
        if self._stepped:
            self.regions.step(place)
            if getattr(optimizer, "_step_supports_amp_scaling", False):
                watched.note_fused_step(found_inf(scaler, optimizer))
            else:
                watched.note_step(skipped=False)
        elif isinstance(optimizer, torch.optim.Optimizer):
            watched.note_step(skipped=True)
        else:  # no hook tells whether a wrapper's step() ran
            watched.note_step(skipped=any(bool(each) for each in found_inf(scaler, optimizer)))
