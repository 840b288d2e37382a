"""Which values may be of half precision once the regions are there: what was computed under them, flow by flow."""

from __future__ import annotations

import ast
from collections.abc import Set as AbstractSet
from typing import TYPE_CHECKING, NamedTuple

from amplint.facts.training import losses
from amplint.facts.values import Function, path_of, returns
from amplint.migrate.facts import Facts
from amplint.migrate.numerics import lambdas
from amplint.migrate.numerics.expressions import children, keywords, root
from amplint.migrate.regions.runs import Run
from amplint.migrate.regions.sinks import Sinks
from amplint.migrate.tree import FUNCTIONS, owner_of, passed

if TYPE_CHECKING:
    from amplint.names import Scope
    from amplint.source import SourceFile

_DEPTH = 6
_FLOAT32 = frozenset(
    ("exp", "expm1", "pow", "sum", "prod", "norm", "softmax", "log_softmax", "softplus", "logsumexp", "cumsum",
     "cumprod", "log", "log2", "log10", "log1p", "float", "rsqrt", "dist", "cdist", "cosine_similarity", "layer_norm")
)  # fmt: skip
"""What CUDA autocast computes in float32 (torch 2.13)."""
_FLOAT32_MODULES = frozenset(f"torch.nn.{name}" for name in ("Softmax", "LogSoftmax", "Softplus", "LayerNorm"))
_SAME_DTYPE = frozenset(
    ("view", "reshape", "squeeze", "unsqueeze", "mean", "sqrt", "abs", "detach", "gather", "max", "min", "clamp", "t",
     "transpose", "permute", "expand", "expand_as", "view_as", "flatten", "contiguous", "cpu", "cuda", "clone", "std",
     "var", "amax", "amin", "mul", "neg", "clamp_min", "data")
)  # fmt: skip
_OTHER_NUMBERS = frozenset(
    ("item", "tolist", "argmax", "argmin", "argsort", "size", "dim", "numel", "long", "int", "bool", "eq", "ne", "gt",
     "lt", "ge", "le", "new_tensor", "nonzero", "multinomial", "shape", "dtype", "device", "ndim", "grad", "numpy",
     "indices", "bincount", "histc", "searchsorted", "bucketize", "one_hot", "logical_and", "logical_not", "byte")
)  # fmt: skip
_PRODUCTS = frozenset(
    ("matmul", "mm", "bmm", "mv", "dot", "einsum", "linear", "addmm", "addbmm", "baddbmm", "addmv", "addr",
     "chain_matmul", "conv1d", "conv2d", "conv3d", "conv_transpose1d", "conv_transpose2d", "conv_transpose3d", "prelu",
     "bilinear", "scaled_dot_product_attention", "multi_dot", "vecdot")
)  # fmt: skip
_OF_ITSELF = frozenset(
    ("to", "type", "cuda", "cpu", "view", "reshape", "expand", "expand_as", "view_as", "repeat", "unsqueeze", "squeeze",
     "detach", "clone", "contiguous", "transpose", "permute", "t", "flatten", "mean", "size", "chunk", "split",
     "gather", "index_select", "masked_select", "narrow", "select", "take")
)  # fmt: skip
"""The methods whose arguments are sizes, positions, masks or devices."""
_MOVES = frozenset(("to", "cuda", "cpu", "train", "eval"))
_OF_TENSORS = frozenset(
    ("new_zeros", "new_ones", "new_full", "new_empty", "new_tensor", "new", "fill_", "zero_", "to", "cuda", "float",
     "clone", "type_as", "type")
)  # fmt: skip
_WITH_INDICES = frozenset(("max", "min", "sort", "topk", "median", "mode", "kthvalue", "cummax", "cummin"))
_SAMPLES = frozenset(("sample", "sample_n", "mode", "unique", "bernoulli"))
_PLAIN_FUNCTIONS = frozenset(("len", "int", "float", "str", "bool", "range", "isinstance", "round", "type"))
_DISTRIBUTIONS = frozenset(
    f"torch.distributions.{name}"
    for name in (
        "Bernoulli", "Beta", "Binomial", "Categorical", "Cauchy", "ContinuousBernoulli", "Dirichlet", "Exponential",
        "Gamma", "Geometric", "Gumbel", "HalfNormal", "Laplace", "LogNormal", "LowRankMultivariateNormal",
        "Multinomial", "MultivariateNormal", "Normal", "OneHotCategorical", "OneHotCategoricalStraightThrough",
        "Poisson", "RelaxedBernoulli", "RelaxedOneHotCategorical", "StudentT", "Uniform",
    )
)  # fmt: skip


class _Way(NamedTuple):
    """What one question has asked already, and what it is on: values that surely are tensors of a region, the CPU's
    lists of operations besides CUDA's, values behind `.float()` too; or whether what may be indices is left out."""

    seen: set[tuple[str, ast.stmt]]
    surely: bool = False
    anywhere: bool = False
    rounded: bool = False
    indices: bool = False


class HalfValues:
    """Tells what the statements of the regions, and the functions that they call, may hold in half precision."""

    def __init__(
        self,
        facts: Facts,
        sinks: Sinks,
        runs: list[Run],
        reached: list[Function],
        widened: AbstractSet[ast.expr] = frozenset(),
    ) -> None:
        self.facts = facts
        self._widened = widened
        self.file: SourceFile = facts.file
        self.sinks = sinks
        self.reached = frozenset(reached)
        nodes = [node for run in runs for node in run.nodes()]
        self._inside = {id(node) for node in nodes}
        nodes += [node for function in reached for node in ast.walk(function)]
        self._inside |= {id(n) for value in lambdas.reached(self.file, nodes) for n in ast.walk(value.body)}
        self._is_whole = bool(runs)  # not of a file that only others run

    def may_be(self, node: ast.expr) -> bool:
        """Whether an expression may be a tensor of half precision where it stands; a parameter of a method of a module
        may be one."""
        return self._may_be(node, self.file.statement(node), _Way(set()))

    def may_be_rounded(self, node: ast.expr) -> bool:
        """Whether an expression is computed from what may be of half precision, itself in float32 or not."""
        return self._may_be(node, self.file.statement(node), _Way(set(), anywhere=True, rounded=True))

    def is_computed(self, node: ast.expr, anywhere: bool = False, sampled: bool = True) -> bool:
        """Whether an expression is a tensor that a region may have computed in half precision: on CUDA, or `anywhere`,
        for the CPU runs softmax and `exp` in half precision too. Samples and results of `max` and the like, which may
        be indices, count on request."""
        way = _Way(set(), surely=True, anywhere=anywhere, indices=not sampled)
        return self._may_be(node, self.file.statement(node), way)

    def _may_be(self, node: ast.expr, at: ast.stmt, way: _Way) -> bool:
        if isinstance(node, (ast.Constant, ast.Compare, ast.JoinedStr, ast.Lambda)):
            return False
        if not way.rounded and (node in self._widened or (isinstance(node, ast.Call) and losses(self.file, node))):
            return False
        if self.is_of_parameter(node) or (not way.anywhere and self.is_float32(node)):
            return False
        if isinstance(node, (ast.Name, ast.Attribute)) and (path := path_of(node)):
            if (scope := lambdas.scope_of(self.file, root(node))) is not None:
                return path.rsplit(".", 1)[-1] not in _OTHER_NUMBERS and self._parameter_may_be(scope, node, at, way)
            return path.rsplit(".", 1)[-1] not in _OTHER_NUMBERS and self._path_may_be(path, at, way)
        if isinstance(node, ast.Call):
            return self._call_may_be(node, at, way)
        if isinstance(node, ast.Attribute):
            return node.attr not in _OTHER_NUMBERS and self._may_be(_chosen(node), at, way)
        if isinstance(node, ast.Subscript):
            return self._may_be(_chosen(node), at, way)
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.MatMult) and self._is_inside(node, at):
            return True
        if isinstance(node, ast.IfExp):
            return self._may_be(node.body, at, way) or self._may_be(node.orelse, at, way)
        return any(self._may_be(child, at, way) for child in children(node))

    def _parameter_may_be(self, scope: Scope, node: ast.expr, at: ast.stmt, way: _Way) -> bool:
        """Whether a name of a lambda or comprehension may be of half precision."""
        name = root(node).id
        if (key := (f"{name} {id(scope)}", at)) in way.seen:
            return False
        way.seen.add(key)
        given = lambdas.sources(self.file, scope, name)
        if given is None:
            return not way.surely  # something out of sight calls it
        return any(self._may_be(value, self.file.statement(value), way) for value in given)

    def _call_may_be(self, call: ast.Call, at: ast.stmt, way: _Way) -> bool:
        names = self.file.resolve(call.func)
        attribute = call.func.attr if isinstance(call.func, ast.Attribute) and not names else ""
        functions = self.file.values.functions(call)
        if not functions and (attribute in _OTHER_NUMBERS or path_of(call.func) in _PLAIN_FUNCTIONS):
            return False
        if attribute in ("float", "double") and not way.rounded:
            return False
        last = names[0].rsplit(".", 1)[-1] if names else attribute
        if not functions and (last in _OTHER_NUMBERS or self._is_cast(call)):
            return False
        if (
            way.indices
            and not functions
            and (last in _SAMPLES or (last in _WITH_INDICES and (call.args[bool(names) :] or call.keywords)))
        ):
            return False
        if self.is_distribution(call):
            return False  # its parameters get `.float()`
        if any(not name.startswith("torch") for name in names) and not functions:
            return way.rounded and any(
                self._may_be(value, at, way) or self._is_model(value) for value in (*call.args, *keywords(call))
            )
        if called := lambdas.of_call(self.file, call):
            return any(self._may_be(value.body, self.file.statement(value), way) for value in called)
        owner = owner_of(self.file, at)
        inside = self._is_inside(call, at)
        if inside and last in _PRODUCTS and not functions and self.facts.module_of(call) is None:
            return True
        given = [*call.args, *keywords(call)] if attribute not in _OF_ITSELF else []
        if functions:
            if not inside and not any(self._may_be(value, at, way) for value in given):
                return False
            results = [value for function in functions for value in returns(function)]
            return any(self._may_be(value, self.file.statement(value), way) for value in results)
        if inside and (self.sinks.graph(owner).is_source(call) or (way.rounded and self._is_foreign(call.func))):
            return True
        if attribute and self.facts.module_of(call) is None:
            given.append(call.func.value)  # type: ignore[attr-defined]
        return any(self._may_be(value, at, way) for value in given)

    def _is_inside(self, node: ast.expr, at: ast.stmt) -> bool:
        """Whether an expression is computed under a region."""
        return owner_of(self.file, at) in self.reached or id(node) in self._inside

    def _is_model(self, node: ast.expr) -> bool:
        return isinstance(node, (ast.Name, ast.Attribute)) and self.facts.is_module(node)

    def _is_foreign(self, func: ast.expr) -> bool:
        """Whether what is called is an object of a class that another file defines."""
        for value in self.file.values.of(func):
            made: ast.AST | None = value
            while isinstance(made, ast.Call) and isinstance(made.func, ast.Attribute) and made.func.attr in _MOVES:
                made = made.func.value
            names = self.file.resolve(made.func) if isinstance(made, ast.Call) else ()
            if any(not name.startswith("torch") and name.rsplit(".", 1)[-1][:1].isupper() for name in names):
                return True
        return False

    def _path_may_be(self, path: str, at: ast.stmt, way: _Way) -> bool:
        if (path, at) in way.seen:
            return False
        way.seen.add((path, at))
        owner = owner_of(self.file, at)
        graph = self.sinks.graph(owner)
        reaching = graph.reaching(path, at)
        if not way.rounded:  # a write by index leaves the dtype
            whole = [r for r in reaching if not _writes_by_index(r[0], path)]
            reaching = whole if whole and all(self._makes_tensor(value) for _, value in whole) else reaching
        parts = path.split(".")
        if len(parts) == 2 and parts[0] != "self" and self._kept_may_be(parts[1], way):
            return True
        if reaching:
            return any(self._given_may_be(path, statement, value, way) for statement, value in reaching)
        first = path.split(".", 1)[0]
        if first == "self" and "." in path:
            return self._attribute_may_be(path, at, way)
        if isinstance(owner, FUNCTIONS) and any(a and a.arg == first for a in (owner.args.vararg, owner.args.kwarg)):
            return self._unpacked_may_be(owner, way)
        if not isinstance(owner, FUNCTIONS) or not self.sinks.is_parameter(owner, first):
            return path in graph.tainted
        calls = self.file.values.calls(owner) or self.file.values.calls_of(owner)  # an `__init__` by its class
        if not way.surely and (given := self._given_to_method(owner, first)):
            return any(self._may_be(value, self.file.statement(value), way) for value in given)
        outside = not self._is_whole and any(owner_of(self.file, call) not in self.reached for call in calls)
        unseen = owner in self.facts.module_inits or (owner in self.reached and (outside or not calls))
        if unseen and owner.name != "__init__" and not way.surely:
            return True  # another file calls it
        return any(
            self._may_be(value, self.file.statement(call), way)
            for call in calls
            for value in passed(self.file, call, owner, first)
        )

    def _unpacked_may_be(self, owner: Function, way: _Way) -> bool:
        """Whether what comes by way of `*args` or `**kwargs` may be of half precision: anything that a call passes."""
        calls = self.file.values.calls(owner)
        if not calls:
            return not way.surely
        given = [(call, value) for call in calls for value in (*call.args, *keywords(call))]
        return any(self._may_be(value, self.file.statement(call), way) for call, value in given)

    def _given_may_be(self, path: str, statement: ast.stmt, value: ast.expr, way: _Way) -> bool:
        """Whether what a statement gives a path may be half: where it unpacks, that part of the value."""
        target = statement.targets[0] if isinstance(statement, ast.Assign) else None
        paths = [path_of(element) for element in target.elts] if isinstance(target, ast.Tuple) else []
        if path in paths and isinstance(value, ast.Call):
            if parts := self.parts(value, paths.index(path)):
                return any(self._may_be(part, self.file.statement(part), way) for part in parts)
            value = _values_of(value) if paths.index(path) == 0 else value
        return self._may_be(value, statement, way)

    def parts(self, call: ast.Call, place: int) -> list[ast.expr]:
        """What a function or model of the file that is called may return at a place of a tuple, `[]` where it does not
        always return tuples."""
        results = [result for function in self.file.values.functions(call) for result in returns(function)]
        found = [r.elts[place] for r in results if isinstance(r, ast.Tuple) and -len(r.elts) <= place < len(r.elts)]
        return found if len(found) == len(results) else []

    def _given_to_method(self, owner: Function, parameter: str) -> list[ast.expr]:
        """What the calls of the file pass for a parameter of a method of a module, `[]` where some are out of view.

        Containers pass the first parameter of a `forward`; others, such as targets, are all written out.
        """
        is_forward = owner.name == "forward"
        names = [arg.arg for arg in owner.args.args]
        is_open = owner not in self.facts.module_inits or owner.name.startswith("__") or not self._is_whole
        if is_open or parameter not in names[1 + is_forward :]:
            return []
        found = []
        for call in self.file.names.calls:
            own = self.file.values.functions(call)
            is_named = isinstance(call.func, ast.Attribute) and call.func.attr == owner.name
            may_run = owner in own or is_named or (is_forward and not own and self.facts.module_of(call) is not None)
            if not may_run:
                continue
            if any(isinstance(a, ast.Starred) for a in call.args) or any(k.arg is None for k in call.keywords):
                return []
            value = self.file.values.argument(call, owner, parameter)
            made = self.file.values.constructed(call.func)
            if value is not None and not (made and all(isinstance(cls, str) and cls != "?" for cls in made)):
                found.append(value)
        return found

    def _makes_tensor(self, value: ast.expr) -> bool:
        """Whether a value surely is a tensor, and no list: `FloatTensor(n).fill_(0)`, `x.new_zeros(n)`."""
        if not isinstance(value, ast.Call):
            return False
        if any(name.startswith("torch.") for name in self.file.resolve(value.func)):
            return True
        last = path_of(value.func).rsplit(".", 1)[-1]
        if isinstance(value.func, ast.Attribute) and value.func.attr in _OF_TENSORS:
            return value.func.attr.startswith("new") or self._makes_tensor(value.func.value)
        return last.endswith("Tensor")

    def _attribute_may_be(self, path: str, at: ast.stmt, way: _Way) -> bool:
        """Whether a method gives `self.x` a value that may be of half precision."""
        cls = self.file.values.enclosing_class(at)
        given = self.file.values.assigned(cls, path.split(".")[1]) if cls is not None else []
        return any(value is not None and self._may_be(value, self.file.statement(value), way) for value in given)

    def _kept_may_be(self, attribute: str, way: _Way) -> bool:
        """Whether a forward of the file keeps such a value as an attribute of its module, which others may read."""
        return any(
            value is not None and self._may_be(value, self.file.statement(value), way)
            for cls in self.facts.module_classes
            if self.file.values.method(cls, attribute) is None
            for value in self.file.values.assigned(cls, attribute)
            if owner_of(self.file, value or cls) in self.reached
        )

    def _is_cast(self, call: ast.Call) -> bool:
        """Whether a method gives another dtype: `x.to(torch.long)`, `x.type(torch.LongTensor)`."""
        if not isinstance(call.func, ast.Attribute) or call.func.attr not in ("to", "type"):
            return False
        given = [*call.args, *(keyword.value for keyword in call.keywords)]
        names = {name for value in given for name in self.file.resolve(value)}
        return any(name.startswith("torch.") and name != "torch.device" for name in names)

    def is_distribution(self, call: ast.Call) -> bool:
        """Whether a call makes a distribution out of tensors, by torch's class or one that the file derives from it."""
        classes = [value for value in self.file.values.of(call.func) if isinstance(value, ast.ClassDef)]
        for cls in classes:
            entries = self.file.values.lineage(cls)
            if self.file.values.method(cls, "__init__") is not None:
                return False
            if any(self._names_distribution(base) for entry in entries for base in entry.bases):
                return True
        named = [value for value in self.file.values.of(call.func) if isinstance(value, (ast.Name, ast.Attribute))]
        return any(self._names_distribution(node) for node in [call.func, *named])

    def _names_distribution(self, node: ast.expr) -> bool:
        for name in self.file.resolve(node):
            parts = name.split(".")
            if name.startswith("torch.distributions.") and ".".join((*parts[:2], parts[-1])) in _DISTRIBUTIONS:
                return True
        return False

    def is_float32(self, node: ast.expr) -> bool:
        """Whether CUDA autocast surely leaves a value in float32, whatever it is computed from."""
        if isinstance(node, ast.Call):
            names = self.file.resolve(node.func)
            last = names[0].rsplit(".", 1)[-1] if names else getattr(node.func, "attr", "")
            if self.file.values.functions(node):
                return False
            if last in _FLOAT32 and (not names or names[0].startswith("torch.")):
                return True
            if losses(self.file, node):
                return True
            made = [value for value in self.file.values.of(node.func) if isinstance(value, ast.Call)]
            if any(set(self.file.resolve(value.func)) & _FLOAT32_MODULES for value in made):
                return True
            if names:
                return bool(node.args) and last in _SAME_DTYPE and self.is_float32(node.args[0])
            return isinstance(node.func, ast.Attribute) and last in _SAME_DTYPE and self.is_float32(node.func.value)
        if isinstance(node, ast.Subscript):
            return self.is_float32(node.value)
        if isinstance(node, ast.UnaryOp):
            return self.is_float32(node.operand)
        if isinstance(node, ast.BinOp):
            if isinstance(node.op, ast.Pow):
                return True
            return not isinstance(node.op, ast.MatMult) and (self.is_float32(node.left) or self.is_float32(node.right))
        return False

    def _given(self, name: ast.Name) -> list[ast.expr]:
        """What the calls of a function, or of the module whose `forward` it is, pass for a parameter."""
        owner = owner_of(self.file, name)
        if not isinstance(owner, FUNCTIONS) or not self.sinks.is_parameter(owner, name.id):
            return []
        return [value for call in self.file.values.calls(owner) for value in passed(self.file, call, owner, name.id)]

    def is_of_parameter(self, node: ast.expr, depth: int = 0) -> bool:
        """Whether a value is computed from parameters and numbers alone, without a product, and so stays float32."""
        if depth > _DEPTH:
            return False
        if isinstance(node, ast.Constant):
            return True
        if isinstance(node, (ast.Name, ast.Attribute)) and path_of(node):
            if self.sinks.graph(owner_of(self.file, node)).is_parameter(node):
                return True
            values = (*self.file.values.of(node), *self._given(node)) if isinstance(node, ast.Name) else ()
            if values and isinstance(node, ast.Name):  # what a round of a loop leaves to the next one, too
                graph, at = self.sinks.graph(owner_of(self.file, node)), self.file.statement(node)
                values += tuple(value for _, value in graph.reaching(node.id, at) if value not in values)
            return bool(values) and all(
                isinstance(value, ast.expr) and value is not node and self.is_of_parameter(value, depth + 1)
                for value in values
            )
        if isinstance(node, ast.Call):
            names = self.file.resolve(node.func)
            if (names or (getattr(node.func, "attr", ""),))[0].rsplit(".", 1)[-1] in _PRODUCTS:
                return False
            if not names:
                return (
                    isinstance(node.func, ast.Attribute)
                    and self.facts.module_of(node) is None
                    and self.is_of_parameter(node.func.value, depth + 1)
                )
            elementwise = all(name.startswith("torch.") and not name.endswith("_like") for name in names)
            return elementwise and bool(node.args) and self.is_of_parameter(node.args[0], depth + 1)
        if isinstance(node, ast.Subscript):
            return self.is_of_parameter(node.value, depth + 1)
        if isinstance(node, ast.UnaryOp):
            return self.is_of_parameter(node.operand, depth + 1)
        if isinstance(node, ast.BinOp) and not isinstance(node.op, ast.MatMult):
            return self.is_of_parameter(node.left, depth + 1) and self.is_of_parameter(node.right, depth + 1)
        return False


def _chosen(node: ast.Attribute | ast.Subscript) -> ast.expr:
    """What an item or attribute is of; of `x.max(1)[0]` and `x.max(1).values` it is `x` itself."""
    value = node.value
    first = isinstance(node, ast.Attribute) or (isinstance(node.slice, ast.Constant) and node.slice.value == 0)
    if not first or not isinstance(value, ast.Call) or not isinstance(value.func, ast.Attribute):
        return value
    return _values_of(value)


def _values_of(call: ast.Call) -> ast.expr:
    """`x` of `x.max(1)` and the like, else the call itself."""
    if not isinstance(call.func, ast.Attribute) or call.func.attr not in _WITH_INDICES:
        return call
    return call.args[0] if path_of(call.func.value) == "torch" and call.args else call.func.value


def _writes_by_index(statement: ast.stmt, path: str) -> bool:
    """Whether a statement gives values to items of `path` alone: `path[i] = value`."""
    targets = statement.targets if isinstance(statement, ast.Assign) else []
    return bool(targets) and all(isinstance(t, ast.Subscript) and path_of(t.value) == path for t in targets)
