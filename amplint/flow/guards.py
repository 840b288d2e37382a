"""Conditions: what a test means in a world, and which worlds satisfy it.

A condition is an atom keyed by its text with all paths resolved, so the same test in a helper and in its caller is
the same atom; rebinding any path in it forgets what was known. `is None`, truth, `is_enabled()`, `not`, `and` and
`or` are understood.
"""

from __future__ import annotations

from collections.abc import Iterator

from amplint.flow import ir
from amplint.flow.worlds import Abstract, Formula, World, Worlds

TRUE: Formula = ("true",)
FALSE: Formula = ("false",)
MAYBE: Formula = ("maybe",)

_NONE = " is None"
_ENABLED = " is enabled"


class Frame:
    """A running procedure: how its paths become global names.

    `alias` maps parameters that are never rebound to the caller's resolved path, so that guards and objects keep their
    identity across a call.
    """

    __slots__ = ("alias", "outer", "prefix", "procedure")

    def __init__(self, procedure: ir.Procedure, prefix: str, outer: Frame | None, alias: dict[str, str]) -> None:
        self.procedure = procedure
        self.prefix = prefix
        self.outer = outer
        self.alias = alias

    def resolve(self, path: str) -> str:
        """The global name of a path."""
        if path[0] == "%":
            end = next((i for i, c in enumerate(path) if c in ".["), len(path))
            root = path[1:end]
            return self.alias.get(root, self.prefix + root) + path[end:]
        if path[0] == "^" and self.outer is not None:
            inner = path[1:]
            return self.outer.resolve(inner if inner[0] == "^" else f"%{inner}")
        return path


def starts(path: str, prefix: str) -> bool:
    """Whether `path` is `prefix` or a part of what is there."""
    return path == prefix or (path.startswith(prefix) and path[len(prefix)] in ".[")


def negate(formula: Formula) -> Formula:
    """The negation of a formula."""
    if formula[0] == "not":
        inner = formula[1]
        assert isinstance(inner, tuple)
        return inner
    return {"true": FALSE, "false": TRUE, "maybe": MAYBE}.get(str(formula[0]), ("not", formula))


def atoms(formula: Formula) -> Iterator[str]:
    """The keys of a formula's atoms."""
    if formula[0] == "atom":
        yield str(formula[1])
    for part in formula[1:]:
        if isinstance(part, tuple):
            yield from atoms(part)


class Guards:
    """What atoms depend on and imply, shared by all worlds of an analysis."""

    def __init__(self) -> None:
        self.depends: dict[str, tuple[str, ...]] = {}
        self.implied: dict[str, tuple[tuple[bool, Formula, bool], ...]] = {}
        self._keys: dict[Formula, str] = {}
        self._about: dict[tuple[Formula, str], bool] = {}
        self._mention: dict[tuple[str, str], bool] = {}

    # -- resolving ---------------------------------------------------------------------------------------------------

    def formula(self, condition: ir.Cond, frame: Frame, world: World) -> Formula:
        """A condition as a formula over resolved atoms."""
        if isinstance(condition, ir.Constant):
            return TRUE if condition.value else FALSE
        if isinstance(condition, ir.Not):
            return negate(self.formula(condition.of, frame, world))
        if isinstance(condition, ir.Both):
            left = self.formula(condition.left, frame, world)
            right = self.formula(condition.right, frame, world)
            if FALSE in (left, right):
                return FALSE
            if left == TRUE:
                return right
            return left if right == TRUE else ("and", left, right)
        if isinstance(condition, ir.Atom):
            return self._atom(condition, frame, world)
        if isinstance(condition, ir.IsNone):
            return self._is_none(condition, frame, world)
        if isinstance(condition, ir.Truthy):
            return self._truth(condition, frame, world)
        if isinstance(condition, ir.Enabled):
            found = world.cells.get(frame.resolve(condition.path))
            if found is not None and found[0] in ("off", "none", "unbound"):
                return FALSE
            name = str(found[1]) if found is not None and found[0] == "object" else frame.resolve(condition.path)
            return self._known(name + _ENABLED, name)
        return MAYBE

    def _known(self, key: str, *paths: str) -> Formula:
        self.depends.setdefault(key, paths)
        return ("atom", key)

    def _atom(self, atom: ir.Atom, frame: Frame, world: World) -> Formula:
        paths = tuple(frame.resolve(path) for path in atom.paths)
        pieces = [atom.texts[0]]
        for path, text in zip(paths, atom.texts[1:], strict=True):
            pieces += [path, text]
        key = "".join(pieces)
        if key not in self.depends:
            self.depends[key] = paths
            self.implied[key] = tuple(
                (truth, self.formula(condition, frame, world), wanted) for truth, condition, wanted in atom.implied
            )
        return ("atom", key)

    def _is_none(self, condition: ir.IsNone, frame: Frame, world: World) -> Formula:
        path = frame.resolve(condition.path)
        found = world.cells.get(path)
        if found is None:
            return self._none_atom(path)
        if found[0] in ("none", "null"):
            return TRUE
        if found[0] == "object" and not str(found[1]).startswith("new@"):
            return self._none_atom(str(found[1]))
        if found[0] == "when" and isinstance(found[1], tuple) and found[1][0] == "atom":
            copied = str(found[1][1])
            if self.depends.get(copied) == (copied,):  # the truth of a path: the value was copied from there
                return self._none_atom(copied)
        return MAYBE if found[0] in ("plain", "gradient", "when", "unbound") else FALSE

    def _none_atom(self, path: str) -> Formula:
        key = path + _NONE
        self.implied.setdefault(key, ((True, ("atom", path), False),))
        self.implied.setdefault(path, ((True, ("atom", key), False),))
        self.depends.setdefault(path, (path,))
        return self._known(key, path)

    def _truth(self, condition: ir.Truthy, frame: Frame, world: World) -> Formula:
        path = frame.resolve(condition.path)
        found = world.cells.get(path)
        if found is None or found[0] == "plain":
            if condition.kind:
                return negate(self._none_atom(path))
            self._none_atom(path)
            return ("atom", path)
        tag = found[0]
        if tag == "when":
            formula = found[1]
            assert isinstance(formula, tuple)
            return formula
        if tag == "bool":
            return TRUE if found[1] else FALSE
        if tag == "object" and not str(found[1]).startswith("new@"):
            return negate(self._none_atom(str(found[1])))
        if tag in ("object", "off", "region"):
            return TRUE
        return FALSE if tag in ("none", "null") else MAYBE

    # -- splitting ---------------------------------------------------------------------------------------------------

    def split(self, formula: Formula, world: World) -> tuple[Worlds, Worlds]:
        """The worlds in which a formula holds and those in which it does not."""
        tag = formula[0]
        if tag == "true":
            return [world], []
        if tag == "false":
            return [], [world]
        if tag == "maybe":
            return [world], [world]
        if tag == "atom":
            key = str(formula[1])
            if (key, True) in world.facts:
                return [world], []
            if (key, False) in world.facts:
                return [], [world]
            return self.assume(key, True, world), self.assume(key, False, world)
        first = formula[1]
        assert isinstance(first, tuple)
        if tag == "not":
            return self.split(first, world)[::-1]
        second = formula[2]
        assert isinstance(second, tuple)
        # The arms of `a or b` merge and keep nothing of a and b alone, so the whole is a fact of its own.
        key = self._whole(formula)
        if (key, True) in world.facts:
            return [world], []
        if (key, False) in world.facts:
            return [], [world]
        yes, no = self.split(first, world)
        both: Worlds = []
        for left in yes:
            right_yes, right_no = self.split(second, left)
            both += right_yes
            no = no + right_no
        return [w.copy(facts=w.facts | {(key, True)}) for w in both], [
            w.copy(facts=w.facts | {(key, False)}) for w in no
        ]

    def _whole(self, formula: Formula) -> str:
        key = self._keys.get(formula)
        if key is None:
            key = self._keys[formula] = f"{formula}"
            paths = dict.fromkeys(path for atom in atoms(formula) for path in self.depends.get(atom, ()))
            self.depends[key] = tuple(paths)
        return key

    def assume(self, key: str, truth: bool, world: World) -> Worlds:
        """The world with an atom's truth assumed and what follows from it, nothing where that is impossible."""
        if (key, truth) in world.facts:
            return [world]
        if (key, not truth) in world.facts:
            return []
        world = world.copy(facts=world.facts | {(key, truth)})
        if key.endswith(_NONE) and truth:
            world = world.forget(key.removesuffix(_NONE))
        elif key.endswith(_ENABLED) and not truth:
            world = world.forget(key.removesuffix(_ENABLED))
        worlds = [world]
        for when, formula, wanted in self.implied.get(key, ()):
            if when == truth:
                worlds = [w for before in worlds for w in self.split(formula, before)[0 if wanted else 1]]
        return worlds

    def exists(self, name: str, world: World) -> Worlds:
        """The world in which the object `name` is there: it was just used."""
        self._none_atom(name)
        return self.assume(name + _NONE, False, world)

    @staticmethod
    def is_absent(name: str, world: World) -> bool:
        """Whether the object `name` is None or disabled in this world."""
        return (name + _NONE, True) in world.facts or (name + _ENABLED, False) in world.facts

    @staticmethod
    def is_none(name: str, world: World) -> bool:
        """Whether the object `name` is None in this world."""
        return (name + _NONE, True) in world.facts

    def enable(self, name: str, world: World) -> World:
        """The world in which the scaler `name` is enabled."""
        self._known(name + _ENABLED, name)
        return world.copy(facts=world.facts | {(name + _ENABLED, True)})

    # -- binding -----------------------------------------------------------------------------------------------------

    def bind(self, path: str, value: Abstract | None, world: World) -> World:
        """The world in which the (resolved) path was given a new value; facts and conditions about the old one are
        gone.
        """
        dead = [fact for fact in world.facts if self._mentions(fact[0], path)]
        cells: dict[str, Abstract] = {}
        for name, held in world.cells.items():
            if starts(name, path):
                continue
            if held[0] == "when":
                formula = held[1]
                assert isinstance(formula, tuple)
                if self._concerns(formula, path):
                    yes, no = self.split(formula, world)
                    if yes and no:
                        continue
                    held = ("bool", bool(yes))
            cells[name] = held
        if value is not None and not (value[0] == "when" and self._self_referring(value, path)):
            cells[path] = value
        return world.copy(cells=cells, facts=world.facts.difference(dead) if dead else None)

    def _self_referring(self, value: Abstract, path: str) -> bool:
        formula = value[1]
        assert isinstance(formula, tuple)
        return self._concerns(formula, path)

    def _concerns(self, formula: Formula, path: str) -> bool:
        known = self._about.get((formula, path))
        if known is None:
            known = self._about[formula, path] = any(self._mentions(key, path) for key in atoms(formula))
        return known

    def _mentions(self, key: str, path: str) -> bool:
        known = self._mention.get((key, path))
        if known is None:
            known = any(starts(dependency, path) for dependency in self.depends.get(key, ()))
            self._mention[key, path] = known
        return known
