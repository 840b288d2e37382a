"""Where a file uses deprecated names, which of these places are findings, and which hang together through one name."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from amplint.calls.call_faults import is_wrong_call
from amplint.calls.signatures import is_unentered_autocast
from amplint.modernize.flow import is_asked_for
from amplint.modernize.moves import Family, Move
from amplint.names import UNKNOWN
from amplint.torch_api import APIS

if TYPE_CHECKING:
    from amplint.source import Ref, SourceFile

_PARENTS = ("torch.cuda", "torch.cpu")

REPORTED = "reported"
COVERED = "covered"
SILENT = "silent"
LEFT = "left"
"""What becomes of a use: a finding; changed with the finding of its import; left alone as part of a guard or because
another rule speaks of it; left alone because nothing in the oldest supported torch can take its place."""


class Use(NamedTuple):
    """One place that stands for a deprecated name or module.

    `link` is the index, in the chain of `ref`, of the part that is the deprecated name; everything up to it is to be
    replaced. `move` is None for a module and for a name that can't move. An `ambiguous` name may be something else too.
    """

    ref: Ref
    link: int
    old: str
    move: Move | None
    state: str
    ambiguous: bool = False

    @property
    def node(self) -> ast.expr:
        """The expression that is to be replaced."""
        return self.ref.chain[self.link]

    @property
    def root(self) -> ast.Name:
        """The name with which the chain starts."""
        root = self.ref.chain[0]
        assert isinstance(root, ast.Name), "a chain starts with a name"
        return root


class Import(NamedTuple):
    """One name, module or star that an import statement binds.

    `old` is its qualified name, that of the module for a star. `move` is None for a module. A `parent` is a module that
    is not deprecated itself, such as `torch.cuda`.
    """

    ref: Ref
    alias: ast.alias
    statement: ast.Import | ast.ImportFrom
    old: str
    move: Move | None
    parent: bool = False

    @property
    def is_bare(self) -> bool:
        """Whether this is `import torch.cuda.amp`, which binds the name `torch`."""
        return isinstance(self.statement, ast.Import) and self.alias.asname is None

    @property
    def is_star(self) -> bool:
        """Whether this is `from ... import *`."""
        return self.alias.name == "*"


class Inventory:
    """Every use of the names of one family in a file."""

    def __init__(self, file: SourceFile, family: Family) -> None:
        self.file = file
        self.family = family
        self.imports: list[Import] = []
        self.uses: list[Use] = []
        for ref in file.refs:
            if ref.context == "import":
                self.imports.extend(self._import(ref))
            elif (use := self._use(ref)) is not None:
                self.uses.append(use)
        self.by_root: dict[ast.Name, Use] = {use.root: use for use in self.uses}

    # -- imports ------------------------------------------------------------------------------------------------------

    def _import(self, ref: Ref) -> Iterator[Import]:
        assert isinstance(ref.node, ast.alias)
        assert isinstance(ref.statement, (ast.Import, ast.ImportFrom))
        target = ref.candidates[0].removesuffix(".*")
        if target in _PARENTS and not ref.candidates[0].endswith("*"):
            yield Import(ref, ref.node, ref.statement, target, None, parent=True)
        elif self._is_deprecated((target,)) and target not in self.family.left and not self.file.guards.silences(ref):
            yield Import(ref, ref.node, ref.statement, target, self.family.moves.get(target))

    # -- uses ---------------------------------------------------------------------------------------------------------

    def _use(self, ref: Ref) -> Use | None:
        family = self.family
        for link, names in enumerate(ref.names):
            known = [name for name in names if family.knows(name)]
            if not known:
                continue
            if self._is_held(ref) and link == 0:
                return None  # a variable that holds the class: its own assignment is the finding
            move = family.moves.get(known[0])
            counted = [name for name in names if name != UNKNOWN] if self._is_torch_or_none(ref) else names
            meanings = {(m.new, m.device) if (m := family.moves.get(name)) else (name, "") for name in counted}
            state = self._state(ref, link, names, move)
            return Use(ref, link, known[0], move, state, len(meanings) > 1)
        last = len(ref.names) - 1
        modules = [name for name in ref.names[last] if name in family.modules]
        if not modules:
            return None
        silent = self.file.guards.silences(ref) or self._is_asked_for_names(ref) or not _is_loaded(ref.chain[last])
        state = SILENT if silent else COVERED if ref.context == "annotation" else REPORTED
        return Use(ref, last, modules[0], None, state, len(ref.names[last]) > 1)

    def _state(self, ref: Ref, link: int, names: tuple[str, ...], move: Move | None) -> str:
        if any(name in APIS and APIS[name].deprecated_since is None for name in names):
            return SILENT
        if not _is_loaded(ref.chain[link]):
            return SILENT
        if move is None:
            return LEFT
        reason = self.file.guards.silence(ref)
        if reason:
            # What runs after an unseen failure is no finding, but it must not keep its name when the import goes.
            return COVERED if reason == "handler" and self._goes_with_an_import(ref) else SILENT
        if is_unentered_autocast(self.file, ref) or (ref.call is not None and is_wrong_call(self.file, ref)):
            return COVERED if self._goes_with_an_import(ref) else SILENT
        if ref.context == "annotation" or is_asked_for(self.file, ref.chain[link]):
            return COVERED if self._goes_with_an_import(ref) else REPORTED
        return REPORTED

    def _is_deprecated(self, names: tuple[str, ...]) -> bool:
        return any(self.family.knows(name) or name in self.family.modules for name in names)

    def _goes_with_an_import(self, ref: Ref) -> bool:
        return self._is_deprecated(ref.names[0])

    def _is_held(self, ref: Ref) -> bool:
        """Whether the chain starts with a variable and not with an imported name."""
        root = ref.chain[0]
        assert isinstance(root, ast.Name), "a chain starts with a name"
        return all(binding.kind != "import" and binding.kind != "star" for binding in self.file.names.lookup(root))

    def _is_torch_or_none(self, ref: Ref) -> bool:
        """Whether the chain starts with a `torch` that is None where it isn't installed: both spellings fail there."""
        root = ref.chain[0]
        assert isinstance(root, ast.Name), "a chain starts with a name"
        return "torch" in ref.names[0] and all(
            binding.target == "torch" or (isinstance(binding.value, ast.Constant) and binding.value.value is None)
            for binding in self.file.names.lookup(root)
        )

    def _is_asked_for_names(self, ref: Ref) -> bool:
        """Whether a module is only asked for a name: `hasattr(module, ...)`, `getattr(module, ...) is not None`."""
        parent = self.file.parent(ref.node)
        if not (isinstance(parent, ast.Call) and isinstance(parent.func, ast.Name) and parent.args[:1] == [ref.node]):
            return False
        return parent.func.id in ("hasattr", "dir") or (parent.func.id == "getattr" and is_asked_for(self.file, parent))


def _is_loaded(node: ast.expr) -> bool:
    """Whether an expression is read, not assigned to or deleted."""
    return not isinstance(getattr(node, "ctx", None), (ast.Store, ast.Del))
