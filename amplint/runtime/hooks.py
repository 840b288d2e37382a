"""The wrappers round torch's own calls: each tells the automata what happens and then does what torch does.

Those of a loop's usual calls are long rather than split up: a call in Python costs as much as the rest of a hook.
"""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable
from threading import get_ident
from typing import Any

import torch

from amplint.flow.protocol import GRADIENTS, UNKNOWN, Fault
from amplint.runtime import graphs
from amplint.runtime.optimizers import GRAD, WatchedOptimizer, gradient_of
from amplint.runtime.places import UNKNOWN_PLACE, Place, is_user_code, user_place
from amplint.runtime.reads import only_tested
from amplint.runtime.scaler_hooks import ScalerHooks
from amplint.runtime.scalers import WatchedScaler
from amplint.runtime.tracking import WITHOUT_GRADIENTS
from amplint.runtime.watched import Function


class Hooks(ScalerHooks):
    """All hooks."""

    def made_optimizer(self, original: Function) -> Function:
        @functools.wraps(original)
        def init(optimizer: Any, *args: Any, **kwargs: Any) -> None:
            original(optimizer, *args, **kwargs)
            self.watch_optimizer(optimizer)

        return init

    # -- backward and the optimizers' methods -------------------------------------------------------------------------

    def backward(self, original: Function) -> Function:
        @functools.wraps(original)
        def backward(tensors: Any, *args: Any, **kwargs: Any) -> None:
            if self._busy is not None:
                self._watch_threads()
            if self._in_backward:  # of a checkpointed part
                original(tensors, *args, **kwargs)
                return
            place = user_place()
            kind, scaler = "plain", None
            if isinstance(tensors, torch.Tensor):
                roots = [tensors]
                node: Any = tensors.grad_fn
                if node is not None:
                    scaler = node.metadata.get(graphs.MARK)
            else:
                tensors = tensors if hasattr(tensors, "node") else tuple(tensors)
                roots = [root for root in _listed(tensors) if isinstance(root, torch.Tensor)]
            tracker, counts, counter = self.tracker, self._backwards, self.counter
            tracker.begin()
            if self.regions.open and self.regions.backward(place):
                counts["in autocast"] += 1
            if scaler is not None:
                kind = "scaled"
            elif self._enabled and roots:
                given = args[0] if args else kwargs.get("grad_tensors", kwargs.get("grad_variables"))
                kind, scaler = graphs.classify(roots, self._scales, given is not None)
            count = counts[kind] = counts[kind] + 1
            if self.low_precision is not True and count & (count - 1) == 0 and self.regions.any_enabled():
                found = graphs.low_precision_product(roots)
                self.low_precision = self.low_precision if found is None else found
            watching = (self._enabled or counter is not None) and not self._several_threads
            before = [(each, self._before_backward(each, kind)) for each in self._optimizers.values] if watching else []
            closely = None
            self._in_backward, self._busy = True, get_ident()
            try:
                if watching and counter is not None and counter.is_due(count) and not self._distributed():
                    fresh = [p for each, snapshot in before if snapshot is None for p in each.differentiable()]
                    closely = counter.larger([root for root in roots if root.requires_grad], fresh)
                original(tensors, *args, **kwargs)
            except BaseException:
                tracker.raised()
                raise
            finally:
                self._in_backward, self._busy = False, None
            if not watching or self._several_threads:
                return
            reached = [each for each, snapshot in before if each.reached(snapshot)]
            if counter is not None:
                for each in reached:
                    counter.after_backward(each.gradients_now())
                counter.compare(closely or ())
            tracker.backward(scaler, reached, place, kind)
            self._look_again()

        return backward

    def before_optimizer_step(self, optimizer: Any, args: Any, kwargs: Any) -> None:
        """The hook that torch calls before `optimizer.step()`, whoever called that."""
        if self._stepping is not None:
            self._stepped = True
            if optimizer is not self._stepping:
                self.tracker.inner_step(self.watch_optimizer(optimizer))
            return
        own = next((each.scaler for each in self._overrides if each.method == "step"), None)
        if own is not None:  # a scaler that steps in its own way
            target, scaler = self.watch_optimizer(optimizer), self.watch_scaler(own)
            target.gradients, target.owner = UNKNOWN, None
            if scaler is not None:
                scaler.note_step(skipped=False)
            return
        place = user_place()
        if place.function == "step" and _inside_step_of(optimizer, place):
            return  # of a class whose step() calls that of its base: the hook came before
        self.plain_steps += 1
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
                    if self._scaled_now:
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
        code = frame.f_code
        # In a mode for torch functions, what torch reads comes through the mode.
        if self._in_backward or code.co_name == "__torch_function__" or not is_user_code(code.co_filename):
            return
        key = id(tensor)
        for each in self._scaled_now:
            if key in each.ids and not only_tested(code, frame.f_lasti):
                each.reads[Place(code.co_filename, frame.f_lineno, code.co_name)] = None

    # -- regions ------------------------------------------------------------------------------------------------------

    def autocast_enter(self, original: Function) -> Function:
        @functools.wraps(original)
        def __enter__(instance: Any) -> Any:  # noqa: N807
            result = original(instance)
            place = user_place()
            self.regions.enter(instance, place, counts=not (self._in_backward or place is UNKNOWN_PLACE))
            return result

        return __enter__

    def autocast_exit(self, original: Function) -> Function:
        @functools.wraps(original)
        def __exit__(instance: Any, *error: Any) -> Any:  # noqa: N807
            self.regions.leave(instance)
            return original(instance, *error)

        return __exit__

    # -- helpers ------------------------------------------------------------------------------------------------------

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


def _inside_step_of(optimizer: Any, place: Place) -> bool:
    """Whether the user's code at this place is a `step()` of the optimizer itself."""
    frame = sys._getframe(2)
    while frame is not None:
        if frame.f_code.co_filename == place.file and frame.f_code.co_name == "step":
            return frame.f_locals.get("self") is optimizer
        frame = frame.f_back  # type: ignore[assignment]
    return False


def _listed(tensors: Any) -> Any:
    return (tensors,) if isinstance(tensors, torch.Tensor) or hasattr(tensors, "node") else tensors


def _carries_scale(threshold: float, target: WatchedOptimizer) -> bool:
    """Whether a clip's threshold was multiplied by the scale, as far as one can tell: the scale was asked for."""
    owner = target.owner
    return isinstance(owner, WatchedScaler) and owner.asked_for_scale and threshold >= owner.scale_now / 100
