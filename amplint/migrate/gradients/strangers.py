"""Calls whose code is not in view and that get a model, its parameters or its optimizer: between a backward and a step
they may use gradients (`clip(model)`, `plot_grad_flow(model.named_parameters())`), which then must be unscaled."""

from __future__ import annotations

import ast
import builtins
import re
import sys
from collections.abc import Callable
from functools import cached_property
from typing import TYPE_CHECKING, Final

from amplint.facts.values import Function, is_self, path_of
from amplint.migrate.facts import Facts
from amplint.migrate.tree import LOOPS, base_path, chain, walk
from amplint.rewrite.statements import siblings

if TYPE_CHECKING:
    from amplint.source import SourceFile

_HARMLESS_LIBRARIES = frozenset(("torch", "torchvision", "numpy", "tqdm", "torchsummary", "torchinfo"))
_COLLECTIONS = frozenset(("list", "tuple", "filter", "iter", "zip", "enumerate", "sorted", "dict", "reversed", "chain"))
_HOLDERS = frozenset(("parameters", "named_parameters", "modules", "named_modules", "children", "named_children"))
_HARMLESS_NAME = re.compile(
    r"(?:^|_)(?:save\w*|checkpoint|ckpt|lr|learning_rate|sched\w*|warmup|ema|eval\w*|valid\w*|test\w*|infer\w*|predict\w*|"
    r"samples?|generate\w*|acc|accuracy|metrics?|export|summary|print\w*|train|exit|stop|backward|step|zero_grad)(?:_|$)",
    re.I,
)
_HARMLESS_OBJECT = re.compile(
    r"ema|sched|loader|data|log|writer|meter|metric|saver|ckpt|checkpoint|criterion|loss|stop|eval|timer|prof|buffer|env",
    re.I,
)
_CHANGES_GRADIENTS = re.compile(r"grad|clip|constrain|prun|mask|regulari|decay|hook|synchron|reduce|sparsi", re.I)


class Strangers:
    """Answers which nodes hand what holds gradients to code that is not in view; `goes_backward` and `takes_step` say
    what a node does."""

    REASON: Final = (
        "code that is not in view gets the model or its optimizer here, where gradients may still be scaled; "
        "move it behind the step, or before backward()"
    )

    def __init__(
        self, facts: Facts, goes_backward: Callable[[ast.AST], bool], takes_step: Callable[[ast.AST], bool]
    ) -> None:
        self.facts = facts
        self.file: SourceFile = facts.file
        self._goes_backward = goes_backward
        self._takes_step = takes_step

    def may_use(self, node: ast.AST) -> bool:
        """Whether a node hands a model, parameters or an optimizer to unseen code, also by a function of the file."""
        if not isinstance(node, ast.Call):
            return False
        return self._hands_out(node) or any(f in self._givers for f in self.file.values.functions(node))

    def meets(self, statement: ast.stmt, nodes: list[ast.AST]) -> bool:
        """Whether nodes of a statement hand gradients out that are there: behind a backward and before any step of an
        iteration, as far as its function shows."""
        if not any(self.may_use(node) for node in nodes):
            return False
        for current in chain(self.file, statement):
            if isinstance(current, LOOPS) and current is not statement:
                return False
            block = siblings(self.file, current)
            for earlier in reversed(block[: block.index(current)]):
                if any(self._takes_step(node) for node in walk(earlier)):
                    return False
                if any(self._goes_backward(node) for node in walk(earlier)):
                    return True
        return False

    @cached_property
    def _givers(self) -> frozenset[Function]:
        """The functions that hand gradients out, also by calling others; those that train are left out."""
        nodes = [node for function in self.facts.functions for node in walk(function) if self._is_direct(node)]
        return self.facts.closure_of(self.facts.owners(nodes)) - self.facts.trainers - self.facts.module_inits

    def _is_direct(self, node: ast.AST) -> bool:
        return isinstance(node, ast.Call) and self._hands_out(node)

    def _hands_out(self, call: ast.Call) -> bool:
        func = call.func
        last = path_of(func).rsplit(".", 1)[-1] or getattr(func, "attr", "")
        is_harmless = _HARMLESS_NAME.search(last) and "grad" not in last.lower() and not self._decides(call)
        if self._is_seen(call) or is_harmless:
            return False
        if isinstance(func, ast.Attribute) and self.facts.is_module(func.value):
            # A method of a module: what it does to its own gradients is told by its name alone.
            if last == "apply":
                return not all(self._is_function_here(argument) for argument in call.args)
            return bool(_CHANGES_GRADIENTS.search(last))
        if self.facts.module_of(call) is not None:
            return False
        arguments = [*call.args, *(keyword.value for keyword in call.keywords)]
        if any(self._holds_gradients(a) or (is_self(a) and self._owner_trains(call)) for a in arguments):
            return True
        if _CHANGES_GRADIENTS.search(last) and any(
            isinstance(a, ast.Attribute) and self._is_part(a) for a in arguments
        ):
            return True
        return isinstance(func, ast.Attribute) and self._has_model(func.value)

    def _decides(self, call: ast.Call) -> bool:
        """Whether a call decides if a step is taken: `if valid(model): optimizer.step()`."""
        statement = self.file.statement(call)
        return (
            isinstance(statement, ast.If)
            and any(node is call for node in ast.walk(statement.test))
            and any(self._takes_step(node) for inner in statement.body for node in walk(inner))
        )

    def _is_part(self, node: ast.Attribute) -> bool:
        """Whether an attribute may be a layer of a module whose class is not in view."""
        made = self.file.values.constructed(node.value)
        seen = any(isinstance(cls, ast.ClassDef) for cls in made)
        return self.facts.is_module(node.value) and not seen and node.attr not in ("training", "device", "config")

    def _has_model(self, node: ast.expr) -> bool:
        """Whether an object was made with a model or its parameters, by a class of the project that is not in view:
        `fgm = FGM(model)`."""
        if _HARMLESS_OBJECT.search(path_of(node)) or not isinstance(node, (ast.Name, ast.Attribute)):
            return False
        if self.facts.is_optimizer(node) or self.facts.is_module(node):
            return False
        made = [value for value in self.file.values.of(node) if isinstance(value, ast.Call)]
        for call in made:
            names = self.file.resolve(call.func)
            roots = {name.split(".", 1)[0] for name in names}
            if not names or roots <= _HARMLESS_LIBRARIES | sys.stdlib_module_names:
                continue
            if names[0].rsplit(".", 1)[-1][:1].isupper() and any(
                self._holds_gradients(a) for a in (*call.args, *(k.value for k in call.keywords))
            ):
                return True
        return False

    def _is_seen(self, call: ast.Call) -> bool:
        """Whether what a call runs is in view, or surely leaves gradients alone."""
        if self.file.values.functions(call) or call in self.facts.steps:
            return True
        names = self.file.resolve(call.func)
        if names:
            roots = {name.split(".", 1)[0] for name in names}
            return roots <= _HARMLESS_LIBRARIES | sys.stdlib_module_names
        if isinstance(call.func, ast.Name):
            bound = self.file.names.lookup(call.func)
            if not bound:
                return hasattr(builtins, call.func.id)
            return all(isinstance(value, (ast.ClassDef, ast.Lambda)) for value in self.file.values.of(call.func))
        if isinstance(call.func, ast.Attribute) and isinstance(call.func.value, ast.Call):
            return path_of(call.func.value.func) == "super"
        return isinstance(call.func, ast.Attribute) and call.func.attr in ("append", "add", "extend", "add_param_group")

    def _is_function_here(self, node: ast.expr) -> bool:
        if isinstance(node, ast.Lambda):
            return True
        names = self.file.resolve(node)
        if names:
            return all(name.startswith("torch.") for name in names)
        values = self.file.values.of(node)
        return bool(values) and all(isinstance(value, (ast.FunctionDef, ast.Lambda)) for value in values)

    def _owner_trains(self, call: ast.Call) -> bool:
        cls = self.file.values.enclosing_class(call)
        return cls is not None and any(f in self.facts.trainers for f in cls.body if isinstance(f, ast.FunctionDef))

    def _holds_gradients(self, node: ast.expr, depth: int = 0) -> bool:
        """Whether a value is a module, parameters or an optimizer, or a collection of such."""
        if depth > 4:
            return False
        if isinstance(node, ast.Starred):
            return self._holds_gradients(node.value, depth)
        if isinstance(node, (ast.List, ast.Tuple, ast.Set)):
            return any(self._holds_gradients(element, depth) for element in node.elts)
        if isinstance(node, ast.Dict):
            return any(self._holds_gradients(value, depth) for value in node.values)
        if isinstance(node, ast.Call):
            name = path_of(node.func).rsplit(".", 1)[-1] or getattr(node.func, "attr", "")
            if isinstance(node.func, ast.Attribute) and name in _HOLDERS:
                return True
            return name in _COLLECTIONS and any(self._holds_gradients(a, depth + 1) for a in node.args)
        if isinstance(node, (ast.ListComp, ast.GeneratorExp)):
            given = any(self._holds_gradients(generator.iter, depth + 1) for generator in node.generators)
            return given and isinstance(node.elt, (ast.Name, ast.Tuple))
        if isinstance(node, ast.Subscript):
            if isinstance(node.slice, ast.Constant) and isinstance(node.slice.value, str):
                return node.slice.value == "params"
            return self._holds_gradients(node.value, depth)
        if not isinstance(node, (ast.Name, ast.Attribute)) or not path_of(node):
            return False
        if base_path(node).endswith(".param_groups"):
            return True
        if self.facts.is_optimizer(node) or (self.facts.is_module(node) and not self.facts.is_loss(node)):
            return True
        if isinstance(node, ast.Attribute) and self._is_layer(node):
            return True
        values = self.file.values.of(node)
        return any(
            isinstance(value, (ast.Call, ast.List, ast.ListComp)) and self._holds_gradients(value, depth + 1)
            for value in values
            if value is not node
        )

    def _is_layer(self, node: ast.Attribute) -> bool:
        """Whether `model.fc` or `model.fc.weight` is a part of a module of this file, or a weight by its name."""
        if not self.facts.is_module(node.value):
            return isinstance(node.value, ast.Attribute) and self._is_layer(node.value)
        if node.attr in ("weight", "bias"):
            return True
        for cls in self.file.values.constructed(node.value):
            assigned = self.file.values.assigned(cls, node.attr) if isinstance(cls, ast.ClassDef) else []
            made = [name for v in assigned if isinstance(v, ast.Call) for name in self.file.resolve(v.func)]
            if any(name.startswith("torch.nn.") for name in made):
                return True
        return False
