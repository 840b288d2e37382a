"""The names that the lowering knows: torch's own, and the spellings by which code of the field gives itself away."""

from __future__ import annotations

import re

SCALERS = frozenset(
    {
        "torch.GradScaler",
        "torch.amp.GradScaler",
        "torch.amp.grad_scaler.GradScaler",
        "torch.cuda.amp.GradScaler",
        "torch.cuda.amp.grad_scaler.GradScaler",
        "torch.cpu.amp.GradScaler",
        "torch.cpu.amp.grad_scaler.GradScaler",
        "torch.distributed.fsdp.sharded_grad_scaler.ShardedGradScaler",
    }
)

AUTOCASTS = frozenset(
    {
        "torch.autocast",
        "torch.amp.autocast",
        "torch.amp.autocast_mode.autocast",
        "torch.cuda.amp.autocast",
        "torch.cuda.amp.autocast_mode.autocast",
        "torch.cpu.amp.autocast",
        "torch.cpu.amp.autocast_mode.autocast",
    }
)
ENABLED_FIRST = frozenset(name for name in AUTOCASTS if ".cuda." in name or ".cpu." in name)
"""The forms whose first parameter is `enabled`; it is the third of the others (torch 2.13)."""

CALLED_SCALERS = frozenset(
    f"timm.utils.{module}{name}" for module in ("", "cuda.") for name in ("NativeScaler", "ApexScaler")
)
"""Classes whose instances are called with (loss, optimizer, clip_grad, clip_mode, parameters, create_graph,
need_update): they back, unscale, clip, step and update, the last four unless `need_update` is false (timm 0.9 to 1.0;
ApexScaler does the same with apex).
"""

CALLED_SCALER_FLAGS = frozenset({"clip_grad", "create_graph", "need_update", "parameters", "update_grad"})
"""What such objects are called with, also those that projects write in timm's manner (DeiT, MAE, Swin)."""

CLIPS = frozenset(
    f"torch.nn.utils.{module}{function}"
    for module in ("", "clip_grad.")
    for function in ("clip_grad_norm_", "clip_grad_norm", "clip_grad_value_", "clip_grads_with_norm_")
)
CLIP_NAME = re.compile(r"^_?(?:dispatch_)?clip_grad(?:s|ients?)?(?:_norm|_value|_by_norm)?_?$")
"""A clip of the project's own: by convention it takes parameters, and it can't unscale without the scaler."""

AUTOCAST_NAME = re.compile(r"autocast", re.IGNORECASE)
FRAMEWORK = re.compile(r"accelerator|fabric|engine|strategy|precision|context|deepspeed", re.IGNORECASE)
SCALER_NAME = re.compile(r"scaler", re.IGNORECASE)
OPTIMIZER_NAME = re.compile(r"optim|(?:^|_)opt(?:_|\d|$)|(?:^|_)opt[a-z]?$|_opt", re.IGNORECASE)
SCHEDULER_NAME = re.compile(
    r"sched|warmup|LR$|lr_?decay|(?:^|_)lr(?:_|$)|ema|meter|timer|prof|logger|pbar|bar$", re.IGNORECASE
)
PARAMETER_NAME = re.compile(r"^(?:p|pp|w|par|prm)$|param|weight|bias", re.IGNORECASE)


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


PURE_CALLS = _words(
    "len hasattr isinstance issubclass getattr bool int float str min max abs is_available is_enabled "
    "is_initialized get is_main_process is_rank_zero startswith endswith lower upper isfinite isnan isinf all any "
    "item get_rank get_world_size device_count is_bf16_supported parse Version divmod round issubset keys values "
    "is_autocast_enabled"
)
HARMLESS_CALL = re.compile(
    r"^(?:print|len|id|str|repr|type|isinstance|hasattr|getattr|setattr|dict|list|tuple|set|next|iter|enumerate|zip|vars"
    r"|sum|max|min|range|copy|deepcopy|append|extend|format|join|items|keys|values|get|item|detach|cpu|numpy|tolist|size"
    r"|parameters|train|eval|set_postfix|set_description|add_scalar|synchronize|barrier|time|sleep|info|debug|warning"
    r"|error|write|flush)$"
    r"|save|load|log|sched|warmup|lr_|_lr|learning_rate|checkpoint|state|resume|restore|print|watch|ema|broadcast"
    r"|summary|count|meter|param_group|register|seed|hook|profil",
    re.IGNORECASE,
)
"""Callees that do not step, scale or unscale anything, and are not what a handler is there for."""

HOOK_NAME = re.compile(
    r"step|optim|backward|train|update|scal|zero|clip|hook|callback|after|before|_iter", re.IGNORECASE
)
"""Methods of an unseen base class that may take part in the protocol."""

READS_GRADIENTS = _words("norm abs mean max min sum std isnan isinf isfinite item histc numpy tolist pow square")
SHOWS_VALUES = _words("print add_histogram Histogram")
"""Callees that show a tensor's values to a person (torch.utils.tensorboard, wandb)."""
SAME_VALUES = _words("data detach cpu cuda to float double half clone flatten view reshape squeeze contiguous")
RANDOM_TENSOR = re.compile(r"^(?:randn?|normal)(?:_like)?$")
OPTIMIZER_METHODS = _words(
    "state_dict load_state_dict add_param_group param_groups register_step_pre_hook register_step_post_hook train eval"
)
TENSOR_METHODS = _words("mean sum float double to cpu cuda squeeze clone reshape view item detach half div mul")
