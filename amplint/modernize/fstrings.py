"""Rewriting inside f-strings: what is inserted must not end the literal, and the text that it shows must stay.

Before Python 3.12 no quote of the literal may stand in an expression of it, and the positions of such expressions are
worked out by Python from the text. So the text at the position is read again, and must be the expression.
"""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from amplint.model import Edit
from amplint.modernize.refusal import RefusalError

if TYPE_CHECKING:
    from amplint.source import SourceFile


def literal_around(file: SourceFile, node: ast.expr, whole: ast.expr) -> ast.JoinedStr | None:
    """The f-string around a name of which `whole` is to be rewritten, None where it stands in none.

    Raises `RefusalError` where it can't be rewritten in place: in an f-string within another or in a format, in
    `{name=}`, which shows its own text, and where the text at its position is another.
    """
    child: ast.AST = node
    parent = file.parent(node)
    found: ast.JoinedStr | None = None
    while parent is not None and not isinstance(parent, ast.stmt):
        if type(parent).__name__ in ("TemplateStr", "Interpolation"):
            raise RefusalError("it stands inside a template string")
        if isinstance(parent, ast.FormattedValue):
            if child is not parent.value or _shows_its_text(file, parent.value):
                raise RefusalError("it stands inside an f-string")
        elif isinstance(parent, ast.JoinedStr):
            if found is not None:
                raise RefusalError("it stands inside an f-string")
            found = parent
        child, parent = parent, file.parent(parent)
    if found is not None and not _is_there(file, whole):
        raise RefusalError("it stands inside an f-string")
    return found


def within(file: SourceFile, literal: ast.JoinedStr, edits: tuple[Edit, ...]) -> tuple[Edit, ...]:
    """The edits with quotes that the f-string does not use. Raises `RefusalError` where it uses both kinds."""
    text = file.segment(literal)
    if not any('"' in edit.text for edit in edits) or '"' not in text:
        return edits
    if "'" in text or any("'" in edit.text for edit in edits):
        raise RefusalError("it stands inside an f-string")
    return tuple(edit._replace(text=edit.text.replace('"', "'")) for edit in edits)


def _shows_its_text(file: SourceFile, value: ast.expr) -> bool:
    end = file.span(value).end
    return file.encoded[end : end + 80].decode("utf-8", "replace").lstrip(" \t\r\n)").startswith("=")


def _is_there(file: SourceFile, node: ast.expr) -> bool:
    try:
        read = ast.parse(f"({file.segment(node)})", mode="eval").body
    except (SyntaxError, ValueError):
        return False
    return ast.dump(read) == ast.dump(node)
