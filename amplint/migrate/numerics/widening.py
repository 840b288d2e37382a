"""Makes a value float32 from the last product on, or from where it comes into a function: for constants that float16
rounds to zero or that lie beyond it."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from amplint.facts.values import default_of, is_self
from amplint.migrate.facts import Facts
from amplint.migrate.model import RefusalError
from amplint.migrate.numerics import lambdas
from amplint.migrate.numerics.casts import Casts
from amplint.migrate.numerics.half import HalfValues
from amplint.migrate.regions.sinks import Sinks
from amplint.migrate.tree import FUNCTIONS, owner_of

if TYPE_CHECKING:
    from amplint.source import SourceFile

_DEPTH = 4
_SPREADS = frozenset(("std", "var"))
"""What float16 rounds to zero or infinity itself: their input is float32."""
_ELEMENTWISE = _SPREADS | frozenset(
    ("abs", "relu", "elu", "leaky_relu", "sigmoid", "tanh", "sqrt", "mean", "neg", "square", "mul", "add", "sub", "div",
     "clamp", "clamp_min", "clip", "max", "min", "amax", "amin", "unsqueeze", "squeeze", "view", "reshape", "expand",
     "expand_as", "view_as", "flatten", "transpose", "permute", "t", "detach", "clone", "where", "maximum", "minimum")
)  # fmt: skip
"""Functions that compute float32 of float32, of all tensors that they are given."""

_PRODUCTS = frozenset(("matmul", "bmm", "mm", "einsum", "baddbmm", "linear"))


class Widening:
    """Writes the casts that make a value float32."""

    def __init__(self, facts: Facts, sinks: Sinks, half: HalfValues, casts: Casts) -> None:
        self.file: SourceFile = facts.file
        self.facts = facts
        self.sinks = sinks
        self.half = half
        self.casts = casts
        self._found: list[ast.expr] = []
        self._passed: set[ast.expr] = set()

    def widen(self, value: ast.expr) -> bool:
        """Let an operand be float32 where it stands; whether that could be done."""
        return self._written([value])

    def apply(self, call: ast.Call) -> None:
        """An autograd function of the file, which autocast does not enter, gets float32: `Spike.apply(x.float())`."""
        for argument in [*call.args, *(keyword.value for keyword in call.keywords)]:
            is_half = self.half.may_be(argument)
            if self.half.is_computed(argument, anywhere=True) or (is_half and argument in call.args[:1]):
                self.casts.float(argument)
            elif is_half:
                reason = "an autograd function needs float32, which this may not be; use `.float()`"
                raise RefusalError(argument, reason)
        self.casts.widened.add(call)

    def widen_target(self, target: ast.expr, at: ast.stmt) -> bool:
        """Let what a statement changes in place be float32 from the start; whether that could be done."""
        if not isinstance(target, ast.Name) or lambdas.scope_of(self.file, target) is not None:
            return False
        graph = self.sinks.graph(owner_of(self.file, at))
        made: list[ast.expr] = []
        seen, pending = {at}, [at]
        while pending:
            for statement, value in graph.reaching(target.id, pending.pop()):
                if statement in seen:
                    continue
                seen.add(statement)
                if isinstance(statement, ast.AugAssign):
                    pending.append(statement)
                elif self._is_plain(statement) and self._is_new(value):
                    made.append(value)
                else:
                    return False
        return bool(made) and self._written(made)

    def _is_new(self, value: ast.expr) -> bool:
        """Whether no other name has the tensor that an expression gives."""
        if isinstance(value, ast.Call):
            return self._name(value) in _PRODUCTS or self.facts.module_of(value) is not None
        return isinstance(value, ast.BinOp)

    def _written(self, values: list[ast.expr]) -> bool:
        self._found, self._passed = [], set()
        if not all(self._collect(value, 0, is_tensor=False) for value in values):
            return False
        for leaf in self._found:
            self.casts.float(leaf)
        self.casts.widened |= self._passed
        return True

    def _collect(self, node: ast.expr, depth: int, *, is_tensor: bool) -> bool:
        """Find what must be cast for a value; `is_tensor` where its use shows that it is one."""
        if not self.half.may_be(node):
            return True
        self._passed.add(node)
        if isinstance(node, ast.BinOp) and not isinstance(node.op, ast.MatMult):
            return all(self._collect(side, depth, is_tensor=is_tensor) for side in (node.left, node.right))
        if isinstance(node, ast.UnaryOp):
            return self._collect(node.operand, depth, is_tensor=is_tensor)
        if isinstance(node, ast.Call) and (given := self._elementwise(node)):
            is_spread = self._name(node) in _SPREADS
            return all(self._collect(v, _DEPTH if is_spread else depth, is_tensor=True) for v in given)
        if (
            isinstance(node, ast.Subscript)
            and isinstance(node.value, ast.Call)
            and (given := self._elementwise(node.value))
        ):
            return all(self._collect(v, depth, is_tensor=True) for v in given)
        if isinstance(node, ast.Name) and depth < _DEPTH and (made := self._made(node)):
            return all(self._collect(value, depth + 1, is_tensor=is_tensor) for value in made)
        return self._leaf(node, is_tensor)

    def _leaf(self, node: ast.expr, is_tensor: bool) -> bool:
        if not isinstance(node, (ast.Name, ast.Attribute, ast.Call, ast.Subscript)):
            return False
        if (not is_tensor and not self._is_tensor(node)) or self._may_be_number(node):
            return False
        self._found.append(node)
        return True

    def _is_tensor(self, node: ast.expr) -> bool:
        """Whether a value is surely a tensor, and no number."""
        if isinstance(node, ast.Call) and any(name.startswith("torch.") for name in self.file.resolve(node.func)):
            return True
        if self.half.is_computed(node, anywhere=True):
            return True
        owner = owner_of(self.file, node)
        return (
            isinstance(node, ast.Name)
            and isinstance(owner, FUNCTIONS)
            and owner.name == "forward"
            and owner in self.half.reached
            and any(arg.arg == node.id for arg in owner.args.args)
        )

    def _may_be_number(self, node: ast.expr) -> bool:
        """Whether a value is a number in the first round of a loop, or a parameter with a default, which some call may
        leave at that."""
        owner = owner_of(self.file, node)
        if not isinstance(node, ast.Name):
            return False
        reaching = self.sinks.graph(owner).reaching(node.id, self.file.statement(node))
        if reaching:
            return any(isinstance(v, ast.Constant) and v.value is not None for _, v in reaching)
        return isinstance(owner, FUNCTIONS) and any(
            default_of(owner.args, arg) for arg in owner.args.args if arg.arg == node.id
        )

    def _made(self, name: ast.Name) -> list[ast.expr]:
        """The arithmetic that gives a name its values; none where something else does."""
        if lambdas.scope_of(self.file, name) is not None:
            return []
        at = self.file.statement(name)
        found: list[ast.expr] = []
        for statement, value in self.sinks.graph(owner_of(self.file, name)).reaching(name.id, at):
            is_call = isinstance(value, ast.Call) and not self._elementwise(value)
            if not self._is_plain(statement) or is_call or not isinstance(value, (ast.BinOp, ast.UnaryOp, ast.Call)):
                return []
            found.append(value)
        return found

    @staticmethod
    def _is_plain(statement: ast.stmt) -> bool:
        """Whether a statement gives one name a value, and nothing else."""
        return (
            isinstance(statement, ast.Assign)
            and len(statement.targets) == 1
            and isinstance(statement.targets[0], ast.Name)
        )

    def _elementwise(self, call: ast.Call) -> list[ast.expr]:
        """The tensors that an elementwise function of torch is given; none where another function is called."""
        names = self.file.resolve(call.func)
        if self._name(call) not in _ELEMENTWISE or self.file.values.functions(call):
            return []
        if names:
            is_torch = names[0].rsplit(".", 1)[0] in ("torch", "torch.nn.functional")
            return [a for a in call.args if not isinstance(a, ast.Constant)] if is_torch else []
        if not isinstance(call.func, ast.Attribute) or is_self(call.func.value):
            return []
        if self.facts.module_of(call) is not None or self.facts.is_module(call.func.value):
            return []
        return [call.func.value, *(a for a in call.args if self.half.is_computed(a))]

    def _name(self, call: ast.Call) -> str:
        names = self.file.resolve(call.func)
        return (names[0] if names else getattr(call.func, "attr", "")).rsplit(".", 1)[-1]
