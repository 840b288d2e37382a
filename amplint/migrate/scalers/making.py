"""Where the scaler is made, and how it comes to where it is used."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from amplint.facts.values import Function, default_of, path_of
from amplint.migrate import device as devices
from amplint.migrate.editor import Editor
from amplint.migrate.facts import Facts
from amplint.migrate.flags import Switch
from amplint.migrate.model import Options, RefusalError
from amplint.migrate.scalers import arguments, objects
from amplint.migrate.scalers.placement import Place, is_before, places
from amplint.migrate.tree import base_path, common_block, is_none, lift, loops_of, statements_in, walk
from amplint.rewrite.statements import siblings

if TYPE_CHECKING:
    from amplint.scopes import Binding
    from amplint.source import SourceFile

DTYPE_FUNCTION = "amp_dtype"
"""The function that a migration with --dtype auto adds."""
DTYPE_CODE = f'''

def {DTYPE_FUNCTION}():
    """bfloat16 where the GPU has it, else float16."""
    if torch.cuda.is_available() and torch.cuda.is_bf16_supported():
        return torch.bfloat16
    return torch.float16'''
_DEVICE_SCALER_SINCE = (2, 3)
"""The first torch with `torch.amp.GradScaler(device)`."""

_NAMES = ("scaler", "grad_scaler", "amp_scaler", "loss_scaler")


class Scalers:
    """Makes a scaler for each place where optimizers are made, and brings it to the functions that use it."""

    def __init__(self, facts: Facts, editor: Editor, options: Options, switch: Switch | None) -> None:
        self.facts = facts
        self.file: SourceFile = facts.file
        self.editor = editor
        self.options = options
        self.switch = switch
        self.name = free_name(self.file, _NAMES)
        self.made: dict[ast.AST, set[ast.stmt]] = {}
        """The statements that make the optimizers of scalers, by the functions, or the module, that make those."""
        self._texts: dict[tuple[ast.AST, str], str] = {}
        self.threaded: dict[Function, str] = {}
        self._uses: dict[ast.AST, list[ast.stmt]] = {}
        self._without_name: dict[ast.AST, list[ast.stmt]] = {}
        """The statements that make optimizers in the arguments of calls, by function."""
        self.switches: set[str] = set()
        """On which conditions the scalers that were written are on: expressions, empty for always."""
        self.optional: set[Function] = set()
        """The functions that are called without an optimizer too, and then have no scaler."""

    def mark(self) -> tuple[dict, dict, dict, dict]:  # type: ignore[type-arg]
        """What was planned so far, for `restore`."""
        made = {owner: set(makers) for owner, makers in self.made.items()}
        return made, dict(self._texts), dict(self.threaded), {owner: list(at) for owner, at in self._uses.items()}

    def restore(self, mark: tuple[dict, dict, dict, dict]) -> None:  # type: ignore[type-arg]
        """Forget what was planned since a mark."""
        self.made, self._texts, self.threaded, self._uses = mark

    def forget(self, owner: ast.AST) -> None:
        """Make no scaler in a function."""
        del self.made[owner], self._uses[owner]

    def text_for(self, optimizers: list[ast.expr], at: ast.stmt) -> str:
        """The scaler as it is written at a statement that uses these optimizers; raises `RefusalError`."""
        found = {self.reach(optimizer, at, 0) for optimizer in optimizers}
        if len(found) != 1:
            raise RefusalError(at, "its optimizers are made in different places, so no single scaler can serve them")
        return found.pop()

    # -- reaching -----------------------------------------------------------------------------------------------------

    def reach(self, optimizer: ast.expr, at: ast.stmt, depth: int) -> str:
        """Make sure that the scaler of an optimizer can be used at a statement; returns how it is written there."""
        if depth > 5:
            raise RefusalError(at, "the optimizer comes through too many calls")
        iterated = self.facts.iterated(optimizer)
        if iterated is not None:
            if isinstance(iterated, (ast.List, ast.Tuple)):
                return self.text_for(list(iterated.elts), at)
            optimizer = iterated
            if isinstance(optimizer, ast.Call) and path_of(optimizer.func) in ("zip", "enumerate") and optimizer.args:
                candidates = [a for a in optimizer.args if self.facts.is_optimizer(a)]
                optimizer = candidates[0] if candidates else optimizer
        if self.facts.wrappers.is_inner(optimizer):
            optimizer = optimizer.value  # type: ignore[attr-defined]
        path = base_path(optimizer)
        root = path.split(".", 1)[0]
        if not path:
            return self._in_call(optimizer, at)
        if root == "self":
            function = self.file.values.enclosing_function(at)
            if function is not None and self.facts.wrappers.owner(function):
                return objects.method(self, function, at, depth)
            return self._attribute(path, at, depth)
        bindings = devices.lookup(self.file, root, at)
        if not bindings:
            raise RefusalError(at, f"where `{root}` is made can't be seen")
        kinds = {binding.kind for binding in bindings}
        if "." in path and (cls := self._class_of(path, bindings)) is not None:
            return f"{root}.{self._attribute(path, at, depth, cls).removeprefix('self.')}"
        if kinds == {"param"}:
            return self._parameter(bindings[0].node, optimizer, path, at, depth)
        if not all(binding.kind == "assign" or isinstance(binding.node, ast.Assign) for binding in bindings):
            raise RefusalError(at, f"where the optimizer `{path}` is made can't be told")
        every = [binding.node for binding in bindings if isinstance(binding.node, ast.stmt)]
        makers = [maker for maker in every if not _assigns_none(maker)] or every
        owner = self.file.values.enclosing_function(makers[0]) or self.file.tree
        if any((self.file.values.enclosing_function(maker) or self.file.tree) is not owner for maker in makers):
            raise RefusalError(at, f"the optimizer `{path}` is made in several functions")
        self._declare_global(owner, root)
        self._place(owner, makers, self.name, at)
        return self.name

    def _in_call(self, optimizer: ast.expr, at: ast.stmt) -> str:
        """The scaler of an optimizer that is made in the arguments of a call (`fit(net, SGD(net.parameters()))`)."""
        owner = self.file.values.enclosing_function(at) or self.file.tree
        if not self._makes_optimizer(optimizer) or self._texts.setdefault((owner, ""), self.name) != self.name:
            raise RefusalError(at, "the optimizer is no name or attribute")
        self._without_name.setdefault(owner, []).append(at)
        return self.name

    def _declare_global(self, owner: ast.AST, optimizer: str) -> None:
        """A scaler is global where its optimizer is made by a function that declares it so."""
        for statement in statements_in(owner):
            if isinstance(statement, ast.Nonlocal) and optimizer in statement.names:
                raise RefusalError(statement, f"`{optimizer}` belongs to the function around the one that makes it")
        if owner is self.file.tree or optimizer not in self.file.names.scopes[owner].globals:
            return
        declared = next(s for s in statements_in(owner) if isinstance(s, ast.Global) and optimizer in s.names)
        self.editor.insert(self.file.span(declared).end, f", {self.name}")

    def _class_of(self, path: str, bindings: tuple[Binding, ...]) -> ast.ClassDef | None:
        """The class that makes the optimizer of an object which a name only picks out, as in `agent = self.agents[i]`;
        None for objects that are made where they get their name, beside which the scaler is made then."""
        picked = [binding.value for binding in bindings if binding.kind == "assign"]
        if path.count(".") != 1 or len(picked) < len(bindings) or not all(isinstance(v, ast.Subscript) for v in picked):
            return None
        attribute = path.split(".")[1]
        classes = [cls for cls in self.file.names.scopes if isinstance(cls, ast.ClassDef)]
        makers = [cls for cls in classes if any(map(self._makes_optimizer, self.file.values.assigned(cls, attribute)))]
        return makers[0] if len(makers) == 1 else None

    def _makes_optimizer(self, value: ast.expr | None) -> bool:
        """Whether a call makes an optimizer, perhaps where that gets no name, as in `train(model, Adam(...))`."""
        made = self.file.values.constructed(value) if isinstance(value, ast.Call) else ()
        if value is not None and made and self.facts.wrappers.made(value):
            return True
        return bool(made) and all(
            entry in self.facts.own_optimizers or (isinstance(entry, str) and entry.startswith("torch.optim."))
            for entry in made
        )

    def _attribute(self, path: str, at: ast.stmt, depth: int, cls: ast.ClassDef | None = None) -> str:
        cls = cls or self.file.values.enclosing_class(at)
        attribute = path.split(".")[1] if "." in path else ""
        if cls is None or not attribute:
            raise RefusalError(at, f"where `{path}` is made can't be told")
        makers = self._makers(attribute, self.file.values.lineage(cls))
        owners = {self.file.values.enclosing_function(maker) for maker in makers}
        if not owners and (inherited := self._made_below(cls, attribute)):
            text = f"self.{self.name}"
            for maker_of, made in inherited.items():
                self._place(maker_of, made, text, at)
            return text
        if len(owners) > 1:
            # What is made in the constructor is there when other methods replace it.
            owners = {o for o in owners if o is not None and o.name == "__init__" and self._makes_surely(o, makers)}
            makers = [m for m in makers if self.file.values.enclosing_function(m) in owners]
        if len(owners) != 1 or None in owners:
            raise RefusalError(at, f"`{path}` is made in no method of this file, or in several")
        owner = owners.pop()
        assert owner is not None
        if self.facts.is_module_class(cls) and owner.name != "__init__":
            raise RefusalError(at, "the optimizer belongs to a module and is made outside its `__init__`")
        if (other := self._overridden(cls, owner)) is not None:
            raise RefusalError(
                other, f"this `{other.name}` does not call that of the base class, which makes the scaler"
            )
        if any("__slots__" in self.file.names.scopes[entry].bindings for entry in self.file.values.lineage(cls)):
            raise RefusalError(cls, "the class has `__slots__`, none of them for a scaler")
        text = f"self.{self.name}"
        if (arg := objects.shared(self.file, owner, makers)) is not None:
            objects.construct(self, owner, arg, makers[-1], depth)
        else:
            self._place(owner, makers, text, at)
        return text

    def _makes_surely(self, function: Function, makers: list[ast.stmt]) -> bool:
        return any(maker in function.body for maker in makers)

    def _makers(self, attribute: str, classes: tuple[ast.ClassDef, ...]) -> list[ast.stmt]:
        """The statements of the methods of classes that give an attribute an optimizer."""
        uses = [
            use
            for entry in classes
            for use in self.file.names.attributes.get(attribute, ())
            if isinstance(use.ctx, ast.Store)
            and path_of(use.value) == "self"
            and self.file.values.enclosing_class(use) is entry
        ]
        return [maker for use in uses if not _assigns_none(maker := self.file.statement(use))]

    def _made_below(self, cls: ast.ClassDef, attribute: str) -> dict[Function, list[ast.stmt]]:
        """The methods of subclasses that make an optimizer which a class only uses, one in each subclass that is a
        leaf; empty where there are none or where one makes it in no method of its own, or in several."""
        below = [c for c in self.file.names.scopes if isinstance(c, ast.ClassDef) and c is not cls]
        below = [c for c in below if cls in self.file.values.lineage(c)]
        if any(
            self.facts.is_module_class(c) or c in self.file.values.lineage(o)
            for c in below
            for o in below
            if o is not c
        ):
            return {}
        found: dict[Function, list[ast.stmt]] = {}
        for entry in below:
            makers = self._makers(attribute, (entry,))
            owners = {self.file.values.enclosing_function(maker) for maker in makers}
            owner = owners.pop() if len(owners) == 1 else None
            if owner is None or "__slots__" in self.file.names.scopes[entry].bindings:
                return {}
            found[owner] = makers
        return found

    def _overridden(self, cls: ast.ClassDef, maker: Function) -> Function | None:
        """The method of a subclass that replaces the one that makes an optimizer, and does not call it."""
        for other in self.file.names.scopes:
            if not isinstance(other, ast.ClassDef) or other is cls or cls not in self.file.values.lineage(other):
                continue
            method = self.file.values.method(other, maker.name)
            if method is not None and method is not maker and f".{maker.name}(" not in self.file.segment(method):
                return method
        return None

    def _parameter(self, arg: ast.AST, optimizer: ast.expr, path: str, at: ast.stmt, depth: int) -> str:
        """The scaler becomes a parameter behind the optimizer, in the function and in all its calls."""
        assert isinstance(arg, ast.arg)
        function = self.file.values.enclosing_function(at)
        parameters = self.file.parent(arg)
        owner = self.file.parent(parameters) if parameters is not None else None
        while function is not None and function is not owner:
            function = self.file.values.enclosing_function(function)  # it makes the function that steps
        if function is None:
            raise RefusalError(at, "where the optimizer is made can't be told")
        if function in self.threaded:
            return self.threaded[function]
        if arg is function.args.vararg or arg is function.args.kwarg:
            raise RefusalError(at, f"the optimizer comes as `*{arg.arg}`")
        calls = self.file.values.calls(function)
        arguments.check_calls(self.facts, function, calls, at)
        self.threaded[function] = self.name
        optimizers = self._optimizer_parameters(function, arg)
        last = optimizers[-1]
        for call in calls:
            texts = set()
            for parameter in optimizers:
                given = self.file.values.argument(call, function, parameter.arg)
                unpacked = any(isinstance(a, ast.Starred) for a in call.args) or any(
                    k.arg is None for k in call.keywords
                )
                default = default_of(function.args, parameter)
                if unpacked or (given is None and (default is None or not is_none(default))):
                    raise RefusalError(call, f"the optimizer that `{function.name}` gets here can't be told")
                missing = given is None or is_none(given)
                texts.add("" if given is None or missing else self.reach(given, self.file.statement(call), depth + 1))
                if missing or self.file.values.enclosing_function(call) in self.optional:
                    self.optional.add(function)
            if texts == {""}:
                self._pass_none(function, last, call)
                continue
            if len(texts) != 1:
                raise RefusalError(
                    call, "its optimizers are made in different places, so no single scaler can serve them"
                )
            text = texts.pop()
            given = self.file.values.argument(call, function, last.arg)
            assert given is not None
            arguments.pass_behind(self.file, self.editor, call, given, self.name, text)
        arguments.declare(self.file, self.editor, function, last, self.name, at)
        return self.name

    def _pass_none(self, function: Function, last: ast.arg, call: ast.Call) -> None:
        """A call without an optimizer, for an evaluation, gets no scaler either."""
        given = self.file.values.argument(call, function, last.arg)
        is_keyword = any(keyword.value is given for keyword in call.keywords)
        if given is not None and (not is_keyword or default_of(function.args, last) is None):
            arguments.pass_behind(self.file, self.editor, call, given, self.name, "None")

    def _optimizer_parameters(self, function: Function, known: ast.arg) -> list[ast.arg]:
        """The parameters of a function that it steps as optimizers, or hands on, in their order."""
        steps = (*self.facts.steps, *self.facts.wrappers.calls)
        stepped = {base_path(step.func.value) for step in steps if step in set(walk(function))}  # type: ignore[attr-defined]
        every = [*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs]
        return [arg for arg in every if arg is known or arg.arg in stepped]

    # -- making -------------------------------------------------------------------------------------------------------

    def _place(self, owner: ast.AST, makers: list[ast.stmt], text: str, at: ast.stmt) -> None:
        self.made.setdefault(owner, set()).update(makers)
        if self._texts.setdefault((owner, ""), text) != text:
            raise RefusalError(at, "one scaler would need two names")
        self._uses.setdefault(owner, []).extend(self._reached_from(owner, at, set()))

    def _reached_from(self, owner: ast.AST, at: ast.stmt, seen: set[ast.AST]) -> list[ast.stmt]:
        """The statements of a function, or of the module, from which a statement is reached, by calls of others too."""
        function = self.file.values.enclosing_function(at)
        if (function or self.file.tree) is owner:
            return [at]
        if function is None or function in seen:
            return []
        seen.add(function)
        sites = [self.file.statement(call) for call in self.file.values.calls(function)]
        return [use for site in sites for use in self._reached_from(owner, site, seen)]

    def write(self) -> None:
        """Write the lines that make the scalers; raises `RefusalError` where no place is right."""
        for owner, calls in self._without_name.items():
            if owner in self.made:
                self._uses.setdefault(owner, []).extend(calls)
                continue
            block = common_block(self.file, calls)
            first = next(member for member in block if any(lift(self.file, call, [member]) for call in calls))
            statement = (loops_of(self.file, first) or [first])[-1]
            self.editor.insert_before(statement, f"{self.name} = {self._constructor(statement, tuple(calls))}")
        for owner, makers in self.made.items():
            text = self._texts[owner, ""]
            for place in places(self.file, makers, self._uses.get(owner, [])):
                statement = self._behind_device(place, self._last_move(place), self._uses.get(owner, []))
                line = f"{text} = {self._constructor(statement, place.makers)}"
                if place.before:
                    self.editor.insert_before(statement, line)
                else:
                    self.editor.insert_after(statement, line)

    def _behind_device(self, place: Place, statement: ast.stmt, uses: list[ast.stmt]) -> ast.stmt:
        """A statement, or a later one of its block that first gives the device, which the scaler asks for, a value."""
        if self.options.device:
            return statement
        named = None if place.before else devices.named_behind(self.facts, statement)
        if named is not None and all(is_before(self.file, Place(named, False, place.makers), use) for use in uses):
            return named
        made = devices.made_behind(self.facts, statement)
        if made is None:
            return statement
        block = siblings(self.file, statement)
        if place.before or not any(member is made for member in block[block.index(statement) :]):
            raise RefusalError(statement, "the device is made after the optimizer; make it first")
        return made

    def _last_move(self, place: Place) -> ast.stmt:
        """The last statement of a place's block that moves the optimizer's model, where the scaler asks that for its
        device."""
        floor = self.file.settings.target_torch
        module = self.module_of(place.makers[-1])
        if floor is None or floor >= _DEVICE_SCALER_SINCE or not module or place.before:
            return place.statement
        block = siblings(self.file, place.statement)
        found = place.statement
        for statement in block[block.index(found) + 1 :]:
            if any(self.facts.trains(node) for node in walk(statement)):
                break
            for node in walk(statement):
                if isinstance(node, ast.Attribute) and node.attr in ("cuda", "to") and path_of(node.value) == module:
                    found = statement
        return found

    def module_of(self, maker: ast.stmt) -> str:
        """The path of a model whose parameters an optimizer gets."""
        for node in ast.walk(maker):
            if (
                isinstance(node, ast.Attribute)
                and node.attr in ("parameters", "named_parameters")
                and path_of(node.value)
            ):
                return path_of(node.value)
        return ""

    def _constructor(self, place: ast.stmt, makers: tuple[ast.stmt, ...]) -> str:
        module = next((m for maker in makers if (m := self.module_of(maker))), "")
        found = devices.fixed(self.options.device) if self.options.device else devices.find(self.facts, place, module)
        if found is None:
            raise RefusalError(place, "the device on which this trains can't be told; pass --device cuda")
        self.switches.add(found.on_cuda)
        conditions = [found.on_cuda] if found.on_cuda else []
        if self.options.dtype == "auto":
            conditions.append(f"{DTYPE_FUNCTION}() == torch.float16")
        if self.switch is not None:
            conditions.insert(0, self.switch.text(place))
        enabled = " and ".join(conditions)
        floor = self.file.settings.target_torch
        if floor is None or floor >= _DEVICE_SCALER_SINCE:
            device = self.options.device or "cuda"
            switch = f", enabled={enabled}" if enabled else ""
            return f'torch.amp.GradScaler("{device}"{switch})'
        return f"torch.cuda.amp.GradScaler(enabled={enabled})" if enabled else "torch.cuda.amp.GradScaler()"


def free_name(file: SourceFile, candidates: tuple[str, ...]) -> str:
    """The first of the names that stands nowhere in the file, as a name, attribute, parameter or import."""
    taken = set(file.names.loads) | set(file.names.attributes)
    for scope in file.names.scopes.values():
        taken |= set(scope.bindings)
    for node in ast.walk(file.tree):
        if isinstance(node, ast.keyword) and node.arg:
            taken.add(node.arg)
    return next((name for name in candidates if name not in taken), f"{candidates[-1]}_")


def _assigns_none(statement: ast.stmt) -> bool:
    value = getattr(statement, "value", None)
    return isinstance(value, ast.Constant) and value.value is None
