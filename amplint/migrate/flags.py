"""A switch for mixed precision, wired to the script's own options: argparse, click, a dataclass, or a constant."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from amplint.facts.values import Function, path_of
from amplint.migrate import device as devices
from amplint.migrate.editor import Editor
from amplint.migrate.model import RefusalError
from amplint.migrate.tree import position

if TYPE_CHECKING:
    from amplint.source import SourceFile

_HELP = "train with automatic mixed precision"
_TAKEN = "there is {} `{}` already; give --flag another name"


class Switch:
    """The switch of one migration; `text` says how it is written at a statement, and adds it where it is new."""

    def __init__(self, file: SourceFile, editor: Editor, name: str) -> None:
        self.file = file
        self.editor = editor
        self.name = name
        self._added = ""

    def text(self, at: ast.stmt) -> str:
        """The switch as an expression at a statement; raises `RefusalError` where it can't be seen."""
        if devices.lookup(self.file, self.name, at):
            return self.name
        if not self._added:
            self._added = self._argparse() or self._click(at) or self._dataclass(at) or self._constant()
        root = self._added.split(".", 1)[0]
        bindings = devices.lookup(self.file, root, at)
        if root != self.name and not bindings:
            raise RefusalError(at, f"`{self._added}` is not known in this function; pass it in")
        here = self.file.values.enclosing_function(at)
        for binding in bindings:
            same = self.file.values.enclosing_function(binding.node) is here
            if same and binding.kind != "param" and position(binding.node) > position(at):
                raise RefusalError(at, f"`{self._added}` has no value here yet; parse the options first")
        return self._added

    def _argparse(self) -> str:
        """Add an argument to the parser whose result is assigned to a name, there or by callers."""
        for use in self.file.names.attributes.get("parse_args", ()):
            call = self.file.parent(use)
            statement = self.file.parent(call) if isinstance(call, ast.Call) and call.func is use else None
            parser = path_of(use.value)
            result = self._result(statement)
            if not isinstance(statement, ast.stmt) or not parser or not result:
                continue
            added = [
                self.file.statement(other)
                for other in self.file.names.attributes.get("add_argument", ())
                if path_of(other.value) == parser and position(other) < position(use)
            ]
            own = [s for s in added if self.file.values.enclosing_function(s) is self._function(statement)]
            if not own:
                continue
            option = self.name.replace("_", "-")
            self._refuse_taken(added)
            code = f'{parser}.add_argument("--{option}", action="store_true", help="{_HELP}")'
            self.editor.insert_after(max(own, key=position), code)
            return f"{result}.{self.name}"
        return ""

    def _result(self, statement: ast.AST | None) -> str:
        """The name of the parsed arguments: of an assignment, or where a function that returns them is called."""
        if isinstance(statement, ast.Assign):
            return self._target(statement)
        function = self._function(statement) if isinstance(statement, ast.Return) else None
        if function is None:
            return ""
        calls = [self.file.parent(use) for use in self.file.names.loads.get(function.name, ())]
        places = [self.file.parent(call) for call in calls if isinstance(call, ast.Call)]
        names = {self._target(place) if isinstance(place, ast.Assign) else "" for place in places}
        return names.pop() if len(names) == 1 else ""

    @staticmethod
    def _target(statement: ast.Assign) -> str:
        return statement.targets[0].id if isinstance(statement.targets[0], ast.Name) else ""

    def _refuse_taken(self, added: list[ast.stmt]) -> None:
        """Raise `RefusalError` where one of the statements adds an option of the switch's name."""
        for statement in added:
            for node in ast.walk(statement):
                if not isinstance(node, ast.Constant) or not isinstance(node.value, str):
                    continue
                keyword = self.file.parent(node)
                names = isinstance(keyword, ast.Call) or (isinstance(keyword, ast.keyword) and keyword.arg == "dest")
                if names and node.value.lstrip("-").replace("-", "_") == self.name:
                    raise RefusalError(statement, _TAKEN.format("an option", self.name))

    def _function(self, statement: ast.stmt) -> Function | None:
        return self.file.values.enclosing_function(statement)

    def _click(self, at: ast.stmt) -> str:
        """Add an option to the click command that holds the statement."""
        function = self.file.values.enclosing_function(at)
        if function is None:
            return ""
        decorators = [d for d in function.decorator_list if isinstance(d, ast.Call)]
        options = [d for d in decorators if self.file.resolve(d.func) == ("click.option",)]
        if not options or not function.args.args:
            return ""
        last = options[-1]
        line = self.file.line_span(last.end_lineno or last.lineno)
        indent = " " * (last.col_offset - 1)
        spelling = self.file.segment(last.func)
        option = self.name.replace("_", "-")
        code = f'{indent}@{spelling}("--{option}", is_flag=True, help="{_HELP}.")\n'
        self.editor.insert(line.end, code)
        self.editor.insert(self.file.span(function.args.args[-1]).end, f", {self.name}")
        return self.name

    def _dataclass(self, at: ast.stmt) -> str:
        """Add a field to the dataclass of an object that is in view at the statement."""
        for node in self.file.names.scopes:
            if not isinstance(node, ast.ClassDef):
                continue
            decorators = [d.func if isinstance(d, ast.Call) else d for d in node.decorator_list]
            if not any(self.file.resolve(d) == ("dataclasses.dataclass",) for d in decorators):
                continue
            fields = [s for s in node.body if isinstance(s, ast.AnnAssign)]
            for name, uses in self.file.names.loads.items():
                made = [v for use in uses for v in self.file.values.constructed(use)]
                if fields and node in made and devices.lookup(self.file, name, at):
                    for field in fields:
                        if path_of(field.target) == self.name:
                            raise RefusalError(field, _TAKEN.format("a field", self.name))
                    self.editor.insert_after(fields[-1], f"{self.name}: bool = True")
                    return f"{name}.{self.name}"
        return ""

    def _constant(self) -> str:
        """Add a constant after the imports."""
        last = [s for s in self.file.tree.body if isinstance(s, (ast.Import, ast.ImportFrom))]
        if not last:
            raise RefusalError(self.file.tree, "there are no imports after which a switch could be defined")
        self.editor.insert_after(last[-1], f"\n{self.name} = True")
        return self.name
