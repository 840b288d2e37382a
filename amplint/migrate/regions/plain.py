"""Names of what has no graph, whatever it is computed of: sizes, indices, samples, functions of Python and others."""

from __future__ import annotations

ATTRIBUTES = frozenset(("shape", "dtype", "device", "data", "ndim", "grad", "is_cuda", "requires_grad"))
METHODS = frozenset(
    (
        "item", "detach", "detach_", "numpy", "tolist", "argmax", "argmin", "size", "dim", "numel", "eq", "ne", "gt",
        "lt", "ge", "le", "nonzero", "isnan", "isfinite", "isinf", "any", "all", "new_zeros", "new_ones", "new_empty",
        "new_full", "new_tensor", "bool", "long", "int", "byte", "get_device", "numel", "format", "backward",
        "sample", "sample_n", "multinomial", "bernoulli",
    )
)  # fmt: skip
FUNCTIONS = frozenset(
    ("len", "int", "float", "str", "bool", "print", "range", "isinstance", "format", "round", "type", "repr", "hasattr")
)
TORCH = frozenset(
    f"torch.{name}"
    for name in (
        "argmax", "argmin", "zeros_like", "ones_like", "rand_like", "randn_like", "eq", "isnan", "isfinite", "no_grad",
        "numel", "full_like", "empty_like", "save", "multinomial", "bernoulli", "normal", "zeros", "ones", "empty",
        "arange", "rand", "randn", "randint", "randperm", "eye", "linspace",
    )
)  # fmt: skip
OTHER_LIBRARIES = ("numpy.", "random.", "math.", "os.", "time.", "copy.")
