"""One file as the rules see it: text, tree, names, spans and references; everything is made on first use."""

from __future__ import annotations

import ast
import re
from bisect import bisect_right
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

from amplint.model import Location, Span
from amplint.names import STAR_EXPORTS, UNKNOWN, Binding, Names, Scope, getattr_constant

if TYPE_CHECKING:
    from amplint.facts.regions import Regions
    from amplint.facts.values import Values
    from amplint.flow.violations import Violation
    from amplint.modules import Project
    from amplint.settings import Settings
    from amplint.versions.guards import Guards

_LINE_END = re.compile(rb"\r\n|\n|\r")
_TOO_DEEP = ("too many nested parentheses", "too many levels of indentation")
"""What Python says of syntax that it knows and refuses, so that no other parser needs to be asked."""

_ROOTS = ("torch", "apex")


class Ref(NamedTuple):
    """A reference to something of torch or apex: an imported name, or a name with its attributes.

    `node` is the `ast.alias` of an import, or the outermost `ast.Attribute` (or the `ast.Name`) of a chain such as
    `torch.cuda.amp.autocast`. `candidates` are its qualified names. `chain` lists the nodes of the chain from the name
    outwards, so `names[i]` are the candidates of `chain[i]`. `context` is `import`, `call` (the chain is called),
    `decorator` (bare), `annotation`, `base`, or `value`. `quoted` is the string constant of a quoted annotation.
    `fixable` is False where the position in the text is not certain (inside an f-string before Python 3.12).
    """

    node: ast.alias | ast.expr
    candidates: tuple[str, ...]
    chain: tuple[ast.expr, ...]
    names: tuple[tuple[str, ...], ...]
    context: str
    statement: ast.stmt
    call: ast.Call | None = None
    quoted: ast.Constant | None = None
    fixable: bool = True


class SourceFile:
    """A small database on one file that rules query.

    `text` is decoded, without a byte order mark, with the line ends of the file. All spans are byte offsets into its
    UTF-8 form, `encoded`. `tree` raises `SyntaxError` (or `RecursionError`, `MemoryError`, `ValueError` for a NUL)
    where the text does not parse.
    """

    def __init__(self, text: str, filename: str, settings: Settings, project: Project | None = None) -> None:
        self.text = text
        self.filename = filename
        self.settings = settings
        self.project = project
        self.lookups: dict[tuple[str, str], str] = {}
        """What was asked of the project: (module, asking file) -> the file that answered, "" for none."""
        self.unfinished: list[str] = []
        """The functions that were too much for the protocol engine; known once `violations` was called."""
        self.unseen_rows: tuple[int, ...] = ()
        """The rows of statements in newer syntax, which are not in `tree`; known once `tree` is made."""

    def with_text(self, text: str) -> SourceFile:
        """The file as it would be with another text."""
        return SourceFile(text, self.filename, self.settings, self.project)

    @cached_property
    def encoded(self) -> bytes:
        """The text as UTF-8; spans are offsets into it."""
        return self.text.encode("utf-8", "surrogatepass")

    @cached_property
    def line_starts(self) -> list[int]:
        """The byte offset at which each line starts; lines end as Python's own do (LF, CRLF, CR)."""
        return [0, *(match.end() for match in _LINE_END.finditer(self.encoded))]

    @cached_property
    def newline(self) -> str:
        """The file's line end: that of its first line, LF where there is none."""
        match = _LINE_END.search(self.encoded)
        return match.group().decode() if match else "\n"

    @cached_property
    def tree(self) -> ast.Module:
        """The syntax tree; a node's `col_offset` counts UTF-8 bytes, as spans do."""
        try:
            return _parse(self.text, self.filename)
        except SyntaxError as error:
            if str(error.msg) in _TOO_DEEP:
                raise
            from amplint.newer_syntax import readable

            seen = readable(self.text)
            if seen is None:
                raise
            self.unseen_rows = seen.rows
            return _parse(seen.text, self.filename)

    @cached_property
    def names(self) -> Names:
        """Scopes, bindings and the parents of all nodes."""
        return Names(self.tree)

    # -- places -------------------------------------------------------------------------------------------------------

    def offset(self, row: int, column: int) -> int:
        """The byte offset of a row (from 1) and a column in bytes (from 0), as nodes of the tree have them."""
        return self.line_starts[row - 1] + column

    def span(self, node: ast.AST) -> Span:
        """The bytes of a node that has a position; a decorated function starts at its `def`."""
        return Span(
            self.offset(node.lineno, node.col_offset),  # type: ignore[attr-defined]
            self.offset(node.end_lineno, node.end_col_offset),  # type: ignore[attr-defined]
        )

    def segment(self, place: ast.AST | Span) -> str:
        """The text of a node or span."""
        span = place if isinstance(place, Span) else self.span(place)
        return self.encoded[span.start : span.end].decode("utf-8", "surrogatepass")

    def row(self, offset: int) -> int:
        """The row, from 1, of a byte offset."""
        return bisect_right(self.line_starts, offset)

    def location(self, offset: int) -> Location:
        """The row and the column in characters, both from 1, of a byte offset."""
        row = self.row(offset)
        head = self.encoded[self.line_starts[row - 1] : offset]
        return Location(row, len(head.decode("utf-8", "replace")) + 1)

    def line_span(self, row: int) -> Span:
        """The bytes of a row (from 1) with its line end."""
        end = self.line_starts[row] if row < len(self.line_starts) else len(self.encoded)
        return Span(self.line_starts[row - 1], end)

    def indentation(self, node: ast.stmt) -> str:
        """The white space before a statement on its line; what stands there otherwise (`if x: y`) counts as blanks."""
        head = self.segment(Span(self.line_starts[node.lineno - 1], self.span(node).start))
        return head if not head.strip() else head[: len(head) - len(head.lstrip())]

    # -- tree ---------------------------------------------------------------------------------------------------------

    def parent(self, node: ast.AST) -> ast.AST | None:
        """The node around a node, None for the module."""
        return self.names.parents.get(node)

    def statement(self, node: ast.AST) -> ast.stmt:
        """The innermost statement that holds a node, or the node itself if it is one."""
        current: ast.AST | None = node
        while current is not None and not isinstance(current, ast.stmt):
            current = self.names.parents.get(current)
        assert isinstance(current, ast.stmt), "every node but the module and its type ignores lies in a statement"
        return current

    def enclosing(self, node: ast.AST, *kinds: type[ast.AST]) -> ast.AST | None:
        """The innermost node of some kinds around a node, None where there is none."""
        current = self.parent(node)
        while current is not None and not isinstance(current, kinds):
            current = self.parent(current)
        return current

    def outermost_function(self, node: ast.AST) -> ast.AST:
        """The outermost function around a node that lies in the same class, or the module."""
        found: ast.AST = self.tree
        current = self.parent(node)
        while current is not None and not isinstance(current, ast.ClassDef):
            if isinstance(current, (ast.FunctionDef, ast.AsyncFunctionDef)):
                found = current
            current = self.parent(current)
        return found

    def scope(self, node: ast.AST) -> Scope:
        """The scope in which the names of a node are looked up."""
        return self.names.scope_of(node)

    def resolve(self, node: ast.expr) -> tuple[str, ...]:
        """The qualified names that an expression may stand for (see `amplint.names`)."""
        return self.names.resolve(node)

    # -- references ---------------------------------------------------------------------------------------------------

    @cached_property
    def roots(self) -> frozenset[str]:
        """The names that, somewhere in the file, stand for something of torch or apex."""
        return frozenset(_interesting(self.names))

    @cached_property
    def refs(self) -> tuple[Ref, ...]:
        """Every reference to something of torch or apex, imports included, in the order of the text."""
        names = self.names
        found: list[Ref] = []
        for node in names.imports:
            for alias in node.names:
                target = _import_target(node, alias)
                if target.split(".", 1)[0] in _ROOTS:
                    found.append(Ref(alias, (target,), (), (), "import", node))
        uses = [use for name in self.roots for use in names.loads.get(name, ())]
        found.extend(ref for use in uses if (ref := self._reference(use)))
        quoted = re.compile(rf"\b(?:{'|'.join(map(re.escape, sorted(self.roots)))})\b")
        for constant in names.strings if self.roots else ():
            if quoted.search(str(constant.value)) and _is_annotation(names, constant):
                for use in self._quoted_names(constant):
                    if ref := self._reference(use, constant):
                        found.append(ref)
        found.sort(key=lambda ref: (ref.node.lineno, ref.node.col_offset))
        return tuple(found)

    def _reference(self, use: ast.Name, quoted: ast.Constant | None = None) -> Ref | None:
        names = self.names
        if not names.resolve(use):
            return None
        chain: list[ast.expr] = [use]
        parent = names.parents.get(use)
        while isinstance(parent, ast.Attribute):
            chain.append(parent)
            parent = names.parents.get(parent)
        candidates = tuple(names.resolve(link) for link in chain)
        if not any(name.split(".", 1)[0] in _ROOTS for name in candidates[0]):
            return None
        outermost = chain[-1]
        call = parent if isinstance(parent, ast.Call) and parent.func is outermost else None
        fixable = self.segment(use) == use.id
        return Ref(
            outermost,
            candidates[-1],
            tuple(chain),
            candidates,
            "annotation" if quoted else _context(names, outermost, parent),
            self.statement(quoted or outermost),
            call,
            quoted,
            fixable,
        )

    def _quoted_names(self, constant: ast.Constant) -> list[ast.Name]:
        """The names in a quoted annotation, placed in the text; none where the string isn't one plain literal."""
        literal, content = self.segment(constant), str(constant.value)
        quote = next((q for q in ('"""', "'''", '"', "'") if literal.startswith(q)), "")
        if not quote or literal != f"{quote}{content}{quote}" or "\n" in literal or "\r" in literal:
            return []
        try:
            tree = ast.parse(content.strip(), mode="eval").body
        except (SyntaxError, ValueError):
            return []
        lead = len(quote) + len(content) - len(content.lstrip())
        for node in ast.walk(tree):
            for child in ast.iter_child_nodes(node):
                self.names.parents[child] = node
            if isinstance(node, ast.expr):
                node.lineno = node.end_lineno = constant.lineno
                node.col_offset += constant.col_offset + lead
                node.end_col_offset = (node.end_col_offset or 0) + constant.col_offset + lead
        self.names.parents[tree] = constant
        return [node for node in ast.walk(tree) if isinstance(node, ast.Name) and node.id in self.roots]

    # -- the other rooms ----------------------------------------------------------------------------------------------

    @cached_property
    def guards(self) -> Guards:
        """What the code around a node says of the torch version it runs on."""
        from amplint.versions.guards import Guards

        return Guards(self)

    @cached_property
    def values(self) -> Values:
        """What expressions stand for inside this file."""
        from amplint.facts.values import Values

        return Values(self)

    @cached_property
    def regions(self) -> Regions:
        """The autocast regions of this file."""
        from amplint.facts.regions import Regions

        return Regions(self)

    @cached_property
    def _violations(self) -> dict[str, list[Violation]] | Exception:
        """What the protocol engine found, by kind, or what it failed with: the next rule must not run it again."""
        from amplint.flow import violations

        try:
            analysis = violations.analyse(self)
        except Exception as error:
            return error
        by_kind: dict[str, list[Violation]] = {}
        self.unfinished = analysis.unfinished
        for violation in analysis.violations:
            by_kind.setdefault(violation.kind, []).append(violation)
        return by_kind

    def violations(self, kind: str) -> tuple[Violation, ...]:
        """What the protocol engine found of one kind, by the name of its rule (`clip-before-unscale`).

        Raises what the engine failed with, each time the same exception.
        """
        found = self._violations
        if isinstance(found, Exception):
            raise found
        return tuple(found.get(kind, ()))


def _parse(text: str, filename: str) -> ast.Module:
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # an invalid escape sequence in a linted file is none of our business
        return ast.parse(text, filename)


def _interesting(names: Names) -> set[str]:
    """The names bound by an import from torch or apex, or assigned from such a name."""
    found: set[str] = {"torch"} & names.loads.keys()
    assigned: list[Binding] = []
    for scope in names.scopes.values():
        for bindings in scope.bindings.values():
            for binding in bindings:
                if binding.kind == "import" and binding.target.split(".", 1)[0] in _ROOTS:
                    found.add(binding.name)
                elif binding.kind == "assign":
                    assigned.append(binding)
    for star in names.module.stars:
        found.update(STAR_EXPORTS.get(star.target, ()))
    grown = True
    while grown:
        grown = False
        for binding in assigned:
            if binding.name in found or binding.value is None or not _root_names(binding.value) & found:
                continue
            if any(name != UNKNOWN for name in names.resolve(binding.value)):
                found.add(binding.name)
                grown = True
    return found


def _root_names(node: ast.expr) -> set[str]:
    """The names at the root of an expression that `resolve` can follow."""
    if isinstance(node, ast.Name):
        return {node.id}
    if isinstance(node, ast.Attribute):
        return _root_names(node.value)
    if isinstance(node, ast.IfExp):
        return _root_names(node.body) | _root_names(node.orelse)
    if isinstance(node, ast.NamedExpr):
        return _root_names(node.value)
    if isinstance(node, ast.Call) and getattr_constant(node) is not None:
        return _root_names(node.args[0])
    return set()


def _import_target(node: ast.Import | ast.ImportFrom, alias: ast.alias) -> str:
    if isinstance(node, ast.Import):
        return alias.name
    return f"{'.' * node.level}{node.module or ''}.{alias.name}"


def _context(names: Names, node: ast.expr, parent: ast.AST | None) -> str:
    if isinstance(parent, ast.Call) and parent.func is node:
        return "call"
    if isinstance(parent, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)) and node in parent.decorator_list:
        return "decorator"
    if isinstance(parent, ast.ClassDef) and node in parent.bases:
        return "base"
    return "annotation" if _is_annotation(names, node) else "value"


def _is_annotation(names: Names, node: ast.AST) -> bool:
    """Whether an expression stands in an annotation, also as a part of it (`Optional[...]`)."""
    child, parent = node, names.parents.get(node)
    while parent is not None and isinstance(parent, (ast.expr, ast.slice)):
        if isinstance(parent, (ast.Call, ast.Lambda)):
            return False
        child, parent = parent, names.parents.get(parent)
    if isinstance(parent, (ast.arg, ast.AnnAssign)):
        return parent.annotation is child
    return isinstance(parent, (ast.FunctionDef, ast.AsyncFunctionDef)) and parent.returns is child
