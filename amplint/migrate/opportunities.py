"""The migration as findings: what the rules AMP901 and AMP902 report and fix."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import TYPE_CHECKING

from amplint.facts.training import scale_calls
from amplint.migrate import device as devices
from amplint.migrate.editor import Editor
from amplint.migrate.facts import Facts
from amplint.migrate.migration import migrate_source, region_header
from amplint.migrate.model import MIGRATED, REFUSED, Options, RefusalError
from amplint.migrate.numerics.review import Numerics
from amplint.migrate.regions import evaluation
from amplint.migrate.regions.sinks import Sinks
from amplint.model import Applicability, Finding, Fix, Span

if TYPE_CHECKING:
    from amplint.source import SourceFile

_MESSAGE = "this training loop runs in float32; mixed precision would take less time and memory on a GPU"
_EVALUATION = "this evaluation runs in float32 while the model trains under mixed precision"


def training_loops(file: SourceFile, code: str) -> Iterator[Finding]:
    """A finding for each loop in float32, with the migration of the file as its fix, or the reason for refusing it."""
    if _is_under_amp(file):
        return
    result = migrate_source(file.text, file.filename, file.settings)
    fix = Fix("Migrate to automatic mixed precision", result.edits, Applicability.UNSAFE) if result.edits else None
    for loop in result.loops:
        if not loop.training:
            continue
        reason = f"not migrated: {loop.reason}" if loop.status == REFUSED else ""
        yield Finding(code, _line(file, loop.line), _MESSAGE, (), fix if loop.status == MIGRATED else None, help=reason)


def evaluation_loops(file: SourceFile, code: str) -> Iterator[Finding]:
    """A finding for each evaluation loop in float32 of a file that trains under autocast."""
    regions = file.regions.all
    dtypes = {dtype for region in regions for dtype in region.dtypes}
    if not regions or not _trains_under_amp(file) or len(dtypes) != 1:
        return
    dtype = dtypes.pop().removeprefix("torch.")
    facts = Facts(file)
    sinks = Sinks(facts)
    for entry in evaluation.find(facts, sinks):
        if entry.run is None or file.regions.active(entry.run.first):
            continue
        editor = Editor(file)
        try:
            device = devices.find(facts, entry.run.first, entry.module)
            if device is None:
                continue
            editor.wrap(entry.run.first, entry.run.last, region_header(device, Options(dtype), device.on_cuda))
            numerics = Numerics(facts, sinks, editor, Options(dtype))
            numerics.check([entry.run])
            numerics.probabilities.write()
        except RefusalError:
            continue
        fix = Fix("Evaluate under autocast", editor.edits(), Applicability.UNSAFE)
        yield Finding(code, _line(file, entry.line), _EVALUATION, (), fix)


def _is_under_amp(file: SourceFile) -> bool:
    return bool(scale_calls(file)) or bool(file.regions.all)


def _trains_under_amp(file: SourceFile) -> bool:
    """Whether a loss of the file is made under autocast."""
    facts = Facts(file)
    if scale_calls(file):
        return True
    return any(
        file.regions.active(node)
        for call in facts.backwards
        for node in ast.walk(file.values.enclosing_function(call) or file.tree)
        if isinstance(node, ast.Call) and facts.module_of(node) is not None
    )


def _line(file: SourceFile, row: int) -> Span:
    """The code of a row, without indentation, comment and line end."""
    line = file.line_span(row)
    text = file.segment(line)
    start = line.start + len(text.encode()) - len(text.lstrip().encode())
    return Span(start, start + len(text.strip().encode()))
