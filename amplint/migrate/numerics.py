"""What must not happen in half precision: code that runs under the new regions is read for it, repaired or refused.

Which operations autocast runs in float32 is that of CUDA (torch 2.13): `log`, `exp`, `pow`, `softmax` and sums are
safe in themselves, but their inputs may have been rounded before.
"""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from amplint.facts.values import Function, path_of, returns
from amplint.migrate import kernels, masks, recursions
from amplint.migrate.constants import is_beyond_float16, number
from amplint.migrate.editor import Editor
from amplint.migrate.facts import Facts
from amplint.migrate.half import HalfValues
from amplint.migrate.model import Options, RefusalError
from amplint.migrate.probabilities import Probabilities, is_probability_loss
from amplint.migrate.regions import Run
from amplint.migrate.sinks import Sinks
from amplint.migrate.tree import FUNCTIONS, walk
from amplint.model import Span

if TYPE_CHECKING:
    from amplint.source import SourceFile

_SMALLEST = 6e-8
"""The smallest positive float16 is about this."""
_LOGS = frozenset(("log", "log2", "log10", "log1p", "log_"))
_SAFE_LOG_ARGUMENTS = frozenset(("softmax", "exp", "sum", "norm", "logsumexp", "tensor", "cumsum", "cumprod"))
_REJECTS_HALF = frozenset(
    (
        "index_add", "index_add_", "index_copy", "index_copy_", "index_put_", "index_reduce", "index_reduce_",
        "scatter_add_", "scatter_reduce", "scatter_reduce_", "masked_scatter", "masked_scatter_", "put_",
        "inverse", "det", "logdet", "slogdet", "cholesky", "svd", "eig", "symeig", "qr", "pinverse", "matrix_exp",
        "lstsq", "solve", "fft", "rfft", "irfft", "addmm_", "addbmm_", "baddbmm_", "addmv_", "lgamma", "digamma",
        "spmm",
    )
)  # fmt: skip
_PRODUCTS = frozenset(("mm", "bmm", "matmul"))
_TURNS = frozenset(("t", "transpose", "permute"))
_BUFFERS = frozenset(
    f"torch.{name}" for name in ("zeros", "ones", "empty", "full", "zeros_like", "empty_like", "rand", "randn")
)
_MASKS = frozenset(("masked_fill", "masked_fill_"))


class Numerics:
    """Reads the code under the regions; edits are put into the editor, what can't be repaired raises `RefusalError`."""

    def __init__(self, facts: Facts, sinks: Sinks, editor: Editor, options: Options) -> None:
        self.facts = facts
        self.file: SourceFile = facts.file
        self.sinks = sinks
        self.editor = editor
        self.options = options
        self.probabilities = Probabilities(facts, sinks, editor)
        self._losses: list[ast.Call] = []
        self._casts: set[ast.expr] = set()

    def check(self, runs: list[Run]) -> None:
        """Read the statements of the runs, the functions they call and all modules of the file."""
        functions = self._reached(runs)
        kernels.check(self.facts, runs, functions)
        self.half = HalfValues(self.facts, self.sinks, runs, functions)
        nodes: list[ast.AST] = [node for run in runs for s in run.statements for node in walk(s)]
        nodes += [node for run in runs if run.bind is not None for node in ast.walk(run.bind.expression)]
        for function in functions:
            nodes += ast.walk(function)
        recursions.check(self.file, nodes)
        done: set[int] = set()
        for node in nodes:
            if id(node) not in done:
                done.add(id(node))
                self._node(node)
        self.probabilities.repair(self._losses)

    def _reached(self, runs: list[Run]) -> list[Function]:
        found: dict[Function, None] = {}
        for cls in self.facts.module_classes:
            for member in cls.body:
                if isinstance(member, FUNCTIONS):
                    found[member] = None
        pending: list[ast.AST] = [s for run in runs for s in run.statements]
        pending += [run.bind.expression for run in runs if run.bind is not None]
        pending += list(found)
        while pending:
            for node in ast.walk(pending.pop()):
                if isinstance(node, ast.Call):
                    for function in self.file.values.functions(node):
                        if function not in found and function not in self.facts.trainers:
                            found[function] = None
                            pending.append(function)
        return list(found)

    # -- one node -----------------------------------------------------------------------------------------------------

    def _node(self, node: ast.AST) -> None:
        if isinstance(node, ast.Call):
            self._call(node)
        elif isinstance(node, (ast.BinOp, ast.AugAssign)):
            self._arithmetic(node)
        elif isinstance(node, ast.Assign) and any(isinstance(t, ast.Subscript) for t in node.targets):
            self._constant(node.value, node, "is written into a tensor")
            self._written(node)

    def _written(self, assign: ast.Assign) -> None:
        """`buffer[mask] = values` needs both in one dtype, which float32 is: a buffer made by torch has it."""
        if isinstance(assign.value, (ast.Constant, ast.UnaryOp)):
            return
        for target in assign.targets:
            if not isinstance(target, ast.Subscript):
                continue
            parts = target.slice.elts if isinstance(target.slice, ast.Tuple) else [target.slice]
            if all(self._is_plain_index(part) for part in parts):
                continue
            if self.half.may_be(target.value):
                self._cast_target(assign, target.value)
            if self.half.is_computed(assign.value):
                self._cast(assign.value)

    def _cast_target(self, assign: ast.Assign, target: ast.expr) -> None:
        """Let the only value of a name that is written into by index be float32 from the start."""
        bindings = self.file.names.lookup(target) if isinstance(target, ast.Name) else []
        made = [binding.node for binding in bindings]
        if (
            len(made) != 1
            or not isinstance(made[0], ast.Assign)
            or not isinstance(made[0].targets[0], ast.Name)
            or not self.half.is_computed(made[0].value)
        ):
            raise RefusalError(assign, "values are written by index into a tensor that may be of half precision")
        self._cast(made[0].value)

    def _cast(self, value: ast.expr) -> None:
        """`value.float()`, once."""
        if value in self._casts:
            return
        self._casts.add(value)
        if isinstance(value, (ast.Call, ast.Name, ast.Attribute, ast.Subscript)):
            self.editor.insert(self.file.span(value).end, ".float()")
        elif isinstance(value, (ast.BinOp, ast.UnaryOp)) and "\n" not in self.file.segment(value):
            self.editor.replace(Span(self.file.span(value).start, self.file.span(value).start), "(")
            self.editor.insert(self.file.span(value).end, ").float()")
        else:
            raise RefusalError(value, "this value must be float32, and can't be given `.float()`; give it a name first")

    def _distribution(self, call: ast.Call) -> None:
        """Distributions check and sample their parameters in float32: `Normal(mean.float(), std)`."""
        for argument in [*call.args, *(k.value for k in call.keywords if k.arg != "validate_args")]:
            inner = argument.value if isinstance(argument, ast.Starred) else argument
            if not self.half.is_computed(inner, anywhere=True):
                continue
            if inner is not argument:
                raise RefusalError(argument, "a distribution needs its parameters in float32; give each a name first")
            self._cast(argument)

    def _is_plain_index(self, node: ast.expr) -> bool:
        """Whether an index is a number or a range, so that values are copied and not put."""
        if isinstance(node, (ast.Constant, ast.Slice)):
            return True
        if isinstance(node, (ast.BinOp, ast.UnaryOp)):
            return all(
                self._is_plain_index(child) for child in ast.iter_child_nodes(node) if isinstance(child, ast.expr)
            )
        if isinstance(node, ast.Name):
            bindings = self.file.names.lookup(node)
            return bool(bindings) and all(
                isinstance(b.node, (ast.For, ast.AugAssign)) or _is_count(b.value) for b in bindings
            )
        return False

    def _call(self, call: ast.Call) -> None:
        name = self._name(call)
        if self.half.is_distribution(call):
            self._distribution(call)
        elif is_probability_loss(self.file, call):
            self._losses.append(call)
        elif name in _LOGS and self._is_tensor_call(call):
            self._log(call)
        elif name in _MASKS and self._float16:
            masks.repair(self.file, self.editor, call)
        elif name in _REJECTS_HALF and self._is_tensor_call(call):
            raise RefusalError(call, f"`{name}` does not take half precision on CUDA")
        elif name in ("clamp", "clamp_", "clip", "fill_", "full", "full_like", "where", "maximum") and self._float16:
            for argument in [*call.args, *(k.value for k in call.keywords)]:
                self._constant(argument, call, f"is given to `{name}`")
        elif name in ("scatter", "scatter_") and self._is_tensor_call(call) and self._scatters_a_tensor(call):
            raise RefusalError(call, f"`{name}` needs both tensors in one dtype")
        elif self._float16 and (name in ("gram_matrix", "gram") or (name in _PRODUCTS and _is_gram(call))):
            raise RefusalError(call, "Gram matrices of images exceed the range of float16; use --dtype bfloat16")

    @property
    def _float16(self) -> bool:
        return self.options.dtype != "bfloat16"

    def _name(self, call: ast.Call) -> str:
        names = self.file.resolve(call.func)
        return (names[0] if names else path_of(call.func) or getattr(call.func, "attr", "")).rsplit(".", 1)[-1]

    def _scatters_a_tensor(self, call: ast.Call) -> bool:
        """Whether a scatter's source may be half precision: it is no number, nor a tensor made by torch's functions."""
        given = {keyword.arg: keyword.value for keyword in call.keywords}
        index = 3 if self.file.resolve(call.func) else 2
        if len(call.args) >= index - 1 and number(self.file, call.args[index - 2]) is None:
            return False  # the scatter of a plot
        source = call.args[index] if len(call.args) > index else given.get("src", given.get("value"))
        if source is None or number(self.file, source) is not None:
            return False
        made = [v for v in self.file.values.of(source) if isinstance(v, ast.Call)]
        return not made or not all(name in _BUFFERS for v in made for name in self.file.resolve(v.func) or ("",))

    def _is_tensor_call(self, call: ast.Call) -> bool:
        """Whether a call is torch's, or a method of something that is no module of Python's or numpy's."""
        names = self.file.resolve(call.func)
        if names:
            return names[0].startswith("torch")
        if isinstance(call.func, ast.Name):
            return False
        return isinstance(call.func, ast.Attribute) and path_of(call.func.value) not in (
            "math", "np", "numpy", "self", "logger", "logging", "writer", "wandb", "self.logger", "self.writer",
        )  # fmt: skip

    def _log(self, call: ast.Call) -> None:
        """A logarithm by hand: what it is taken of must have been computed in float32."""
        names = self.file.resolve(call.func)
        if names:
            argument = call.args[0] if call.args else None
        else:
            argument = call.func.value if isinstance(call.func, ast.Attribute) else None
            if call.args or (isinstance(argument, ast.Name) and argument.id[:1].isupper()):
                return
        if argument is not None and not self._is_safe_log(argument, 0) and self.half.may_be_rounded(argument):
            raise RefusalError(
                call, "a logarithm is taken by hand of a value that half precision may have rounded to 0 or 1"
            )

    def _is_safe_log(self, node: ast.expr, depth: int) -> bool:
        if isinstance(node, ast.Constant):
            return True
        if isinstance(node, ast.Call):
            name = self._name(node)
            if name in _SAFE_LOG_ARGUMENTS:
                return True
            functions = self.file.values.functions(node)
            if functions and depth < 4:
                results = [value for function in functions for value in returns(function)]
                return bool(results) and all(self._is_safe_log(value, depth + 1) for value in results)
            if name in ("squeeze", "view", "gather", "float", "unsqueeze", "mean") and isinstance(
                node.func, ast.Attribute
            ):
                return self._is_safe_log(node.func.value, depth)
            return not any(isinstance(n, (ast.Name, ast.Attribute)) for a in node.args for n in ast.walk(a)) and bool(
                self.file.resolve(node.func)
            )
        if isinstance(node, ast.Subscript):
            return self._is_safe_log(node.value, depth)
        if isinstance(node, ast.Name) and depth < 4:
            values = self.file.values.of(node)
            return all(isinstance(v, ast.expr) and v is not node and self._is_safe_log(v, depth + 1) for v in values)
        return False

    def _arithmetic(self, node: ast.BinOp | ast.AugAssign) -> None:
        if not self._float16:
            return
        operands = [node.left, node.right] if isinstance(node, ast.BinOp) else [node.target, node.value]
        if isinstance(node.op, (ast.Add, ast.Sub, ast.Mult)):
            for operand in operands:
                other = [o for o in operands if o is not operand]
                if any(isinstance(o, ast.Constant) for o in other):
                    continue
                if not any(self.half.may_be(o) for o in other):
                    continue
                values = self.file.values.of(operand) if "eps" in path_of(operand).lower() else (operand,)
                for value in values:
                    if isinstance(value, (ast.Constant, ast.UnaryOp)):
                        self._constant(value, node, "stands in arithmetic with tensors")

    def _constant(self, value: ast.expr, place: ast.AST, what: str) -> None:
        if not self._float16:
            return
        if is_beyond_float16(self.file, value):
            raise RefusalError(place, f"a constant beyond the range of float16 {what}; use --dtype bfloat16")
        value_of = number(self.file, value)
        if value_of is not None and 0 < abs(value_of) < _SMALLEST:
            raise RefusalError(place, f"a constant that float16 rounds to zero {what}; use --dtype bfloat16")


def _is_count(value: ast.expr | None) -> bool:
    return isinstance(value, ast.Constant) and isinstance(value.value, int)


def _is_gram(call: ast.Call) -> bool:
    """Whether a product is that of a matrix with itself, transposed: `x.mm(x.t())`."""
    factors = list(call.args)
    if len(factors) == 1 and isinstance(call.func, ast.Attribute):
        factors.insert(0, call.func.value)
    if len(factors) != 2:
        return False
    first, second = factors
    turned = isinstance(second, ast.Call) and isinstance(second.func, ast.Attribute) and second.func.attr in _TURNS
    if turned:
        return ast.dump(second.func.value) == ast.dump(first)  # type: ignore[attr-defined]
    return (
        isinstance(second, ast.Attribute) and second.attr in ("T", "mT") and ast.dump(second.value) == ast.dump(first)
    )
