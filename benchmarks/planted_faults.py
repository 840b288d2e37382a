"""Plant one fault at a time in correct training code and count how many amplint finds at the right place.

    python -m benchmarks.planted_faults DIRECTORY [DIRECTORY ...] [--kind KIND] [--verbose]

Every Python file below the directories that uses a loss scaler is read. A fault is planted only where the file has no
finding of the codes that would report it, and where the changed code is really wrong: an `unscale_` is dropped only
before a clip, an `update()` only where no other one ends the iteration. It is found if one of its codes stands in the
line of the fault or in a line that the rules blame for it (a `step` whose update is missing); a fault inside a helper
may be blamed on the call of the helper.

Prints a table of kinds; with `--verbose` also each miss, as path, line and what was reported instead.
"""

from __future__ import annotations

import argparse
import ast
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from amplint import check_source
from amplint.settings import Settings
from benchmarks.scaler_code import SOMETIMES, Code, Use


class Planted(NamedTuple):
    """The lines of a file with a fault, and the row of the fault in them (from 1)."""

    lines: list[str]
    row: int


class Kind(NamedTuple):
    """A kind of fault.

    `plant` yields the places where it can be planted; `codes` report it; `blamed` are the scaler's methods whose
    calls in the same function may be blamed instead of the line of the fault.
    """

    name: str
    plant: Callable[[Code], Iterator[tuple[Use, Planted]]]
    codes: tuple[str, ...]
    blamed: tuple[str, ...] = ()


def drop_update(code: Code) -> Iterator[tuple[Use, Planted]]:
    """Leave out the update of an iteration."""
    for use in code.uses("update"):
        if code.ends_iteration(use):
            yield use, Planted(code.replaced(use, ["pass"]), use.row)


def drop_unscale(code: Code) -> Iterator[tuple[Use, Planted]]:
    """Leave out the unscale_ before a clip."""
    for use in code.uses("unscale_"):
        if code.scales_in_function(use) and len(code.peers(use)) == 1:
            clip = code.clip_after(use)
            if clip is not None:
                yield use, Planted(code.replaced(use, ["pass"]), clip.lineno)


def repeat(method: str) -> Callable[[Code], Iterator[tuple[Use, Planted]]]:
    """Call a method twice in a row."""

    def plant(code: Code) -> Iterator[tuple[Use, Planted]]:
        for use in code.uses(method):
            if method != "update" or not use.call.args:
                yield use, Planted(code.replaced(use, ["{}", "{}"]), use.row + use.height)

    return plant


def direct_step(code: Code) -> Iterator[tuple[Use, Planted]]:
    """Step the optimizer itself."""
    for use in code.uses("step"):
        optimizer = use.call.args[0] if len(use.call.args) == 1 and not use.call.keywords else None
        if isinstance(optimizer, (ast.Name, ast.Attribute, ast.Subscript)) and code.gradients_are_scaled(use):
            yield use, Planted(code.replaced(use, [f"{ast.unparse(optimizer)}.step()"]), use.row)


def plain_backward(code: Code) -> Iterator[tuple[Use, Planted]]:
    """Differentiate the loss without scaling it."""
    for use, loss in code.scaled_backwards():
        yield use, Planted(code.with_text(use.call, f"({loss})" if not loss.isidentifier() else loss), use.row)


def clip_up(code: Code) -> Iterator[tuple[Use, Planted]]:
    """Move the clip to before the unscale_."""
    for use in code.uses("unscale_"):
        if code.scales_in_function(use) and len(code.peers(use)) == 1:
            moved = code.clip_moved_before(use)
            if moved is not None:
                yield use, Planted(*moved)


def update_in_branch(code: Code) -> Iterator[tuple[Use, Planted]]:
    """Update only sometimes."""
    for use in code.uses("update"):
        if code.ends_iteration(use):
            yield use, Planted(code.replaced(use, [f"if {SOMETIMES}:", "    {}"]), use.row)


def step_in_branch(code: Code) -> Iterator[tuple[Use, Planted]]:
    """Step only sometimes and update always: an update that has checked nothing raises."""
    for use in code.uses("step"):
        if len(code.peers(use)) == 1 and code.updates_after(use) and not code.in_function(use, "unscale_"):
            yield use, Planted(code.replaced(use, [f"if {SOMETIMES}:", "    {}"]), use.row)


def continue_before_step(code: Code) -> Iterator[tuple[Use, Planted]]:
    """Skip the step and the update after an unscale_."""
    for use in code.uses("step"):
        if code.loop(use.statement) is not None and code.unscaled_before(use) and code.update_ends_iteration(use):
            yield use, Planted(code.replaced(use, [f"if {SOMETIMES}:", "    continue", "{}"]), use.row)


def leave_before_update(word: str) -> Callable[[Code], Iterator[tuple[Use, Planted]]]:
    """Skip only the update: by `continue` in a loop, by `return` in a function that is called for each batch."""

    def plant(code: Code) -> Iterator[tuple[Use, Planted]]:
        for use in code.uses("update"):
            in_loop = code.loop(use.statement) is not None
            if in_loop == (word == "continue") and code.ends_iteration(use) and code.step_before(use):
                yield use, Planted(code.replaced(use, [f"if {SOMETIMES}:", f"    {word}", "{}"]), use.row)

    return plant


_UNREADY = ("AMP201", "AMP202", "AMP205", "AMP303", "AMP304")
KINDS = (
    Kind("drop update", drop_update, _UNREADY, ("step", "unscale_")),
    Kind("drop unscale_", drop_unscale, ("AMP301",)),
    Kind("repeat unscale_", repeat("unscale_"), ("AMP303",), ("unscale_",)),
    Kind("repeat step", repeat("step"), ("AMP205",), ("step",)),
    Kind("repeat update", repeat("update"), ("AMP203", "AMP204"), ("update",)),
    Kind("step directly", direct_step, ("AMP206",)),
    Kind("backward unscaled", plain_backward, ("AMP208",)),
    Kind("clip moved up", clip_up, ("AMP301",)),
    Kind("update in a branch", update_in_branch, _UNREADY, ("step", "unscale_", "update")),
    Kind("step in a branch", step_in_branch, ("AMP203", "AMP209"), ("update",)),
    Kind("continue before step", continue_before_step, _UNREADY, ("unscale_", "step")),
    Kind("continue before update", leave_before_update("continue"), _UNREADY, ("step", "unscale_")),
    Kind("return before update", leave_before_update("return"), _UNREADY, ("step", "unscale_")),
)


class Tally:
    """How many faults of a kind were planted and found, and the misses."""

    def __init__(self) -> None:
        self.planted = 0
        self.found = 0
        self.misses: list[str] = []


def try_all(path: Path, text: str, kinds: tuple[Kind, ...], tallies: dict[str, Tally], keep: Path | None) -> None:
    """Plant every fault in one file and count."""
    code = Code(text)
    clean: dict[tuple[str, ...], bool] = {}
    for kind in kinds:
        for use, planted in kind.plant(code):
            settings = Settings(select=kind.codes)
            if kind.codes not in clean:
                clean[kind.codes] = not check_source(text, str(path), settings)
            if not clean[kind.codes]:
                break
            changed = "\n".join(planted.lines)
            rows = code.blamed_rows(changed, use, kind.blamed) | {planted.row}
            found = check_source(changed, str(path), settings)
            tally = tallies[kind.name]
            tally.planted += 1
            if any(diagnostic.location.row in rows for diagnostic in found):
                tally.found += 1
                continue
            instead = Counter(f"{d.code}:{d.location.row}" for d in found)
            tally.misses.append(f"{path}:{planted.row} {' '.join(instead) or 'nothing reported'}")
            if keep is not None:
                name = f"{kind.name.replace(' ', '_')}-{tally.planted}-{path.stem}-{planted.row}.py"
                (keep / name).write_text(changed, encoding="utf-8")


def files(directories: list[Path]) -> Iterator[tuple[Path, str]]:
    """Every distinct file that scales a loss."""
    seen: set[str] = set()
    for directory in directories:
        for path in sorted(directory.rglob("*.py")):
            if not path.is_file():
                continue
            text = path.read_text(encoding="utf-8", errors="replace")
            if ".scale(" in text and text not in seen:
                seen.add(text)
                yield path, text


def main() -> None:
    """Parse the command line and print the table."""
    parser = argparse.ArgumentParser(description="Count how many planted faults amplint finds.")
    parser.add_argument("directories", nargs="+", type=Path)
    parser.add_argument("--kind", action="append", choices=[kind.name for kind in KINDS], help="only this kind")
    parser.add_argument("--verbose", action="store_true", help="list the misses")
    parser.add_argument("--keep", type=Path, help="write the files of the misses into this directory")
    options = parser.parse_args()
    kinds = tuple(kind for kind in KINDS if not options.kind or kind.name in options.kind)
    tallies = {kind.name: Tally() for kind in kinds}
    started = time.monotonic()
    for path, text in files(options.directories):
        try:
            try_all(path, text, kinds, tallies, options.keep)
        except (SyntaxError, ValueError) as error:
            print(f"{path}: {error}", file=sys.stderr)
    print(f"{'kind':24} {'planted':>8} {'found':>6}  rate")
    for name, tally in tallies.items():
        rate = f"{tally.found / tally.planted:.3f}" if tally.planted else "-"
        print(f"{name:24} {tally.planted:8} {tally.found:6}  {rate}")
        if options.verbose:
            for miss in tally.misses:
                print(f"    {miss}")
    print(f"{time.monotonic() - started:.0f} s")


if __name__ == "__main__":
    main()
