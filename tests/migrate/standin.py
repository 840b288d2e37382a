"""A CPU that stands in for a GPU, and records what a script does with autocast and GradScaler."""

from __future__ import annotations

import contextlib
import hashlib
import sys
import time
from collections import Counter
from typing import Any

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook
from torch.overrides import TorchFunctionMode

_PRODUCTS = frozenset(
    (
        torch.nn.functional.linear,
        torch.nn.functional.conv1d,
        torch.nn.functional.conv2d,
        torch.nn.functional.conv3d,
        torch.conv2d,
        torch.matmul,
        torch.mm,
        torch.bmm,
        torch.Tensor.matmul,
        torch.Tensor.mm,
        torch.Tensor.__matmul__,
    )
)
_LOW = (torch.float16, torch.bfloat16)
_SCALES = (2.0**16, 2.0**14, 2.0**17)


def _is_gpu(value: object) -> bool:
    if isinstance(value, int) and not isinstance(value, bool):
        return True
    if isinstance(value, torch.device):
        return value.type == "cuda"
    return isinstance(value, str) and value.startswith("cuda")


class _Devices(TorchFunctionMode):
    """Maps CUDA to the CPU where tensors are made or moved, and counts products by precision."""

    def __init__(self, recorder: Recorder) -> None:
        super().__init__()
        self._recorder = recorder

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        if self._recorder.stands_in:
            if func is torch.Tensor.cuda:
                return args[0]
            if _is_gpu(kwargs.get("device")):
                kwargs["device"] = "cpu"
            if func is torch.Tensor.to and any(_is_gpu(a) for a in args[1:2]):
                args = (args[0], "cpu", *args[2:])
        if func is torch.nn.functional.binary_cross_entropy and torch.is_autocast_enabled("cpu"):
            self._recorder.faults.append("binary cross entropy of probabilities in a region, which CUDA forbids")
        result = func(*args, **kwargs)
        if (
            getattr(func, "__wrapped__", func) in _PRODUCTS
            and isinstance(result, torch.Tensor)
            and result.requires_grad
        ):
            if result.dtype in _LOW:
                self._recorder.low += 1
            elif result.dtype == torch.float32:
                self._recorder.full += 1
        return result


def _full_products(node: Any) -> int:
    """How many matrix products of a graph were computed in float32."""
    seen, stack, found = set(), [node], 0
    while stack:
        current = stack.pop()
        if current is None or current in seen:
            continue
        seen.add(current)
        if "mm" in current.name().lower() or "Convolution" in current.name():
            for name in ("_saved_mat1", "_saved_mat2", "_saved_self", "_saved_input"):
                saved = getattr(current, name, None)
                if isinstance(saved, torch.Tensor):
                    found += saved.dtype == torch.float32
                    break
        stack += [before for before, _ in current.next_functions]
    return found


class Recorder:
    """Patches torch while it is entered; see `tests.migrate.harness` for the ways."""

    def __init__(self, way: str, dtype: str) -> None:
        self.way = way
        self.dtype = getattr(torch, dtype)
        self.stands_in = way in ("exact", "amp")
        self.losses: list[float] = []
        self.steps: list[float] = []
        self.low = 0
        self.full = 0
        self.protocol: list[str] = []
        self.live: Counter[str] = Counter()  # calls of scalers that are not switched off
        self.faults: list[str] = []
        self.parameters: dict[int, Any] = {}
        self.first: dict[Any, list[Any]] = {}  # by optimizer, what its parameters were before its first step
        self._stack = contextlib.ExitStack()
        self._regions = 0
        self.scaled_loss: Any = None
        self.left_out = 0
        self._in_scaler = 0
        self._in_backward = False

    def __enter__(self) -> Recorder:
        self._patch_autocast()
        self._patch_scaler()
        self._patch_backward()
        self._patch_optimizers()
        if self.stands_in:
            self._patch(time, "perf_counter", lambda: 0.0)
            self._patch(torch.cuda, "is_available", lambda *_, **__: True)
            if hasattr(torch, "accelerator"):
                self._patch(torch.accelerator, "is_available", lambda *_, **__: True)
                self._patch(torch.accelerator, "current_accelerator", lambda *_, **__: torch.device("cuda"))
                self._patch(torch.accelerator, "device_count", lambda: 1)
                self._patch(torch.accelerator, "current_device_index", lambda: 0)
            for name in ("_accelerator_graph_capture_health_check", "_cuda_graph_capture_health_check"):
                if hasattr(torch.optim.Optimizer, name):
                    self._patch(torch.optim.Optimizer, name, lambda *_: None)
            for name in ("FloatTensor", "LongTensor", "ByteTensor", "BoolTensor", "IntTensor"):
                self._patch(torch.cuda, name, getattr(torch, name))
            self._patch(torch.cuda, "is_bf16_supported", lambda *_: True)
            self._patch(torch.cuda, "max_memory_allocated", lambda *_: 0)
            for name in (
                "reset_peak_memory_stats",
                "synchronize",
                "empty_cache",
                "manual_seed_all",
                "manual_seed",
                "set_device",
            ):
                self._patch(torch.cuda, name, lambda *_: None)
            self._patch(sys.modules["torch.nn.parallel.data_parallel"], "_get_available_device_type", lambda: None)
            self._patch(torch.nn.Module, "cuda", lambda module, *_: module)
            original = torch.nn.Module.to

            def to(module: Any, *args: Any, **kwargs: Any) -> Any:
                args = tuple("cpu" if _is_gpu(a) else a for a in args[:1]) + args[1:]
                kwargs = {k: "cpu" if _is_gpu(v) else v for k, v in kwargs.items()}
                return original(module, *args, **kwargs)

            self._patch(torch.nn.Module, "to", to)
        self._stack.enter_context(_Devices(self))
        return self

    def __exit__(self, *error: object) -> None:
        self._stack.close()

    def _patch(self, owner: Any, name: str, value: Any) -> None:
        old = owner.__dict__[name] if name in getattr(owner, "__dict__", {}) else getattr(owner, name)
        setattr(owner, name, value)
        self._stack.callback(setattr, owner, name, old)

    # -- autocast and scaler ------------------------------------------------------------------------------------------

    def _patch_autocast(self) -> None:
        recorder, original = self, torch.amp.autocast

        class Autocast(original):  # type: ignore[misc,valid-type]
            def __init__(self, device_type: str, dtype: Any = None, enabled: bool = True, **kwargs: Any) -> None:
                if not isinstance(enabled, bool):
                    recorder.faults.append(f"enabled={enabled!r} is no bool")
                if recorder.stands_in and device_type == "cuda":
                    device_type = "cpu"
                live = bool(enabled) and not recorder.way.endswith("exact")
                if recorder.way != "plain" and dtype is not None:
                    dtype = recorder.dtype
                self._asked = bool(enabled)
                super().__init__(device_type, dtype=dtype, enabled=live, **kwargs)

            def __enter__(self) -> Any:
                recorder._regions += self._asked
                recorder.protocol.append("enter")
                return super().__enter__()

            def __exit__(self, *error: Any) -> Any:
                recorder._regions -= self._asked
                recorder.protocol.append("exit")
                return super().__exit__(*error)

        self._patch(torch.amp, "autocast", Autocast)
        self._patch(torch, "autocast", Autocast)

    def _patch_scaler(self) -> None:
        recorder, original = self, torch.amp.GradScaler

        class Scaler(original):  # type: ignore[misc,valid-type]
            def __init__(self, device: str = "cuda", **kwargs: Any) -> None:
                recorder.protocol.append("scaler")
                super().__init__("cpu" if recorder.stands_in else device, **kwargs)

            def scale(self, outputs: Any) -> Any:
                recorder._note("scale", self)
                if recorder._regions:
                    recorder.faults.append("scale inside a region")
                result = super().scale(outputs)
                recorder.losses.append(float(outputs.detach().double()))
                recorder.scaled_loss = result
                return result

            def unscale_(self, optimizer: Any) -> Any:
                if not recorder._in_scaler:
                    recorder._note("unscale_", self)
                return super().unscale_(optimizer)

            def step(self, optimizer: Any, *args: Any, **kwargs: Any) -> Any:
                recorder._note("step", self)
                recorder._in_scaler += 1
                stepped = len(recorder.steps)
                try:
                    return super().step(optimizer, *args, **kwargs)
                finally:
                    recorder._in_scaler -= 1
                    if len(recorder.steps) == stepped:
                        recorder.live["skipped"] += 1

            def update(self, *args: Any) -> Any:
                recorder._note("update", self)
                result = super().update(*args)
                if recorder.way.endswith("exact") and self.is_enabled():
                    # Scales change at each update, so that gradients left over from another scale show.
                    self._scale.fill_(_SCALES[recorder.protocol.count("update") % len(_SCALES)])
                return result

        self._patch(torch.amp, "GradScaler", Scaler)

    def _note(self, event: str, scaler: Any) -> None:
        self.protocol.append(event)
        if scaler.is_enabled():
            self.live[event] += 1

    def _patch_backward(self) -> None:
        recorder, original = self, torch.Tensor.backward

        def backward(tensor: Any, *args: Any, **kwargs: Any) -> Any:
            if recorder._in_backward:  # the mode calls it once more
                return original(tensor, *args, **kwargs)  # type: ignore[no-untyped-call]
            recorder.protocol.append("backward")
            if recorder._regions:
                recorder.faults.append("backward inside a region")
            if tensor.numel() == 1 and tensor is not recorder.scaled_loss:
                recorder.losses.append(float(tensor.detach().double()))
            recorder.left_out += _full_products(tensor.grad_fn)
            recorder._in_backward = True
            try:
                return original(tensor, *args, **kwargs)  # type: ignore[no-untyped-call]
            finally:
                recorder._in_backward = False

        self._patch(torch.Tensor, "backward", backward)
        self._patch_functional_backward()

    def _patch_functional_backward(self) -> None:
        """`torch.autograd.backward` on one tensor is its method."""
        recorder, original = self, torch.autograd.backward

        def backward(tensors: Any, *args: Any, **kwargs: Any) -> Any:
            if recorder._in_backward or not isinstance(tensors, torch.Tensor):
                return original(tensors, *args, **kwargs)
            return tensors.backward(*args, **kwargs)

        self._patch(torch.autograd, "backward", backward)

    def _patch_optimizers(self) -> None:
        recorder = self

        def pre_step(optimizer: Any, args: Any, kwargs: Any) -> None:
            if not recorder._in_scaler:
                recorder.protocol.append("plain step")
            if recorder._regions:
                recorder.faults.append("step inside a region")
            if optimizer not in recorder.first:
                recorder.first[optimizer] = [
                    (parameter, parameter.detach().clone())
                    for group in optimizer.param_groups
                    for parameter in group["params"]
                ]
            if not args and not kwargs:
                note_gradients(optimizer)

        def post_step(optimizer: Any, args: Any, kwargs: Any) -> None:
            if args or kwargs:  # a closure has made the gradients
                note_gradients(optimizer)

        def note_gradients(optimizer: Any) -> None:
            total = 0.0
            for group in optimizer.param_groups:
                for parameter in group["params"]:
                    recorder.parameters[id(parameter)] = parameter
                    if parameter.grad is not None:
                        total += float(parameter.grad.detach().double().pow(2).sum())
            recorder.steps.append(total**0.5)

        for handle in (register_optimizer_step_pre_hook(pre_step), register_optimizer_step_post_hook(post_step)):
            self._stack.callback(handle.remove)

    def record(self) -> dict[str, Any]:
        """What was recorded, as plain values."""
        digest = hashlib.sha256()
        for parameter in self.parameters.values():
            digest.update(parameter.detach().float().cpu().numpy().tobytes())
        scaled = [event for event in self.protocol if event == "scale"]
        if scaled and "plain step" in self.protocol:
            self.faults.append("an optimizer steps past the scaler")
        if scaled and self.protocol.count("backward") != len(scaled):
            self.faults.append("a backward without scale")
        return {
            "losses": self.losses,
            "steps": self.steps,
            "low": self.low,
            "full": self.full,
            "left_out": self.left_out,
            "protocol": self.protocol,
            "live": self.live,
            "faults": self.faults,
            "digest": digest.hexdigest(),
            "finite": all(bool(torch.isfinite(parameter).all()) for parameter in self.parameters.values()),
            "moved": all(
                any(not torch.equal(parameter, before) for parameter, before in pairs) for pairs in self.first.values()
            ),
        }
