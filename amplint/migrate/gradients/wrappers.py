"""Objects around an optimizer, such as those that set the learning rate at each step: the inner one is stepped.

A scaler steps optimizers of torch. What a class of the file does around one stays as it is; its methods that step get
the scaler as their first argument.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable
from functools import cached_property
from typing import TYPE_CHECKING

from amplint.facts.values import Function, is_self
from amplint.migrate.gradients import own_optimizers
from amplint.migrate.tree import owner_of, position
from amplint.rewrite.statements import siblings

if TYPE_CHECKING:
    from amplint.migrate.facts import Facts
    from amplint.source import SourceFile

_OPTIMIZERS = "torch.optim."
_NO_STEPS = ("torch.optim.LBFGS", "torch.optim.lr_scheduler", "torch.optim.swa_utils")
_PLAIN_BASES = frozenset(("object", "abc.ABC"))


class Wrappers:
    """Answers which expressions of a file are objects around an optimizer, and what their methods are."""

    def __init__(self, facts: Facts) -> None:
        self.facts = facts
        self.file: SourceFile = facts.file

    @cached_property
    def inner(self) -> dict[ast.ClassDef, str]:
        """The wrapping classes of the file, each with the attribute that holds the inner optimizer.

        Their methods step that optimizer, which is in view; nothing in them goes backward, for such a class is a
        trainer, and they extend nothing but what the file shows.
        """
        found: dict[ast.ClassDef, str] = {}
        for cls in self.file.names.scopes:
            if not isinstance(cls, ast.ClassDef) or not self._is_plain(cls):
                continue
            stepped = {
                use.value.attr
                for use in self.file.names.attributes.get("step", ())
                if isinstance(use.value, ast.Attribute)
                and is_self(use.value.value)
                and self.file.values.enclosing_class(use) in self.file.values.lineage(cls)
                and self._holds_optimizer(use.value)
            }
            if len(stepped) == 1:
                found[cls] = stepped.pop()
        return found

    def _is_plain(self, cls: ast.ClassDef) -> bool:
        lineage = self.file.values.lineage(cls)
        for entry in lineage:
            for base in entry.bases:
                names = self.file.resolve(base) or ((base.id,) if isinstance(base, ast.Name) else ())
                inside = any(isinstance(value, ast.ClassDef) for value in self.file.values.of(base))
                if not inside and not (names and _PLAIN_BASES.issuperset(names)):
                    return False
            if entry.keywords or entry.decorator_list:
                return False
        trains = self._goes_backward
        return not own_optimizers.classes(self.file) & {*lineage} and not any(
            member in trains for entry in lineage for member in entry.body
        )

    @cached_property
    def _goes_backward(self) -> frozenset[Function]:
        return self.facts.closure_of(self.facts.owners(list(self.facts.backwards)))

    def _holds_optimizer(self, node: ast.Attribute) -> bool:
        """Whether an attribute holds an optimizer of torch, or none; `opt = Wrapper(opt)` comes back to itself."""
        cls = self.file.values.enclosing_class(node)
        values = [
            v
            for v in self.file.values.of(node)
            if not isinstance(v, ast.Call) or cls not in self.file.values.of(v.func)
        ]
        return self._are_torch(values)

    def _is_torch(self, node: ast.expr) -> bool:
        """Whether an expression surely is an optimizer of torch, or None."""
        return self._are_torch(self.file.values.of(node))

    def _are_torch(self, values: Iterable[ast.AST | None]) -> bool:
        names = [self.file.resolve(v.func) if isinstance(v, ast.Call) else () for v in values if not _is_nothing(v)]
        return bool(names) and all(
            found and all(name.startswith(_OPTIMIZERS) and not name.startswith(_NO_STEPS) for name in found)
            for found in names
        )

    # -- objects ------------------------------------------------------------------------------------------------------

    def made(self, node: ast.expr) -> tuple[ast.Call, ...]:
        """The calls that make the object around an optimizer behind an expression; `()` where it is no such object,
        or may be something else than one or None."""
        if not self.inner:
            return ()
        found = []
        for value in self._values(node):
            if _is_nothing(value):
                continue
            if not isinstance(value, ast.Call) or self._class_of(value) is None:
                return ()
            found.append(value)
        return tuple(found)

    def _values(self, node: ast.expr) -> tuple[ast.AST | None, ...]:
        """What an expression may stand for; of `opt = Adam(...)`, `opt = Wrapper(opt)` in one block the last alone."""
        values = self.file.values.of(node)
        hidden = {
            value
            for outer in values
            if isinstance(outer, ast.Call) and self._class_of(outer) is not None
            for argument in _arguments(outer)
            if isinstance(argument, ast.Name) and outer in self.file.values.of(argument)
            for value in self.file.values.of(argument)
            if isinstance(value, ast.Call) and self._is_replaced(value, outer, argument.id)
        }
        return tuple(value for value in values if value not in hidden)

    def _is_replaced(self, inner: ast.Call, outer: ast.Call, name: str) -> bool:
        """Whether the object around an optimizer takes the optimizer's name, behind it, before anything steps it."""
        first, then = self.file.statement(inner), self.file.statement(outer)
        block = siblings(self.file, then)
        if first not in block[: block.index(then)] or not isinstance(then, ast.Assign) or first is then:
            return False
        if not all(isinstance(target, ast.Name) and target.id == name for target in then.targets):
            return False
        owner = owner_of(self.file, then)
        return not any(
            isinstance(use.value, ast.Name)
            and use.value.id == name
            and owner_of(self.file, use) is owner
            and position(use) < position(then)
            for use in self.file.names.attributes.get("step", ())
        )

    def _class_of(self, call: ast.Call) -> ast.ClassDef | None:
        """The wrapping class of which a call makes an object, also by a function of the file."""
        made = self.file.values.constructed(call)
        if len(made) == 1 and isinstance(made[0], ast.ClassDef) and made[0] in self.inner:
            return made[0]
        return None

    def attribute(self, node: ast.expr) -> str:
        """The attribute of an object around an optimizer that holds it; empty where an expression is no such object."""
        classes = {self._class_of(call) for call in self.made(node)}
        names = {self.inner[cls] for cls in classes if cls is not None}
        return names.pop() if len(names) == 1 else ""

    def is_inner(self, node: ast.expr) -> bool:
        """Whether an expression is the optimizer in an object around it, as seen from outside (`opt.optimizer`)."""
        return isinstance(node, ast.Attribute) and not is_self(node.value) and self.attribute(node.value) == node.attr

    def given(self, call: ast.Call) -> ast.expr | None:
        """The optimizer that the making of an object gets, None where the class or a function makes it."""
        made = [value for value in self.file.values.of(call.func) if isinstance(value, ast.ClassDef)]
        init = self.file.values.method(made[0], "__init__") if made else None
        if init is None or made[0] not in self.inner:
            return None
        assigned = [
            v for c in self.file.values.lineage(made[0]) for v in self.file.values.assigned(c, self.inner[made[0]])
        ]
        if len(assigned) != 1 or not isinstance(assigned[0], ast.Name):
            return None
        return self.file.values.argument(call, init, assigned[0].id)

    # -- methods ------------------------------------------------------------------------------------------------------

    def owner(self, function: ast.AST) -> ast.ClassDef | None:
        """The wrapping class whose method a function is."""
        cls = self.file.parent(function)
        return cls if isinstance(cls, ast.ClassDef) and cls in self.inner else None

    def is_own(self, node: ast.expr) -> bool:
        """Whether an expression is the optimizer in an object around it, as its methods see it (`self.optimizer`)."""
        if not isinstance(node, ast.Attribute) or not is_self(node.value):
            return False
        cls = self.file.values.enclosing_class(node)
        return cls in self.inner and self.inner[cls] == node.attr

    @cached_property
    def calls(self) -> tuple[ast.Call, ...]:
        """The calls, from outside, of methods of objects around an optimizer."""
        return tuple(call for call in self.file.names.calls if self.calls_from_outside(call))

    def calls_from_outside(self, call: ast.Call) -> bool:
        """Whether a call, from outside, runs a method of an object around an optimizer."""
        return self.runs(call) and not is_self(call.func.value)  # type: ignore[attr-defined]

    def other_use(self, function: Function, calls: tuple[ast.Call, ...]) -> ast.AST | None:
        """A use of a method's name that may be the method and is none of the calls of it; None where there is none."""
        called = {call.func for call in calls}
        cls = self.owner(function)
        assert cls is not None
        for call in calls:
            if not self.runs(call):
                return call
        for other in self.file.names.scopes:
            if isinstance(other, ast.ClassDef) and other is not cls and cls in self.file.values.lineage(other):
                replaced = self.file.values.method(other, function.name)
                if replaced is not function:
                    return replaced
        uses = [use for use in self.file.names.attributes.get(function.name, ()) if use not in called]
        return next((use for use in uses if not self._is_elsewhere(use, function)), None)

    def _is_elsewhere(self, use: ast.Attribute, function: Function) -> bool:
        """Whether an attribute surely is not that of an object around an optimizer."""
        if self.file.resolve(use):
            return True
        call = self.file.parent(use)
        is_call = isinstance(call, ast.Call) and call.func is use
        if is_self(use.value):
            around = self.file.values.enclosing_class(use)
            return around is not None and not {*self.file.values.lineage(around)} & {*self.inner}
        if self.is_own(use.value) or self._is_torch(use.value) or self.facts.steps_no_parameters(use.value):
            return True
        if is_call and call.args and len(function.args.args) == 1 and not function.args.vararg:  # type: ignore[union-attr]
            return True  # `env.step(action)`
        made = self.file.values.constructed(use.value)
        return bool(made) and not any(entry is None or entry in self.inner for entry in made)

    def runs(self, call: ast.AST | None) -> bool:
        """Whether a call surely runs a method of an object around an optimizer."""
        return (
            isinstance(call, ast.Call)
            and isinstance(call.func, ast.Attribute)
            and any(self.owner(function) for function in self.file.values.functions(call))
            and (is_self(call.func.value) or bool(self.made(call.func.value)))
        )


def _arguments(call: ast.Call) -> list[ast.expr]:
    return [*call.args, *(keyword.value for keyword in call.keywords)]


def _is_nothing(value: ast.AST | None) -> bool:
    return isinstance(value, ast.Constant) and value.value is None
