"""Imports of `torch` that nothing needs once the last use of it is written in another way."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from amplint.model import Edit
from amplint.modernize.exports import is_exported, is_needed_as_text, is_package
from amplint.modernize.groups import Group
from amplint.modernize.imports import Statement
from amplint.modernize.refusal import RefusalError
from amplint.modernize.uses import Use

if TYPE_CHECKING:
    from amplint.names import Binding, Scope
    from amplint.source import SourceFile

_PLACES = (ast.Module, ast.FunctionDef, ast.AsyncFunctionDef)


def unneeded_torch(
    file: SourceFile, gone: Sequence[Use], written: Sequence[Edit]
) -> Iterator[tuple[Statement, ast.alias]]:
    """The imports of `torch` that have no use but those that are `gone`, and get none by what is `written`."""
    for scope in file.names.scopes.values():
        for name, bindings in scope.bindings.items():
            if all(_is_torch(file, binding) for binding in bindings):
                uses = [use for use in gone if use.root.id == name]
                word = re.compile(rf"\b{re.escape(name)}\.")
                if not uses or any(word.search(edit.text) for edit in written):
                    continue
                if not _is_needed(file, scope, name, bindings, uses):
                    for binding in bindings:
                        assert isinstance(binding.node, Statement)
                        assert binding.alias is not None
                        yield binding.node, binding.alias


def _is_torch(file: SourceFile, binding: Binding) -> bool:
    """Whether a binding is a plain `import torch`, or that of a deprecated module, at a place where it may go."""
    if binding.kind != "import" or binding.target != "torch" or binding.alias is None:
        return False
    if isinstance(binding.node, ast.ImportFrom) or not isinstance(file.parent(binding.node), _PLACES):
        return False
    name = binding.alias.name
    return name == "torch" or name.startswith(("torch.cuda.amp", "torch.cpu.amp"))


def _is_needed(file: SourceFile, scope: Scope, name: str, bindings: list[Binding], gone: list[Use]) -> bool:
    handled = {id(use.root) for use in gone}
    nodes = {id(binding.node) for binding in bindings}
    loads = [*file.names.loads.get(name, ()), *_quoted(file, name)]
    if any(
        id(load) not in handled and any(id(found.node) in nodes for found in file.names.lookup(load)) for load in loads
    ):
        return True
    if scope is file.names.module and (is_package(file) or is_exported(file, name)):
        return True
    if any(_is_kept_for_others(file, binding) for binding in bindings):
        return True
    group = Group(scope, name, bindings)
    group.uses = gone
    try:
        return is_needed_as_text(file, group)
    except RefusalError:
        return True


def _quoted(file: SourceFile, name: str) -> Iterator[ast.Name]:
    """The names in quoted annotations."""
    for ref in file.refs:
        if ref.quoted is not None and isinstance(root := ref.chain[0], ast.Name) and root.id == name:
            yield root


def _is_kept_for_others(file: SourceFile, binding: Binding) -> bool:
    """Whether the form of an import or a comment says that it is to stay though nothing here uses it."""
    assert binding.alias is not None
    assert isinstance(binding.node, ast.stmt)
    line = file.segment(file.line_span(binding.node.lineno))
    return binding.alias.asname == binding.alias.name or "noqa" in line.lower()
