"""Which methods `self.method()` may run where subclasses of the file have methods of their own."""

from __future__ import annotations

import ast
from functools import cached_property
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from amplint.facts.values import Function, Values
    from amplint.source import SourceFile

_NO_OBJECTS = frozenset(("super", "isinstance", "issubclass"))


class Overrides:
    """Looks from a class down to those that extend it, in one file."""

    def __init__(self, file: SourceFile, values: Values) -> None:
        self._file = file
        self._values = values

    def of(self, cls: ast.ClassDef, name: str, here: tuple[Function, ...]) -> tuple[Function, ...]:
        """The methods that `self.name` may be in a method of `cls`, where `here` is what the class itself has.

        Of the class and its subclasses those count that objects may be made of: that are used by name, or that nothing
        extends. Methods that only ask for an override do not count.
        """
        kinds = [cls, *self.subclasses(cls)]
        if all(self._values.method(kind, name) in here for kind in kinds):
            return here
        made = [kind for kind in kinds if kind in self._made or not self.subclasses(kind)]
        methods = [method for kind in made if (method := self._values.method(kind, name)) is not None]
        return tuple(dict.fromkeys(method for method in methods if not _is_abstract(method))) or here

    def subclasses(self, cls: ast.ClassDef) -> tuple[ast.ClassDef, ...]:
        """The classes of the file that extend a class."""
        return tuple(self._subclasses.get(cls, ()))

    @cached_property
    def _subclasses(self) -> dict[ast.ClassDef, list[ast.ClassDef]]:
        """The classes of the file that extend another one, by that."""
        found: dict[ast.ClassDef, list[ast.ClassDef]] = {}
        for cls in self._file.names.scopes:
            if isinstance(cls, ast.ClassDef) and cls.bases:
                for base in self._values.lineage(cls)[1:]:
                    found.setdefault(base, []).append(cls)
        return found

    @cached_property
    def _made(self) -> frozenset[ast.ClassDef]:
        """The classes whose names are used otherwise than as a base."""
        classes = [cls for cls in self._file.names.scopes if isinstance(cls, ast.ClassDef)]
        loads = self._file.names.loads
        return frozenset(c for c in classes if any(self._makes(use) for use in loads.get(c.name, ())))

    def _makes(self, use: ast.expr) -> bool:
        """Whether a use of a class may make objects of it, as a base and `super(C, self)` do not."""
        parent = self._file.parent(use)
        if isinstance(parent, ast.Call) and isinstance(parent.func, ast.Name):
            return parent.func.id not in _NO_OBJECTS
        return not isinstance(parent, (ast.ClassDef, ast.Attribute))


def _is_abstract(function: Function) -> bool:
    """Whether a method only says that subclasses must have one."""
    for decorator in function.decorator_list:
        if getattr(decorator, "attr", getattr(decorator, "id", "")) == "abstractmethod":
            return True
    body = [s for s in function.body if not (isinstance(s, ast.Expr) and isinstance(s.value, ast.Constant))]
    return len(body) == 1 and isinstance(body[0], ast.Raise)
