"""Makes a program short that shows something, for people to read."""

from __future__ import annotations

import ast
import copy
from collections.abc import Callable


def shortened(text: str, is_same: Callable[[str], bool]) -> str:
    """A program without the statements that it can do without while `is_same` holds for its text."""
    tree = ast.parse(text)
    at = 0
    while True:
        candidate = copy.deepcopy(tree)
        blocks = [
            (block, index)
            for node in ast.walk(candidate)
            for block in (getattr(node, "body", None), getattr(node, "orelse", None), getattr(node, "finalbody", None))
            if isinstance(block, list)
            for index in range(len(block))
        ]
        if at >= len(blocks):
            return ast.unparse(tree)
        block, index = blocks[at]
        removed = block.pop(index)
        if isinstance(removed, (ast.If, ast.With, ast.Try)):
            block[index:index] = removed.body  # what it holds may matter without it
        if not block:
            block.append(ast.Pass())
        short = ast.unparse(candidate)
        if short != ast.unparse(tree) and is_same(short):
            tree = ast.parse(short)
        else:
            at += 1
