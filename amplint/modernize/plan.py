"""The plan for one file: which edits hang together, and for every finding its fix or the reason why it has none."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

from amplint.model import Applicability, Edit, Fix, Span
from amplint.modernize.exports import is_re_export
from amplint.modernize.groups import Group, groups_of, is_fallback, star_uses
from amplint.modernize.imports import Bound, Statement, add_names, statement_edits
from amplint.modernize.leftover import unneeded_torch
from amplint.modernize.moves import Family
from amplint.modernize.refusal import RefusalError
from amplint.modernize.rewrites import rewrite
from amplint.modernize.scripted import Scripted
from amplint.modernize.shim import Shim
from amplint.modernize.spelling import RE_EXPORTED, Change, Merge, Spelling, dotted, dropped, spell
from amplint.modernize.stars import spell_bare, spell_star
from amplint.modernize.uses import COVERED, REPORTED, Import, Inventory, Use

if TYPE_CHECKING:
    import ast

    from amplint.source import SourceFile
    from amplint.suppress import Suppressions

Place = Import | Use

_MOST_SHARED = 200
"""Uses of one name beyond which only its imports carry the common fix, which would else grow with the square."""

_TORCH = Bound("", "torch")
"""`import torch`, which one statement of several is enough to do."""


class Outcome(NamedTuple):
    """What can be done about one finding: a fix, or in `note` why there is none; or why the fix is unsafe."""

    place: Place
    fix: Fix | None
    note: str


class Part(NamedTuple):
    """What changes together: one use, or the imports of one name with all its uses.

    `rewrites` holds the edits of each use. Where it is `dotted`, a use can change alone, and only the imports need all.
    """

    holders: tuple[Place, ...]
    uses: tuple[Use, ...]
    rewrites: tuple[tuple[Edit, ...], ...]
    edits: tuple[Edit, ...] = ()
    caution: str = ""
    changes: tuple[Change, ...] = ()
    merged: tuple[Merge, ...] = ()
    shim: bool = False
    dotted: bool = False

    @property
    def places(self) -> tuple[Place, ...]:
        """Everything that the part concerns."""
        return (*self.holders, *self.uses)

    @property
    def row(self) -> int:
        """The row of the first place."""
        return min(place.ref.node.lineno for place in self.places)

    @property
    def keys(self) -> list[tuple[int, bool]]:
        """What the part shares with others that must then be applied with it."""
        statements = [imported.statement for imported, _ in self.changes] + [statement for statement, _ in self.merged]
        keys = [(id(statement), bool(self.caution)) for statement in statements]
        if any(_TORCH in bound for _, bound in self.changes):
            keys.append((id(_TORCH), bool(self.caution)))
        return [*keys, (id(Shim), False)] if self.shim else keys


class Plan:
    """What is found in one file for one family of names, and what is done about it."""

    def __init__(self, file: SourceFile, family: Family) -> None:
        self._file = file
        self._family = family
        self._inventory = Inventory(file, family)
        self._groups = groups_of(self._inventory)
        self._shim = Shim(file, self._groups)
        self._scripted = Scripted(file)
        self._reported: list[Place] = []
        self._parts: list[Part] = []
        self._refused: dict[int, str] = {}
        self._notes: dict[int, str] = {}

    def outcomes(self) -> Iterator[Outcome]:
        """Every finding with its fix or the reason why there is none, in no particular order."""
        inventory = self._inventory
        kept = {id(use) for group in self._groups if group.stays for use in group.assignments}
        self._reported += [use for use in inventory.uses if use.state == REPORTED and id(use) not in kept]
        grouped: set[int] = set()
        for group in self._groups:
            grouped.update(id(use) for use in [*group.uses, *group.assignments])
            self._take_group(group)
        for imported in inventory.imports:
            if imported.is_star:
                uses = star_uses(inventory, imported)
                grouped.update(map(id, uses))
                self._take_star(imported, uses)
            elif imported.is_bare and not imported.parent:
                self._take_bare(imported)
        for use in inventory.uses:
            if id(use) not in grouped and use.state == REPORTED:
                self._attempt((use,), self._free_part(use))
        self._refuse_shims_together()
        fixes = self._fixes()
        for place in self._reported:
            reason = self._refused.get(id(place), "")
            note = f"not rewritten: {reason}" if reason else self._notes.get(id(place), "")
            yield Outcome(place, fixes.get(id(place)), note)

    # -- what is found ------------------------------------------------------------------------------------------------

    def _take_group(self, group: Group) -> None:
        if group.reported:
            self._reported += group.imports
        places: tuple[Place, ...] = (*group.imports, *group.assignments, *group.uses)
        if not self._attempt(places, lambda: self._group_part(group)) and group.only_uses_move:
            for use in group.uses:
                if use.state == REPORTED:
                    self._attempt((use,), self._free_part(use))

    def _take_star(self, imported: Import, uses: list[Use]) -> None:
        if any(is_fallback(use) for use in uses):
            # The star stays for them, and does no harm: it warns of nothing.
            for use in uses:
                if use.state == REPORTED:
                    self._attempt((use,), self._free_part(use))
            return
        self._reported.append(imported)
        self._attempt(
            (imported, *uses),
            lambda: self._part((imported,), uses, spell_star(self._file, imported, uses, self._shim)),
        )

    def _take_bare(self, imported: Import) -> None:
        lookup = self._file.names.lookup
        states = [
            use.state
            for use in self._inventory.uses
            if any(binding.alias is imported.alias for binding in lookup(use.root))
        ]
        if not states or REPORTED in states or COVERED in states:
            self._reported.append(imported)
            spelled = spell_bare(self._file, imported, self._groups)
            self._attempt((imported,), lambda: self._part((imported,), [], spelled))

    # -- parts --------------------------------------------------------------------------------------------------------

    def _attempt(self, places: tuple[Place, ...], make: Callable[[], Part]) -> bool:
        try:
            self._parts.append(make())
        except RefusalError as refusal:
            self._refuse(places, refusal)
            return False
        for place in places:
            self._refused.pop(id(place), None)
        return True

    def _refuse(self, places: tuple[Place, ...], refusal: RefusalError) -> None:
        culprit = refusal.culprit
        for place in places:
            reason = refusal.reason
            if isinstance(culprit, (Import, Use)) and culprit is not place:
                reason = f"it hangs together with line {culprit.ref.node.lineno}, where {reason}"
            self._refused[id(place)] = reason

    def _group_part(self, group: Group) -> Part:
        foreign = group.foreign
        if foreign is not None:
            line = foreign.node.lineno  # type: ignore[attr-defined]
            raise RefusalError(f"`{group.name}` has two meanings: line {line} binds it too")
        if len({imported.old for imported in group.imports}) > 1:
            raise RefusalError(f"`{group.name}` has two meanings: it is imported from two modules")
        if group.others and not group.is_parent:
            raise RefusalError(f"line {group.others[0].lineno} uses `{group.name}` in a way that has no counterpart")
        for use in group.uses:
            if use.move is None and use not in group.assignments and not is_fallback(use):
                raise RefusalError(f"`{group.name}` itself is stored or handed on", use)
            if is_fallback(use):
                raise RefusalError("the old name stays for older versions of torch", use)
        if any(use.move is not None and use.move.shim for use in group.uses) or self._shim.binds(group):
            spelling = self._spell_with_shim(group)
        else:
            spelling = spell(self._file, group)
        return self._part((*group.imports, *group.assignments), group.uses, spelling)

    def _spell_with_shim(self, group: Group) -> Spelling:
        callees = []
        for use in group.uses:
            assert use.move is not None, "a module that is handed on was refused before"
            callee = self._shim.local(use.move) if use.move.shim else dotted(self._file, use)
            if callee is None:
                raise RefusalError("`torch` is not bound", use)
            callees.append(callee)
        caution = RE_EXPORTED if is_re_export(self._file, group) else ""
        changes = () if group.is_parent and group.others else dropped(group)
        return Spelling(tuple(callees), changes, caution=caution)

    def _free_part(self, use: Use) -> Callable[[], Part]:
        def make() -> Part:
            if use.move is None:
                raise RefusalError("the module itself is stored or handed on")
            if use.move.shim:
                callee: str | None = self._shim.local(use.move)
            elif "torch" in use.ref.names[0]:
                callee = use.root.id + use.move.new.removeprefix("torch")
            else:
                callee = dotted(self._file, use)
            if callee is None:
                raise RefusalError("`torch` is not bound")
            return self._part((), [use], Spelling((callee,)))

        return make

    def _part(self, holders: tuple[Place, ...], uses: list[Use], spelling: Spelling) -> Part:
        for holder in holders:
            self._check_suppression(holder)
        rewrites: list[tuple[Edit, ...]] = []
        caution = spelling.caution
        for use, callee in zip(uses, spelling.callees, strict=True):
            try:
                self._check_suppression(use)
                self._check_scripted(use)
                changed = rewrite(self._file, use, callee)
            except RefusalError as refusal:
                raise RefusalError(refusal.reason, use) from refusal
            rewrites.append(changed.edits)
            caution = caution or changed.caution
        shim = any(use.move is not None and use.move.shim for use in uses) or any(
            isinstance(holder, Import) and holder.move is not None and holder.move.shim for holder in holders
        )
        return Part(
            holders,
            tuple(uses),
            tuple(rewrites),
            spelling.edits,
            caution,
            spelling.changes,
            spelling.merged,
            shim,
            spelling.dotted,
        )

    def _check_scripted(self, use: Use) -> None:
        if use.move is not None and use.move.kind in ("autocast", "query") and self._scripted.contains(use.node):
            raise RefusalError("TorchScript may compile this code, which has rules of its own for autocast")

    def _check_suppression(self, place: Place) -> None:
        if self._is_suppressed(place):
            raise RefusalError("a comment suppresses the finding", place)

    def _is_suppressed(self, place: Place) -> bool:
        return self._suppressions is not None and self._suppressions.suppresses(
            self._family.code, place.ref.node.lineno
        )

    @cached_property
    def _suppressions(self) -> Suppressions | None:
        text = self._file.text
        if "noqa" not in text.lower() and "amplint:" not in text:
            return None
        from amplint.suppress import Suppressions

        return Suppressions(text)

    # -- fixes --------------------------------------------------------------------------------------------------------

    def _refuse_shims_together(self) -> None:
        """One fallback block serves the whole file: all names that need it move, or none does."""
        wanted = [place for place in self._reported if place.move is not None and place.move.shim]
        refused = next((place for place in wanted if id(place) in self._refused), None)
        if refused is None:
            return
        refusal = RefusalError(self._refused[id(refused)], refused)
        for part in self._parts:
            if part.shim:
                self._refuse(part.places, refusal)
        self._parts = [part for part in self._parts if not part.shim]

    def _fixes(self) -> dict[int, Fix]:
        """The fix of each place: parts that change the same statement share one."""
        fixes: dict[int, Fix] = {}
        reported = {id(place) for place in self._reported}
        for parts in self._components():
            try:
                shared = self._fix_of(parts)
            except RefusalError as refusal:
                for part in parts:
                    self._refuse(part.places, refusal)
                continue
            for part in parts:
                if part.caution:
                    self._notes.update((id(place), f"the fix is unsafe: {part.caution}") for place in part.places)
                fixes.update((id(holder), shared) for holder in part.holders)
                is_carried = any(id(holder) in reported for holder in part.holders)
                is_large = len(part.uses) > _MOST_SHARED
                for use, edits in zip(part.uses, part.rewrites, strict=True):
                    if part.dotted and (is_carried or is_large):
                        fixes[id(use)] = _fix([use], edits, part.caution)
                    elif not is_carried or not is_large:
                        fixes[id(use)] = shared
                    else:
                        line = part.holders[0].ref.node.lineno
                        self._notes[id(use)] = f"the fix of line {line} rewrites this line too"
        return fixes

    def _components(self) -> list[list[Part]]:
        components: list[list[Part]] = []
        by_key: dict[tuple[int, bool], list[Part]] = {}
        for part in self._parts:
            joined = [part]
            for other in [by_key[key] for key in part.keys if key in by_key]:
                joined += other
                other.clear()  # met again under another key, it adds nothing
            by_key.update((key, joined) for member in joined for key in member.keys)
            components.append(joined)
        return [parts for parts in components if parts]

    def _fix_of(self, parts: list[Part]) -> Fix:
        changes: dict[Statement, dict[ast.alias, tuple[Bound, ...]]] = {}
        merged: dict[ast.ImportFrom, list[Bound]] = {}
        edits: list[Edit] = []
        torch_is_bound = False
        for part in sorted(parts, key=lambda part: part.row):
            edits += part.edits
            edits += [edit for rewritten in part.rewrites for edit in rewritten]
            for imported, bound in part.changes:
                needed = tuple(new for new in bound if new != _TORCH or not torch_is_bound)
                torch_is_bound = torch_is_bound or _TORCH in bound
                changes.setdefault(imported.statement, {})[imported.alias] = needed
            for statement, name in part.merged:
                merged.setdefault(statement, []).append(name)
        block: list[Edit] = []
        if any(part.shim for part in parts):
            uses = [use for part in parts for use in part.uses if use.move is not None and use.move.shim]
            written = [edit for part in self._parts for rewritten in part.rewrites for edit in rewritten]
            for unneeded, alias in unneeded_torch(self._file, uses, written):
                changes.setdefault(unneeded, {})[alias] = ()
            block = self._shim.block_edits(changes)
        edits += block
        edits += [_clear_of(edit, block) for edit in statement_edits(self._file, changes)]
        for statement, names in merged.items():
            edits += add_names(self._file, statement, names)
        caution = next((part.caution for part in parts if part.caution), "")
        return _fix([place for part in parts for place in part.places], edits, caution)


def _fix(places: list[Place], edits: Iterable[Edit], caution: str) -> Fix:
    names = dict.fromkeys(place.move.new for place in places if place.move is not None)
    title = "Use " + (" and ".join(f"`{name}`" for name in names) or "`torch.amp`")
    return Fix(title, tuple(dict.fromkeys(edits)), Applicability.UNSAFE if caution else Applicability.SAFE)


def _clear_of(edit: Edit, insertions: list[Edit]) -> Edit:
    """A deletion cut off where code is inserted inside it: blank lines go with what they set off."""
    for insertion in insertions:
        if edit.span.start < insertion.span.start < edit.span.end:
            return Edit(Span(edit.span.start, insertion.span.start), edit.text)
    return edit
