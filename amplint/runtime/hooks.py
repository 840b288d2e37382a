"""The wrappers round torch's own calls: each tells the automata what happens and then does what torch does."""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable
from typing import Any

import torch

from amplint.flow.protocol import GRADIENTS, Fault
from amplint.runtime import graphs
from amplint.runtime.gradients import GradientCounter
from amplint.runtime.optimizers import GRAD, WatchedOptimizer, gradient_of
from amplint.runtime.places import UNKNOWN_PLACE, Place, is_user_code, user_place
from amplint.runtime.reads import only_tested
from amplint.runtime.regions import Regions
from amplint.runtime.registry import Registry
from amplint.runtime.results import BackwardReport, ScalerReport
from amplint.runtime.scalers import METHODS, WatchedScaler, scaler_class
from amplint.runtime.tracking import WITHOUT_GRADIENTS, Tracker

Function = Callable[..., Any]


class Hooks:
    """What the monitor knows of all scalers, optimizers and regions, and the wrappers that keep it up to date."""

    def __init__(self, gradients: GradientCounter | None) -> None:
        self.tracker = Tracker()
        self.regions = Regions(self.tracker)
        self.counter = gradients
        self.plain_steps = 0
        self.low_precision: bool | None = None
        self._scalers: Registry[WatchedScaler | ScalerReport] = Registry()
        self._all_scalers: list[WatchedScaler | ScalerReport] = []
        self._optimizers: Registry[WatchedOptimizer] = Registry()
        self._base: Any = scaler_class()
        self._enabled = 0  # scalers that are not switched off
        self._backwards = {"scaled": 0, "plain": 0, "mixed": 0, "unknown": 0, "in autocast": 0}
        self._in_backward = False
        self._stepping: Any = None  # the optimizer that a scaler steps now
        self._stepped = False
        self._scaled_now: list[WatchedOptimizer] = []  # whose gradients must not be read now; always this list

    def backward_report(self) -> BackwardReport:
        """The calls of backward()."""
        counts = self._backwards
        plain = counts["plain"] + counts["unknown"]
        return BackwardReport(counts["scaled"], plain, counts["mixed"], counts["in autocast"])

    def scaler_reports(self) -> tuple[ScalerReport, ...]:
        """All scalers in the order in which they were met."""
        return tuple(each if isinstance(each, ScalerReport) else each.report() for each in self._all_scalers)

    # -- scalers and optimizers ---------------------------------------------------------------------------------------

    def watch_scaler(self, scaler: Any, made_at: Place | None = None) -> WatchedScaler | None:
        """The automata of a scaler, None if it is switched off."""
        known = self._scalers.get(scaler)
        if known is None:
            if scaler._enabled:
                own = [name for name in METHODS if getattr(type(scaler), name) is not vars(self._base)[name]]
                known = WatchedScaler(scaler, made_at, exact=not own)
                self._enabled += 1
            else:
                known = ScalerReport(made_at or UNKNOWN_PLACE, False, 0, 0, 0, ())
            self._scalers.add(scaler, known)
            self._all_scalers.append(known)
        return known if isinstance(known, WatchedScaler) else None

    def watch_optimizer(self, optimizer: Any) -> WatchedOptimizer:
        """The automata of an optimizer."""
        watched = self._optimizers.get(optimizer)
        if watched is None:
            watched = WatchedOptimizer(optimizer)
            for other in self._optimizers.values:
                if watched.ids and (other.ids <= watched.ids or watched.ids <= other.ids):
                    watched.aliases.append(other)
                    other.aliases.append(watched)
            self._optimizers.add(optimizer, watched)
        return watched

    def made_scaler(self, original: Function) -> Function:
        @functools.wraps(original)
        def init(scaler: Any, *args: Any, **kwargs: Any) -> None:
            original(scaler, *args, **kwargs)
            self.watch_scaler(scaler, user_place())

        return init

    def made_optimizer(self, original: Function) -> Function:
        @functools.wraps(original)
        def init(optimizer: Any, *args: Any, **kwargs: Any) -> None:
            original(optimizer, *args, **kwargs)
            self.watch_optimizer(optimizer)

        return init

    # -- the scaler's methods -----------------------------------------------------------------------------------------

    def scale(self, original: Function) -> Function:
        @functools.wraps(original)
        def scale(scaler: Any, outputs: Any) -> Any:
            result = original(scaler, outputs)
            watched = self.watch_scaler(scaler)
            if watched is not None:
                watched.scale = "set"
                graphs.mark(result, watched)
            return result

        return scale

    def unscale(self, original: Function) -> Function:
        @functools.wraps(original)
        def unscale_(scaler: Any, optimizer: Any) -> None:
            watched = self.watch_scaler(scaler)
            if watched is None or self._stepping is not None or not hasattr(optimizer, "param_groups"):
                original(scaler, optimizer)
                return
            place = user_place()
            target = self.watch_optimizer(optimizer)
            self.tracker.begin()
            nothing = self._before_use(target, place, stepping=False)
            self.tracker.unscale(watched, target, place, nothing)
            self._scaled_now.clear()  # torch itself reads them now
            self._run(original, scaler, optimizer)
            target.note_version()
            self._look_again()

        return unscale_

    def step(self, original: Function) -> Function:
        @functools.wraps(original)
        def step(scaler: Any, optimizer: Any, *args: Any, **kwargs: Any) -> Any:
            watched = self.watch_scaler(scaler)
            if watched is None or self._stepping is not None or not hasattr(optimizer, "param_groups"):
                return original(scaler, optimizer, *args, **kwargs)
            place = user_place()
            target = self.watch_optimizer(optimizer)
            self.tracker.begin()
            if args or "closure" in kwargs:
                self.tracker.report("scaler-step-with-closure", place)
            nothing = self._before_use(target, place, stepping=True)
            self.tracker.step(watched, target, place, nothing)
            self._look_again()
            self._stepping, self._stepped = optimizer, False
            try:
                result = self._run(original, scaler, optimizer, *args, **kwargs)
            finally:
                self._stepping = None
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
            new_scale = args[0] if args else kwargs.get("new_scale")
            self.tracker.begin()
            self.tracker.update(watched, user_place(), new_scale is not None)
            self._run(original, scaler, *args, **kwargs)
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

    def _run(self, original: Function, *args: Any, **kwargs: Any) -> Any:
        try:
            return original(*args, **kwargs)
        except BaseException:
            self.tracker.raised()
            raise

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
        elif target.reads and target.was_changed() and _distributed():
            target.reads.clear()  # averaged over processes, which is right at any scale
        return False

    def _after_step(self, watched: WatchedScaler, scaler: Any, optimizer: Any, place: Place) -> None:
        if self._stepped:
            self.regions.step(place)
            if getattr(optimizer, "_step_supports_amp_scaling", False):
                watched.note_fused_step(_found_inf(scaler, optimizer))
            else:
                watched.note_step(skipped=False)
        elif isinstance(optimizer, torch.optim.Optimizer):
            watched.note_step(skipped=True)
        else:  # no hook tells whether a wrapper's step() ran
            watched.note_step(skipped=any(bool(each) for each in _found_inf(scaler, optimizer)))

    # -- backward and the optimizers' methods -------------------------------------------------------------------------

    def backward(self, original: Function) -> Function:
        @functools.wraps(original)
        def backward(tensors: Any, *args: Any, **kwargs: Any) -> None:
            if self._in_backward:  # of a checkpointed part
                original(tensors, *args, **kwargs)
                return
            place = user_place()
            if isinstance(tensors, torch.Tensor):
                roots = [tensors]
            else:
                tensors = tensors if hasattr(tensors, "node") else tuple(tensors)
                roots = [root for root in _listed(tensors) if isinstance(root, torch.Tensor)]
            self.tracker.begin()
            self._backwards["in autocast"] += self.regions.backward(place)
            root = graphs.Root("plain", None)
            if self._enabled and roots:
                given = args[0] if args else kwargs.get("grad_tensors", kwargs.get("grad_variables"))
                root = graphs.classify(roots, self._scales, given is not None)
            count = self._backwards[root.kind] = self._backwards[root.kind] + 1
            if self.low_precision is not True and count & (count - 1) == 0 and self.regions.any_enabled():
                found = graphs.low_precision_product(roots)
                self.low_precision = self.low_precision if found is None else found
            if not self._enabled and self.counter is None:
                self._run_backward(original, tensors, *args, **kwargs)
                return
            before = [(each, self._before_backward(each, root.kind)) for each in self._optimizers.values]
            self._run_backward(original, tensors, *args, **kwargs)
            reached = [each for each, snapshot in before if each.reached(snapshot)]
            if self.counter is not None:
                for each in reached:
                    self.counter.after_backward(each.gradients_now())
            self.tracker.backward(root.scaler, reached, place, root.kind)
            self._look_again()

        return backward

    def before_optimizer_step(self, optimizer: Any, args: Any, kwargs: Any) -> None:
        """The hook that torch calls before `optimizer.step()`, whoever called that."""
        if self._stepping is not None:
            self._stepped = True
            if optimizer is not self._stepping:
                self.tracker.inner_step(self.watch_optimizer(optimizer))
            return
        self.plain_steps += 1
        place = user_place()
        self.regions.step(place)
        if self._enabled:
            target = self.watch_optimizer(optimizer)
            self.tracker.begin()
            if not target.has_gradients() and target.gradients not in WITHOUT_GRADIENTS:
                self.tracker.zero_grad(target, None)
            self.tracker.plain_step(target, place, target.was_changed())
            self._look_again()

    def optimizer_step(self, original: Function) -> Function:
        """A wrapper of an optimizer class's `step`, for torch before 2.0."""

        @functools.wraps(original)
        def step(optimizer: Any, *args: Any, **kwargs: Any) -> Any:
            self.before_optimizer_step(optimizer, args, kwargs)
            return original(optimizer, *args, **kwargs)

        return step

    def optimizer_zero_grad(self, original: Function) -> Function:
        @functools.wraps(original)
        def zero_grad(optimizer: Any, *args: Any, **kwargs: Any) -> None:
            original(optimizer, *args, **kwargs)
            if self._enabled:
                target = self.watch_optimizer(optimizer)
                if target.gradients not in WITHOUT_GRADIENTS:
                    self.tracker.zero_grad(target, user_place())
                    self._look_again()

        return zero_grad

    def module_zero_grad(self, original: Function) -> Function:
        @functools.wraps(original)
        def zero_grad(module: Any, *args: Any, **kwargs: Any) -> None:
            original(module, *args, **kwargs)
            if not self._enabled:
                return
            pending = [each for each in self._optimizers.values if each.gradients not in WITHOUT_GRADIENTS]
            ids = {id(parameter) for parameter in module.parameters()} if pending else set()
            for each in pending:
                if each.ids <= ids:
                    self.tracker.zero_grad(each, user_place())
            self._look_again()

        return zero_grad

    def clip(self, norm: bool) -> Callable[[Function], Function]:
        """A wrapper of `clip_grad_norm_`, or of `clip_grad_value_`."""

        def wrap(original: Function) -> Function:
            name = "max_norm" if norm else "clip_value"

            @functools.wraps(original)
            def clip(parameters: Any, *args: Any, **kwargs: Any) -> Any:
                if not self._enabled:
                    return original(parameters, *args, **kwargs)
                listed = list(_listed(parameters))
                threshold = args[0] if args else kwargs[name]
                raising = norm and (args[2] if len(args) > 2 else kwargs.get("error_if_nonfinite", False))
                targets = [each for each in self._optimizers.values if each.has_any(listed)]
                self._clip(targets, float(threshold), raising, user_place())
                self._scaled_now.clear()  # torch itself reads them now
                again = iter(listed) if inspect.isgenerator(parameters) else parameters
                result = self._run(original, again if listed else parameters, *args, **kwargs)
                for each in targets:
                    each.note_version()
                self._look_again()
                return result

            return clip

        return wrap

    def _clip(self, targets: list[WatchedOptimizer], threshold: float, raising: bool, place: Place) -> None:
        self.tracker.begin()
        if raising and any(each.owner is not None for each in targets):
            self.tracker.report("clip-error-if-nonfinite", place)
        bare = [each for each in targets if not _carries_scale(threshold, each)]
        self.tracker.clip(bare, place, reads_only=threshold == float("inf"))

    def grad(self) -> property:
        """A stand-in for `torch.Tensor.grad` that notices who reads gradients that carry a scale."""

        scaled_now, note_read = self._scaled_now, self._note_read

        def grad(tensor: Any) -> Any:
            if scaled_now:
                note_read(tensor)
            return gradient_of(tensor)

        return property(grad, GRAD.__set__, GRAD.__delete__, GRAD.__doc__)

    def _note_read(self, tensor: Any) -> None:
        frame = sys._getframe(2)
        if not is_user_code(frame.f_code.co_filename) or self._in_backward:
            return
        key = id(tensor)
        for each in self._scaled_now:
            if key in each.ids and not only_tested(frame.f_code, frame.f_lasti):
                each.reads[Place(frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_name)] = None

    # -- regions ------------------------------------------------------------------------------------------------------

    def autocast_enter(self, original: Function) -> Function:
        @functools.wraps(original)
        def __enter__(instance: Any) -> Any:  # noqa: N807
            result = original(instance)
            self.regions.enter(instance, user_place(), counts=not self._in_backward)
            return result

        return __enter__

    def autocast_exit(self, original: Function) -> Function:
        @functools.wraps(original)
        def __exit__(instance: Any, *error: Any) -> Any:  # noqa: N807
            self.regions.leave(instance)
            return original(instance, *error)

        return __exit__

    # -- helpers ------------------------------------------------------------------------------------------------------

    def _scales(self) -> list[float]:
        scales = [each.scale_now for each in self._scalers.values if isinstance(each, WatchedScaler)]
        return [scale for scale in scales if scale != 1.0]

    def _before_backward(self, target: WatchedOptimizer, kind: str) -> Any:
        target.refresh()
        if not target.has_gradients():
            if target.gradients not in WITHOUT_GRADIENTS:
                self.tracker.zero_grad(target, None)
            return None
        event = "backward" if kind == "scaled" else "plain-backward"
        if isinstance(GRADIENTS.get((target.gradients, event)), Fault) and target.all_zero():
            self.tracker.zero_grad(target, None)  # by hand, in place
        return target.snapshot()

    def _run_backward(self, original: Function, *args: Any, **kwargs: Any) -> None:
        self._in_backward = True
        try:
            self._run(original, *args, **kwargs)
        finally:
            self._in_backward = False

    def _look_again(self) -> None:
        self._scaled_now[:] = [each for each in self._optimizers.values if each.gradients == "scaled"]


def _found_inf(scaler: Any, optimizer: Any) -> list[torch.Tensor]:
    return list(scaler._per_optimizer_states[id(optimizer)]["found_inf_per_device"].values())


def _listed(tensors: Any) -> Any:
    return (tensors,) if isinstance(tensors, torch.Tensor) or hasattr(tensors, "node") else tensors


def _carries_scale(threshold: float, target: WatchedOptimizer) -> bool:
    """Whether a clip's threshold was multiplied by the scale, as far as one can tell: the scale was asked for."""
    owner = target.owner
    return isinstance(owner, WatchedScaler) and owner.asked_for_scale and threshold >= owner.scale_now / 100


def _distributed() -> bool:
    return torch.distributed.is_available() and torch.distributed.is_initialized()
