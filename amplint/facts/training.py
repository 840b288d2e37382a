"""What calls in training code do: run a model, compute a loss, scale it, go backward, step an optimizer."""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING

from amplint.calls.signatures import apis
from amplint.facts.values import inside, path_of, returns

if TYPE_CHECKING:
    from amplint.source import SourceFile

FLOAT32_LOSSES = frozenset(
    ("binary_cross_entropy_with_logits", "huber_loss", "kl_div", "l1_loss", "mse_loss", "smooth_l1_loss")
)
"""Losses whose target is usually float32, so that type promotion makes the whole loss float32 (checked on 2.13)."""

LOSS_FUNCTIONS = FLOAT32_LOSSES | frozenset(
    (
        "binary_cross_entropy",
        "cosine_embedding_loss",
        "cross_entropy",
        "ctc_loss",
        "gaussian_nll_loss",
        "hinge_embedding_loss",
        "margin_ranking_loss",
        "multi_margin_loss",
        "multilabel_margin_loss",
        "multilabel_soft_margin_loss",
        "nll_loss",
        "poisson_nll_loss",
        "soft_margin_loss",
        "triplet_margin_loss",
    )
)
"""The losses of `torch.nn.functional`."""

_LOSS_CLASSES = {
    "BCELoss": "binary_cross_entropy",
    "BCEWithLogitsLoss": "binary_cross_entropy_with_logits",
    "CTCLoss": "ctc_loss",
    "CosineEmbeddingLoss": "cosine_embedding_loss",
    "CrossEntropyLoss": "cross_entropy",
    "GaussianNLLLoss": "gaussian_nll_loss",
    "HingeEmbeddingLoss": "hinge_embedding_loss",
    "HuberLoss": "huber_loss",
    "KLDivLoss": "kl_div",
    "L1Loss": "l1_loss",
    "MSELoss": "mse_loss",
    "MarginRankingLoss": "margin_ranking_loss",
    "MultiLabelMarginLoss": "multilabel_margin_loss",
    "MultiLabelSoftMarginLoss": "multilabel_soft_margin_loss",
    "MultiMarginLoss": "multi_margin_loss",
    "NLLLoss": "nll_loss",
    "PoissonNLLLoss": "poisson_nll_loss",
    "SmoothL1Loss": "smooth_l1_loss",
    "SoftMarginLoss": "soft_margin_loss",
    "TripletMarginLoss": "triplet_margin_loss",
}

_LOSS_NAME = re.compile(r"(?:^|_)(?:loss|losses|criterion|criteria|objective)(?:_?(?:fn|func|function|f))?\d*$", re.I)
_MODEL_NAME = re.compile(
    r"(?:^|_)(?:model|net|network|module|backbone|encoder|decoder|generator|discriminator|critic|classifier|unet|"
    r"student|teacher|ddp|transformer|netg|netd|gen|disc|learner|policy|vqmodel|vae|gpt|gan|head|actor)\d*$|"
    r"(?:model|net|network)$",
    re.I,
)
_KEEPS_DTYPE = frozenset(
    (
        "clone", "contiguous", "cpu", "cuda", "detach", "flatten", "permute", "reshape", "squeeze",
        "transpose", "unsqueeze", "view", "chunk", "expand", "repeat", "t",
    )
)  # fmt: skip
_FULL_PRECISION = frozenset(("torch.float", "torch.float32", "torch.float64", "torch.double"))


# -- losses -----------------------------------------------------------------------------------------------------------


def losses(file: SourceFile, call: ast.Call) -> frozenset[str]:
    """The functional names of the losses that a call may compute (`cross_entropy`), empty where none is known.

    Known are `torch.nn.functional` and the modules of `torch.nn`, also held by names, attributes, parameters,
    dicts or a `functools.partial`.
    """
    found = {_functional(name) for name in file.resolve(call.func)}
    if not found:
        for value in file.values.of(call.func):
            if isinstance(value, ast.Call) and value.args and "functools.partial" in file.resolve(value.func):
                found |= {_functional(name) for name in file.resolve(value.args[0])}
            elif isinstance(value, ast.Call):
                found |= {_LOSS_CLASSES.get(name.rsplit(".", 1)[-1], "") for name in _made_by(file, value)}
            elif isinstance(value, (ast.Name, ast.Attribute)):
                found |= {_functional(name) for name in file.resolve(value)}
    return frozenset(name for name in found if name)


def _functional(name: str) -> str:
    head, _, last = name.rpartition(".")
    return last if head in ("torch.nn.functional", "torch") and last in LOSS_FUNCTIONS else ""


def _made_by(file: SourceFile, call: ast.Call) -> set[str]:
    """The classes of `torch.nn` behind `nn.BCELoss()`, `nn.BCELoss().to(device)`, `make_loss()`, or a class of the file
    that is derived from one and has no forward of its own."""
    found: set[str] = set()
    for cls in file.values.constructed(call):
        if isinstance(cls, ast.ClassDef) and file.values.method(cls, "forward") is None:
            found |= {name for entry in file.values.lineage(cls) for base in entry.bases for name in file.resolve(base)}
        elif isinstance(cls, str):
            found.add(cls)
    return {name for name in found if name.startswith("torch.nn.")}


def is_unknown_loss(file: SourceFile, call: ast.Call) -> bool:
    """Whether only its name shows that a call computes a loss: a parameter or attribute that is given two arguments.

    Functions that are imported or defined in the file are none: they may cast what they get.
    """
    if not is_loss_name(call) or len(call.args) != 2 or call.keywords or file.resolve(call.func):
        return False
    return file.values.of(call.func) == (None,) or isinstance(file.values.of(call.func)[0], ast.Attribute)


def is_loss_name(call: ast.Call) -> bool:
    """Whether a call goes by a name that losses have (`criterion(...)`, `self.loss_fn(...)`)."""
    last = path_of(call.func).rsplit(".", 1)[-1]
    return bool(_LOSS_NAME.search(last))


# -- models -----------------------------------------------------------------------------------------------------------


def is_model_call(file: SourceFile, call: ast.Call) -> bool:
    """Whether a call runs a model: a module of this file, one of `torch.nn`, or something that is named like one."""
    func = call.func
    if not call.args and not call.keywords:
        return False
    if isinstance(func, ast.Attribute) and func.attr == "forward":
        func = func.value
    path = path_of(func)
    if not path or path in ("super", "self") or file.resolve(func):
        return False
    for value in file.values.of(func):
        if isinstance(value, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)):
            return False
    for cls in file.values.constructed(func):
        if isinstance(cls, str):
            return is_layer(cls)
    return bool(_MODEL_NAME.search(path.rsplit(".", 1)[-1]))


def is_layer(name: str) -> bool:
    """Whether a qualified name is a module of `torch.nn` that has weights or wraps one that has."""
    if not name.startswith("torch.nn.") or not name.rsplit(".", 1)[-1][:1].isupper():
        return False
    return name.rsplit(".", 1)[-1] not in _LOSS_CLASSES


def returns_float32(file: SourceFile, call: ast.Call) -> bool:
    """Whether a module of this file that a call runs casts what it returns to float32."""
    for function in file.values.functions(call):
        for node in inside(function):
            if isinstance(node, ast.Return) and any(is_float_cast(file, part) for part in ast.walk(node)):
                return True
    return False


# -- dtypes of values -------------------------------------------------------------------------------------------------


def is_float_cast(file: SourceFile, node: ast.AST) -> bool:
    """Whether a node is `x.float()`, `x.double()` or `x.to(torch.float32)`."""
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
        return False
    if node.func.attr in ("float", "double"):
        return True
    if node.func.attr not in ("to", "type"):
        return False
    given = [*node.args, *(keyword.value for keyword in node.keywords)]
    return any(_FULL_PRECISION.intersection(file.resolve(argument)) for argument in given)


def source_of(node: ast.expr) -> ast.expr:
    """The value whose dtype an expression surely has: views, indices and device moves are looked through."""
    while True:
        if isinstance(node, ast.Subscript):
            node = node.value
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _KEEPS_DTYPE:
            node = node.func.value
        elif isinstance(node, ast.Attribute) and node.attr in ("logits", "sample", "T", "data"):
            node = node.value
        else:
            return node


# -- the scaler and the optimizer -------------------------------------------------------------------------------------


def scaler_constructors(file: SourceFile) -> list[ast.Call]:
    """The calls that build a GradScaler, in the order of the text."""
    found = []
    for ref in file.refs:
        if ref.call is not None and any(api.kind == "scaler" for api in apis(ref.candidates)):
            found.append(ref.call)
    return found


def scaler_origins(file: SourceFile, node: ast.expr) -> list[ast.Call]:
    """The calls in view that build the scaler behind an expression, also in a function that returns it."""
    found: list[ast.Call] = []
    pending, seen = list(file.values.of(node)), set[ast.AST]()
    while pending:
        value = pending.pop()
        if not isinstance(value, ast.Call) or value in seen:
            continue
        seen.add(value)
        if any(api.kind == "scaler" for api in apis(file.resolve(value.func))):
            found.append(value)
            continue
        for function in file.values.functions(value):
            pending += [origin for result in returns(function) for origin in file.values.of(result)]
    return found


def scale_calls(file: SourceFile) -> list[ast.Call]:
    """The calls that scale a loss: `<something>.scale(loss)` on a scaler or on what looks like one."""
    found = []
    for use in file.names.attributes.get("scale", ()):
        call = file.parent(use)
        if isinstance(call, ast.Call) and call.func is use and len(call.args) + len(call.keywords) == 1:
            above = file.parent(call)
            goes_backward = isinstance(above, ast.Attribute) and above.attr == "backward"
            if goes_backward or is_scaler(file, use.value):
                found.append(call)
    return found


def is_scaler(file: SourceFile, node: ast.expr) -> bool:
    """Whether an expression is a scaler by its name or by what made it."""
    if mentions_scaler(node):
        return True
    names = [name for name in file.values.constructed(node) if isinstance(name, str)]
    return bool(names) and any(api.kind == "scaler" for api in apis(tuple(names)))


def mentions_scaler(node: ast.AST) -> bool:
    """Whether some name in an expression says `scaler` or stands for one by convention."""
    return any(
        "scaler" in (part.id if isinstance(part, ast.Name) else part.attr).lower()
        for part in ast.walk(node)
        if isinstance(part, (ast.Name, ast.Attribute))
    )


def is_optimizer_name(node: ast.expr) -> bool:
    """Whether an expression goes by a name that optimizers have (`optimizer`, `self.opt_g`, `adam`)."""
    last = path_of(node).rsplit(".", 1)[-1].lower()
    return any(word in last for word in ("opt", "adam", "sgd"))


def backward_calls(file: SourceFile) -> list[ast.Call]:
    """The calls `<something>.backward(...)` without a loss among their arguments (those are frameworks' own)."""
    found = []
    for use in file.names.attributes.get("backward", ()):
        call = file.parent(use)
        if isinstance(call, ast.Call) and call.func is use and not call.args:
            found.append(call)
    return found


def roots(node: ast.AST) -> frozenset[str]:
    """The names and attribute paths in an expression (`loss`, `self.loss`)."""
    found = set()
    for part in ast.walk(node):
        if isinstance(part, (ast.Name, ast.Attribute)) and (path := path_of(part)):
            found.add(path)
    return frozenset(found)


def targets_of(statement: ast.AST) -> list[ast.expr]:
    """The names and attributes that an assignment gives a value, tuples taken apart."""
    if isinstance(statement, ast.Assign):
        pending: list[ast.expr] = list(statement.targets)
    elif isinstance(statement, (ast.AnnAssign, ast.AugAssign, ast.NamedExpr)):
        pending = [statement.target]
    else:
        return []
    found: list[ast.expr] = []
    while pending:
        target = pending.pop(0)
        if isinstance(target, (ast.Tuple, ast.List)):
            pending = [*target.elts, *pending]
        elif isinstance(target, ast.Starred):
            pending.insert(0, target.value)
        else:
            found.append(target)
    return found


def in_other_arm(file: SourceFile, first: ast.AST, second: ast.AST) -> bool:
    """Whether two nodes stand in different arms of one test, so that only one of them runs."""
    arms = _arms(file, first)
    return any(arms.get(test, arm) != arm for test, arm in _arms(file, second).items())


def _arms(file: SourceFile, node: ast.AST) -> dict[ast.AST, str]:
    """The tests around a node, each with the arm that the node lies in."""
    found: dict[ast.AST, str] = {}
    child, parent = node, file.parent(node)
    while parent is not None:
        if isinstance(parent, (ast.If, ast.IfExp)) and child is not parent.test:
            body = parent.body if isinstance(parent.body, list) else [parent.body]
            found[parent] = "body" if child in body else "orelse"
        child, parent = parent, file.parent(parent)
    return found
