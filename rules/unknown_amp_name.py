"""AMP005: names that torch.amp and its relatives never had."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from amplint.calls.near_names import Meant, meant_by
from amplint.model import Applicability, Edit, Finding, Fix, Label, Level, Span
from amplint.rule import AMP_NAME_TRIGGERS, rule
from amplint.source import Ref, SourceFile

_MISSING = ("ImportError", "ModuleNotFoundError", "AttributeError")
_ANYTHING = ("Exception", "BaseException")


@rule(
    "AMP005",
    "unknown-amp-name",
    level=Level.ERROR,
    fix=Applicability.SAFE,
    triggers=(*AMP_NAME_TRIGGERS, "Autocast", "utoCast", "auto_cast", "GradScal", "Gradscal"),
)
def unknown_amp_name(file: SourceFile) -> Iterator[Finding]:
    """
    A name that no torch ever had, but for a letter or its place: the import raises ImportError, or the attribute raises
    AttributeError when the line runs.

    ```python bad
    import torch
    from torch.amp import GradScalar

    scaler = GradScalar("cuda")

    with torch.amp.auto_cast("cuda"):
        pass
    ```

    ```python good
    import torch
    from torch.amp import GradScaler

    scaler = GradScaler("cuda")

    with torch.amp.autocast("cuda"):
        pass
    ```

    Names are left alone where the code expects that they may be missing: in a `try` that catches ImportError or
    AttributeError, and beside `hasattr(module, "name")`.
    """
    for ref in file.refs:
        if isinstance(ref.node, ast.alias):
            yield from _in_import(file, ref, ref.node)
        else:
            yield from _in_chain(file, ref)


def _in_import(file: SourceFile, ref: Ref, alias: ast.alias) -> Iterator[Finding]:
    statement = ref.statement
    if not isinstance(statement, ast.ImportFrom) or statement.level or alias.name == "*":
        return
    meant = meant_by(statement.module or "", alias.name)
    if meant is None or _is_expected_to_be_missing(file, alias, alias.name):
        return
    uses = [] if alias.asname else _uses(file, statement, alias.name)
    fix = _import_fix(file, statement, alias, meant, uses)
    yield Finding(
        "AMP005",
        file.span(alias),
        _message(statement.module or "", alias.name, meant, "the import raises ImportError"),
        tuple(Label(file.span(use.chain[0]), f"`{alias.name}` is used here") for use in uses),
        fix,
        help="" if fix else f"import `{meant.name}` from `{meant.module}`",
    )


def _import_fix(
    file: SourceFile, statement: ast.ImportFrom, alias: ast.alias, meant: Meant, uses: list[Ref]
) -> Fix | None:
    title = f"Use `{meant.qualified}`"
    if meant.module != statement.module:
        if len(statement.names) > 1 or statement.module is None:
            return None
        start = file.encoded.index(statement.module.encode(), file.span(statement).start)
        edit = Edit(Span(start, start + len(statement.module.encode())), meant.module)
        return Fix(title, (edit,), Applicability.SAFE) if meant.name == alias.name else None
    start = file.span(alias).start
    edits = [Edit(Span(start, start + len(alias.name.encode())), meant.name)]
    if alias.asname is None:
        if any(meant.name in scope.bindings for scope in file.names.scopes.values()):
            return None
        quoted = [constant for constant in file.names.strings if constant.value == alias.name]
        if not all(_is_annotation(file, constant) for constant in quoted) or not all(use.fixable for use in uses):
            return None
        edits += [Edit(file.span(use.chain[0]), meant.name) for use in uses]
        edits += [Edit(Span(file.span(c).start + 1, file.span(c).end - 1), meant.name) for c in quoted]
    return Fix(title, tuple(edits), Applicability.SAFE)


def _is_annotation(file: SourceFile, constant: ast.Constant) -> bool:
    """Whether a string is a quoted annotation, written as one plain literal."""
    parent = file.parent(constant)
    annotation = parent.returns if isinstance(parent, ast.FunctionDef) else getattr(parent, "annotation", None)
    return annotation is constant and len(file.segment(constant)) == len(str(constant.value)) + 2


def _uses(file: SourceFile, statement: ast.ImportFrom, name: str) -> list[Ref]:
    """The references that start with a name which a statement imports."""
    found = []
    for ref in file.refs:
        root = ref.chain[0] if ref.chain else None
        if not isinstance(root, ast.Name) or root.id != name:
            continue
        if any(binding.node is statement for binding in file.names.lookup(root)):
            found.append(ref)
    return found


def _in_chain(file: SourceFile, ref: Ref) -> Iterator[Finding]:
    for index in range(1, len(ref.chain)):
        link = ref.chain[index]
        assert isinstance(link, ast.Attribute), "only the first link of a chain is a name"
        found = [meant_by(module, link.attr) for module in ref.names[index - 1]]
        meant = found[0] if found else None
        if meant is None or any(other is None for other in found):
            continue
        if isinstance(link.ctx, ast.Load) and not _is_expected_to_be_missing(file, link, link.attr):
            fix = _chain_fix(file, ref, index, meant) if len(found) == 1 else None
            yield Finding(
                "AMP005",
                file.span(link),
                _message(ref.names[index - 1][0], link.attr, meant, "this raises AttributeError"),
                fix=fix,
                help="" if fix else f"use `{meant.qualified}`",
            )
        return


def _chain_fix(file: SourceFile, ref: Ref, index: int, meant: Meant) -> Fix | None:
    if not ref.fixable:
        return None
    for holder in range(index - 1, -1, -1):
        module = ref.names[holder][0]
        if meant.qualified.startswith(f"{module}."):
            gone = Span(file.span(ref.chain[holder]).end, file.span(ref.chain[index]).end)
            if _needs_device(file, ref, meant):
                return None
            edit = Edit(gone, meant.qualified.removeprefix(module))
            return Fix(f"Use `{meant.qualified}`", (edit,), Applicability.SAFE)
    return None


def _needs_device(file: SourceFile, ref: Ref, meant: Meant) -> bool:
    """Whether the name that was meant stands in another module, where it takes a device too."""
    return meant.module == "torch.amp" and not ref.candidates[0].startswith("torch.amp.")


def _message(module: str, name: str, meant: Meant, harm: str) -> str:
    what = f"`{meant.name}`" if meant.module == module else f"`{meant.qualified}`"
    return f"`{module}` never had a name `{name}`, it is {what}: {harm}"


def _is_expected_to_be_missing(file: SourceFile, node: ast.AST, name: str) -> bool:
    """Whether the code around a name is ready for it to be missing, or puts it there."""
    if any(constant.value == name for constant in file.names.strings if _is_asked_for(file, constant)):
        return True
    if any(not isinstance(use.ctx, ast.Load) for use in file.names.attributes.get(name, ())):
        return True
    child, parent = node, file.parent(node)
    while parent is not None:
        if isinstance(parent, ast.Try) and child not in parent.orelse and child not in parent.finalbody:
            caught = {name for handler in parent.handlers for name in _caught(handler)}
            if caught & set(_MISSING) or (len(parent.body) <= 2 and caught & {"", *_ANYTHING}):
                return True
        child, parent = parent, file.parent(parent)
    return False


def _is_asked_for(file: SourceFile, constant: ast.Constant) -> bool:
    call = file.parent(constant)
    return isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id in ("hasattr", "setattr")


def _caught(handler: ast.ExceptHandler) -> list[str]:
    """The names of the exceptions that a handler catches, "" for one that catches all."""
    if handler.type is None:
        return [""]
    types = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
    return [ast.unparse(caught).rpartition(".")[2] for caught in types]
