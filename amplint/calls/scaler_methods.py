"""What is wrong with a call on a scaler: a method that it does not have, or the wrong argument."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from amplint.calls.call_faults import Fault
from amplint.facts.scalers import Scalers
from amplint.facts.values import inside, path_of
from amplint.model import Applicability, Edit, Fix, Span
from amplint.torch_api import SCALER_METHODS

if TYPE_CHECKING:
    from amplint.source import SourceFile

_TAKES_OPTIMIZER = ("step", "unscale_")
_NO_OPTIMIZERS = ("torch.nn.", "torch.optim.lr_scheduler.")
_CHECKED = ("backward", "scale", "step", "unscale", "unscale_", "update", "zero_grad")


class Use(NamedTuple):
    """A method called on a scaler; `certain` is False where only its use says that it is one."""

    file: SourceFile
    scaler: ast.expr
    attribute: ast.Attribute
    call: ast.Call
    certain: bool

    @property
    def name(self) -> str:
        """The text of the scaler."""
        return self.file.segment(self.scaler)

    def fix(self, title: str, *edits: Edit) -> Fix:
        """A safe fix."""
        return Fix(title, edits, Applicability.SAFE)

    def rename(self, method: str) -> Edit:
        """Give the method another name."""
        end = self.file.span(self.attribute).end
        return Edit(Span(end - len(self.attribute.attr.encode()), end), method)


def method_faults(file: SourceFile) -> Iterator[tuple[ast.expr, Fault]]:
    """The faults of calls on scalers, each with the expression to blame, in the order of the text."""
    scalers = Scalers(file)
    found: list[tuple[ast.expr, Fault]] = []
    for method in _CHECKED:
        for attribute in file.names.attributes.get(method, ()):
            call = file.parent(attribute)
            if not isinstance(call, ast.Call) or call.func is not attribute or not _is_placed(file, attribute):
                continue
            certain = scalers.is_scaler(attribute.value)
            if certain or scalers.is_used_as_scaler(attribute.value):
                fault = _fault(Use(file, attribute.value, attribute, call, certain))
                if fault is not None:
                    found.append((call, fault))
    if scalers.named:
        found += _misspelt(file, scalers)
    yield from sorted(found, key=lambda item: file.span(item[0]))


def _fault(use: Use) -> Fault | None:
    method = use.attribute.attr
    if method == "unscale":
        if any(constant.value == method for constant in use.file.names.strings):
            return None  # the text asks for the method by name first
        return Fault(
            use.attribute,
            "a GradScaler has no method `unscale`, it is `unscale_`: the call raises AttributeError",
            use.fix("Use `unscale_`", use.rename("unscale_")),
        )
    if method == "backward" and use.certain:
        return _backward(use)
    if method == "zero_grad" and use.certain:
        return _zero_grad(use)
    if method in _TAKES_OPTIMIZER and use.certain and not use.call.args and not use.call.keywords:
        return _no_optimizer(use)
    if method in _TAKES_OPTIMIZER and use.certain and (fault := _no_such_optimizer(use)) is not None:
        return fault
    if method == "step":
        return _step_of_step(use)
    if method == "update" and use.certain:
        return _update(use)
    return _scale(use) if method == "scale" else None


def _backward(use: Use) -> Fault:
    message = "a GradScaler has no method `backward`: the call raises AttributeError"
    fix = None
    if use.call.args and not isinstance(use.call.args[0], ast.Starred) and len(use.call.args) == 1:
        from amplint.calls.call_edits import Arguments

        items = Arguments(use.file, use.call).items
        rest = use.file.segment(Span(items[1].start, items[-1].end)) if len(items) > 1 else ""
        end = use.file.span(use.call).end
        cut = [Edit(Span(items[0].end, items[-1].end), "")] if rest else []
        fix = use.fix("Scale the loss", use.rename("scale"), *cut, Edit(Span(end, end), f".backward({rest})"))
    return Fault(use.attribute, message, fix, help=f"write `{use.name}.scale(loss).backward()`")


def _zero_grad(use: Use) -> Fault:
    optimizer = _sole_optimizer(use)
    return Fault(
        use.attribute,
        "a GradScaler has no method `zero_grad`: the call raises AttributeError",
        use.fix("Zero the gradients of the optimizer", Edit(use.file.span(use.scaler), optimizer))
        if optimizer
        else None,
        help="zero the gradients of the optimizer",
    )


def _no_optimizer(use: Use) -> Fault:
    optimizer = _sole_optimizer(use)
    end = use.file.span(use.call).end - 1
    method = use.attribute.attr
    return Fault(
        use.attribute,
        f"`{use.name}.{method}()` needs the optimizer: the call raises TypeError",
        use.fix(f"Pass `{optimizer}`", Edit(Span(end, end), optimizer)) if optimizer else None,
        help="pass the optimizer",
    )


def _no_such_optimizer(use: Use) -> Fault | None:
    """A model, its parameters or a scheduler in the place of the optimizer."""
    value = use.call.args[0] if use.call.args else None
    if value is None or isinstance(value, ast.Starred):
        return None
    made = use.file.values.constructed(value)
    is_parameters = isinstance(value, ast.Call) and _called(value, "parameters") is not None
    if not is_parameters and not (made and all(isinstance(n, str) and n.startswith(_NO_OPTIMIZERS) for n in made)):
        return None
    text = use.file.segment(value)
    optimizer = _sole_optimizer(use, path_of(value))
    return Fault(
        value,
        f"`{use.name}.{use.attribute.attr}` needs an optimizer, `{text}` is none: the call raises AttributeError",
        Fix(f"Pass `{optimizer}`", (Edit(use.file.span(value), optimizer),), Applicability.UNSAFE)
        if optimizer
        else None,
        help="pass the optimizer",
    )


def _step_of_step(use: Use) -> Fault | None:
    inner = _called(use.call.args[0], "step") if use.call.args else None
    if inner is None:
        return None
    receiver = _receiver(inner)
    text = use.file.segment(receiver)
    bare = not inner.args and not inner.keywords
    return Fault(
        inner,
        f"`{use.name}.step` gets what `{text}.step()` returns: the optimizer steps on scaled gradients, and then the "
        "call raises AttributeError",
        use.fix("Pass the optimizer", _cut_call(use, inner)) if bare else None,
        help=f"write `{use.name}.step({text})`",
    )


def _update(use: Use) -> Fault | None:
    if len(use.call.args) + len(use.call.keywords) != 1:
        return None
    value = use.call.args[0] if use.call.args else use.call.keywords[0].value
    if _is_int(value):
        written = use.file.segment(value)
        text = f"{written}.0" if written.isdecimal() else f"float({written})"
        return Fault(
            value,
            f"`{use.name}.update` takes a float or a tensor as the new scale, an int raises AttributeError",
            use.fix("Make it a float", Edit(use.file.span(value), text)),
        )
    given = path_of(value)
    if given and given in _optimizers(use):
        inside_parentheses = Span(use.file.span(use.attribute).end, use.file.span(use.call).end)
        return Fault(
            value,
            f"`{use.name}.update` takes no optimizer but a new scale: the call raises AttributeError",
            use.fix("Remove the argument", Edit(inside_parentheses, "()")),
        )
    return None


def _is_int(node: ast.expr) -> bool:
    """Whether an expression is made of integers alone, such as `2**16`."""
    if isinstance(node, ast.BinOp):
        return not isinstance(node.op, ast.Div) and _is_int(node.left) and _is_int(node.right)
    return isinstance(node, ast.Constant) and type(node.value) is int


def _scale(use: Use) -> Fault | None:
    if len(use.call.args) != 1 or use.call.keywords:
        return None
    backward, item = _called(use.call.args[0], "backward"), _called(use.call.args[0], "item")
    chained = use.file.parent(use.call)
    goes_on = isinstance(chained, ast.Attribute) and chained.attr == "backward"
    if backward is not None:
        end = use.file.span(use.call).end
        tail = use.file.segment(Span(use.file.span(_receiver(backward)).end, use.file.span(backward).end))
        more = [] if goes_on else [Edit(Span(end, end), tail)]
        fixable = goes_on or isinstance(chained, ast.Expr)
        return Fault(
            backward,
            f"`{use.name}.scale` gets what `backward()` returns, which is None: the gradients are not scaled, and the "
            "call raises ValueError",
            use.fix("Scale the loss, then go backward", _cut_call(use, backward), *more) if fixable else None,
            help=f"write `{use.name}.scale(loss).backward()`",
        )
    if item is not None and goes_on:
        return Fault(
            item,
            f"`{use.name}.scale` gets a number instead of a tensor: the call raises ValueError",
            use.fix("Scale the tensor", _cut_call(use, item)),
        )
    return None


def _called(node: ast.expr, method: str) -> ast.Call | None:
    """The call of a method, None where an expression is anything else."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == method:
        return node
    return None


def _receiver(call: ast.Call) -> ast.expr:
    assert isinstance(call.func, ast.Attribute), "the call of a method"
    return call.func.value


def _cut_call(use: Use, call: ast.Call) -> Edit:
    """Leave of `x.method()` only `x`."""
    return Edit(Span(use.file.span(_receiver(call)).end, use.file.span(call).end), "")


def _optimizers(use: Use) -> set[str]:
    """The texts of the optimizers that the code around a use makes, gives to the scaler or calls by such a name."""
    function = use.file.values.enclosing_function(use.call)
    scaler = path_of(use.scaler)
    found: set[str] = set()
    for node in inside(function if function is not None else use.file.tree):
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call):
            made = use.file.resolve(node.value.func)
            if made and all(name.startswith("torch.optim.") and "lr_scheduler" not in name for name in made):
                found.update(path_of(target) for target in node.targets)
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
            continue
        receiver = path_of(node.func.value)
        if node.func.attr in _TAKES_OPTIMIZER and receiver == scaler and node.args:
            found.add(path_of(node.args[0]))
        elif node.func.attr in ("step", "zero_grad") and "opt" in receiver.rpartition(".")[2].lower():
            found.add(receiver)
    return found - {""}


def _sole_optimizer(use: Use, other_than: str = "") -> str:
    found = _optimizers(use) - {other_than}
    return found.pop() if len(found) == 1 else ""


def _misspelt(file: SourceFile, scalers: Scalers) -> Iterator[tuple[ast.expr, Fault]]:
    """Public attributes that no scaler has, but for a letter; it has private ones of many names."""
    plain = {_letters(name): name for name in SCALER_METHODS}
    asked = {constant.value for constant in file.names.strings}
    for attr, uses in file.names.attributes.items():
        meant = plain.get(_letters(attr), "")
        if attr in SCALER_METHODS or not meant or attr in _CHECKED or attr in asked or attr.startswith("_"):
            continue
        if any(not isinstance(use.ctx, ast.Load) for use in uses):
            continue
        for use in uses:
            if scalers.is_scaler(use.value) and _is_placed(file, use):
                end = file.span(use).end
                edit = Edit(Span(end - len(attr.encode()), end), meant)
                yield (
                    use,
                    Fault(
                        use,
                        f"a GradScaler has no attribute `{attr}`, it is `{meant}`: this raises AttributeError",
                        Fix(f"Use `{meant}`", (edit,), Applicability.SAFE),
                    ),
                )


def _is_placed(file: SourceFile, attribute: ast.Attribute) -> bool:
    """Whether the place in the text is certain, which it is not inside an f-string before Python 3.12."""
    return file.segment(attribute).endswith(attribute.attr)


def _letters(name: str) -> str:
    return name.replace("_", "").lower().removesuffix("s")
