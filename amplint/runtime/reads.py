"""Whether code that reads an attribute only asks if it is None, which is no use of its value."""

from __future__ import annotations

import dis
from functools import cache
from types import CodeType


@cache
def only_tested(code: CodeType, offset: int) -> bool:
    """Whether the value that the instruction at `offset` loads goes straight into `is None` or `is not None`."""
    following = [step for step in dis.get_instructions(code) if step.offset > offset and step.opname != "CACHE"][:2]
    if not following:
        return False
    if "NONE" in following[0].opname:  # POP_JUMP_IF_NONE and its forms, Python 3.11 and newer
        return True
    loads_none = following[0].opname == "LOAD_CONST" and following[0].argval is None
    return loads_none and len(following) == 2 and following[1].opname == "IS_OP"
