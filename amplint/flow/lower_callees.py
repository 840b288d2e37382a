"""Which procedure of the file a call runs, where that is certain."""

from __future__ import annotations

import ast

from amplint.flow import ir
from amplint.flow.functions import Function, binds
from amplint.flow.lower_expressions import ExpressionLowering
from amplint.flow.paths import last_name, path_of


class CalleeLowering(ExpressionLowering):
    """Finds callees and lowers their arguments."""

    def local(self, func: ast.expr) -> str | None:
        """The procedure of this file that a call of `func` runs, None where that is not certain."""
        if isinstance(func, ast.Name):
            return self._named(func.id)
        if not isinstance(func, ast.Attribute):
            return None
        if isinstance(func.value, ast.Call) and last_name(func.value.func) == "super" and self.function.owner:
            for base in self.functions.bases.get(self.function.owner, ()):
                if func.attr in self.functions.methods[base]:
                    return self.functions.methods[base][func.attr]
            return None
        path = path_of(func.value)
        if path is None:
            return None
        place, rest = self.kinds.key(f"{path}.", self.function)
        owner = place[6:] if place.startswith("class ") and rest == "." else self.kinds.instance(path, self.function)
        if owner is None and path in self.functions.classes:
            owner = path
        if owner is not None:
            method = self.functions.methods.get(owner, {}).get(func.attr)
            return method or self._stored(f".{func.attr}", owner)
        return None

    def _named(self, name: str) -> str | None:
        current: Function | None = self.function
        while current is not None:
            if binds(current, name):
                bindings = current.scope.bindings[name]
                found = [b for b in bindings if b.kind == "def"]
                if found and len(found) == len(bindings):
                    return self.functions.by_node[found[-1].node].name
                if len(bindings) == 1 and isinstance(bindings[0].value, ast.Lambda):
                    return self.functions.by_node[bindings[0].value].name
                if len(bindings) == 1 and isinstance(bindings[0].value, ast.Name) and bindings[0].value.id != name:
                    return self._named(bindings[0].value.id)
                if len(bindings) == 1 and (inner := self._partial_of(bindings[0].value)) is not None:
                    return self.local(inner)
                return None
            current = current.outer or (self.functions.module if current is not self.functions.module else None)
        return None

    def _stored(self, attribute: str, owner: str) -> str | None:
        """The lambda that a class stores at an attribute, if it is the only one."""
        found: list[str] = []
        for node in self.file.names.scopes:
            parent = self.file.parent(node) if isinstance(node, ast.Lambda) else None
            if not isinstance(parent, ast.Assign):
                continue
            function = self.functions.by_node[node]
            paths = [path for target in parent.targets if (path := path_of(target))]
            if function.outer is None or function.owner != owner:
                continue
            if any(self.kinds.key(path, function.outer) == (f"class {owner}", attribute) for path in paths):
                found.append(function.name)
        return found[0] if len(found) == 1 else None

    def _partial_of(self, value: ast.expr | None) -> ast.expr | None:
        if isinstance(value, ast.Call) and last_name(value.func) == "partial" and value.args:
            return value.args[0]
        return None

    def is_partial(self, value: ast.expr) -> bool:
        """Whether an expression is `functools.partial` of something that is called later."""
        return self._partial_of(value) is not None

    def called_partial(self, func: ast.expr) -> ast.expr | None:
        """The function behind a name or attribute that is bound once, to a partial or to the function itself."""
        if isinstance(func, ast.Name):
            current: Function | None = self.function
            while current is not None:
                if binds(current, func.id):
                    bindings = current.scope.bindings[func.id]
                    return self._partial_of(bindings[0].value) if len(bindings) == 1 else None
                current = current.outer or (self.functions.module if current is not self.functions.module else None)
        return None

    def constructs(self, value: ast.expr) -> ast.Call | None:
        """The call that makes an instance of a class of this file, if `value` is one."""
        if isinstance(value, ast.Call) and self.kinds.constructed(value).startswith("class:"):
            return value
        return None

    def construct(self, call: ast.Call, receiver: str) -> None:
        """Make an instance of a class of this file at a path."""
        owner = self.kinds.constructed(call).removeprefix("class:")
        target = self.functions.methods[owner].get("__init__")
        arguments = self.arguments(call)
        self.out.append(ir.Assign(receiver, ir.Opaque()))
        if target is not None:
            span = self.file.span(call)
            self.out.append(ir.Invoke(target, arguments, self.temporary(), span, receiver))

    def arguments(self, call: ast.Call) -> tuple[tuple[int | str, ir.Value], ...]:
        """The arguments of a call, those before a star left out of the positions after it."""
        found: list[tuple[int | str, ir.Value]] = []
        starred = False
        for index, argument in enumerate(call.args):
            value = self.expression(argument)
            starred = starred or isinstance(argument, ast.Starred)
            if not starred:
                found.append((index, value))
        for keyword in call.keywords:
            value = self.expression(keyword.value)
            if keyword.arg is not None:
                found.append((keyword.arg, value))
        return tuple(found)

    def owners(self, argument: ast.expr) -> list[str]:
        """The paths whose `parameters()` an argument holds."""
        found = []
        for inner in ast.walk(argument):
            if isinstance(inner, ast.Call) and last_name(inner.func) in ("parameters", "named_parameters"):
                path = path_of(inner.func.value) if isinstance(inner.func, ast.Attribute) else None
                if path is not None and "[*]" not in path:
                    found.append(self.name(path))
        return found
