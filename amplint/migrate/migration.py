"""The whole of it: a text in, the migrated text and a report on every loop out; nothing is half migrated.

Files are not written. Of other files, those that the text imports are read for what half precision breaks.
"""

from __future__ import annotations

import ast
import re

from amplint.edits import apply_fixes, parses
from amplint.facts.values import path_of
from amplint.migrate import device as devices
from amplint.migrate import elsewhere
from amplint.migrate.comparison import edits_between, new_faults
from amplint.migrate.editor import Editor
from amplint.migrate.facts import Facts
from amplint.migrate.flags import Switch
from amplint.migrate.gradients import closures, overflow, twice
from amplint.migrate.gradients.writing import Protocol
from amplint.migrate.lines import take_apart
from amplint.migrate.model import (
    MIGRATED,
    PARTLY,
    REFUSED,
    LoopReport,
    MigrationResult,
    Options,
    RefusalError,
    SharedLineError,
)
from amplint.migrate.neighbours import Neighbours
from amplint.migrate.numerics import carried, gains, states
from amplint.migrate.numerics.readers import cast_for_readers
from amplint.migrate.numerics.review import Numerics
from amplint.migrate.regions import evaluation
from amplint.migrate.regions.cache import mixes_gradients
from amplint.migrate.regions.indirect import check_lambdas
from amplint.migrate.regions.penalties import Penalties, screen_gradients
from amplint.migrate.regions.runs import Run, Runs
from amplint.migrate.regions.sinks import Sinks
from amplint.migrate.scalers import checkpoints
from amplint.migrate.scalers.making import DTYPE_CODE, DTYPE_FUNCTION, Scalers, free_name
from amplint.migrate.screening import screen, watched_gradients
from amplint.migrate.tree import LOOPS, chain, owner_of, walk
from amplint.model import Applicability, Edit, Fix
from amplint.settings import DEFAULT, Settings
from amplint.source import SourceFile

UNSAVED_REASON = (
    "the scaler can't be brought to where checkpoints are written; "
    "save and load its state_dict() beside the optimizer's"
)
_NO_GPU = "nothing in this script is put on a GPU yet; autocast takes effect when the model and the data are"
_OF_TORCH = re.compile(r"\btorch\.(?=(?:autocast|amp|cuda|device|float16|bfloat16)\b)")
_AUTOCAST_SINCE = (1, 10)
_SHARED_LINES = 200
"""How many lines with several statements may be taken apart."""


def migrate_source(
    text: str,
    filename: str = "<stdin>",
    settings: Settings = DEFAULT,
    options: Options = Options(),  # noqa: B008
) -> MigrationResult:
    """Turn the FP32 training loops of a text into loops under automatic mixed precision.

    All loops of a file are migrated together or none is, since they share models and optimizers; evaluation loops that
    can't be moved are left and reported. Text that does not parse comes back unchanged with one refused report.
    """
    return migrate_file(SourceFile(text, filename, settings), options)


def migrate_file(file: SourceFile, options: Options) -> MigrationResult:
    """Turn the loops of a file into loops under automatic mixed precision, as `migrate_source` does."""
    original, text = file, file.text
    rows = list(range(1, len(text.splitlines()) + 2))
    if options.dtype != "bfloat16" and (called := closures.unfold(file)) is not None:
        rows = called.rows
        file = file.with_text(called.text)
    for _ in range(_SHARED_LINES):
        try:
            result = _attempt(file, options)
        except SharedLineError as shared:
            apart = take_apart(shared.file, shared.statement)
            if apart is None:
                lines = _loop_lines(Facts(original))
                return _refused(text, lines, f"line {rows[shared.statement.lineno - 1]}: {shared.reason}")
            rows = [rows[row - 1] for row in apart.rows]
            file = file.with_text(apart.text)
        else:
            return result if file.text == text else _on_old_rows(text, file.text, result, rows)
    raise AssertionError("each round takes a line apart")


def _on_old_rows(text: str, spread: str, result: MigrationResult, rows: list[int]) -> MigrationResult:
    """A result on a text whose lines were taken apart, told of the text as it was."""
    new = text if result.text == spread else result.text
    edits = edits_between(text, new)
    loops = [
        loop._replace(
            line=rows[loop.line - 1],
            reason=re.sub(r"^line (\d+)", lambda match: f"line {rows[int(match[1]) - 1]}", loop.reason),
            edits=edits if loop.edits else (),
        )
        for loop in result.loops
    ]
    return MigrationResult(new, loops, edits)


def _attempt(file: SourceFile, options: Options) -> MigrationResult:
    """Migrate a text; raises `SharedLineError` where statements stand on one line that must stand alone."""
    text = file.text
    try:
        _ = file.tree
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        line = getattr(error, "lineno", None) or 1
        return MigrationResult(text, [LoopReport(line, REFUSED, f"the file does not parse: {error}")])
    facts = Facts(file)
    lines = _loop_lines(facts)
    if not lines:
        away = elsewhere.find(facts)
        if away is None:
            return MigrationResult(text, [])
        report = LoopReport(getattr(away.node, "lineno", 1), REFUSED, _reason(away), (), False, away.missing)
        return MigrationResult(text, [report])
    if file.unseen_rows:
        return _refused(text, lines, f"line {file.unseen_rows[0]}: its syntax is newer than this Python")
    try:
        return _migrated(file, lines, options, with_evaluation=True)
    except _EvaluationError as left:
        try:
            return _migrated(file, lines, options, with_evaluation=False, left=str(left))
        except SharedLineError:
            raise
        except RefusalError as refusal:
            return _refused(text, lines, _reason(refusal), refusal.missing)
    except SharedLineError:
        raise
    except RefusalError as refusal:
        return _refused(text, lines, _reason(refusal), refusal.missing)
    except RecursionError:
        return _refused(text, lines, "the functions of this file call each other too deeply to be followed")


class _EvaluationError(Exception):
    """The evaluation loops are what stands in the way."""


def _reason(refusal: RefusalError) -> str:
    line = getattr(refusal.node, "lineno", None)
    return f"line {line}: {refusal.reason}" if line else refusal.reason


def _refused(text: str, lines: list[int], reason: str, missing: str = "") -> MigrationResult:
    return MigrationResult(text, [LoopReport(line, REFUSED, reason, missing=missing) for line in lines])


def _loop_lines(facts: Facts) -> list[int]:
    """The lines of the loops that train: the innermost loop around each backward, or its function."""
    found: dict[int, None] = {}
    for call in (*facts.backwards, *facts.hidden_backwards):
        statement = facts.file.statement(call)
        loop = next((s for s in chain(facts.file, statement)[1:] if isinstance(s, LOOPS)), None)
        owner = owner_of(facts.file, call)
        place = loop if loop is not None else owner if not isinstance(owner, ast.Module) else statement
        found[place.lineno] = None
    return sorted(found)


def _migrated(
    file: SourceFile, lines: list[int], options: Options, *, with_evaluation: bool, left: str = ""
) -> MigrationResult:
    facts = Facts(file)
    screen(facts)
    screen_gradients(facts)
    floor = file.settings.target_torch
    if floor is not None and floor < _AUTOCAST_SINCE:
        raise RefusalError(file.tree, "torch.autocast needs torch 1.10; raise --target-torch")
    if options.device and (reason := devices.too_old(options.device, options.dtype, floor)):
        raise RefusalError(file.tree, reason)
    sinks = Sinks(facts)
    sinks.find()
    plan = _Plan(file, facts, sinks, options)
    plan.training()
    evaluations = evaluation.find(facts, sinks, plan.numerics.functions)
    if with_evaluation:
        plan.evaluate(evaluations)
    plan.cover(states.left_over(facts, plan.kinds))
    carried.check(facts, sinks, plan.kinds)
    if options.dtype != "bfloat16":
        overflow.check(facts)
        Neighbours(file, options).check_gradients(plan.protocol.strangers.may_use)
    new = _apply(file.text, plan.finish())
    if options.dtype != "bfloat16":
        new = checkpoints.with_fix(file, new)
    faults = new_faults(file, new)
    if objection := next((text for code, text in faults if code != checkpoints.UNSAVED), ""):
        if with_evaluation and any(e.run is not None for e in evaluations):
            raise _EvaluationError(objection)
        raise RefusalError(ast.Module([], []), objection)
    edits = edits_between(file.text, new)
    notes = [] if options.device == "cpu" or devices.uses_gpu(file) else [_NO_GPU]
    if options.dtype != "bfloat16" and (watch := watched_gradients(file)) is not None:
        notes.append(f"line {watch.lineno}: the gradients that wandb.watch logs are scaled from now on")
    reports = [LoopReport(line, MIGRATED, "; ".join(notes), edits) for line in lines]
    if faults:
        reports.append(LoopReport(lines[0], PARTLY, UNSAVED_REASON, (), False, "checkpoint"))
    for entry in evaluations:
        if entry.run is not None and with_evaluation:
            reports.append(LoopReport(entry.line, MIGRATED, "", edits, False))
        else:
            reason = entry.reason or f"evaluation is left in float32: {left}"
            reports.append(LoopReport(entry.line, PARTLY, reason, (), False))
    return MigrationResult(new, sorted(reports, key=lambda report: report.line), edits)


class _Plan:
    """The parts of one migration, writing to one editor."""

    def __init__(self, file: SourceFile, facts: Facts, sinks: Sinks, options: Options) -> None:
        self.file = file
        self.facts = facts
        self.sinks = sinks
        self.options = options
        self.editor = Editor(file)
        self.switch = Switch(file, self.editor, options.flag) if options.flag else None
        self.scalers = Scalers(facts, self.editor, options, self.switch)
        self.protocol = Protocol(facts, sinks, self.scalers, self.editor)
        self.numerics = Numerics(facts, sinks, self.editor, options)
        self.kinds: dict[Run, str] = {}
        self._cast: set[int] = set()
        self._apart: list[tuple[Run, RefusalError]] = []

    def training(self) -> None:
        """Regions, the gradient side and the scaler."""
        owners = list(self.sinks.nodes)
        runs = {owner: Runs(self.facts, self.sinks, owner).found for owner in owners}
        self.protocol.bound = {
            run.bind.call: free_name(self.file, ("loss", "total_loss", "train_loss", "amp_loss"))
            for found in runs.values()
            for run in found
            if run.bind is not None
        }
        for sink in self.sinks.all:
            if not sink.direct and sink.call in self.protocol.bound:
                raise RefusalError(sink.call, "the loss is computed in the arguments of a call; give it a name first")
        if not any(runs.values()):
            raise RefusalError(self.facts.backwards[0], "the forward that makes this loss can't be told from the rest")
        if self.options.dtype != "bfloat16":
            self.protocol.write()
        penalties = Penalties(self.facts, self.sinks, self.editor)
        penalties.find_inline([run for found in runs.values() for run in found])
        for found in runs.values():
            for run in found:
                if penalties.is_all_of(run):
                    self._leave(run)
                else:
                    self._region(run)
        if self.options.dtype != "bfloat16":
            checkpoints.join(self.facts, self.scalers, self.editor)
            self.scalers.write()
        for run, refusal in self._apart:
            self._region_apart(run, refusal)
        every = [run for found in runs.values() for run in found if self.kinds[run]]
        gains.check(self.facts, every)
        penalties.islands(self.kinds)
        self.numerics.check(every)
        inner = [node for function in self.numerics.functions for node in walk(function)]
        reached = [*inner, *(node for run in every for node in run.nodes())]
        check_lambdas(self.facts, reached)
        neighbours = Neighbours(self.file, self.options)
        neighbours.check(reached)
        cast_for_readers(self.facts, self.editor, every, self.numerics.half, self._cast)
        if self.options.dtype != "bfloat16":
            twice.check(self.facts, self.sinks, neighbours.makes_module)
            self.protocol.prove()

    def evaluate(self, evaluations: list[evaluation.Evaluation]) -> None:
        """Regions of evaluation loops."""
        runs = {entry.run: entry.module for entry in evaluations if entry.run is not None}
        for run, module in runs.items():
            device = self._device(run.first, module)
            try:
                self._wrap(run, device, self._switched(device.on_cuda, run.first))
            except SharedLineError:
                raise
            except RefusalError as refusal:
                raise _EvaluationError(refusal.reason) from refusal
        try:
            self.numerics.check(list(runs))
        except RefusalError as refusal:
            raise _EvaluationError(refusal.reason) from refusal
        cast_for_readers(self.facts, self.editor, list(runs), self.numerics.half, self._cast)

    def cover(self, statements: list[ast.stmt]) -> None:
        """Regions of single statements, outside of training and evaluation loops."""
        runs = [Run(statement, statement, (statement,)) for statement in statements]
        for run in runs:
            device = self._device(run.first, self._module(run))
            self._wrap(run, device, self._switched(device.on_cuda, run.first))
        if runs:
            self.numerics.check(runs)
            cast_for_readers(self.facts, self.editor, runs, self.numerics.half, self._cast)

    def _region(self, run: Run) -> None:
        device = self._device(run.first, self._module(run))
        enabled = device.on_cuda
        if self.options.dtype != "bfloat16" and (enabled or self.options.flag or self.options.dtype == "auto"):
            try:
                optimizers = self.protocol.in_view.at(run.first)
            except RefusalError as refusal:
                self._apart.append((run, refusal))
                return
            scaler = self.scalers.text_for(optimizers, run.first)
            enabled = f"{scaler}.is_enabled()"
            optional = self.file.values.enclosing_function(run.first) in self.scalers.optional
            if self.options.dtype == "auto" or (optional and enabled):
                enabled = self._switched(device.on_cuda, run.first)
            elif optional:
                raise RefusalError(run.first, "without an optimizer there is no scaler to ask for the switch")
        else:
            enabled = self._switched(enabled, run.first)
        self._wrap(run, device, enabled)

    def _region_apart(self, run: Run, refusal: RefusalError) -> None:
        """A region from which no scaler can be reached: it asks for the device as all scalers do, or is refused."""
        device = self._device(run.first, self._module(run))
        if self.scalers.switches != {device.on_cuda}:
            raise refusal
        self._wrap(run, device, self._switched(device.on_cuda, run.first))

    def _switched(self, enabled: str, at: ast.stmt) -> str:
        """A condition, together with the switch that the user asked for."""
        if self.switch is None:
            return enabled
        text = self.switch.text(at)
        return f"{text} and {enabled}" if enabled else text

    def _wrap(self, run: Run, device: devices.Device, enabled: str) -> None:
        self.kinds[run] = device.kind
        header = region_header(device, self.options, enabled, cached=not mixes_gradients(self.facts, run))
        if run.bind is None:
            self.editor.wrap(run.first, run.last, header)
            return
        name = self.protocol.bound[run.bind.call]
        if self.options.dtype == "bfloat16":
            self.editor.replace(run.bind.expression, name)
        text = self.file.segment(run.bind.expression)
        if "\n" in text and not isinstance(run.bind.expression, (ast.Call, ast.Subscript, ast.Attribute)):
            text = f"({text})"  # its lines hang together by parentheses that stay behind
        last = run.statements[-1] if run.statements else run.bind.statement
        self.editor.wrap(run.first, last, header, tail=f"{name} = {text}", tail_at=run.bind.statement)

    def _leave(self, run: Run) -> None:
        """No region, but a name for the loss where the protocol needs one."""
        self.kinds[run] = ""
        if run.bind is not None and self.options.dtype != "bfloat16":
            text = self.file.segment(run.bind.expression)
            text = f"({text})" if "\n" in text else text
            self.editor.insert_before(run.bind.statement, f"{self.protocol.bound[run.bind.call]} = {text}")

    def _device(self, at: ast.stmt, module: str) -> devices.Device:
        if self.options.device:
            return devices.fixed(self.options.device)
        found = devices.find(self.facts, at, module)
        if found is None:
            raise RefusalError(at, "the device on which this trains can't be told; pass --device cuda")
        return found

    def _module(self, run: Run) -> str:
        for node in run.nodes():
            if isinstance(node, ast.Call) and (module := self.facts.module_of(node)) is not None and path_of(module):
                return path_of(module)
            if isinstance(node, ast.Call):
                for argument in node.args:
                    if isinstance(argument, (ast.Name, ast.Attribute)) and self.facts.is_module(argument):
                        return path_of(argument)
        owner = self.file.values.enclosing_class(run.first)
        return "self" if owner is not None and self.facts.is_module_class(owner) else ""

    def finish(self) -> tuple[Edit, ...]:
        """All edits, the import of torch included."""
        if self.options.dtype == "auto":
            self._add_dtype_function()
        self.numerics.probabilities.write()
        edits = list(self.editor.edits())
        bindings = self.file.names.module.bindings.get("torch", [])
        if alias := self._alias():
            edits = [edit._replace(text=_OF_TORCH.sub(f"{alias}.", edit.text)) for edit in edits]
        elif not bindings:
            first = next((node for node in self.file.tree.body if isinstance(node, (ast.Import, ast.ImportFrom))), None)
            future = [n for n in self.file.tree.body if isinstance(n, ast.ImportFrom) and n.module == "__future__"]
            place = Editor(self.file)
            if future:
                place.insert_after(future[-1], "import torch")
            elif first is not None:
                place.insert_before(first, "import torch")
            else:
                raise RefusalError(self.file.tree, "torch is not imported")
            edits = [*place.edits(), *edits]
        elif any(b.kind != "import" or b.target != "torch" for b in bindings):
            raise RefusalError(bindings[0].node, "the name `torch` stands for something else")
        for scope in self.file.names.scopes.values():
            if scope is not self.file.names.module and "torch" in scope.bindings:
                raise RefusalError(scope.node, "the name `torch` stands for something else in a function")
        return tuple(edits)

    def _alias(self) -> str:
        """The name under which the module imports torch, where it is another and always means that; else empty."""
        module = self.file.names.module
        if "torch" in module.bindings:
            return ""
        for name, bindings in module.bindings.items():
            if all(b.kind == "import" and b.target == "torch" for b in bindings) and not any(
                name in scope.bindings for scope in self.file.names.scopes.values() if scope is not module
            ):
                return name
        return ""

    def _add_dtype_function(self) -> None:
        """Define the function that asks the GPU for its dtype, after the imports."""
        if free_name(self.file, (DTYPE_FUNCTION,)) != DTYPE_FUNCTION:
            raise RefusalError(self.file.tree, f"the name `{DTYPE_FUNCTION}` is taken")
        imports = [s for s in self.file.tree.body if isinstance(s, (ast.Import, ast.ImportFrom))]
        if not imports:
            raise RefusalError(self.file.tree, "torch is not imported")
        self.editor.insert_after(imports[-1], DTYPE_CODE.replace("    ", self.editor.unit()))


def region_header(device: devices.Device, options: Options, enabled: str, *, cached: bool = True) -> str:
    """The `with` of a region; `enabled` is an expression, or empty where the region is always on."""
    dtype = {"float16": "torch.float16", "bfloat16": "torch.bfloat16", "auto": f"{DTYPE_FUNCTION}()"}[options.dtype]
    switch = f", enabled={enabled}" if enabled else ""
    cache = "" if cached else ", cache_enabled=False"
    return f"with torch.autocast(device_type={device.kind}, dtype={dtype}{switch}{cache}):"


def _apply(text: str, edits: tuple[Edit, ...]) -> str:
    composition = apply_fixes(text, [Fix("migrate", edits, Applicability.UNSAFE)])
    if not composition.applied or not parses(composition.text):
        raise RefusalError(ast.Module([], []), "the edits that are needed get in each other's way")
    return composition.text
