"""AMP404: a dtype can be chosen, and autocast never hears of it."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from amplint.facts.contexts import OFF, Autocast
from amplint.facts.values import default_of, path_of
from amplint.model import Finding, Label, Level
from amplint.rule import rule
from amplint.source import SourceFile

_OPTION = re.compile(r"^(?:(?:amp_|autocast_|mixed_precision_|torch_|train_)?dtype|(?:amp_|mixed_)?precision)$")
_BFLOAT16 = re.compile(r"bfloat16|bf16")
_SILENT_CALLS = frozenset(("print", "info", "debug", "warning", "log"))


@rule("AMP404", "dtype-option-ignored", level=Level.INFO, triggers=("autocast",))
def dtype_option_ignored(file: SourceFile) -> Iterator[Finding]:
    """
    The program has an option for the dtype, but autocast is entered without one and runs in the default of its device:
    float16 on CUDA, whatever was asked for. A choice of bfloat16 then trains in the narrow range of float16.

    ```python bad
    import argparse

    import torch

    parser = argparse.ArgumentParser()
    parser.add_argument("--dtype", default="bfloat16", choices=["bfloat16", "float16"])
    args = parser.parse_args()
    context = torch.autocast("cuda")
    ```

    ```python good
    import argparse

    import torch

    parser = argparse.ArgumentParser()
    parser.add_argument("--dtype", default="bfloat16", choices=["bfloat16", "float16"])
    args = parser.parse_args()
    context = torch.autocast("cuda", dtype=getattr(torch, args.dtype))
    ```

    Options of argparse and parameters of functions are found. Silent where the option is used for anything but the
    scaler and messages, or where some autocast of the file is given a dtype.
    """
    autocasts = [entry for region in file.regions.all for entry in region.autocasts]
    autocasts += [entry for entry in _unentered(file) if entry not in autocasts]
    active = [entry for entry in autocasts if entry.enabled != OFF]
    if not active or any(entry.dtype is not None or not entry.valid for entry in active):
        return
    if not any(entry.devices != {"cpu"} for entry in active):
        return
    for place, uses in (*_arguments(file), *_parameters(file)):
        if all(_is_harmless(file, use) for use in uses):
            target = _nearest(file, place, active)
            if target is not None:
                yield _finding(file, place, target)
                return


def _unentered(file: SourceFile) -> list[Autocast]:
    """The calls of autocast that no region of the file is seen to enter."""
    found = []
    for ref in file.refs:
        if ref.call is not None:
            found += [*file.regions.reader.read(ref.call).autocasts]
    return found


def _arguments(file: SourceFile) -> Iterator[tuple[ast.AST, list[ast.expr]]]:
    """The options of argparse that choose between dtypes, with the reads of `args.<option>`."""
    for use in file.names.attributes.get("add_argument", ()):
        call = file.parent(use)
        if not isinstance(call, ast.Call) or call.func is not use or not call.args:
            continue
        first = call.args[-1]
        name = first.value.lstrip("-").replace("-", "_") if _is_text(first) else ""  # type: ignore[attr-defined]
        choices = " ".join(ast.unparse(k.value) for k in call.keywords if k.arg in ("default", "choices"))
        if _OPTION.match(name) and _BFLOAT16.search(choices):
            reads = [a for a in file.names.attributes.get(name, ()) if isinstance(a.ctx, ast.Load)]
            if "vars" not in file.names.loads and f'"{name}"' not in file.text.replace(f'"--{name}"', ""):
                yield call, list(reads)


def _is_text(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str)


def _parameters(file: SourceFile) -> Iterator[tuple[ast.AST, list[ast.expr]]]:
    """The parameters whose default is bfloat16 of functions with a region, with their reads."""
    functions = {region.function for region in file.regions.all if region.function is not None}
    for function in functions:
        arguments = function.args
        for arg in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs):
            default = default_of(arguments, arg)
            if default is None or not _OPTION.match(arg.arg) or not _BFLOAT16.search(ast.unparse(default)):
                continue
            reads = [n for n in ast.walk(function) if isinstance(n, ast.Name) and n.id == arg.arg]
            yield arg, list(reads)


def _is_harmless(file: SourceFile, use: ast.expr) -> bool:
    """Whether a read of the option only decides on the scaler or goes into a message."""
    current: ast.AST | None = use
    while current is not None and not isinstance(current, ast.stmt):
        if isinstance(current, ast.Call):
            names = file.resolve(current.func)
            if any(name.endswith("GradScaler") for name in names):
                return True
            return path_of(current.func).rsplit(".", 1)[-1] in _SILENT_CALLS
        current = file.parent(current)
    return False


def _nearest(file: SourceFile, place: ast.AST, autocasts: list[Autocast]) -> Autocast | None:
    """The autocast that the option should reach: the first in the same function, or the first of the file."""
    function = file.values.enclosing_function(place)
    if isinstance(place, ast.arg):
        arguments = file.parent(place)
        owner = file.parent(arguments) if arguments is not None else None
        function = owner if isinstance(owner, (ast.FunctionDef, ast.AsyncFunctionDef)) else None
    ordered = sorted(autocasts, key=lambda entry: (entry.call.lineno, entry.call.col_offset))
    same = [entry for entry in ordered if file.values.enclosing_function(entry.call) is function]
    return (same or ordered)[0] if ordered else None


def _finding(file: SourceFile, place: ast.AST, autocast: Autocast) -> Finding:
    return Finding(
        "AMP404",
        file.span(autocast.call),
        "the dtype option never reaches autocast, which runs in the default of the device: float16 on CUDA",
        (Label(file.span(place), "the option is defined here"),),
        help="pass dtype= to autocast",
    )
