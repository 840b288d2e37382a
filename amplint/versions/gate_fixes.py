"""Fixes for tests of the torch version: ask for the right name, raise the version, compare versions as versions.

Every fix is tried out: it is offered only if the text that it makes has fewer faults than before.
"""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING

from amplint.edits import apply_fixes
from amplint.model import Applicability, Edit, Fix, Span
from amplint.torch_api import AUTOCAST_SPELLINGS, STATE_QUERIES, Version
from amplint.versions.guard_steps import Guard
from amplint.versions.releases import module_since
from amplint.versions.version_gates import GateFault, gate_faults
from amplint.versions.version_words import flag_meaning

if TYPE_CHECKING:
    from amplint.source import Ref, SourceFile

_VERSION_TEXT = re.compile(r"\d+\.\d+((?:\.0)?)")
_OPPOSITE = {"<": ">=", ">=": "<", ">": "<=", "<=": ">"}
_MOST_TRIALS = 50
"""How many fixes of one file are tried out; each trial parses the file again."""
_SYMBOL = re.compile(rb"<=|>=|<|>")


class GateFixes:
    """The fixes of the faults of one file."""

    def __init__(self, file: SourceFile, faults: list[GateFault]) -> None:
        self._file = file
        self._faults = faults
        self._tried: dict[tuple[Edit, ...], bool] = {}

    def of(self, fault: GateFault) -> Fix | None:
        """The fix of a fault, None where there is none that can be shown to help."""
        if fault.kind == "floor":
            return _floor_fix(self._file, fault)
        make = {"existence": _existence_fix, "early": _early_fix, "text": _text_fix, "inverted": _inverted_fix}
        fix = make[fault.kind](self._file, fault, self._faults)
        if fix is None:
            return None
        if fix.edits not in self._tried:
            self._tried[fix.edits] = len(self._tried) < _MOST_TRIALS and self._helps(fault, fix)
        return fix if self._tried[fix.edits] else None

    def _helps(self, fault: GateFault, fix: Fix) -> bool:
        """Whether the text that a fix makes parses, has fewer faults and, for a comparison, means what was meant."""
        from amplint.source import SourceFile

        file = self._file
        changed = SourceFile(apply_fixes(file.text, [fix]).text, file.filename, file.settings)
        try:
            tree = changed.tree
        except SyntaxError:
            return False
        if len(gate_faults(changed)) >= len(self._faults):
            return False
        if fault.kind != "text":
            return True
        place = (fault.node.lineno, fault.node.col_offset)
        meant = file.guards.tests.truth(fault.node) if isinstance(fault.node, ast.expr) else None
        return any(
            isinstance(node, ast.Compare)
            and (node.lineno, node.col_offset) == place
            and changed.guards.tests.truth(node, intended=False) == meant
            for node in ast.walk(tree)
        )


def _applicability(file: SourceFile, fault: GateFault, faults: list[GateFault]) -> Applicability:
    """Safe where the other arm of the test has the old API for every name that the test lets in too early."""
    gated = [other for other in faults if other.guard and fault.guard and _same_test(file, other.guard, fault.guard)]
    return Applicability.SAFE if all(_is_shim(file, one.guard, one.ref) for one in gated) else Applicability.UNSAFE


def _same_test(file: SourceFile, first: Guard, second: Guard) -> bool:
    tests = file.guards.tests
    return tests.definition(first.test) is tests.definition(second.test)


def _is_shim(file: SourceFile, guard: Guard | None, ref: Ref) -> bool:
    arms = () if guard is None else guard.arms
    return any(file.guards.replaces(ref, old) for arm in arms for old in file.guards.refs_in(arm))


# -- the floor --------------------------------------------------------------------------------------------------------


def _floor_fix(file: SourceFile, fault: GateFault) -> Fix | None:
    """The older name of the same thing, where the floor has one."""
    floor, ref = file.settings.target_torch, fault.ref
    if floor is None or ref.node is not fault.node or not isinstance(ref.node, ast.Attribute) or not ref.fixable:
        return None
    if fault.name == "torch.amp.autocast" and floor >= AUTOCAST_SPELLINGS["torch.autocast"]:
        if len(ref.chain) < 3 or ref.names[-3] != ("torch",) or (ref.call is not None and len(ref.call.args) > 1):
            return None
        dotted = Span(file.span(ref.chain[-3]).end, file.span(ref.node).end)
        return Fix("Use `torch.autocast`", (Edit(dotted, ".autocast"),), Applicability.SAFE)
    if ref.call is None or not ref.call.args or ref.call.keywords or ref.names[-2] != ("torch",):
        return None
    device = ref.call.args[0].value if isinstance(ref.call.args[0], ast.Constant) else None
    if fault.name.endswith("is_autocast_enabled") and device == "cuda":
        old = "is_autocast_enabled"
    else:
        queries = [query for query in STATE_QUERIES.values() if query.new == fault.name and query.device == device]
        if not queries:
            return None
        old = queries[0].old.removeprefix("torch.")
    rest = ", ".join(file.segment(argument) for argument in ref.call.args[1:])
    tail = Span(file.span(ref.chain[-2]).end, file.span(ref.call).end)
    return Fix(f"Use `torch.{old}`", (Edit(tail, f".{old}({rest})"),), Applicability.SAFE)


# -- tests ------------------------------------------------------------------------------------------------------------


def _existence_fix(file: SourceFile, fault: GateFault, faults: list[GateFault]) -> Fix | None:
    """`hasattr(torch, "amp")` becomes `hasattr(torch.amp, "custom_fwd")`."""
    call = fault.node
    if not isinstance(call, ast.Call) or len(call.args) != 2 or getattr(call.func, "id", "") != "hasattr":
        return None
    root = call.args[0]
    while isinstance(root, ast.Attribute):
        root = root.value
    if file.resolve(root) != ("torch",):
        return None
    torch = file.segment(root)
    name = "torch.get_autocast_dtype" if fault.name.endswith("autocast_enabled") else fault.name
    module, attribute = name.rsplit(".", 1)
    holder = torch + module.removeprefix("torch")
    quote = file.segment(call.args[1])[-1]
    text = f"hasattr({holder}, {quote}{attribute}{quote})"
    floor, module_first = file.settings.target_torch, module_since(module)
    if floor is not None and module_first is not None and floor < module_first:
        text = f"(hasattr({torch}, {quote}{module.removeprefix('torch.')}{quote}) and {text})"
    return Fix(f"Ask for `{name}` itself", (Edit(file.span(call), text),), _applicability(file, fault, faults))


def _early_fix(file: SourceFile, fault: GateFault, faults: list[GateFault]) -> Fix | None:
    """Raise the version in the test, or in a flag that is used for nothing else; a flag's name follows."""
    assert fault.guard is not None
    test = fault.guard.test
    definition = file.guards.tests.definition(test)
    needed = max(other.needed for other in faults if other.guard and _same_test(file, other.guard, fault.guard))
    literals = [node for node in ast.walk(definition) if _raised(file, node, needed) is not None]
    if len(literals) != 1:
        return None
    edits = [Edit(file.span(literals[0]), _raised(file, literals[0], needed) or "")]
    flag = test.operand if isinstance(test, ast.UnaryOp) else test
    if definition is not flag:
        renamed = _flag_edits(file, flag, definition, needed, faults)
        if renamed is None:
            return None
        edits += renamed
    title = f"Ask for torch {needed[0]}.{needed[1]}"
    return Fix(title, tuple(edits), _applicability(file, fault, faults))


def _raised(file: SourceFile, node: ast.AST, needed: Version) -> str | None:
    """The text of a literal version with the needed one in its place, None if a node is no such literal."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        match = _VERSION_TEXT.fullmatch(node.value)
        if match is not None:
            return file.segment(node).replace(node.value, f"{needed[0]}.{needed[1]}{match.group(1)}")
    if isinstance(node, (ast.Tuple, ast.List)):
        numbers = [item.value for item in node.elts if isinstance(item, ast.Constant) and isinstance(item.value, int)]
        if len(numbers) == len(node.elts) == 2:
            inner = f"{needed[0]}, {needed[1]}"
            return f"({inner})" if isinstance(node, ast.Tuple) else f"[{inner}]"
    return None


def _flag_edits(
    file: SourceFile, flag: ast.expr, definition: ast.expr, needed: Version, faults: list[GateFault]
) -> list[Edit] | None:
    """The edits that rename a flag after its new version; None where the flag serves another purpose too."""
    names = file.names
    if not isinstance(flag, ast.Name) or file.filename.endswith("__init__.py"):
        return None
    tests = {id(node) for fault in faults if fault.guard for node in ast.walk(fault.guard.test)}
    loads = names.loads.get(flag.id, [])
    exported = any(constant.value == flag.id for constant in names.strings)
    if exported or not all(id(use) in tests for use in loads):
        return None
    meaning = flag_meaning(flag.id)
    if meaning is None:
        return []
    major, minor = meaning[1].split(".")
    pattern = re.compile(rf"{major}(_?){minor}")
    new = pattern.sub(rf"{needed[0]}\g<1>{needed[1]}", flag.id, count=1)
    taken = new in names.loads or any(new in scope.bindings for scope in names.scopes.values())
    statement = file.parent(definition)
    targets = statement.targets if isinstance(statement, ast.Assign) else [getattr(statement, "target", None)]
    bound = [target for target in targets if isinstance(target, ast.Name) and target.id == flag.id]
    if taken or new == flag.id or len(bound) != 1:
        return None
    return [Edit(file.span(place), new) for place in (*bound, *loads)]


def _text_fix(file: SourceFile, fault: GateFault, faults: list[GateFault]) -> Fix | None:
    """`torch.__version__.split("+")[0] >= "2.4.0"` becomes `torch.__version__ >= "2.4.0"`."""
    test = fault.node
    floor = file.settings.target_torch
    if not isinstance(test, ast.Compare) or len(test.ops) != 1 or (floor is not None and floor < (1, 10)):
        return None
    for cut, other in ((test.left, test.comparators[0]), (test.comparators[0], test.left)):
        version = _version_in(file, cut)
        literal = _as_version_text(file, other)
        if version is not None and literal is not None:
            edits = [Edit(file.span(cut), version), Edit(file.span(other), literal)]
            changes = tuple(edit for edit in edits if edit.text != file.segment(edit.span))
            return Fix("Compare `torch.__version__` itself", changes, Applicability.SAFE)
    return None


def _version_in(file: SourceFile, expression: ast.expr) -> str | None:
    """The text of `torch.__version__` as it stands in an expression, None if it does not."""
    for node in ast.walk(expression):
        if isinstance(node, (ast.Attribute, ast.Name)):
            resolved = file.resolve(node)
            if resolved == ("torch.__version__",):
                return file.segment(node)
            if resolved == ("torch.version.__version__",) and isinstance(node, ast.Attribute):
                inner = node.value
                if isinstance(inner, ast.Attribute):
                    return f"{file.segment(inner.value)}.__version__"
    return None


def _as_version_text(file: SourceFile, node: ast.expr) -> str | None:
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return file.segment(node)
    if isinstance(node, ast.Constant) and isinstance(node.value, float):
        return f'"{file.segment(node)}"'
    return None


def _inverted_fix(file: SourceFile, fault: GateFault, faults: list[GateFault]) -> Fix | None:
    """Turn the test round, where the old API stands in the other arm."""
    guard = fault.guard
    if guard is None or not _is_shim(file, guard, fault.ref):
        return None
    test, edit = guard.test, None
    if isinstance(test, ast.UnaryOp):
        edit = Edit(Span(file.span(test).start, file.span(test.operand).start), "")
    elif isinstance(test, ast.Compare) and len(test.ops) == 1:
        gap = Span(file.span(test.left).end, file.span(test.comparators[0]).start)
        found = _SYMBOL.search(file.encoded, gap.start, gap.end)
        if found is not None:
            edit = Edit(Span(*found.span()), _OPPOSITE[found.group().decode()])
    elif isinstance(test, (ast.Name, ast.Attribute, ast.Call)):
        edit = Edit(Span(file.span(test).start, file.span(test).start), "not ")
    return None if edit is None else Fix("Turn the test round", (edit,), Applicability.SAFE)
