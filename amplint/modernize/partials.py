"""`functools.partial` for a replacement that must take the arguments of the old name."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from amplint.model import Edit, Span
from amplint.modernize.refusal import RefusalError
from amplint.modernize.visible import bindings_at, is_bound, line_break_at, visible_name
from amplint.rewrite.statements import line_start

if TYPE_CHECKING:
    from amplint.source import SourceFile


def partial_function(file: SourceFile, at: ast.expr) -> tuple[str, list[Edit]]:
    """How `functools.partial` is written at a place, and the edit that imports it if that is needed."""
    module = visible_name(file, "functools", at)
    if module is not None:
        return f"{module}.partial", []
    function = visible_name(file, "functools.partial", at)
    if function is not None:
        return function, []
    for binding in bindings_at(file, "functools", at):
        if binding.target != "functools" or file.parent(binding.node) is not file.tree:
            raise RefusalError("`functools` is something else there")
    return "functools.partial", [_import_functools(file)]


def partial_at_top(file: SourceFile, after: ast.stmt) -> tuple[str, list[Edit]]:
    """How `functools.partial` is written at the top level behind a statement, and the edit that imports it."""
    for statement in file.tree.body[: file.tree.body.index(after) + 1]:
        for alias in statement.names if isinstance(statement, ast.Import) else ():
            if alias.name == "functools":
                return f"{alias.asname or alias.name}.partial", []
        for alias in statement.names if isinstance(statement, ast.ImportFrom) else ():
            if alias.name == "partial" and isinstance(statement, ast.ImportFrom) and statement.module == "functools":
                return alias.asname or alias.name, []
    if is_bound(file, "functools"):
        raise RefusalError("`functools` is something else in this file")
    return "functools.partial", [_import_functools(file)]


def _import_functools(file: SourceFile) -> Edit:
    """Add `import functools` where import sorters want it: among the plain imports of the standard library."""
    import sys

    first: ast.Import | ast.ImportFrom | None = None
    after: ast.Import | ast.ImportFrom | None = None
    for statement in file.tree.body:
        if isinstance(statement, ast.ImportFrom) and statement.module == "__future__":
            continue
        if isinstance(statement, (ast.Import, ast.ImportFrom)):
            first = first or statement
            standard = isinstance(statement, ast.Import) and all(
                alias.name.partition(".")[0] in sys.stdlib_module_names for alias in statement.names
            )
            if standard and statement.names[0].name < "functools":
                after = statement
            continue
        if first is not None:
            break
    if first is None:
        raise RefusalError("there is no import at the top of the file")
    newline = line_break_at(file, first)
    if after is not None:
        place = file.line_span(after.end_lineno or after.lineno).end
        return Edit(Span(place, place), f"import functools{newline}")
    place = line_start(file.encoded, file.span(first).start)
    root = first.names[0].name if isinstance(first, ast.Import) else first.module or ""
    alike = root.partition(".")[0] in sys.stdlib_module_names
    return Edit(Span(place, place), f"import functools{newline}" + ("" if alike else newline))
