"""Namespaces of a module and what binds a name in them."""

from __future__ import annotations

import ast
from typing import NamedTuple

STAR_EXPORTS: dict[str, tuple[str, ...]] = {
    "torch.cuda.amp": ("GradScaler", "autocast", "custom_bwd", "custom_fwd"),
    "torch.cuda.amp.autocast_mode": ("autocast", "custom_bwd", "custom_fwd"),
    "torch.cuda.amp.grad_scaler": ("GradScaler",),
    "torch.cpu.amp": ("GradScaler", "autocast"),
    "torch.cpu.amp.autocast_mode": ("autocast",),
    "torch.cpu.amp.grad_scaler": ("GradScaler",),
    "torch.amp": ("GradScaler", "autocast", "custom_bwd", "custom_fwd", "is_autocast_available"),
    "torch.cuda": ("amp",),
}
"""What `from M import *` binds (`__all__` of torch 2.13, as far as it matters here)."""


class Binding(NamedTuple):
    """One place that gives a name a value.

    `kind` is `import`, `assign`, `def`, `class`, `param`, `star`, `delete` or `other` (a loop target, `with ... as`,
    and so on). `target` is the qualified name that an import binds; `value` the expression that an assignment binds.
    `node` is the statement, or for a parameter the `ast.arg`. `alias` is the `ast.alias` of an import.
    """

    name: str
    kind: str
    node: ast.AST
    target: str = ""
    value: ast.expr | None = None
    alias: ast.alias | None = None


class Scope:
    """A namespace: the module, a class, a function, a lambda or a comprehension."""

    __slots__ = ("bindings", "globals", "kind", "node", "nonlocals", "parent", "stars")

    def __init__(self, kind: str, node: ast.AST, parent: Scope | None) -> None:
        self.kind = kind
        self.node = node
        self.parent = parent
        self.bindings: dict[str, list[Binding]] = {}
        self.globals: set[str] = set()
        self.nonlocals: set[str] = set()
        self.stars: list[Binding] = []

    @property
    def module(self) -> Scope:
        """The outermost scope."""
        scope = self
        while scope.parent is not None:
            scope = scope.parent
        return scope
