"""Operations that take no half precision on CUDA, or know only complex numbers: what stands under the regions, and
what is given to them of what the regions computed."""

from __future__ import annotations

import ast

from amplint.facts.training import targets_of
from amplint.facts.values import Function, path_of
from amplint.migrate.facts import Facts
from amplint.migrate.model import RefusalError
from amplint.migrate.numerics.spread import Spread
from amplint.migrate.regions.runs import Run
from amplint.migrate.tree import walk

LINALG = "linear algebra in half precision is not implemented on CUDA"
"""What is said of it."""
_FOURIER = "Fourier transforms in half precision take only sizes that are powers of two"
_COMPLEX = "complex numbers have no half precision"
_NAMES = {
    "torch.linalg": LINALG,
    "torch.fft": _FOURIER,
    "torch.stft": _COMPLEX,
    "torch.istft": _COMPLEX,
    "torch.view_as_complex": _COMPLEX,
    "torch.polar": _COMPLEX,
    "torch.complex": _COMPLEX,
}
_SAFE = frozenset(
    f"torch.{name}"
    for name in ("linalg.norm", "linalg.vector_norm", "linalg.matrix_norm", "linalg.vecdot", "linalg.multi_dot",
                 "fft.fftfreq", "fft.rfftfreq", "fft.fftshift", "fft.ifftshift")
)  # fmt: skip
"""These have half kernels, or are in autocast's lists (torch 2.13)."""
LINEAR_ALGEBRA = frozenset(
    ("inverse", "det", "logdet", "slogdet", "cholesky", "svd", "qr", "pinverse", "matrix_exp", "cholesky_solve",
     "cholesky_inverse", "triangular_solve", "lu", "inv", "pinv", "solve", "eigh", "eigvalsh", "svdvals", "lstsq",
     "solve_triangular", "matrix_power")
)  # fmt: skip
"""What may stand under a region where all that it is given is computed in float32."""
_REAL = frozenset(
    ("abs", "absolute", "real", "imag", "angle", "view_as_real", "float", "istft", "irfft", "irfft2", "irfftn", "hfft")
)
_FLOAT = frozenset(("float", "double"))


def check(facts: Facts, runs: list[Run], reached: list[Function]) -> None:
    """Raise `RefusalError` where such an operation would meet half precision; elsewhere it may stand, as in the
    preparation of data."""
    file = facts.file
    nodes = {ref.node: _reason(ref.candidates) for ref in file.refs if isinstance(ref.node, ast.expr)}
    found = {node: reason for node, reason in nodes.items() if reason}
    if not found:
        return
    inside = {id(node) for run in runs for node in run.nodes()}
    inside |= {id(node) for function in reached for node in ast.walk(function)}
    repaired: set[ast.expr] = set()
    for node, reason in found.items():
        is_inside = id(node) in inside
        if is_inside and reason is LINALG and path_of(node).rsplit(".", 1)[-1] in LINEAR_ALGEBRA:
            repaired.add(node)
        elif is_inside:
            raise RefusalError(node, reason)
        made = file.parent(node)
        if reason is not LINALG and isinstance(made, ast.Call) and _comes_to_training(facts, made):
            raise RefusalError(node, reason)
    computed = Spread(facts, _FLOAT).of_assigned(_statements(facts, runs, reached))
    half = computed.expressions()
    for node, reason in found.items():
        if node in repaired:
            continue
        call = file.parent(node)
        given = [*call.args, *(k.value for k in call.keywords)] if isinstance(call, ast.Call) else []
        if computed.lost is not None or not given or any(argument in half for argument in given):
            raise RefusalError(node, reason)


def _comes_to_training(facts: Facts, call: ast.Call) -> bool:
    return Spread(facts, _REAL).of([call]).meets_training() is not None


def _statements(facts: Facts, runs: list[Run], reached: list[Function]) -> list[ast.stmt]:
    """The statements of the runs, and those of the functions that they call that keep something in an object; layers
    are no values that a region computes."""
    found = [node for run in runs for s in run.statements for node in walk(s) if isinstance(node, ast.stmt)]
    inner = [node for function in reached for node in walk(function) if isinstance(node, ast.stmt)]
    kept = [s for s in inner if any(isinstance(target, ast.Attribute) for target in targets_of(s))]
    return [*found, *(s for s in kept if not _makes_layer(facts, s))]


def _makes_layer(facts: Facts, statement: ast.stmt) -> bool:
    value = statement.value if isinstance(statement, ast.Assign) else None
    return isinstance(value, ast.Call) and facts.is_module_name(facts.file.resolve(value.func))


def _reason(names: tuple[str, ...]) -> str:
    for name in names:
        for prefix, reason in _NAMES.items():
            if (name == prefix or name.startswith(prefix + ".")) and name not in _SAFE:
                return reason
    return ""
