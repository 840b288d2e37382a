"""Edits on import statements: take names out, move them to another module, add them to an existing statement."""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from amplint.model import Edit, Span
from amplint.modernize.refusal import RefusalError
from amplint.rewrite.statements import delete_statement, insert_before, line_end, line_start, next_line, siblings

if TYPE_CHECKING:
    from amplint.source import SourceFile

Statement = ast.Import | ast.ImportFrom

_FROM = re.compile(rb"from[ \t]+([\w.]+)[ \t]+import\b")
_BLANK = b" \t\f"


class Bound(NamedTuple):
    """A name that an import is to bind: `from module import name as asname`, without a module `import name as ...`."""

    module: str
    name: str
    asname: str | None = None

    @property
    def text(self) -> str:
        """The alias as it stands in the statement."""
        return self.name if self.asname is None else f"{self.name} as {self.asname}"


Changes = Mapping[ast.alias, tuple[Bound, ...]]
"""What is imported in the place of aliases of a statement; nothing where a name is no longer imported."""


def statement_edits(file: SourceFile, changes: Mapping[Statement, Changes]) -> list[Edit]:
    """The edits that carry out the changes of all statements together."""
    edits: list[Edit] = []
    deleted: list[Statement] = []
    for statement, of_aliases in changes.items():
        kept = [alias for alias in statement.names if alias not in of_aliases]
        bound = list(dict.fromkeys(new for alias in statement.names for new in of_aliases.get(alias, ())))
        if not kept and not bound:
            deleted.append(statement)
        elif not bound:
            edits += _relisted(file, statement, dict.fromkeys(of_aliases, ""))
        else:
            edits += _rebound(file, statement, of_aliases, kept, bound)
    return edits + _deletions(file, deleted)


def _rebound(
    file: SourceFile, statement: Statement, changes: Changes, kept: list[ast.alias], bound: list[Bound]
) -> list[Edit]:
    modules = list(dict.fromkeys(new.module for new in bound))
    in_place = modules == ([""] if isinstance(statement, ast.Import) else [statement.module])
    if in_place or (isinstance(statement, ast.ImportFrom) and not kept and len(modules) == 1 and modules != [""]):
        present = {file.segment(alias) for alias in kept}
        texts: dict[ast.alias, str] = {}
        for alias in statement.names:
            if alias in changes:
                text = _names(changes[alias])
                texts[alias] = "" if text in present else text
                present.add(text)
        edits = [] if in_place else [_module_edit(file, statement, modules[0])]
        return edits + _relisted(file, statement, texts)
    code = "\n".join(_statement(module, [new for new in bound if new.module == module]) for module in modules)
    if kept:
        before = insert_before(file, statement, code)
        if before is None:
            raise RefusalError(f"the import of line {statement.lineno} shares its line with other code")
        return [before, *_relisted(file, statement, dict.fromkeys(changes, ""))]
    span = file.span(statement)
    if b"#" in file.encoded[span.start : span.end]:
        raise RefusalError(f"comments stand inside the import of line {statement.lineno}")
    indentation = file.indentation(statement)
    newline = "; " if file.encoded[line_start(file.encoded, span.start) : span.start].strip(_BLANK) else None
    separator = newline or file.newline + indentation
    return [Edit(span, code.replace("\n", separator))]


def _statement(module: str, bound: Sequence[Bound]) -> str:
    return f"from {module} import {_names(bound)}" if module else f"import {_names(bound)}"


def _names(bound: Sequence[Bound]) -> str:
    return ", ".join(sorted({new.text for new in bound}, key=import_order))


def import_order(alias: str) -> tuple[int, str]:
    """The order of names in an import as import sorters have it: constants, classes, the rest."""
    name = alias.partition(" ")[0]
    return (0 if name.isupper() and len(name) > 1 else 1 if name[:1].isupper() else 2), name


def _module_edit(file: SourceFile, statement: Statement, module: str) -> Edit:
    span = file.span(statement)
    match = _FROM.match(file.encoded, span.start, span.end)
    if match is None:
        raise RefusalError(f"the import of line {statement.lineno} is written in an unusual way")
    return Edit(Span(match.start(1), match.end(1)), module)


def _relisted(file: SourceFile, statement: Statement, texts: Mapping[ast.alias, str]) -> list[Edit]:
    """Give names of a statement other texts; those with an empty one go. Some name must stay."""
    aliases = statement.names
    gone = {alias for alias, text in texts.items() if not text}
    changed = [alias for alias, text in texts.items() if text and text != file.segment(alias)]
    tail = file.encoded[file.span(aliases[-1]).end : file.span(statement).end]
    if gone and not tail.rstrip().endswith(b")"):
        kept = [texts.get(alias) or file.segment(alias) for alias in aliases if alias not in gone]
        return [Edit(Span(file.span(aliases[0]).start, file.span(aliases[-1]).end), ", ".join(kept))]
    edits = [Edit(file.span(alias), texts[alias]) for alias in changed]
    index = 0
    while index < len(aliases):
        last = index
        while last + 1 < len(aliases) and aliases[last + 1] in gone and aliases[index] in gone:
            last += 1
        if aliases[index] in gone:
            edits += _without_run(file, aliases, index, last)
        index = last + 1
    return edits


def _without_run(file: SourceFile, aliases: list[ast.alias], first: int, last: int) -> list[Edit]:
    """Take neighbouring names out of parentheses; those that have their lines for themselves go with their lines."""
    encoded = file.encoded
    spans = [file.span(alias) for alias in aliases[first : last + 1]]
    if all(_is_alone(encoded, span) for span in spans):
        return [Edit(Span(line_start(encoded, start), next_line(encoded, end)), "") for start, end in spans]
    start, end = spans[0].start, spans[-1].end
    if last + 1 < len(aliases):
        stop = encoded.index(b",", end) + 1
        while encoded[stop : stop + 1] in (b" ", b"\t"):
            stop += 1
        return [Edit(Span(start, stop), "")]
    before = file.span(aliases[first - 1]).end
    return [Edit(Span(start if b"#" in encoded[before:start] else before, end), "")]


def _is_alone(encoded: bytes, span: Span) -> bool:
    """Whether a name has its line for itself, but for its comma and a comment."""
    rest = encoded[span.end : line_end(encoded, span.end)].lstrip(_BLANK)
    after = rest[1:].lstrip(_BLANK) if rest.startswith(b",") else rest
    before = encoded[line_start(encoded, span.start) : span.start]
    return not before.strip(_BLANK) and (not after or after.startswith(b"#"))


def _deletions(file: SourceFile, statements: Sequence[Statement]) -> list[Edit]:
    """Delete whole statements, and with the last of a paragraph the blank lines that set it off."""
    edits: list[Edit] = []
    lines: list[Span] = []
    opening: set[int] = set()
    for statement in sorted(statements, key=lambda node: node.lineno):
        block = siblings(file, statement)
        emptied = file.parent(statement) is not file.tree and all(member in statements for member in block)
        edit = (
            Edit(file.span(statement), "pass")
            if emptied and statement is block[0]
            else delete_statement(file, statement)
        )
        is_line = not edit.text and edit.span.start == line_start(file.encoded, edit.span.start)
        if not is_line or edit.span.end != next_line(file.encoded, file.span(statement).end):
            edits.append(edit)
        elif lines and lines[-1].end == edit.span.start:
            lines[-1] = Span(lines[-1].start, edit.span.end)
        else:
            lines.append(edit.span)
            if statement is block[0]:
                opening.add(edit.span.start)
    return edits + [Edit(_with_blank_lines(file, span, span.start in opening), "") for span in lines]


def _with_blank_lines(file: SourceFile, span: Span, opens: bool) -> Span:
    """Widen deleted lines by the blank lines around them that have lost their use.

    Those before them go where others follow; those after them where the lines `opens` a block.
    """
    starts, rows = file.line_starts, len(file.line_starts)
    first, after = file.row(span.start), file.row(span.end)
    if span.end < len(file.encoded) and not _is_blank(file, after):
        return span
    before = first
    while before > 1 and _is_blank(file, before - 1):
        before -= 1
    if before > 1 and not (opens and before == first and _opens_block(file, before - 1)):
        return Span(starts[before - 1], span.end)
    while after < rows and _is_blank(file, after):
        after += 1
    return Span(span.start, starts[after - 1])


def _opens_block(file: SourceFile, row: int) -> bool:
    return file.segment(file.line_span(row)).partition("#")[0].rstrip().endswith(":")


def _is_blank(file: SourceFile, row: int) -> bool:
    return not file.segment(file.line_span(row)).strip()


def add_names(file: SourceFile, statement: ast.ImportFrom, bound: Sequence[Bound]) -> list[Edit]:
    """Add names to an existing `from ... import`, in its order where it has one."""
    aliases = statement.names
    order = [import_order(alias.name) for alias in aliases]
    is_sorted = order == sorted(order)
    places: dict[int, list[str]] = {}
    for new in sorted(set(bound), key=lambda item: import_order(item.text)):
        later = [i for i, key in enumerate(order) if key > import_order(new.text)] if is_sorted else []
        places.setdefault(later[0] if later else len(aliases), []).append(new.text)
    edits = []
    for index, names in places.items():
        if index < len(aliases):
            start = file.span(aliases[index]).start
            separator = _separator(file, aliases, index)
            edits.append(Edit(Span(start, start), "".join(name + separator for name in names)))
        else:
            end = file.span(aliases[-1]).end
            separator = _separator(file, aliases, len(aliases) - 1)
            rest = file.encoded[end : line_end(file.encoded, end)].lstrip(_BLANK)
            if separator != ", " and rest.startswith(b","):
                indentation = separator[1 + len(file.newline) :]
                end = next_line(file.encoded, end)  # a comment stays with the name that it stands beside
                edits.append(Edit(Span(end, end), "".join(f"{indentation}{name},{file.newline}" for name in names)))
            else:
                edits.append(Edit(Span(end, end), "".join(separator + name for name in names)))
    return edits


def _separator(file: SourceFile, aliases: list[ast.alias], index: int) -> str:
    """What stands between two names: a line break where each name has its own line."""
    start = file.span(aliases[index]).start
    head = file.encoded[line_start(file.encoded, start) : start]
    if head.strip(_BLANK):
        return ", "
    return "," + file.newline + head.decode("utf-8", "surrogatepass")
