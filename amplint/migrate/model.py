"""The values of the migrator: what is asked for, what was done with each loop, and why not."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, NamedTuple

from amplint.model import Edit

if TYPE_CHECKING:
    from amplint.source import SourceFile

MIGRATED, PARTLY, REFUSED = "migrated", "partly", "refused"


class Options(NamedTuple):
    """What a migration is asked to write.

    `dtype` is `float16`, `bfloat16` (no scaler) or `auto` (asked of the GPU at run time). `device` is the device type
    to write where the script's own shall not be used (`cuda`, `cpu`, `mps`, `xpu`). `flag` is the name of a switch to
    add.
    """

    dtype: str = "float16"
    device: str | None = None
    flag: str | None = None


class LoopReport(NamedTuple):
    """What became of one loop: `line` counts from 1, `reason` says why it was refused, or what is left to the user.

    `edits` are the changes of the file that belong to the loop; those that several loops need stand with each of them.
    `training` is False for evaluation, and for files whose training loop is not in them. `missing` says what stands in
    another file: the `caller` of a function, the `loop` that trains, or a `checkpoint`.
    """

    line: int
    status: str
    reason: str = ""
    edits: tuple[Edit, ...] = ()
    training: bool = True
    missing: str = ""


class MigrationResult(NamedTuple):
    """The new text, equal to the old where nothing was migrated, with a report on every loop and all edits."""

    text: str
    loops: list[LoopReport]
    edits: tuple[Edit, ...] = ()


class RefusalError(Exception):
    """A condition that a migration needs and that does not hold; `node` is where, `reason` what and what to do.

    `missing` is that of a `LoopReport`.
    """

    def __init__(self, node: ast.AST, reason: str, missing: str = "") -> None:
        super().__init__(reason)
        self.node = node
        self.reason = reason
        self.missing = missing


class SharedLineError(RefusalError):
    """A statement must have its lines for itself, and other code stands there too."""

    def __init__(self, file: SourceFile, statement: ast.stmt) -> None:
        super().__init__(statement, "other code stands on its line; put each statement on a line of its own")
        self.file = file
        self.statement = statement
