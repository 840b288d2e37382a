"""AMP104: binary cross entropy on probabilities under autocast."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from amplint.calls.call_edits import Arguments
from amplint.facts.contexts import OFF
from amplint.facts.regions import Region
from amplint.facts.training import losses
from amplint.model import Applicability, Edit, Finding, Fix, Label, Level, Span
from amplint.rule import rule
from amplint.source import SourceFile

_BANNED = frozenset(("cuda", "xpu"))
_SIGMOIDS = frozenset(("torch.sigmoid", "torch.nn.functional.sigmoid", "torch.special.expit"))


@rule("AMP104", "bce-in-autocast", level=Level.ERROR, fix=Applicability.UNSAFE, triggers=("autocast",))
def bce_in_autocast(file: SourceFile) -> Iterator[Finding]:
    """
    `BCELoss` and `F.binary_cross_entropy` raise under CUDA autocast, even for float32 inputs, because the sigmoid in
    front of them is not safe in half precision. CPU autocast lets them run: for the logits 12, -12, 1 the loss is 37.4
    instead of 8.1, and the gradient is NaN. The form that takes logits is right in both.

    ```python bad
    import torch
    import torch.nn.functional as F


    def compute_loss(model, x, y):
        with torch.autocast("cuda", dtype=torch.float16):
            logits = model(x)
            loss = F.binary_cross_entropy(torch.sigmoid(logits), y)
        return loss
    ```

    ```python good
    import torch
    import torch.nn.functional as F


    def compute_loss(model, x, y):
        with torch.autocast("cuda", dtype=torch.float16):
            logits = model(x)
            loss = F.binary_cross_entropy_with_logits(logits, y)
        return loss
    ```

    Also found where the loss is held by an attribute or a parameter's default, and in a method that is called inside a
    region. Where the sigmoid is elsewhere (the last layer of the model), remove it there and use
    `BCEWithLogitsLoss`, or compute the loss in `autocast(enabled=False)` on `.float()` inputs. The fix is unsafe since
    it can't see whether the probabilities are used for something else.
    """
    for call in file.names.calls:
        if losses(file, call) != {"binary_cross_entropy"}:
            continue
        for region, site in file.regions.active(call):
            if region.enabled != OFF and (region.devices & _BANNED or not region.devices or region.devices == {"cpu"}):
                yield _finding(file, call, region, site)
                break


def _finding(file: SourceFile, call: ast.Call, region: Region, site: ast.Call | None) -> Finding:
    message = "binary cross entropy on probabilities raises under autocast, even for float32 inputs"
    if region.devices == {"cpu"}:
        message = "the sigmoid in half precision saturates before binary cross entropy: the gradient can be NaN"
    labels = [Label(file.span(region.expression), "the region starts here")]
    if site is not None:
        labels.append(Label(file.span(site), "called inside the region here"))
    fix = _fix(file, call)
    help_text = "use the loss with logits, or compute this one in autocast(enabled=False) on .float() inputs"
    return Finding("AMP104", file.span(call), message, tuple(labels), fix, None, "" if fix else help_text)


def _fix(file: SourceFile, call: ast.Call) -> Fix | None:
    """Take the sigmoid out of the argument and the loss that takes logits; only where both are in view."""
    inner = _sigmoid_operand(file, call)
    if inner is None:
        return None
    renamed = _renamed_function(file, call.func) or _renamed_module(file, call)
    if renamed is None:
        return None
    probabilities, operand = inner
    edits = (renamed, Edit(file.span(probabilities), file.segment(operand)))
    return Fix("Compute the loss on the logits", edits, Applicability.UNSAFE)


def _sigmoid_operand(file: SourceFile, call: ast.Call) -> tuple[ast.expr, ast.expr] | None:
    """The argument that is a sigmoid, and what it is taken of."""
    items = Arguments(file, call).items
    node = items[0].node if items else None
    if isinstance(node, ast.keyword):
        node = node.value if node.arg == "input" else None
    if not isinstance(node, ast.Call) or node.keywords:
        return None
    if len(node.args) == 1 and set(file.resolve(node.func)) & _SIGMOIDS:
        return node, node.args[0]
    if isinstance(node.func, ast.Attribute) and node.func.attr == "sigmoid" and not node.args:
        return (node, node.func.value) if not file.resolve(node.func) else None
    return None


def _renamed_function(file: SourceFile, func: ast.expr) -> Edit | None:
    """`F.binary_cross_entropy` becomes `F.binary_cross_entropy_with_logits`; a bare imported name is left alone."""
    if not isinstance(func, ast.Attribute) or func.attr != "binary_cross_entropy":
        return None
    end = file.span(func).end
    return Edit(Span(end, end), "_with_logits")


def _renamed_module(file: SourceFile, call: ast.Call) -> Edit | None:
    """`nn.BCELoss` becomes `nn.BCEWithLogitsLoss` where it is made for this call alone."""
    values = file.values.of(call.func)
    maker = values[0] if len(values) == 1 else None
    if not isinstance(maker, ast.Call) or not isinstance(maker.func, ast.Attribute) or maker.func.attr != "BCELoss":
        return None
    users = [other for other in file.names.calls if maker in file.values.of(other.func)]
    if users != [call]:
        return None
    end = file.span(maker.func).end
    return Edit(Span(end - len("BCELoss"), end), "BCEWithLogitsLoss")
