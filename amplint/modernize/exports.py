"""Names that must outlive a rewrite: exported ones, and those that strings and comments use."""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING

from amplint.modernize.refusal import RefusalError

if TYPE_CHECKING:
    from amplint.modernize.groups import Group
    from amplint.source import SourceFile

_KEPT_FOR_OTHERS = re.compile(r"#.*\bnoqa\b\s*:[^#]*\bF401\b", re.IGNORECASE)
_TYPE_COMMENT = re.compile(r"#\s*type:\s*(?!ignore\b)([^\r\n]*)")
_EVALUATED = ("eval", "exec", "compile")
_TYPE_EXPRESSION = re.compile(r"[\w\s\[\],.|]+")

TYPE_FORMS = frozenset(
    (
        *("Annotated", "Callable", "ClassVar", "ContextManager", "AbstractContextManager", "DefaultDict", "Deque"),
        *("Dict", "Final", "FrozenSet", "Generator", "Generic", "Iterable", "Iterator", "List", "Mapping"),
        *("MutableMapping", "Optional", "Sequence", "Set", "Tuple", "Type", "Union"),
        *("dict", "frozenset", "list", "set", "tuple", "type"),
    )
)
"""What makes a type of the types in its brackets."""


def is_exported(file: SourceFile, name: str) -> bool:
    """Whether `__all__` lists a name."""
    return any(constant.value == name and _is_in_all(file, constant) for constant in file.names.strings)


def has_export_list(file: SourceFile) -> bool:
    """Whether the module says with `__all__` what it exports."""
    return "__all__" in file.names.module.bindings


def is_package(file: SourceFile) -> bool:
    """Whether the file is the `__init__` of a package, from which other files import."""
    return file.filename.replace("\\", "/").rpartition("/")[2] in ("__init__.py", "__init__.pyi")


def is_re_export(file: SourceFile, group: Group) -> bool:
    """Whether other files are meant to import the name of a group from this one."""
    if group.scope is not file.names.module or not group.imports:
        return False
    if is_exported(file, group.name):
        return True
    used = bool(group.uses or group.others)
    if is_package(file) and (not used or not has_export_list(file)):
        return True
    return any(
        (imported.alias.asname == imported.alias.name and _is_outermost(file, imported.statement))
        or (not used and any(_KEPT_FOR_OTHERS.search(line) for line in _lines_of(file, imported.statement)))
        for imported in group.imports
    )


def _is_outermost(file: SourceFile, statement: ast.stmt) -> bool:
    """Whether a statement stands at the top level, or in a block of imports there (`if TYPE_CHECKING:`, `try:`)."""
    parent = file.parent(statement)
    while isinstance(parent, (ast.If, ast.Try)):
        if not all(isinstance(member, (ast.Import, ast.ImportFrom)) for member in parent.body):
            return False
        parent = file.parent(parent)
    return parent is file.tree


def is_needed_as_text(file: SourceFile, group: Group) -> bool:
    """Whether a type comment or a string that is read as a type uses the name of a group.

    Raises `RefusalError` where a string may use it in a way that a rewrite would break.
    """
    word = re.compile(rf"(?<![\w.]){re.escape(group.name)}\b")
    if "type:" in file.text and any(word.search(m.group(1)) for m in _TYPE_COMMENT.finditer(file.text)):
        return True
    handled = {id(use.ref.quoted) for use in group.uses if use.ref.quoted is not None}
    needed = False
    for constant in file.names.strings:
        text = str(constant.value)
        if group.name not in text or id(constant) in handled or not word.search(text):
            continue
        if _is_run_as_doctest(text, word):
            raise RefusalError(f"the doctest in the string of line {constant.lineno} uses `{group.name}`")
        needed = _role_of_string(file, constant, group.name) or needed
    return needed


def _is_run_as_doctest(text: str, word: re.Pattern[str]) -> bool:
    """Whether an example in a docstring uses a name without importing it."""
    lines = [line for line in text.splitlines() if line.lstrip().startswith((">>>", "..."))]
    using = [line for line in lines if word.search(line)]
    return bool(using) and not any("import " in line for line in using)


def _role_of_string(file: SourceFile, constant: ast.Constant, name: str) -> bool:
    """Whether a string that holds a name is read as a type."""
    parent = file.parent(constant)
    child: ast.AST = constant
    if not _TYPE_EXPRESSION.fullmatch(str(constant.value)) and not (
        isinstance(parent, ast.Call) and last_name(parent.func) in _EVALUATED
    ):
        return False
    while isinstance(parent, (ast.Subscript, ast.Tuple, ast.BinOp, ast.List)):
        if isinstance(parent, ast.Subscript) and child is parent.slice and last_name(parent.value) in TYPE_FORMS:
            return True
        child, parent = parent, file.parent(parent)
    if isinstance(parent, (ast.arg, ast.AnnAssign)) and parent.annotation is child:
        raise RefusalError(f"the quoted annotation of line {constant.lineno} can't be rewritten")
    if isinstance(parent, (ast.FunctionDef, ast.AsyncFunctionDef)) and parent.returns is child:
        raise RefusalError(f"the quoted annotation of line {constant.lineno} can't be rewritten")
    called = last_name(parent.func) if isinstance(parent, ast.Call) else ""
    if called in _EVALUATED:
        raise RefusalError(f"the string of line {constant.lineno} is run as code and uses `{name}`")
    bound = isinstance(parent, ast.keyword) and parent.arg == "bound"
    return bound or called in ("cast", "TypeVar", "NewType", "ForwardRef")


def last_name(node: ast.expr) -> str:
    """The last part of a dotted name, "" for any other expression."""
    return str(getattr(node, "attr", getattr(node, "id", "")))


def _is_in_all(file: SourceFile, constant: ast.Constant) -> bool:
    statement = file.statement(constant)
    if isinstance(statement, ast.Assign):
        return any(isinstance(target, ast.Name) and target.id == "__all__" for target in statement.targets)
    if isinstance(statement, (ast.AugAssign, ast.AnnAssign)):
        return isinstance(statement.target, ast.Name) and statement.target.id == "__all__"
    if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call):
        function = statement.value.func
        return isinstance(function, ast.Attribute) and getattr(function.value, "id", "") == "__all__"
    return False


def _lines_of(file: SourceFile, statement: ast.stmt) -> list[str]:
    last = statement.end_lineno or statement.lineno
    return [file.segment(file.line_span(row)) for row in range(statement.lineno, last + 1)]
