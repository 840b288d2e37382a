"""Whether mixed precision gains anything: it does in matrix products, convolutions and recurrent layers."""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING

from amplint.facts.values import path_of
from amplint.migrate.facts import Facts
from amplint.migrate.model import RefusalError
from amplint.migrate.regions.runs import Run

if TYPE_CHECKING:
    from amplint.source import SourceFile

_LAYER = re.compile(r"Linear|Conv|LSTM|GRU|RNN|Transformer|Attention|Bilinear|Unfold")
_PRODUCT = re.compile(
    r"^(?:mm|mv|bmm|matmul|einsum|linear|bilinear|conv(?:_transpose)?\dd|conv_tbc|addmm|addmv|addbmm|baddbmm|multi_dot|"
    r"chain_matmul|tensordot|inner|outer|ger|kron|scaled_dot_product_attention|multi_head_attention_forward)_?$"
)
_KNOWN = ("torch.", "numpy.", "math.", "random.", "os.", "time.", "argparse.", "collections.", "tqdm.", "copy.", "sys.")
_REASON = (
    "nothing that this loss is computed with is a matrix product or a convolution, so that mixed precision would gain "
    "nothing here"
)


def check(facts: Facts, runs: list[Run]) -> None:
    """Raise `RefusalError` where all that the regions run is in view and nothing of it would run in low precision."""
    file = facts.file
    if not runs or any(isinstance(n, ast.BinOp) and isinstance(n.op, ast.MatMult) for n in ast.walk(file.tree)):
        return
    bases = [name for cls in facts.module_classes for base in cls.bases for name in file.resolve(base) or ("?",)]
    if any(_is_layer(name) for name in bases) or any(_may_gain(file, call) for call in file.names.calls):
        return
    for call in (node for run in runs for node in run.nodes() if isinstance(node, ast.Call)):
        module = facts.module_of(call)
        made = () if module is None else file.values.constructed(module) or (None,)
        if any(_is_layer(cls) for cls in made if not isinstance(cls, ast.ClassDef)):
            return
    raise RefusalError(runs[0].first, _REASON)


def _is_layer(name: str | None) -> bool:
    """Whether a class may compute products: a layer of torch that does, or one that is not in view."""
    return name is None or not name.startswith("torch.nn.") or bool(_LAYER.search(name))


def _may_gain(file: SourceFile, call: ast.Call) -> bool:
    """Whether a call is a product, makes a layer that has one, or runs what is not in view."""
    names = file.resolve(call.func)
    last = (names[0] if names else path_of(call.func) or getattr(call.func, "attr", "")).rsplit(".", 1)[-1]
    if _PRODUCT.match(last) or (names and names[0].startswith("torch.nn.") and _LAYER.search(last)):
        return True
    if last == "getattr":
        return any(name.startswith("torch.nn") for argument in call.args for name in file.resolve(argument))
    return any(not name.startswith(_KNOWN) for name in names)
