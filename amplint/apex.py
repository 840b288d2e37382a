"""Where a file uses `apex.amp`, and how a plain loop moves from there to torch.amp."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from amplint.facts.values import inside, path_of
from amplint.model import Applicability, Edit, Fix, Span
from amplint.rewrite.statements import (
    delete_statement,
    insert_after,
    insert_before,
    line_break,
    line_start,
    next_line,
    owns_its_lines,
    reindent,
    siblings,
)
from amplint.torch_api import APIS, CURRENT

if TYPE_CHECKING:
    from amplint.source import Ref, SourceFile

MODULE = "apex.amp"
_CLIPS = ("clip_grad_norm_", "clip_grad_value_")
_OPTIONS = ("opt_level", "enabled", "loss_scale", "verbosity")


class Group(NamedTuple):
    """One import of `apex.amp`, or the first use through `import apex`, and the references that hang on it."""

    first: Ref
    uses: tuple[Ref, ...]

    @property
    def named(self) -> tuple[Ref, ...]:
        """The references that name something of the module; the others ask whether it is there."""
        return tuple(use for use in self.uses if any(_is_public(name) for name in use.candidates))


class NotMovedError(Exception):
    """A loop that is not rewritten; the text is a clause that says why."""


def groups(file: SourceFile) -> Iterator[Group]:
    """The uses of `apex.amp` in a file by the import that brings it in."""
    imports = [ref for ref in file.refs if ref.context == "import" and _is_ours(ref.candidates)]
    uses = [ref for ref in file.refs if ref.context != "import" and any(_is_ours(names) for names in ref.names)]
    for ref in imports:
        found = [use for use in uses if _comes_from(file, use, ref)]
        uses = [use for use in uses if use not in found]
        yield Group(ref, tuple(found))
    first = next((use for use in uses if any(_is_public(name) for name in use.candidates)), None)
    if first is not None:
        yield Group(first, tuple(use for use in uses if use is not first))


def _is_ours(names: tuple[str, ...]) -> bool:
    return any(name == MODULE or name.startswith(f"{MODULE}.") for name in names)


def _is_public(name: str) -> bool:
    return name.startswith(f"{MODULE}.") and not name.startswith(f"{MODULE}.__")


def _comes_from(file: SourceFile, use: Ref, imported: Ref) -> bool:
    root = use.chain[0]
    assert isinstance(root, ast.Name), "a chain starts with a name"
    return any(binding.alias is imported.node for binding in file.names.lookup(root))


def move(file: SourceFile, group: Group) -> Fix:
    """The fix that moves a training loop to torch.amp; raises `NotMovedError` where it is not plain enough."""
    return Move(file, group).fix()


class Move:
    """The rewrite of one loop: what stands where, and the edits.

    The loop must hold, in one function, one `initialize` of a model and an optimizer, one `scale_loss`, and one step of
    that optimizer behind it.
    """

    def __init__(self, file: SourceFile, group: Group) -> None:
        self._file = file
        self._import = _plain_import(file, group.first)
        calls: dict[str, list[ast.Call]] = {"initialize": [], "scale_loss": [], "master_params": []}
        for use in group.uses:
            name = use.candidates[0].removeprefix(f"{MODULE}.")
            if use.call is None or name not in calls or len(use.candidates) > 1:
                raise NotMovedError(f"`{file.segment(use.node)}` has no counterpart in this rewrite")
            calls[name].append(use.call)
        if len(calls["initialize"]) != 1 or len(calls["scale_loss"]) != 1 or len(calls["master_params"]) > 1:
            raise NotMovedError("only a single loop with one `initialize` and one `scale_loss` is rewritten")
        self._initialize = calls["initialize"][0]
        self._clip = calls["master_params"][0] if calls["master_params"] else None
        self._backward = _scaled_backward(file, calls["scale_loss"][0])
        self._scale_loss = calls["scale_loss"][0]
        scopes = {file.scope(call) for found in calls.values() for call in found}
        if len(scopes) > 1:
            raise NotMovedError(
                "the model is initialized in another function than the loop, and the scaler must be passed on"
            )
        if any("scaler" in scope.bindings for scope in file.names.scopes.values()):
            raise NotMovedError("the name `scaler` is taken")
        if (file.settings.target_torch or CURRENT) < APIS["torch.amp.GradScaler"].since:
            raise NotMovedError("the oldest torch that the project supports has no `torch.amp.GradScaler`")
        self._torch = next(
            (
                binding.name
                for bindings in file.names.module.bindings.values()
                for binding in bindings
                if binding.kind == "import" and binding.target == "torch"
            ),
            "",
        )
        self._model, self._optimizer = self._initialized()
        self._step = self._optimizer_step()

    def fix(self) -> Fix:
        """All edits together."""
        edits = [
            self._without_import(),
            self._scaler(),
            *self._autocast(),
            self._scaled(),
            *self._clipped(),
            *self._stepped(),
        ]
        return Fix("Move the loop to torch.amp", tuple(edits), Applicability.UNSAFE)

    # -- what stands where --------------------------------------------------------------------------------------------

    def _initialized(self) -> tuple[str, str]:
        call, statement = self._initialize, self._file.statement(self._initialize)
        targets = statement.targets if isinstance(statement, ast.Assign) and statement.value is call else []
        pair = targets[0] if len(targets) == 1 else None
        if not isinstance(pair, ast.Tuple) or len(pair.elts) != 2 or len(call.args) != 2:
            raise NotMovedError("`initialize` is not given one model and one optimizer that it returns")
        names = [path_of(node) for node in call.args]
        if names != [path_of(node) for node in pair.elts] or "" in names:
            raise NotMovedError("`initialize` returns the model and the optimizer under other names")
        if any(keyword.arg not in _OPTIONS for keyword in call.keywords):
            raise NotMovedError("`initialize` is given options that have no counterpart")
        if self._option("loss_scale") not in ("", "None", '"dynamic"', "'dynamic'"):
            raise NotMovedError("the loss scale is fixed")
        if path_of(self._scale_loss.args[1]) != names[1]:
            raise NotMovedError("`scale_loss` is given another optimizer than `initialize`")
        return names[0], names[1]

    def _option(self, name: str) -> str:
        """The text of an option of `initialize`, "" where it is left out."""
        found = [keyword.value for keyword in self._initialize.keywords if keyword.arg == name]
        return self._file.segment(found[0]) if found else ""

    def _optimizer_step(self) -> ast.Expr:
        function = self._file.values.enclosing_function(self._initialize)
        steps = [
            node
            for node in inside(function if function is not None else self._file.tree)
            if isinstance(node, ast.Expr)
            and isinstance(node.value, ast.Call)
            and path_of(node.value.func) == f"{self._optimizer}.step"
        ]
        if len(steps) != 1 or not isinstance(steps[0].value, ast.Call):
            raise NotMovedError("the optimizer does not step exactly once")
        if steps[0].value.args or steps[0].value.keywords:
            raise NotMovedError("the optimizer steps with a closure")
        if self._file.span(steps[0]).start < self._file.span(self._backward).end:
            raise NotMovedError("the optimizer steps before the backward pass")
        return steps[0]

    # -- edits --------------------------------------------------------------------------------------------------------

    def _without_import(self) -> Edit:
        statement, alias = self._import
        if len(statement.names) > 1:
            index = statement.names.index(alias)
            own = self._file.span(alias)
            if index + 1 < len(statement.names):
                return Edit(Span(own.start, self._file.span(statement.names[index + 1]).start), "")
            return Edit(Span(self._file.span(statement.names[index - 1]).end, own.end), "")
        if not self._torch:
            return Edit(self._file.span(statement), "import torch")
        return delete_statement(self._file, statement)

    def _scaler(self) -> Edit:
        enabled = self._enabled()
        arguments = f'"cuda", enabled={enabled}' if enabled else '"cuda"'
        text = f"scaler = {self._torch or 'torch'}.amp.GradScaler({arguments})"
        return Edit(self._file.span(self._file.statement(self._initialize)), text)

    def _enabled(self) -> str:
        """The condition under which apex does anything, "" where it always does."""
        level, enabled = self._option("opt_level"), self._option("enabled")
        parts = [] if enabled in ("", "True") else [enabled]
        if level.strip("\"'") == "O0":
            return "False"
        if level and level[0] not in "\"'":
            parts.append(f'{level} != "O0"')
        return " and ".join(parts)

    def _scaled(self) -> Edit:
        with_ = self._backward
        statement = with_.body[0]
        assert isinstance(statement, ast.Expr)
        assert isinstance(statement.value, ast.Call)
        call = statement.value
        arguments = self._file.segment(Span(self._file.span(call.func).end, self._file.span(call).end))
        loss = self._file.segment(self._scale_loss.args[0])
        return Edit(self._file.span(with_), f"scaler.scale({loss}).backward{arguments}")

    def _clipped(self) -> list[Edit]:
        if self._clip is None:
            return []
        parent = self._file.parent(self._clip)
        statement = self._file.statement(self._clip)
        around = siblings(self._file, statement)
        in_place = self._step in around or self._backward in around
        if not isinstance(parent, ast.Call) or parent.args[:1] != [self._clip] or not in_place:
            raise NotMovedError("the gradients are not clipped beside the step")
        if path_of(parent.func).rpartition(".")[2] not in _CLIPS or path_of(self._clip.args[0]) != self._optimizer:
            raise NotMovedError("`master_params` is used for something else than clipping")
        before = insert_before(self._file, statement, f"scaler.unscale_({self._optimizer})")
        if before is None:
            raise NotMovedError("there is no room for `unscale_` before the clipping")
        return [Edit(self._file.span(self._clip), f"{self._model}.parameters()"), before]

    def _stepped(self) -> list[Edit]:
        after = insert_after(self._file, self._step, "scaler.update()")
        if after is None:
            raise NotMovedError("there is no room for `update` after the step")
        return [Edit(self._file.span(self._step), f"scaler.step({self._optimizer})"), after]

    def _autocast(self) -> list[Edit]:
        """Put the forward pass and the loss, which must stand before the backward pass, under autocast."""
        block = siblings(self._file, self._backward)
        before = block[: block.index(self._backward)]
        names = {node.id for node in ast.walk(self._scale_loss.args[0]) if isinstance(node, ast.Name)}
        forward = [index for index, statement in enumerate(before) if self._runs_model(statement)]
        losses = [index for index, statement in enumerate(before) if _assigned(statement) & names]
        if not forward or not losses or losses[-1] < forward[0]:
            raise NotMovedError("the forward pass and the loss do not stand before the backward pass")
        run = before[forward[0] : losses[-1] + 1]
        if any(_must_stay_outside(statement) for statement in run):
            raise NotMovedError("something between the forward pass and the loss must not run under autocast")
        if not all(owns_its_lines(self._file, statement) for statement in run):
            raise NotMovedError("the forward pass shares its line with other code")
        return [self._under_autocast(run)]

    def _under_autocast(self, run: Sequence[ast.stmt]) -> Edit:
        encoded = self._file.encoded
        start = line_start(encoded, self._file.span(run[0]).start)
        end = next_line(encoded, self._file.span(run[-1]).end)
        indent = self._file.indentation(run[0])
        parent = self._file.parent(run[0])
        outer = self._file.indentation(parent) if isinstance(parent, ast.stmt) else ""
        unit = indent.removeprefix(outer) if indent.startswith(outer) and indent != outer else "    "
        enabled = ", enabled=scaler.is_enabled()" if self._enabled() else ""
        torch = self._torch or "torch"
        name = torch + self._file.settings.autocast.removeprefix("torch")
        header = f'{indent}with {name}("cuda", dtype={torch}.float16{enabled}):{line_break(encoded, start)}'
        return Edit(Span(start, end), header + reindent(self._file.segment(Span(start, end)), indent, indent + unit))

    def _runs_model(self, statement: ast.stmt) -> bool:
        return any(isinstance(node, ast.Call) and path_of(node.func) == self._model for node in ast.walk(statement))


def _plain_import(file: SourceFile, ref: Ref) -> tuple[ast.Import | ast.ImportFrom, ast.alias]:
    statement = ref.statement
    if not isinstance(ref.node, ast.alias) or not isinstance(statement, (ast.Import, ast.ImportFrom)):
        raise NotMovedError("`apex.amp` is reached through `import apex`")
    if ref.candidates != (MODULE,):
        raise NotMovedError("its functions are imported one by one")
    if file.parent(statement) is not file.tree:
        raise NotMovedError("the import is conditional")
    if isinstance(statement, ast.Import) and ref.node.asname is None:
        raise NotMovedError("`import apex.amp` binds all of apex")
    return statement, ref.node


def _scaled_backward(file: SourceFile, call: ast.Call) -> ast.With:
    """The `with amp.scale_loss(loss, optimizer) as scaled: scaled.backward()`, alone in its lines."""
    item = file.parent(call)
    with_ = file.parent(item) if isinstance(item, ast.withitem) else None
    if not isinstance(item, ast.withitem) or not isinstance(with_, ast.With) or len(with_.items) != 1:
        raise NotMovedError("`scale_loss` is not the only thing that a `with` statement enters")
    body = with_.body[0]
    backward = body.value if isinstance(body, ast.Expr) else None
    if (
        len(with_.body) != 1
        or not isinstance(backward, ast.Call)
        or not isinstance(item.optional_vars, ast.Name)
        or path_of(backward.func) != f"{item.optional_vars.id}.backward"
    ):
        raise NotMovedError("more than the backward pass stands under `scale_loss`")
    if len(call.args) != 2 or call.keywords:
        raise NotMovedError("`scale_loss` is given more than the loss and the optimizer")
    if "#" in file.segment(with_):
        raise NotMovedError("a comment stands in the `scale_loss` block")
    return with_


def _assigned(statement: ast.stmt) -> set[str]:
    return {node.id for node in ast.walk(statement) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}


def _must_stay_outside(statement: ast.stmt) -> bool:
    for node in ast.walk(statement):
        if isinstance(node, (ast.Yield, ast.YieldFrom, ast.Await, ast.Return, ast.Delete)):
            return True
        if isinstance(node, ast.Attribute) and node.attr in ("backward", "step"):
            return True
    return False
