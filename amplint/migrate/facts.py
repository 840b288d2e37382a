"""What the objects of training code are: modules, optimizers, the calls that go backward and step."""

from __future__ import annotations

import ast
import re
from functools import cached_property
from typing import TYPE_CHECKING

from amplint.facts.training import is_loss_name, is_model_call, losses
from amplint.facts.values import Function, is_self, path_of
from amplint.migrate import iteration, kept
from amplint.migrate.gradients import backward_calls, own_optimizers, resets
from amplint.migrate.gradients.wrappers import Wrappers
from amplint.migrate.tree import FUNCTIONS, base_path, is_none, walk

if TYPE_CHECKING:
    from amplint.source import SourceFile

_MODULE_EVIDENCE = frozenset(
    (
        "parameters",
        "named_parameters",
        "train",
        "eval",
        "zero_grad",
        "load_state_dict",
        "state_dict",
        "modules",
        "apply",
    )
)
_NO_GRAPH_METHODS = re.compile(
    r"(?:parameters|named_\w+|train|eval|to|cuda|cpu|zero_grad|state_dict|load_state_dict|modules|apply|children|"
    r"requires_grad_?|share_memory|half|float|double|init\w*|reset\w*|_?init_\w+|set_\w+|save\w*|load\w*|"
    r"get_(?!loss|log|out|pred|feat|embed|action|value|q)\w+|update_\w+|step|backward|buffers|add_module|"
    r"register_\w+|print\w*|log|log_metrics|freeze\w*|unfreeze\w*|"
    r"num_\w+|extra_repr|compile|type)$"
)
_OPTIMIZER_NAME = re.compile(r"optim|(?:^|_)opt(?:$|[_\d])|^opt[A-Z]|(?:^|_)solver$|trainer$", re.I)
_NOT_OPTIMIZER = re.compile(r"sched|env|writer|ema|warmup|bar$|timer|param_groups", re.I)
_NO_MODULES = ("torch.optim.", "torch.utils.", "torch.nn.functional.", "torch.nn.utils.", "torch.nn.init.")
_MODULE_BASES = re.compile(r"(?:^|\.)(?:\w*Module|Sequential|\w*Net|\w*Model)$")
_LISTS = frozenset(("torch.nn.ModuleList", "torch.nn.Sequential"))
_GRADIENT_CALLS = re.compile(r"clip_grad|grad_norm|get_total_norm")


class Facts:
    """Answers questions on one file; everything is found on first use."""

    def __init__(self, file: SourceFile) -> None:
        self.file = file
        self._lambdas: set[ast.AST] = set()
        self.wrappers = Wrappers(self)

    # -- modules ------------------------------------------------------------------------------------------------------

    @cached_property
    def _module_paths(self) -> frozenset[str]:
        """The paths on which something is called that only modules have."""
        found = set()
        for name in _MODULE_EVIDENCE:
            for use in self.file.names.attributes.get(name, ()):
                call = self.file.parent(use)
                path = path_of(use.value)
                if isinstance(call, ast.Call) and call.func is use and path and path not in ("self", "super"):
                    found.add(path)
        return frozenset(path for path in found if not _OPTIMIZER_NAME.search(path.rsplit(".", 1)[-1]))

    def is_module_class(self, cls: ast.ClassDef) -> bool:
        """Whether a class of the file is a `torch.nn.Module`, as far as its bases can be seen."""
        for entry in self.file.values.lineage(cls):
            for base in entry.bases:
                names = self.file.resolve(base)
                if any(name.startswith("torch.nn.") for name in names):
                    return True
                if not any(
                    isinstance(value, ast.ClassDef) for value in self.file.values.of(base)
                ) and _MODULE_BASES.search(path_of(base)):
                    return True
        return False

    @cached_property
    def module_classes(self) -> tuple[ast.ClassDef, ...]:
        """The modules that the file defines."""
        classes = (node for node in self.file.names.scopes if isinstance(node, ast.ClassDef))
        return tuple(cls for cls in classes if self.is_module_class(cls))

    def is_module(self, node: ast.expr) -> bool:
        """Whether an expression is a module."""
        if isinstance(node, ast.Subscript):
            if self.is_module_name(self.optimizer_names(node)):
                return not self.is_loss(node)  # an entry of a dict that the file spells out
            node = node.value
            if self._holds_modules(node):
                return True
        path = path_of(node)
        if isinstance(node, ast.Attribute) and node.attr == "module":
            return self.is_module(node.value)
        if isinstance(node, ast.Call):
            return False
        if self.file.resolve(node):
            return False
        for cls in self.file.values.constructed(node):
            if isinstance(cls, ast.ClassDef):
                return self.is_module_class(cls)
            if isinstance(cls, str) and cls.startswith("torch.nn.") and not cls.rsplit(".", 1)[-1][:1].isupper():
                return False  # a function, such as `F.relu` or `data_parallel`
            if isinstance(cls, str) and (cls.startswith(_NO_MODULES) or cls.endswith((".Parameter", ".Buffer"))):
                return False
            if isinstance(cls, str) and cls.startswith(("torch.nn.", "torchvision.models.")):
                return not self.is_loss(node)
        if isinstance(node, ast.Name) and path not in self._module_paths:
            return self._is_one_of_a_list(node)
        return path in self._module_paths and not self.is_loss(node)

    def _is_one_of_a_list(self, node: ast.Name) -> bool:
        """Whether a loop variable runs over a `ModuleList`, also with its index."""
        iterated = self.iterated(node)
        if isinstance(iterated, ast.Call) and path_of(iterated.func) in ("enumerate", "reversed") and iterated.args:
            iterated = iterated.args[0]
        made = self.file.values.constructed(iterated) if iterated is not None else ()
        return bool(_LISTS.intersection(made)) or (iterated is not None and self._holds_modules(iterated))

    def _holds_modules(self, node: ast.expr) -> bool:
        """Whether a list holds modules of the file, as it is written out or filled by `append`."""
        elements = self.file.values.elements(node) or iteration.appended(self.file, node)
        made = [cls for element in elements for cls in self.file.values.constructed(element)]
        return bool(made) and all(isinstance(cls, ast.ClassDef) and self.is_module_class(cls) for cls in made)

    @staticmethod
    def is_module_name(names: tuple[str, ...]) -> bool:
        """Whether one of the qualified names is that of a class of modules."""
        return any(name.startswith("torch.nn.") and not name.startswith(_NO_MODULES) for name in names)

    def is_loss(self, node: ast.expr) -> bool:
        """Whether what an expression names computes a loss."""
        call = self.file.parent(node)
        if isinstance(call, ast.Call) and call.func is node:
            return bool(losses(self.file, call)) or is_loss_name(call)
        return False

    def module_of(self, call: ast.Call) -> ast.expr | None:
        """The module that a call runs, by itself or by one of its methods; None where it runs none."""
        func = call.func
        if (
            isinstance(func, ast.Name)
            and func.id[:1].isupper()
            and not any(binding.kind in ("assign", "param", "other") for binding in self.file.names.lookup(func))
        ):
            return None  # a class
        if (
            isinstance(func, ast.Attribute)
            and not is_self(func)
            and self.is_module(func.value)
            and not _NO_GRAPH_METHODS.fullmatch(func.attr)
        ):
            return func.value
        if is_self(func):
            owner = self.file.values.enclosing_class(call)
            return func if owner is not None and self.is_module_class(owner) else None
        if isinstance(func, ast.Attribute) and is_self(func.value) and self.file.values.functions(call):
            return None
        if (
            isinstance(func, ast.Attribute)
            and _NO_GRAPH_METHODS.fullmatch(func.attr)
            and func.attr != "type"
            and not self.is_module(func)
        ):
            return None
        if self.is_module(func) or is_model_call(self.file, call):
            return func
        return None

    @cached_property
    def module_inits(self) -> frozenset[ast.AST]:
        """The methods of modules, where calls belong to a forward and not to a loop."""
        return frozenset(
            statement for cls in self.module_classes for statement in cls.body if isinstance(statement, FUNCTIONS)
        )

    @cached_property
    def kept_by_modules(self) -> frozenset[str]:
        """The attributes in which methods of modules keep what they compute."""
        return kept.attributes(self.file, self.module_inits)

    # -- optimizers ---------------------------------------------------------------------------------------------------

    @cached_property
    def _zeroed(self) -> frozenset[str]:
        uses = self.file.names.attributes.get("zero_grad", ())
        return frozenset(path for use in uses if (path := base_path(use.value)))

    def optimizer_names(self, node: ast.expr) -> tuple[str, ...]:
        """The qualified names of the classes behind an optimizer, `()` where they can't be seen."""
        found = self.file.values.constructed(node)
        return tuple(name for name in found if isinstance(name, str) and name != "?")

    def is_optimizer(self, node: ast.expr) -> bool:
        """Whether an expression is an optimizer, by its class, its name, or what is called on it."""
        names = self.optimizer_names(node)
        if any("lr_scheduler" in name or "swa_utils" in name for name in names):
            return False
        if any(name.startswith("torch.optim.") for name in names):
            return True
        path = base_path(node)
        last = path.rsplit(".", 1)[-1]
        if not path or _NOT_OPTIMIZER.search(last):
            return False
        if any(isinstance(cls, ast.ClassDef) for cls in self.file.values.constructed(node)):
            return bool(_OPTIMIZER_NAME.search(last)) and path in self._zeroed
        return bool(_OPTIMIZER_NAME.search(last)) or (path in self._zeroed and not self.is_module(node))

    @cached_property
    def steps(self) -> tuple[ast.Call, ...]:
        """The calls that step an optimizer, in the order of the text."""
        found = []
        for use in self.file.names.attributes.get("step", ()):
            call = self.file.parent(use)
            if isinstance(call, ast.Call) and call.func is use and self._steps(use.value, call):
                found.append(call)
        return tuple(sorted(found, key=lambda c: (c.lineno, c.col_offset)))

    def _steps(self, receiver: ast.expr, call: ast.Call) -> bool:
        if isinstance(receiver, ast.Call) or self.wrappers.runs(call):
            return False
        name = receiver.id if isinstance(receiver, ast.Name) else ""
        iterated = self.iterated(receiver) if name else None
        return self.is_optimizer(receiver) or (iterated is not None and self.holds_optimizers(iterated))

    def holds_optimizers(self, node: ast.expr) -> bool:
        """Whether what a loop runs over are optimizers, by its name or as they are listed."""
        if isinstance(node, (ast.List, ast.Tuple)):
            return bool(node.elts) and all(self.is_optimizer(element) for element in node.elts)
        return self.is_optimizer(node)

    def is_wrapper(self, node: ast.expr) -> bool:
        """Whether an optimizer is an object around another optimizer, which alone a scaler can step."""
        if self.wrappers.is_own(node):
            return False
        for value in self.file.values.of(node):
            if not isinstance(value, ast.Call):
                continue
            for cls in self.file.values.of(value.func):
                if isinstance(cls, ast.ClassDef) and not any(
                    name.startswith("torch.optim")
                    for entry in self.file.values.lineage(cls)
                    for base in entry.bases
                    for name in self.file.resolve(base)
                ):
                    return True
            if not any(name.startswith("torch.optim.") for name in self.file.resolve(value.func)):
                given = [*value.args, *(keyword.value for keyword in value.keywords)]
                if any(isinstance(g, (ast.Name, ast.Attribute, ast.Call)) and self._makes_optimizer(g) for g in given):
                    return True
        return False

    @cached_property
    def own_optimizers(self) -> frozenset[ast.AST]:
        """The classes of this file that are optimizers of torch."""
        return own_optimizers.classes(self.file)

    def _makes_optimizer(self, node: ast.expr) -> bool:
        if isinstance(node, ast.Call):
            return any(name.startswith("torch.optim.") for name in self.file.resolve(node.func))
        return any(name.startswith("torch.optim.") for name in self.optimizer_names(node))

    def unknown_steps(self) -> list[ast.Call]:
        """The calls `x.step()` on things that are neither an optimizer in view nor surely something else."""
        found = []
        for use in self.file.names.attributes.get("step", ()):
            call = self.file.parent(use)
            if not isinstance(call, ast.Call) or call.func is not use or call.args or call in self.steps:
                continue
            if not self.steps_no_parameters(use.value) and not self.file.values.functions(call):
                found.append(call)
        return found

    def steps_no_parameters(self, node: ast.expr) -> bool:
        """Whether what has a `step` is surely no optimizer: a schedule, an environment."""
        names = self.optimizer_names(node)
        iterated = self.iterated(node) if isinstance(node, ast.Name) else None
        last = base_path(node if iterated is None else iterated).rsplit(".", 1)[-1]
        others = ("lr_scheduler" in n or "swa_utils" in n or n.startswith("gym") for n in names)
        return bool(_NOT_OPTIMIZER.search(last)) or any(others) or self._is_schedule(node)

    def _is_schedule(self, node: ast.expr) -> bool:
        """Whether an object is of a class of the file that extends one of torch's schedulers."""
        bases = [
            base
            for cls in self.file.values.constructed(node)
            if isinstance(cls, ast.ClassDef)
            for entry in self.file.values.lineage(cls)
            for base in entry.bases
        ]
        return any("lr_scheduler" in name for base in bases for name in self.file.resolve(base))

    @cached_property
    def trainer_names(self) -> frozenset[str]:
        """The names of the functions that go backward or step."""
        return frozenset(function.name for function in self.trainers)

    def iterated(self, node: ast.expr) -> ast.expr | None:
        """The collection that a loop variable runs over, None for any other expression."""
        return iteration.collection_of(self.file, node)

    # -- backward and gradients ---------------------------------------------------------------------------------------

    @cached_property
    def backwards(self) -> tuple[ast.Call, ...]:
        """The calls `loss.backward(...)` and `torch.autograd.backward(loss)`, in the order of the text."""
        return backward_calls.find(self.file)

    @cached_property
    def hidden_backwards(self) -> tuple[ast.expr, ...]:
        """Where something goes backward and is no plain call."""
        return backward_calls.hidden(self.file)

    def loss_of(self, call: ast.Call) -> ast.expr:
        """What a call among `backwards` goes backward on."""
        return backward_calls.loss_of(self.file, call)

    def reads_gradient(self, node: ast.AST) -> bool:
        """Whether a node reads or changes gradients: `p.grad` but for resetting it, or a clip."""
        if isinstance(node, ast.Call):
            names = self.file.resolve(node.func) or (path_of(node.func),)
            if names == ("getattr",) or "operator.attrgetter" in names:
                return any(isinstance(a, ast.Constant) and a.value == "grad" for a in node.args)
            return any(_GRADIENT_CALLS.search(name.rsplit(".", 1)[-1]) for name in names) and not (
                self.file.values.functions(node)
            )
        if not isinstance(node, ast.Attribute) or node.attr != "grad" or self.file.resolve(node):
            return False
        function = self.file.values.enclosing_function(node)
        if function is not None and self._is_reset(function):
            return False
        parent = self.file.parent(node)
        if isinstance(node.ctx, ast.Store):
            return not (
                isinstance(parent, ast.Assign) and (is_none(parent.value) or resets.is_zeros(self.file, parent.value))
            )
        if isinstance(parent, ast.Compare) and any(is_none(other) for other in parent.comparators):
            return False
        if isinstance(parent, (ast.If, ast.BoolOp)) or resets.is_model_of_zeros(self.file, node):
            return False
        while isinstance(parent, ast.Attribute) and parent.attr in ("data", "zero_", "detach_"):
            above = self.file.parent(parent)
            if parent.attr in ("zero_", "detach_") and isinstance(above, ast.Call):
                return False
            parent = above
        return True

    @staticmethod
    def _is_reset(function: Function) -> bool:
        """Whether a function by its name and text sets gradients to zero and does nothing else with them."""
        if not re.search(r"reset|zero", function.name, re.I):
            return False
        return "zero" in "".join(ast.unparse(statement) for statement in function.body)

    def resets(self, node: ast.AST) -> bool:
        """Whether a node resets gradients, by `zero_grad` or a function of the file that does."""
        if isinstance(node, ast.Attribute) and node.attr == "zero_grad":
            return True
        return isinstance(node, ast.Call) and any(
            self._is_reset(f) or any(isinstance(n, ast.Attribute) and n.attr == "zero_grad" for n in walk(f))
            for f in self.file.values.functions(node)
        )

    # -- helpers ------------------------------------------------------------------------------------------------------

    @cached_property
    def functions(self) -> tuple[Function, ...]:
        """All functions and methods of the file."""
        return tuple(node for node in self.file.names.scopes if isinstance(node, FUNCTIONS))

    def closure_of(self, direct: set[Function]) -> frozenset[Function]:
        """The functions and all that call them, by way of others too."""
        found = set(direct)
        pending = list(direct)
        while pending:
            function = pending.pop()
            for call in self.file.values.calls(function):
                caller = self.file.values.enclosing_function(call)
                if caller is not None and caller not in found:
                    found.add(caller)
                    pending.append(caller)
        return frozenset(found)

    def owners(self, nodes: list[ast.AST]) -> set[Function]:
        """The functions in whose bodies nodes stand."""
        found = (self.file.values.enclosing_function(node) for node in nodes)
        return {function for function in found if function is not None}

    @cached_property
    def trainers(self) -> frozenset[Function]:
        """The functions that go backward or step, also by calling others."""
        return self.closure_of(self.owners([*self.backwards, *self.steps]))

    @cached_property
    def gradient_readers(self) -> frozenset[Function]:
        """The functions that read or change gradients, also by calling others; those that train are left out."""
        nodes: list[ast.AST] = [
            node
            for function in self.functions
            if not self.is_step_of_optimizer(function)
            for node in walk(function)
            if self.reads_gradient(node)
        ]
        return self.closure_of(self.owners(nodes)) - self.trainers

    def is_step_of_optimizer(self, function: Function) -> bool:
        """Whether a function is the `step` of an optimizer that the file defines."""
        return own_optimizers.is_step(self.file, self.own_optimizers, function)

    def trains(self, node: ast.AST) -> bool:
        """Whether a node goes backward, steps, or calls a function of the file that does."""
        if not isinstance(node, ast.Call):
            return False
        return node in self._train_calls or any(f in self.trainers for f in self.file.values.functions(node))

    @cached_property
    def _train_calls(self) -> frozenset[ast.Call]:
        return frozenset((*self.backwards, *self.steps))

    def uses_gradient(self, node: ast.AST) -> bool:
        """Whether a node reads gradients or calls a function of the file, or a lambda, that does."""
        if self.reads_gradient(node):
            return True
        if not isinstance(node, ast.Call):
            return False
        given = [*node.args, *(keyword.value for keyword in node.keywords), *self.file.values.of(node.func)]
        if any(isinstance(g, ast.Lambda) and self._lambda_uses_gradient(g) for g in given):
            return True
        return self.calls_reader(node)

    def _lambda_uses_gradient(self, node: ast.Lambda) -> bool:
        if node in self._lambdas:
            return False  # it calls itself
        self._lambdas.add(node)
        try:
            return any(self.uses_gradient(inner) for inner in ast.walk(node.body))
        finally:
            self._lambdas.discard(node)

    def calls_reader(self, call: ast.Call) -> bool:
        """Whether a call runs a function of the file that reads gradients."""
        return any(function in self.gradient_readers for function in self.file.values.functions(call))
