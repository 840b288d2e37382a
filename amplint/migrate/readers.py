"""What reads a model's outputs and does not take half precision: NumPy has no bfloat16."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from amplint.migrate.editor import Editor
from amplint.migrate.facts import Facts
from amplint.migrate.regions import Run
from amplint.migrate.tree import owner_of, walk
from amplint.training import targets_of

if TYPE_CHECKING:
    from amplint.source import SourceFile

_SAME_NUMBERS = frozenset(("detach", "cpu", "data", "squeeze", "view", "reshape", "flatten", "contiguous", "unsqueeze"))


def cast_for_numpy(facts: Facts, editor: Editor, runs: list[Run]) -> None:
    """Write `outputs.float().detach().cpu().numpy()` for what a model returned in one of the runs."""
    file = facts.file
    done: set[ast.Name] = set()
    for run in runs:
        outputs = {
            target.id
            for statement in run.statements
            for node in walk(statement)
            if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call) and facts.module_of(node.value)
            for target in targets_of(node)
            if isinstance(target, ast.Name)
        }
        if not outputs:
            continue
        for node in walk(owner_of(file, run.first)):
            if (
                isinstance(node, ast.Name)
                and node.id in outputs
                and isinstance(node.ctx, ast.Load)
                and node not in done
                and _goes_to_numpy(file, node)
            ):
                done.add(node)
                editor.insert(file.span(node).end, ".float()")


def _goes_to_numpy(file: SourceFile, name: ast.Name) -> bool:
    """Whether a value is turned into an array without becoming another value first."""
    parent = file.parent(name)
    while isinstance(parent, ast.Attribute):
        if parent.attr == "numpy":
            return True
        if parent.attr not in _SAME_NUMBERS:
            return False
        above = file.parent(parent)
        parent = file.parent(above) if isinstance(above, ast.Call) and above.func is parent else above
    return False
