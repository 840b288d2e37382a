"""Names of a file that are bound to something deprecated, each with all that is done with it."""

from __future__ import annotations

import ast

from amplint.modernize.uses import COVERED, LEFT, REPORTED, SILENT, Import, Inventory, Use
from amplint.names import Binding, Scope


class Group:
    """A name that imports or assignments of one scope bind, and every use of it.

    `others` are loads of the name that are no use of anything deprecated. A group changes as a whole or not at all; but
    the name of a `parent` (`from torch import cuda`) may stay when its uses change.
    """

    def __init__(self, scope: Scope, name: str, bindings: list[Binding]) -> None:
        self.scope = scope
        self.name = name
        self.bindings = bindings
        self.imports: list[Import] = []
        self.assignments: list[Use] = []
        self.uses: list[Use] = []
        self.others: list[ast.Name] = []

    @property
    def is_parent(self) -> bool:
        """Whether the name stands for a module above the deprecated ones."""
        return any(imported.parent for imported in self.imports)

    @property
    def foreign(self) -> Binding | None:
        """A binding of the name that is none of the group's."""
        ours = {id(imported.alias) for imported in self.imports} | {id(use.node) for use in self.assignments}
        for binding in self.bindings:
            if id(binding.alias or binding.value) not in ours:
                return binding
        return None

    @property
    def stays(self) -> bool:
        """Whether all uses of the name must go on with what is deprecated."""
        return bool(self.uses) and all(map(is_fallback, self.uses))

    @property
    def reported(self) -> bool:
        """Whether the imports of the group are findings: they are to go, or nothing keeps them."""
        if self.is_parent:
            return False
        states = [use.state for use in self.uses]
        return not self.only_uses_move and (not states or REPORTED in states or COVERED in states)

    @property
    def only_uses_move(self) -> bool:
        """Whether the name must stay for some of its uses and does no harm: it is a module, which warns of nothing."""
        is_module = bool(self.imports) and self.imports[0].move is None
        return self.is_parent or (is_module and any(is_fallback(use) for use in self.uses))


def groups_of(inventory: Inventory) -> list[Group]:
    """The names through which something deprecated is reached, in the order in which they are bound."""
    names = inventory.file.names
    by_alias = {id(i.alias): i for i in inventory.imports if not i.is_bare and not i.is_star}
    by_value = {id(use.node): use for use in inventory.uses if use.move is None and use.state == REPORTED}
    groups: list[Group] = []
    holder: dict[tuple[str, int], Group] = {}
    for scope in names.scopes.values():
        for name, bindings in scope.bindings.items():
            group = Group(scope, name, bindings)
            for binding in bindings:
                if binding.alias is not None and id(binding.alias) in by_alias:
                    group.imports.append(by_alias[id(binding.alias)])
                elif binding.kind == "assign" and id(binding.value) in by_value:
                    group.assignments.append(by_value[id(binding.value)])
                else:
                    continue
                holder[name, id(binding.node)] = group
            if group.imports or group.assignments:
                groups.append(group)
    _attach_uses(inventory, groups, holder)
    return [group for group in groups if not group.is_parent or group.uses]


def _attach_uses(inventory: Inventory, groups: list[Group], holder: dict[tuple[str, int], Group]) -> None:
    names = inventory.file.names
    for group in groups:
        for load in names.loads.get(group.name, ()):
            if any(holder.get((group.name, id(binding.node))) is group for binding in names.lookup(load)):
                use = inventory.by_root.get(load)
                if use is not None:
                    group.uses.append(use)
                else:
                    group.others.append(load)
    for use in inventory.uses:
        if use.ref.quoted is not None:
            for binding in names.lookup(use.root):
                owner = holder.get((use.root.id, id(binding.node)))
                if owner is not None and use not in owner.uses:
                    owner.uses.append(use)


def star_uses(inventory: Inventory, imported: Import) -> list[Use]:
    """The uses of names that a star import brings."""
    names = inventory.file.names
    return [
        use
        for use in inventory.uses
        if any(binding.kind == "star" and binding.alias is imported.alias for binding in names.lookup(use.root))
    ]


def is_fallback(use: Use) -> bool:
    """Whether a use must go on with the deprecated name."""
    return use.state in (SILENT, LEFT)
