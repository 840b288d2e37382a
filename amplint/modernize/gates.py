"""Tests for the old API around what moves: `hasattr(torch.cuda, "amp")` also lets in a torch without the new one."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from amplint.model import Edit
from amplint.torch_api import Version
from amplint.versions.guard_steps import Guard
from amplint.versions.guards import is_old
from amplint.versions.releases import since

if TYPE_CHECKING:
    from amplint.modernize.uses import Use
    from amplint.source import SourceFile


def gate_edits(file: SourceFile, use: Use) -> tuple[Edit, ...]:
    """The edits that make the tests around a use ask for the newest of the names that they will guard.

    None where the project's floor is known: the new names are there on every torch that it supports.
    """
    if file.settings.target_torch is not None or "hasattr" not in file.text:
        return ()
    edits = []
    for call, torch in _gates(file, use.node):
        names = _guarded(file, call)
        if names:
            quote = file.segment(call.args[1])[-1]
            newest = max(names, key=lambda name: names[name])
            edits.append(Edit(file.span(call), f"hasattr({torch}.amp, {quote}{newest}{quote})"))
    return tuple(edits)


def _gates(file: SourceFile, node: ast.AST) -> list[tuple[ast.Call, str]]:
    """The calls `hasattr(torch.cuda, "amp")` in the tests around a node, also behind a flag, with the text of torch."""
    found: list[tuple[ast.Call, str]] = []
    for step in file.guards.steps(node):
        if not isinstance(step, Guard) or step.holds == _is_negated(step.test):
            continue
        for call in ast.walk(file.guards.tests.definition(step.test)):
            if not isinstance(call, ast.Call) or getattr(call.func, "id", "") != "hasattr" or len(call.args) != 2:
                continue
            holder, name = call.args
            asks = isinstance(name, ast.Constant) and name.value == "amp" and file.resolve(holder) == ("torch.cuda",)
            if asks and isinstance(holder, ast.Attribute) and file.resolve(holder.value) == ("torch",):
                found.append((call, file.segment(holder.value)))
    return found


def _is_negated(test: ast.expr) -> bool:
    negated = False
    while isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        test, negated = test.operand, not negated
    return negated


def _guarded(file: SourceFile, gate: ast.Call) -> dict[str, Version]:
    """The last names of the old API under a gate, as far as torch.amp has them, with the torch that first had them."""
    names: dict[str, Version] = {}
    for ref in file.refs:
        last = ref.candidates[0].rsplit(".", 1)[-1]
        first = since(f"torch.amp.{last}") if len(ref.candidates) == 1 and is_old(ref.candidates[0]) else None
        if first is not None and any(call is gate for call, _ in _gates(file, ref.node)):
            names[last] = first
    return names
