"""torch.amp as data: which names exist in which torch, with which parameters, and what replaces the deprecated ones.

Source: the Python sources of the released wheels 1.5.1 to 2.15.0, compared signature by signature. Versions are
`(major, minor)`. Rules ask this module; no version number stands in a rule.
"""

from __future__ import annotations

from typing import NamedTuple

Version = tuple[int, int]

OLDEST: Version = (1, 10)
NEWEST: Version = (2, 15)

CURRENT: Version = NEWEST
"""The floor of a project that names none: it runs on the current torch."""


class Signature(NamedTuple):
    """The parameters of a callable from a version on.

    `positional` are those that may be given by position, in order; `keyword` those by keyword only; `required` those
    without a default. `open` says that any other keyword is taken too.
    """

    since: Version
    positional: tuple[str, ...]
    keyword: tuple[str, ...] = ()
    required: tuple[str, ...] = ()
    open: bool = False


class Api(NamedTuple):
    """One public name.

    `kind` is `autocast`, `scaler`, `custom_fwd`, `custom_bwd` or `function`. `device` is the device type that a
    deprecated name fixes. `replacement` takes its place from `replacement_since` on; `deprecated_since` is the version
    that warns.
    """

    name: str
    kind: str
    since: Version
    signatures: tuple[Signature, ...]
    deprecated_since: Version | None = None
    replacement: str = ""
    replacement_since: Version | None = None
    device: str = ""

    def signature(self, version: Version) -> Signature | None:
        """The parameters in a torch version, None where the name does not exist there."""
        if version < self.since:
            return None
        known = [signature for signature in self.signatures if signature.since <= version]
        return known[-1] if known else None


_OLD_AUTOCAST = ("enabled", "dtype", "cache_enabled")
_SCALER = ("init_scale", "growth_factor", "backoff_factor", "growth_interval", "enabled")
_SHARDED = ("init_scale", "backoff_factor", "growth_factor", "growth_interval", "enabled", "process_group")

_autocast = (
    Signature((1, 10), ("device_type", "enabled"), ("dtype", "cache_enabled"), ("device_type",)),
    Signature((1, 11), ("device_type", "dtype", "enabled", "cache_enabled"), (), ("device_type",)),
)
_scaler = (Signature((2, 3), ("device", *_SCALER)),)
_sharded = (Signature((1, 12), _SHARDED), Signature((2, 3), ("device", *_SHARDED)))


def _entries() -> list[Api]:
    cuda_autocast = (Signature((1, 6), ("enabled",)), Signature((1, 10), _OLD_AUTOCAST))
    cpu_autocast = (Signature((1, 10), _OLD_AUTOCAST),)
    old_scaler = Signature((1, 6), _SCALER)
    old_fwd = (Signature((1, 6), ("fwd",), (), (), True), Signature((1, 13), ("fwd",), ("cast_inputs",)))
    old_bwd = (Signature((1, 6), ("bwd",), (), ("bwd",)),)
    new_fwd = (Signature((2, 4), ("fwd",), ("device_type", "cast_inputs"), ("device_type",)),)
    new_bwd = (Signature((2, 4), ("bwd",), ("device_type",), ("device_type",)),)
    deprecated: Version = (2, 4)
    entries = [
        Api("torch.autocast", "autocast", (1, 10), _autocast),
        Api("torch.amp.autocast", "autocast", (1, 12), _autocast),
        Api("torch.amp.autocast_mode.autocast", "autocast", (1, 12), _autocast),
        Api("torch.GradScaler", "scaler", (2, 3), _scaler),
        Api("torch.amp.GradScaler", "scaler", (2, 3), _scaler),
        Api("torch.amp.grad_scaler.GradScaler", "scaler", (2, 3), _scaler),
        Api("torch.amp.custom_fwd", "custom_fwd", (2, 4), new_fwd),
        Api("torch.amp.custom_bwd", "custom_bwd", (2, 4), new_bwd),
        Api("torch.amp.autocast_mode.custom_fwd", "custom_fwd", (2, 4), new_fwd),
        Api("torch.amp.autocast_mode.custom_bwd", "custom_bwd", (2, 4), new_bwd),
        Api("torch.amp.is_autocast_available", "function", (2, 4), (Signature((2, 4), ("device_type",)),)),
        Api(
            "torch.amp.autocast_mode.is_autocast_available", "function", (2, 4), (Signature((2, 4), ("device_type",)),)
        ),
    ]
    fsdp = "torch.distributed.fsdp.sharded_grad_scaler"
    entries.append(Api(f"{fsdp}.ShardedGradScaler", "scaler", (1, 12), _sharded))
    for module in ("torch.cuda.amp", "torch.cuda.amp.autocast_mode"):
        for kind, signatures, since, new_since in (
            ("autocast", cuda_autocast, (1, 6), (1, 10)),
            ("custom_fwd", old_fwd, (1, 6), (2, 4)),
            ("custom_bwd", old_bwd, (1, 6), (2, 4)),
        ):
            replacement = f"torch.amp.{kind}"
            entries.append(Api(f"{module}.{kind}", kind, since, signatures, deprecated, replacement, new_since, "cuda"))
    for module in ("torch.cpu.amp", "torch.cpu.amp.autocast_mode"):
        entries.append(
            Api(
                f"{module}.autocast",
                "autocast",
                (1, 10),
                cpu_autocast,
                deprecated,
                "torch.amp.autocast",
                (1, 10),
                "cpu",
            )
        )
    for device, since in (("cuda", (1, 6)), ("cpu", (2, 3))):
        for module in (f"torch.{device}.amp", f"torch.{device}.amp.grad_scaler"):
            entries.append(
                Api(
                    f"{module}.GradScaler",
                    "scaler",
                    since,
                    (old_scaler._replace(since=since),),
                    deprecated,
                    "torch.amp.GradScaler",
                    (2, 3),
                    device,
                )
            )
    return entries


APIS: dict[str, Api] = {entry.name: entry for entry in _entries()}
"""Every public callable of the AMP layer by its qualified name."""

DEPRECATED_MODULES = (
    "torch.cuda.amp",
    "torch.cuda.amp.autocast_mode",
    "torch.cuda.amp.grad_scaler",
    "torch.cpu.amp",
    "torch.cpu.amp.autocast_mode",
    "torch.cpu.amp.grad_scaler",
)
"""The modules whose contents moved to `torch.amp` (deprecated since 2.4, still there in 2.15)."""


class StateQuery(NamedTuple):
    """A deprecated function of the autocast state: `torch.<old>()` is `torch.<new>("<device>")` since 2.4."""

    old: str
    new: str
    device: str


def _state_queries() -> dict[str, StateQuery]:
    found = [
        StateQuery("torch.get_autocast_gpu_dtype", "torch.get_autocast_dtype", "cuda"),
        StateQuery("torch.set_autocast_gpu_dtype", "torch.set_autocast_dtype", "cuda"),
    ]
    for device in ("cpu", "ipu", "xla"):
        found += [
            StateQuery(f"torch.is_autocast_{device}_enabled", "torch.is_autocast_enabled", device),
            StateQuery(f"torch.set_autocast_{device}_enabled", "torch.set_autocast_enabled", device),
            StateQuery(f"torch.get_autocast_{device}_dtype", "torch.get_autocast_dtype", device),
            StateQuery(f"torch.set_autocast_{device}_dtype", "torch.set_autocast_dtype", device),
        ]
    return {query.old: query for query in found}


STATE_QUERIES: dict[str, StateQuery] = _state_queries()
"""The deprecated C functions (DeprecationWarning since 2.4) by their qualified name."""

STATE_QUERIES_SINCE: Version = (2, 4)
"""The first torch whose state functions take a device."""

AUTOCAST_SPELLINGS: dict[str, Version] = {"torch.autocast": (1, 10), "torch.amp.autocast": (1, 12)}
"""The two names of the current autocast class and the first torch that has each."""

DEFAULT_DTYPES: dict[str, str] = {
    "cuda": "float16",
    "xpu": "float16",
    "mps": "float16",
    "mtia": "float16",
    "cpu": "bfloat16",
    "hpu": "bfloat16",
    "xla": "bfloat16",
}
"""The dtype of autocast where none is given, by device type (`torch.get_autocast_dtype` of torch 2.13)."""

AUTOCAST_DEVICES = frozenset(
    (
        "cpu",
        "cuda",
        "ipu",
        "xpu",
        "mkldnn",
        "opengl",
        "opencl",
        "ideep",
        "hip",
        "ve",
        "fpga",
        "maia",
        "xla",
        "lazy",
        "vulkan",
        "mps",
        "meta",
        "hpu",
        "mtia",
        "privateuseone",
    )
)
"""The device types that torch itself knows; a backend may register its own in place of `privateuseone` (`npu`)."""

INDEXED_DEVICE_SINCE: Version = (2, 4)
"""The first torch whose autocast takes a device with an index (`cuda:0`) without an error."""

SCALER_METHODS = frozenset(
    (
        "get_backoff_factor",
        "get_growth_factor",
        "get_growth_interval",
        "get_scale",
        "is_enabled",
        "load_state_dict",
        "scale",
        "set_backoff_factor",
        "set_growth_factor",
        "set_growth_interval",
        "state_dict",
        "step",
        "unscale_",
        "update",
    )
)
"""The public methods of GradScaler, the same in every torch since 1.6."""

_MODE_NAMES = frozenset(("autocast", "custom_fwd", "custom_bwd"))
_SCALER_NAMES = frozenset(("GradScaler", "OptState"))

PUBLIC_NAMES: dict[str, frozenset[str]] = {
    "torch.amp": _MODE_NAMES | {"GradScaler", "autocast_mode", "grad_scaler", "is_autocast_available"},
    "torch.amp.autocast_mode": _MODE_NAMES | {"autocast_decorator", "is_autocast_available"},
    "torch.amp.grad_scaler": _SCALER_NAMES,
    "torch.cuda.amp": _MODE_NAMES
    | {"GradScaler", "amp_definitely_not_available", "autocast_mode", "common", "grad_scaler"},
    "torch.cuda.amp.autocast_mode": _MODE_NAMES | {"autocast_decorator"},
    "torch.cuda.amp.grad_scaler": _SCALER_NAMES,
    "torch.cuda.amp.common": frozenset(("amp_definitely_not_available",)),
    "torch.cpu.amp": frozenset(("GradScaler", "autocast", "autocast_mode", "grad_scaler")),
    "torch.cpu.amp.autocast_mode": frozenset(("autocast",)),
    "torch.cpu.amp.grad_scaler": frozenset(("GradScaler",)),
}
"""What the AMP modules hold or held in any torch, private names and what they import for themselves left out."""

TORCH_STATE_NAMES = frozenset(
    (
        "autocast_decrement_nesting",
        "autocast_increment_nesting",
        "clear_autocast_cache",
        "get_autocast_cpu_dtype",
        "get_autocast_dtype",
        "get_autocast_gpu_dtype",
        "is_autocast_cache_enabled",
        "is_autocast_cpu_enabled",
        "is_autocast_enabled",
        "set_autocast_cache_enabled",
        "set_autocast_cpu_dtype",
        "set_autocast_cpu_enabled",
        "set_autocast_dtype",
        "set_autocast_enabled",
        "set_autocast_gpu_dtype",
    )
)
"""Functions of the autocast state, which stand in `torch` itself and in no AMP module."""
