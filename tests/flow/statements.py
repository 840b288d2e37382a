"""Statements of a program that is being written: lines, and compound statements with their arms."""

from __future__ import annotations

import re
from typing import NamedTuple


class Arm(NamedTuple):
    """A header (`if a:`) and what stands under it."""

    header: str
    body: list[Node]


class Block:
    """A compound statement."""

    def __init__(self, *arms: Arm) -> None:
        self.arms = arms


Node = str | Block


def lines(nodes: list[Node], depth: int = 0) -> list[str]:
    """The source of statements."""
    found: list[str] = []
    for node in nodes:
        if isinstance(node, str):
            found.append("    " * depth + node)
            continue
        for arm in node.arms:
            found.append("    " * depth + arm.header)
            found += lines(arm.body, depth + 1) or ["    " * (depth + 1) + "pass"]
    return found


def bodies(nodes: list[Node]) -> list[list[Node]]:
    """All lists of statements, the given one first."""
    found = [nodes]
    for node in nodes:
        if isinstance(node, Block):
            for arm in node.arms:
                found += bodies(arm.body)
    return found


def renamed(node: Node, old: str, new: str) -> Node:
    """The same statement about another name."""
    if isinstance(node, str):
        return re.sub(rf"\b{old}\b", new, node)
    return Block(*(Arm(arm.header, [renamed(each, old, new) for each in arm.body]) for arm in node.arms))
