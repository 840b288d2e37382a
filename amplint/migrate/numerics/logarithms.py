"""Logarithms by hand: what they are taken of must not have been rounded by half precision near 0 or 1 before.

A softmax, a sigmoid or another function between the last product and the logarithm is computed of float32 where it is
in view (`torch.log(1 - torch.sigmoid(x.float()))`), and so is all elementwise arithmetic behind it.
"""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from amplint.facts.values import is_self, path_of, returns
from amplint.migrate.facts import Facts
from amplint.migrate.model import RefusalError
from amplint.migrate.numerics.casts import Casts
from amplint.migrate.numerics.half import HalfValues
from amplint.migrate.numerics.origins import Origins
from amplint.migrate.numerics.probabilities import Probabilities
from amplint.migrate.numerics.sigmoids import LAYER

if TYPE_CHECKING:
    from amplint.source import SourceFile

NAMES = frozenset(("log", "log2", "log10", "log1p", "log_", "logit", "xlogy", "entr"))
_REASON = (
    "a logarithm is taken by hand of a value that half precision may have rounded to 0 or 1; use log_softmax, "
    "logsigmoid or a loss that takes logits"
)
_SAFE_ARGUMENTS = frozenset(
    ("softmax", "exp", "sum", "norm", "logsumexp", "tensor", "cumsum", "cumprod", "softplus", "cosh")
)
"""What CUDA autocast computes in float32, whatever it is given."""
_EXPONENTIALS = frozenset(("exp", "softmax", "softplus", "cosh"))
_SAME_NUMBERS = frozenset(("squeeze", "view", "reshape", "gather", "float", "unsqueeze", "mean", "masked_select", "t"))
_ROUNDING = frozenset(("sigmoid", "expit", "tanh"))
"""Those of them that CUDA autocast computes in half precision where they are given that."""


class Logarithms:
    """Repairs logarithms by hand; `RefusalError` where what they are taken of is not in view."""

    def __init__(
        self, facts: Facts, half: HalfValues, casts: Casts, origins: Origins, probabilities: Probabilities
    ) -> None:
        self.file: SourceFile = facts.file
        self.facts = facts
        self.half = half
        self.casts = casts
        self.probabilities = probabilities
        self._origins = origins
        self._exponentials: list[ast.Call] = []

    def repair(self, call: ast.Call, name: str) -> None:
        """Let what a logarithm is taken of be computed in float32."""
        is_function = bool(self.file.resolve(call.func))
        if is_function:
            given = call.args[:2] if name == "xlogy" else call.args[:1]
        else:
            receiver = call.func.value if isinstance(call.func, ast.Attribute) else None
            of_class = isinstance(receiver, ast.Name) and receiver.id[:1].isupper()
            if receiver is None or of_class or (call.args and name not in ("logit", "xlogy")):
                return  # of a logger or a distribution
            given = [receiver, *(call.args if name == "xlogy" else [])]
        for argument in given:
            if self._is_repaired(argument, is_difference=name == "logit"):
                continue
            self._exponentials.clear()
            if name != "logit" and self._is_safe(argument, 0):
                for exponential in self._exponentials:
                    self.widen(exponential)
            elif self.half.may_be_rounded(argument):
                raise RefusalError(call, _REASON)

    def choices(self, node: ast.expr) -> None:
        """Probabilities by which NumPy chooses must sum to 1, which half precision would round away on the CPU."""
        found = self._origins.all_of(node)
        if found and all("softmax" in self._name(call).lower() for call in found):
            for call in found:
                self.widen(call)

    def _is_repaired(self, argument: ast.expr, *, is_difference: bool) -> bool:
        """Give all that is rounded on its way into a value float32; whether it is in view."""
        found = self._origins.all_of(argument, is_difference)
        if found is None:
            return False
        for call in found:
            self.widen(call)
        if not self._origins.on_cuda:
            self.casts.widened |= self._origins.passed
        return True

    def widen(self, call: ast.Call) -> None:
        """`torch.sigmoid(x)` becomes `torch.sigmoid(x.float())`. A softmax or exponential, which CUDA computes in
        float32, gets it for the CPU: there an exponential leaves the range of float16."""
        if LAYER in self.file.resolve(call.func):
            self.probabilities.widen(call)
            return
        name = self._name(call)
        named = [keyword.value for keyword in call.keywords if keyword.arg == "input"]
        given = next(iter([*call.args, *named]), None)
        if (
            isinstance(call.func, ast.Attribute)
            and not self.file.resolve(call.func)
            and self.facts.module_of(call) is None
            and not is_self(call.func.value)
        ):
            given = call.func.value
        if given is None:
            return
        rounds = name in _ROUNDING or name not in _SAFE_ARGUMENTS
        if self.half.is_computed(given, anywhere=True) or (rounds and self.half.may_be(given)):
            self.casts.float(given)

    def _name(self, call: ast.Call) -> str:
        names = self.file.resolve(call.func)
        return (names[0] if names else path_of(call.func) or getattr(call.func, "attr", "")).rsplit(".", 1)[-1]

    def _is_safe(self, node: ast.expr, depth: int) -> bool:
        """Whether CUDA computes a value in float32 without a difference that could be rounded away before."""
        if isinstance(node, ast.Constant):
            return True
        if isinstance(node, ast.Call):
            name = self._name(node)
            if name in _SAFE_ARGUMENTS:
                if name in _EXPONENTIALS:
                    self._exponentials.append(node)
                elif name == "sum":
                    summed = node.args[0] if self.file.resolve(node.func) and node.args else None
                    summed = node.func.value if isinstance(node.func, ast.Attribute) and summed is None else summed
                    if summed is not None and depth < 4:
                        self._is_safe(summed, depth + 1)  # for the exponentials in it
                return True
            functions = self.file.values.functions(node)
            if functions and depth < 4:
                results = [value for function in functions for value in returns(function)]
                return bool(results) and all(self._is_safe(value, depth + 1) for value in results)
            if name in _SAME_NUMBERS and isinstance(node.func, ast.Attribute) and not self.file.resolve(node.func):
                return self._is_safe(node.func.value, depth)
            if (
                "torch.cat" in self.file.resolve(node.func)
                and node.args
                and isinstance(node.args[0], (ast.List, ast.Tuple))
            ):
                return all(self._is_safe(part, depth + 1) for part in node.args[0].elts)
            return not any(isinstance(n, (ast.Name, ast.Attribute)) for a in node.args for n in ast.walk(a)) and bool(
                self.file.resolve(node.func)
            )
        if isinstance(node, ast.Subscript):
            return self._is_safe(node.value, depth)
        if isinstance(node, ast.BinOp) and isinstance(node.op, (ast.Add, ast.Div)):
            return self._is_safe(node.left, depth) and self._is_safe(node.right, depth)
        if isinstance(node, ast.Name) and depth < 4:
            values = self.file.values.of(node)
            return all(isinstance(v, ast.expr) and v is not node and self._is_safe(v, depth + 1) for v in values)
        return False
