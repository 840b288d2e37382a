"""Where a file's tests of the torch version do not fit the names that they guard.

Kinds of fault: `floor`, a name that the oldest supported torch lacks, outside any guard; `early`, a version test that
lets in a torch without the name; `inverted`, a name in the arm for releases that all lack it; `existence`, a test for
the existence of something older than the name; `text`, a comparison of versions as texts or decimal fractions.
"""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, NamedTuple

from amplint.torch_api import APIS, OLDEST, Version
from amplint.versions.guard_steps import Guard, last_name
from amplint.versions.guards import is_new, is_old
from amplint.versions.releases import ALL, FUTURE, at_least, module_since

if TYPE_CHECKING:
    from amplint.source import Ref, SourceFile

_EXISTENCE = frozenset(("hasattr", "getattr", "find_spec", "dir"))


class GateFault(NamedTuple):
    """One fault. `node` is what is to blame, `name` the name of torch concerned and `needed` the first torch with it.

    `allowed` are the releases, as a mask, on which the name is reached; `guard` is the test that lets them in, if any.
    `ref` is the reference to the name.
    """

    kind: str
    node: ast.expr | ast.alias
    name: str
    needed: Version
    allowed: int
    guard: Guard | None
    ref: Ref


def gate_faults(file: SourceFile) -> list[GateFault]:
    """All faults of a file, in the order of the text; a test that is at fault is listed once."""
    found: dict[tuple[str, ast.AST], GateFault] = {}
    for ref in file.refs:
        for fault in (*_text_faults(file, ref), *_name_faults(file, ref)):
            known = found.get((fault.kind, fault.node))
            if known is None or fault.needed > known.needed:
                found[fault.kind, fault.node] = fault
    return sorted(found.values(), key=lambda fault: (fault.node.lineno, fault.node.col_offset))


def _name_faults(file: SourceFile, ref: Ref) -> list[GateFault]:
    """The fault of a place where a missing name would raise; later uses of an imported name are no such place."""
    name, needed = needed_name(file, ref)
    guards = file.guards
    if needed is None or ref.quoted is not None or _is_for_type_checkers(file, ref):
        return []
    if guards.is_protected(ref.node, parameter=name.endswith("_enabled")):
        return []
    supported = at_least(file.settings.target_torch) if file.settings.target_torch else ALL
    mask = guards.versions(ref.node).true & supported
    there = at_least(needed)
    lacking = mask & ~there
    if not lacking:
        return []
    steps = [step for step in guards.steps(ref.node) if guards.truth_is_known(step)]
    opening = [s for s in steps if isinstance(s, Guard) and s.kind != "assert" and not guards.truth(s).true & 1]
    closing = [step for step in steps if isinstance(step, Guard) and not guards.truth(step).true & FUTURE]
    if closing and (not mask & there or _old_one_is_newer(file, ref, closing[0], there)):
        return [GateFault("inverted", ref.node, name, needed, lacking, closing[0], ref)]
    if opening:
        guard = opening[0]
        existence = _existence_test(file, guard.test)
        if existence is not None:
            return [GateFault("existence", existence, name, needed, lacking, guard, ref)]
        return [GateFault("early", ref.node, name, needed, lacking, guard, ref)]
    if file.settings.target_torch and not _is_behind_unread_gate(file, ref):
        return [GateFault("floor", ref.node, name, needed, lacking, None, ref)]
    return []


def _old_one_is_newer(file: SourceFile, ref: Ref, guard: Guard, there: int) -> bool:
    """Whether the other arm of a test has the old API and only runs where the new one exists."""
    others = (other for arm in guard.arms for other in file.guards.refs_in(arm))
    old = [other for other in others if file.guards.replaces(ref, other)]
    return bool(old) and not any(file.guards.versions(other.node).true & ~there for other in old)


def needed_name(file: SourceFile, ref: Ref) -> tuple[str, Version | None]:
    """The name that must exist where a reference stands, and the first torch that has it, None if none must."""
    old = APIS.get(ref.candidates[0]) if len(ref.candidates) == 1 else None
    if old is not None and old.deprecated_since and old.since >= OLDEST:
        return old.name, old.since  # `torch.cpu.amp` is younger than `torch.cuda.amp`
    if ref.context == "import" or ref.call is not None:
        needed = file.guards.needs(ref)
        if needed is not None and (ref.context == "import" or len(ref.chain) > 1 or _takes_device(ref)):
            return _unless_module(ref.candidates[0], needed)
    best: tuple[str, Version | None] = ("", None)
    for link, names in zip(ref.chain[1:], ref.names[1:], strict=True):
        if len(names) == 1 and is_new(names[0]):
            needed = file.guards.needs(ref._replace(node=link, candidates=names, call=None))
            name, version = _unless_module(names[0], needed)
            if version is not None and (best[1] is None or version > best[1]):
                best = (name, version)
    return best


def _takes_device(ref: Ref) -> bool:
    return ref.candidates[0].endswith("_enabled")


def _unless_module(name: str, needed: Version | None) -> tuple[str, Version | None]:
    return (name, None) if module_since(name) is not None else (name, needed)


def _is_for_type_checkers(file: SourceFile, ref: Ref) -> bool:
    return any(
        isinstance(step, Guard) and step.holds and last_name(step.test) == "TYPE_CHECKING"
        for step in file.guards.steps(ref.node)
    )


def _existence_test(file: SourceFile, test: ast.expr) -> ast.Call | None:
    """The call in a test, or in the flag that it reads, that asks whether a name exists."""
    for node in ast.walk(file.guards.tests.definition(test)):
        if isinstance(node, ast.Call) and last_name(node.func) in _EXISTENCE:
            return node
    return None


def _is_behind_unread_gate(file: SourceFile, ref: Ref) -> bool:
    """Whether a condition that can't be read has an arm with the old API, or speaks of versions."""
    for step in file.guards.steps(ref.node):
        if isinstance(step, Guard) and not file.guards.truth_is_known(step):
            if file.guards.speaks_of_versions(step.test):
                return True
            others = (other for arm in step.arms for other in file.guards.refs_in(arm))
            if any(is_old(name) for other in others for name in other.candidates):
                return True
    return False


def _text_faults(file: SourceFile, ref: Ref) -> list[GateFault]:
    """The tests around a name of the AMP layer that give another answer than their authors mean."""
    if not any(is_old(name) or is_new(name) for name in ref.candidates):
        return []
    tests = file.guards.tests
    supported = at_least(file.settings.target_torch) if file.settings.target_torch else ALL
    found = []
    for step in file.guards.steps(ref.node):
        if not isinstance(step, Guard):
            continue
        wrong = wrong_releases(file, step.test) & supported
        if wrong:
            blamed = step.test
            for node in ast.walk(tests.definition(step.test)):
                if isinstance(node, (ast.Compare, ast.Call)) and wrong_releases(file, node):
                    blamed = node
            found.append(GateFault("text", blamed, ref.candidates[0], (0, 0), wrong, step, ref))
    return found


def wrong_releases(file: SourceFile, test: ast.expr) -> int:
    """The releases, as a mask, on which a test gives another answer than the one that is meant."""
    meant, given = (file.guards.tests.truth(test, intended) for intended in (True, False))
    if given.true & given.false or meant.true & meant.false:
        return 0
    return meant.true ^ given.true
