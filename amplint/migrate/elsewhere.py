"""Files that train and hold no `backward()`: the loop is a framework's or another file's, or gradients are taken by
hand. They have nothing to migrate, and that is said with the reason."""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING

from amplint.facts.values import path_of
from amplint.migrate.facts import Facts
from amplint.migrate.model import RefusalError
from amplint.migrate.screening import check_imports

if TYPE_CHECKING:
    from amplint.source import SourceFile

_TRAINERS = {
    "fastai": "fastai: call `to_fp16()` on its Learner",
    "skorch": "skorch: mix its AccelerateMixin into the net, with `mixed_precision=`",
    "transformers.Trainer": "the Trainer of transformers: give its TrainingArguments `fp16=` or `bf16=`",
    "transformers.Seq2SeqTrainer": "the Trainer of transformers: give its TrainingArguments `fp16=` or `bf16=`",
}
_PARAMETERS = frozenset(("parameters", "named_parameters", "weights"))
_TRAINING = re.compile(r"^(?:fit\w*|fine_tune|train\w*|run)$")
_NOT_IN_VIEW = (
    "an optimizer is {} here and nothing goes backward in this file; migrate the file that holds the training loop, "
    "and make the scaler there or beside this optimizer"
)
_BY_HAND = (
    "gradients of parameters are taken with autograd.grad and applied by hand; a GradScaler needs an optimizer and "
    "`loss.backward()`"
)
_FUNCTIONAL = "gradients are taken by torch.func, which do not pass through a scaler"


def find(facts: Facts) -> RefusalError | None:
    """Why a file without a backward can't be migrated, None where it does not train."""
    file = facts.file
    optimizers = [
        call
        for call in file.names.calls
        if any(
            n.startswith("torch.optim.") and "lr_scheduler" not in n and "swa" not in n for n in file.resolve(call.func)
        )
    ]
    fits = [c for c in file.names.calls if isinstance(c.func, ast.Attribute) and _TRAINING.match(c.func.attr)]
    methods = [f for f in facts.functions if f.name in ("training_step", "configure_optimizers")]
    if optimizers or fits or methods or facts.steps:
        try:
            check_imports(file)
        except RefusalError as refusal:
            return refusal
    if fits and (framework := _framework(file)):
        return framework
    for call in file.names.calls:
        names = file.resolve(call.func)
        if any(name.startswith(("torch.func.grad", "functorch.grad")) for name in names):
            return RefusalError(call, _FUNCTIONAL)
        if "torch.autograd.grad" in names and is_of_parameters(file, call):
            return RefusalError(call, _BY_HAND)
    for step in facts.steps:
        return RefusalError(step, _NOT_IN_VIEW.format("stepped"), "loop")
    for call in optimizers:
        if not _is_handed_back(file, call):
            return RefusalError(call, _NOT_IN_VIEW.format("made"), "loop")
    return None


def _framework(file: SourceFile) -> RefusalError | None:
    for node in file.names.imports:
        module = node.module or "" if isinstance(node, ast.ImportFrom) else ""
        for alias in node.names:
            for name in (f"{module}.{alias.name}".lstrip("."), (module or alias.name).split(".", 1)[0]):
                if name in _TRAINERS and not (isinstance(node, ast.ImportFrom) and node.level):
                    return RefusalError(node, f"the code is built on {_TRAINERS[name]}")
    return None


def is_of_parameters(file: SourceFile, call: ast.Call) -> bool:
    """Whether the second argument of `autograd.grad` are a model's parameters, or tensors that are then updated."""
    keywords = [keyword.value for keyword in call.keywords if keyword.arg == "inputs"]
    inputs = [*call.args[1:2], *keywords]
    names = set()
    for node in [n for given in inputs for n in ast.walk(given)]:
        if isinstance(node, ast.Attribute) and node.attr in _PARAMETERS:
            return True
        if isinstance(node, ast.Name):
            names.add(node.id)
            values = [v for v in file.values.of(node) if isinstance(v, ast.AST)]
            if any(isinstance(n, ast.Attribute) and n.attr in _PARAMETERS for v in values for n in ast.walk(v)):
                return True
    function = file.values.enclosing_function(call)
    for statement in ast.walk(function or file.tree):
        if isinstance(statement, ast.AugAssign) and path_of(statement.target).split(".", 1)[0] in names:
            return True
        if isinstance(statement, ast.Assign) and any(
            isinstance(t, ast.Name) and t.id in names and _subtracts(statement.value, t.id) for t in statement.targets
        ):
            return True
    return False


def _subtracts(value: ast.expr, name: str) -> bool:
    """Whether an expression takes something from a name: `w - lr * g`."""
    return any(
        isinstance(node, ast.BinOp)
        and isinstance(node.op, ast.Sub)
        and any(isinstance(n, ast.Name) and n.id == name for n in ast.walk(node.left))
        for node in ast.walk(value)
    )


def _is_handed_back(file: SourceFile, call: ast.Call) -> bool:
    """Whether a function only makes an optimizer for its caller: it returns it."""
    function = file.values.enclosing_function(call)
    if function is None:
        return False
    statement = file.statement(call)
    names = {path_of(t) for t in statement.targets} if isinstance(statement, ast.Assign) else set()
    returned = [r.value for r in ast.walk(function) if isinstance(r, ast.Return) and r.value is not None]
    return any(n is call or (isinstance(n, ast.Name) and n.id in names) for value in returned for n in ast.walk(value))
