"""What must not happen in half precision: code that runs under the new regions is read for it, repaired or refused.

Which operations autocast runs in float32 is that of CUDA (torch 2.13): `log`, `exp`, `pow`, `softmax` and sums are
safe in themselves, but their inputs may have been rounded before.
"""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING

from amplint.facts.values import Function, path_of
from amplint.migrate.editor import Editor
from amplint.migrate.facts import Facts
from amplint.migrate.model import Options, RefusalError
from amplint.migrate.numerics import (
    additions,
    angles,
    averages,
    distances,
    gram,
    islands,
    kernels,
    lambdas,
    logarithms,
    masks,
    norms,
    products,
    recursions,
    solvers,
)
from amplint.migrate.numerics.casts import Casts, is_unpacked
from amplint.migrate.numerics.constants import is_beyond_float16, number
from amplint.migrate.numerics.expressions import given_to
from amplint.migrate.numerics.gram import is_gram
from amplint.migrate.numerics.half import HalfValues
from amplint.migrate.numerics.logarithms import Logarithms
from amplint.migrate.numerics.origins import Origins
from amplint.migrate.numerics.probabilities import Probabilities, is_probability_loss
from amplint.migrate.numerics.reached import reached_functions
from amplint.migrate.numerics.widening import Widening
from amplint.migrate.regions import autograd_functions
from amplint.migrate.regions.autograd_functions import passes_on
from amplint.migrate.regions.runs import Run
from amplint.migrate.regions.sinks import Sinks
from amplint.migrate.regions.surrogates import function_of

if TYPE_CHECKING:
    from amplint.source import SourceFile

_BEYOND = "a constant beyond the range of float16 {}; use --dtype bfloat16"
_VANISHES = "a constant that float16 rounds to zero {}; use --dtype bfloat16"
_SMALLEST = 6e-8
"""The smallest positive float16 is about this."""
_REJECTS_HALF = frozenset(
    (
        "index_add", "index_add_", "index_copy", "index_copy_", "index_put_", "index_reduce", "index_reduce_",
        "scatter_add_", "scatter_reduce", "scatter_reduce_", "masked_scatter", "masked_scatter_", "put_",
        "eig", "symeig", "fft", "rfft", "irfft", "addmm_", "addbmm_", "baddbmm_", "addmv_", "lgamma", "digamma",
        "spmm", "cholesky_solve", "cholesky_inverse", "triangular_solve", "lu", "lu_solve", "geqrf", "ormqr", "orgqr",
        "lobpcg", "svd_lowrank", "pca_lowrank", "quantile", "nanquantile", "histc", "bincount", "logcumsumexp",
    )
)  # fmt: skip
_BOUNDS = frozenset(("clamp", "clip", "clamp_min", "clamp_max"))
_BUFFERS = frozenset(
    f"torch.{name}" for name in ("zeros", "ones", "empty", "full", "zeros_like", "empty_like", "rand", "randn")
)
_TERM = re.compile(r"loss|penal|regul|(?:^|_)(?:reg|tv|kld?|l[12]|gp)(?:$|_)", re.I)
_FILLS = frozenset(("clamp_", "fill_", "full", "full_like", "where", "maximum"))
_ADAPTIVE = "torch.nn.AdaptiveLogSoftmaxWithLoss"
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
        self._casts = Casts(facts.file, editor)
        self._islands: set[ast.stmt] = set()

    def check(self, runs: list[Run], functions: list[Function] | None = None) -> None:
        """Read the statements of the runs, and the given functions: by default those that the runs call, and all
        modules of the file."""
        self.functions = functions = reached_functions(self.facts, runs) if functions is None else functions
        kernels.check(self.facts, runs, functions)
        self.half = HalfValues(self.facts, self.sinks, runs, functions, self._casts.widened)
        origins = Origins(self.facts, self.sinks, self.half, self._casts.exact)
        self._logarithms = Logarithms(self.facts, self.half, self._casts, origins, self.probabilities)
        self._product_islands = islands.ProductIslands(self._logarithms, origins, self.editor, self._islands)
        self._widening = Widening(self.facts, self.sinks, self.half, self._casts)
        self._products = gram.Islands(self.file, self.sinks, self.half, self.editor, self._islands)
        nodes = [node for run in runs for node in run.nodes()]
        for function in functions:
            nodes += ast.walk(function)
        for value in lambdas.reached(self.file, nodes):
            nodes += ast.walk(value.body)
        recursions.check(self.file, nodes)
        solvers.check(nodes)
        autograd_functions.check(self.file, nodes, self.half.is_computed)
        if self._float16:
            averages.check(self.facts)
        nodes = list({id(node): node for node in nodes}.values())
        named = [(node, self._name(node)) for node in nodes if isinstance(node, ast.Call)]
        for call, name in named:  # first, since they make float32 of values
            given = angles.rounded(self.file, self.half, call, name)
            if given is not None and not self._product_islands.in_float32(given):
                raise angles.refusal(call, name)
            if name in kernels.LINEAR_ALGEBRA and self._is_tensor_call(call) and self._meets_half(call):
                self._product_islands.decompose(call, name)
        for call, name in named:
            if name in logarithms.NAMES and self._is_tensor_call(call):
                self._logarithms.repair(call, name)
        for node in nodes:
            self._node(node)
        self.probabilities.repair(self._losses, origins)

    # -- one node -----------------------------------------------------------------------------------------------------

    def _node(self, node: ast.AST) -> None:
        if isinstance(node, ast.Call):
            self._call(node)
        elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.MatMult):
            if self._float16 and is_gram(self.file, node):
                self._products.repair(node)
            elif distances.is_part(self.file, node):
                self._products.repair_if_alone(node)
        elif isinstance(node, (ast.BinOp, ast.AugAssign)):
            self._arithmetic(node)
        elif isinstance(node, ast.Assign) and any(isinstance(t, ast.Subscript) for t in node.targets):
            self._written(node)
        elif isinstance(node, ast.Assign) and any(
            isinstance(t, ast.Attribute) and t.attr == "data" for t in node.targets
        ):
            self._kept(node)

    def _kept(self, assign: ast.Assign) -> None:
        """`u.data = mv(w, v)` keeps what it computes, as spectral normalization by hand does, for forwards in float32
        too. What is computed of the tensor itself has its dtype."""
        itself = {ast.dump(t.value) for t in assign.targets if isinstance(t, ast.Attribute)}
        read = [n for n in ast.walk(assign.value) if isinstance(n, ast.Attribute) and n.attr == "data"]
        is_own = bool(read) and all(ast.dump(node.value) in itself for node in read)
        if not is_own and self.half.is_computed(assign.value, anywhere=True, sampled=False):
            self._casts.float(assign.value)

    def _written(self, assign: ast.Assign) -> None:
        """`buffer[mask] = values` needs both in one dtype, which float32 is: a buffer made by torch has it. A constant
        outside the range of float16 needs a buffer of float32 too."""
        if self._float16 and (is_beyond_float16(self.file, assign.value) or _vanishes(self.file, assign.value)):
            self._fill(assign, [target.value for target in assign.targets if isinstance(target, ast.Subscript)])
        if isinstance(assign.value, (ast.Constant, ast.UnaryOp)):
            return
        for target in assign.targets:
            if not isinstance(target, ast.Subscript):
                continue
            parts = target.slice.elts if isinstance(target.slice, ast.Tuple) else [target.slice]
            if all(self._is_plain_index(part) for part in parts) or self._is_collection(target.value):
                continue
            if self._is_embedded(target.value):
                continue
            if self.half.may_be(target.value):
                self._cast_target(assign, target.value)
            if self.half.is_computed(assign.value, anywhere=True, sampled=False):
                self._casts.float(assign.value)

    def _is_embedded(self, node: ast.expr) -> bool:
        """Whether a tensor is looked up in an embedding, so that it holds whole numbers."""
        if not isinstance(node, ast.Name):
            return False
        function = self.file.values.enclosing_function(node)
        for use in self.file.names.loads.get(node.id, ()):
            call = self.file.parent(use)
            if (
                isinstance(call, ast.Call)
                and use in call.args
                and self.file.values.enclosing_function(use) is function
                and {"torch.nn.Embedding"} == set(self.file.values.constructed(call.func))
            ):
                return True
        return False

    def _is_collection(self, node: ast.expr) -> bool:
        """Whether what is written into is a list or dict of Python's, which takes any value."""
        made = self.file.values.of(node)
        return any(isinstance(v, (ast.List, ast.Dict, ast.ListComp, ast.DictComp)) for v in made)

    def _fill(self, place: ast.AST, filled: list[ast.expr]) -> None:
        """Tensors that are filled in place with a constant outside the range of float16 are float32 from the start."""
        for target in filled:
            if self.half.may_be(target) or self.half.is_computed(target, anywhere=True):
                self._cast_target(place, target, is_float=True)

    def _cast_target(self, assign: ast.AST, target: ast.expr, *, is_float: bool = False) -> None:
        """Let the only value of a name that is written into be float32 from the start."""
        bindings = self.file.names.lookup(target) if isinstance(target, ast.Name) else []
        made = [binding.node for binding in bindings]
        statement = self.file.statement(assign)
        if isinstance(target, ast.Name) and is_unpacked(self.file, self.sinks, target, statement):
            self.editor.insert_inside(statement, f"{target.id} = {target.id}.float()")
            return
        if (
            len(made) != 1
            or not isinstance(made[0], ast.Assign)
            or not isinstance(made[0].targets[0], ast.Name)
            or not (is_float or self.half.is_computed(made[0].value))
        ):
            raise RefusalError(
                assign, "values are written into a tensor that may be of half precision; use --dtype bfloat16"
            )
        self._casts.float(made[0].value)

    def _distribution(self, call: ast.Call) -> None:
        """Distributions check and sample their parameters in float32: `Normal(mean.float(), std)`."""
        for argument in [*call.args, *(k.value for k in call.keywords if k.arg != "validate_args")]:
            inner = argument.value if isinstance(argument, ast.Starred) else argument
            if not self.half.is_computed(inner, anywhere=True):
                continue
            if inner is not argument:
                raise RefusalError(argument, "a distribution needs its parameters in float32; give each a name first")
            self._casts.float(argument)

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
        elif (own := function_of(self.file, call)) is not None:
            if not passes_on(own):
                self._widening.apply(call)
        elif name == "gumbel_softmax" and call.args:
            self._distribution(call)  # it samples
        elif is_probability_loss(self.file, call):
            self._losses.append(call)
        elif computed := norms.half_arguments(self.file, self.half, call):
            for value in computed:
                self._casts.float(value)
        elif name == "numpy" and isinstance(call.func, ast.Attribute) and not self.file.resolve(call.func):
            self._logarithms.choices(call.func.value)
        elif name in _MASKS and self._float16:
            masks.repair(self.file, self.editor, call)
        elif name in additions.NAMES and self._is_tensor_call(call) and self._meets_half(call) and self._added(call):
            return
        elif name in _REJECTS_HALF and self._is_tensor_call(call) and self._meets_half(call):
            function = self.file.values.enclosing_function(call)
            inner = function if name in products.NAMES and function in self.functions else None
            if inner is not None and products.repair(self.file, self.sinks, self.editor, call, inner):
                return
            raise RefusalError(call, f"`{name}` does not take half precision on CUDA")
        elif _ADAPTIVE in self.file.values.constructed(call.func):
            raise RefusalError(
                call, "AdaptiveLogSoftmaxWithLoss takes tensors of one dtype, which autocast does not leave"
            )
        elif name == "square" or (name in ("cpu", "to") and self._is_moved_to_cpu(call)):
            self._widen(call)
        elif name in _BOUNDS and self._float16:
            self._bound(call)
        elif name in _FILLS and self._float16 and self._is_tensor_call(call):
            for argument in [*call.args, *(k.value for k in call.keywords)]:
                self._constant(argument, call, f"is given to `{name}`")
        elif name == "lerp" and self._is_tensor_call(call) and self._meets_half(call):
            if not all(self._widening.widen(value) for value in given_to(self.file, call)):
                raise RefusalError(call, f"`{name}` needs all tensors in one dtype; write the interpolation out")
            self._casts.widened.add(call)
        elif name == "lerp_" and self._is_tensor_call(call) and self._meets_half(call):
            raise RefusalError(call, f"`{name}` needs all tensors in one dtype; write the interpolation out")
        elif name in ("scatter", "scatter_") and self._is_tensor_call(call) and self._scatters_a_tensor(call):
            raise RefusalError(call, f"`{name}` needs both tensors in one dtype")
        elif self._float16 and is_gram(self.file, call, name):
            self._products.repair(call)
        elif distances.is_part(self.file, call, name):
            self._products.repair_if_alone(call)
        elif self._float16 and name in ("gram_matrix", "gram") and not self.file.values.functions(call):
            raise RefusalError(call, gram.REASON)

    def _added(self, call: ast.Call) -> bool:
        """Let both tensors of an addition by index be float32; whether that could be done."""
        source = additions.source_of(self.file, call)
        if source is None or number(self.file, source) is not None:
            return False
        if additions.is_float32_buffer(self.file, call):
            if self.half.may_be(source):
                self._casts.float(source)
            return True
        function = self.file.values.enclosing_function(call)
        if function is None or function not in self.functions:
            return False
        return additions.repair(self.file, self.sinks, self.editor, call, function)

    @property
    def _float16(self) -> bool:
        return self.options.dtype != "bfloat16"

    def _name(self, call: ast.Call) -> str:
        names = self.file.resolve(call.func)
        return (names[0] if names else path_of(call.func) or getattr(call.func, "attr", "")).rsplit(".", 1)[-1]

    def _is_moved_to_cpu(self, call: ast.Call) -> bool:
        """Whether a call brings a tensor to the CPU, where nothing of CUDA's autocast applies, to be computed with."""
        reader = self.file.parent(call)
        if isinstance(reader, ast.Attribute) and reader.attr in ("numpy", "item", "tolist"):
            return False
        given = [*call.args, *(k.value for k in call.keywords if k.arg == "device")]
        devices = [d.args[0] if isinstance(d, ast.Call) and d.args else d for d in given]
        is_cpu = any(isinstance(d, ast.Constant) and d.value == "cpu" for d in devices)
        return (not call.args and not call.keywords) if self._name(call) == "cpu" else is_cpu

    def _widen(self, call: ast.Call) -> None:
        """`torch.square(x)` becomes `torch.square(x.float())`, and `x.cpu()` becomes `x.float().cpu()`."""
        is_method = not self.file.resolve(call.func) and isinstance(call.func, ast.Attribute)
        value = call.func.value if is_method else call.args[0] if call.args else None  # type: ignore[attr-defined]
        detached = isinstance(value, ast.Attribute) or (
            isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute) and value.func.attr == "detach"
        )
        if value is not None and not detached and self.half.is_computed(value, sampled=False):
            self._casts.float(value)

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

    def _meets_half(self, call: ast.Call) -> bool:
        """Whether a tensor that a call is given, or that it is called on, may be of half precision."""
        given = [*call.args, *(keyword.value for keyword in call.keywords)]
        if isinstance(call.func, ast.Attribute) and not self.file.resolve(call.func):
            given.append(call.func.value)
        return any(self.half.may_be(value) for value in given)

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

    def _bound(self, call: ast.Call) -> None:
        """`x.clamp(min=1e-12)` becomes `x.float().clamp(min=1e-12)`."""
        is_method = not self.file.resolve(call.func) and isinstance(call.func, ast.Attribute)
        bounds = [*(call.args if is_method else call.args[1:]), *(k.value for k in call.keywords)]
        if not any(is_beyond_float16(self.file, bound) or _vanishes(self.file, bound) for bound in bounds):
            return
        value = call.func.value if is_method else call.args[0] if call.args else None  # type: ignore[attr-defined]
        if value is None:
            raise RefusalError(
                call, "a constant outside the range of float16 is given to `clamp`; use --dtype bfloat16"
            )
        if self.half.may_be(value) or self.half.is_computed(value, anywhere=True):
            self._casts.float(value)

    def _arithmetic(self, node: ast.BinOp | ast.AugAssign) -> None:
        """`x + 1e-10` becomes `x.float() + 1e-10`, and what is changed in place by such a number is float32 before."""
        if not self._float16 or not isinstance(node.op, (ast.Add, ast.Sub, ast.Mult)):
            return
        operands = [node.left, node.right] if isinstance(node, ast.BinOp) else [node.target, node.value]
        for operand, other in (operands, operands[::-1]):
            if isinstance(other, ast.Constant) or not self.half.may_be(other):
                continue
            is_weight = isinstance(node.op, ast.Mult) and _is_loss_term(other)
            is_beyond = is_beyond_float16(self.file, operand) or (
                isinstance(node, ast.AugAssign) and self._is_beyond(operand)
            )
            if not is_beyond and (not _vanishes(self.file, operand) or is_weight):
                continue
            if not is_beyond and isinstance(node.op, ast.Mult) and path_of(operand):
                continue  # a weight that becomes too small for half precision adds nothing to the sum
            if is_weight and not self.half.is_computed(other):
                continue
            if isinstance(node, ast.AugAssign) and other is node.target:
                done = self._widening.widen_target(node.target, node)
            else:
                done = self._widening.widen(other)
            if not done:
                raise RefusalError(
                    node, (_BEYOND if is_beyond else _VANISHES).format("stands in arithmetic with tensors")
                )

    def _is_beyond(self, node: ast.expr, depth: int = 0) -> bool:
        """Whether a value is made with a number beyond float16, as a mask is."""
        if isinstance(node, ast.Name) and depth < 2:
            return any(
                isinstance(v, (ast.BinOp, ast.Call)) and self._is_beyond(v, depth + 1) for v in self._values(node)
            )
        return any(isinstance(n, ast.expr) and is_beyond_float16(self.file, n) for n in ast.walk(node))

    def _values(self, name: ast.Name) -> list[ast.expr]:
        return [value for value in self.file.values.of(name) if isinstance(value, ast.expr)]

    def _constant(self, value: ast.expr, place: ast.AST, what: str) -> None:
        if not self._float16:
            return
        if is_beyond_float16(self.file, value):
            raise RefusalError(place, _BEYOND.format(what))
        if _vanishes(self.file, value):
            raise RefusalError(place, _VANISHES.format(what))


def _is_loss_term(node: ast.expr) -> bool:
    """Whether a value goes by the name of a loss or of another term of one."""
    named = node.func if isinstance(node, ast.Call) else node
    return bool(_TERM.search(path_of(named).rsplit(".", 1)[-1]))


def _is_count(value: ast.expr | None) -> bool:
    return isinstance(value, ast.Constant) and isinstance(value.value, int)


def _vanishes(file: SourceFile, node: ast.expr) -> bool:
    """Whether float16 rounds a number to zero that is none."""
    value = number(file, node)
    return value is not None and 0 < abs(value) < _SMALLEST
