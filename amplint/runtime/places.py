"""Where the user's code called torch: the innermost frame that is not torch's, the monitor's or Python's own."""

from __future__ import annotations

import os
import sys
from types import CodeType, FrameType
from typing import NamedTuple


class Place(NamedTuple):
    """A line of the user's code: the file as Python names it, the line from 1, the function around it."""

    file: str
    line: int
    function: str


UNKNOWN_PLACE = Place("<unknown>", 0, "")

_OURS = os.path.dirname(os.path.abspath(__file__)) + os.sep
_STANDARD_LIBRARY = os.path.dirname(os.path.abspath(os.__file__)) + os.sep
_users: dict[str, bool] = {}
_known: dict[tuple[int, int], tuple[Place | None, CodeType]] = {}
"""Places by code object and instruction; None where the code is not the user's. The code is kept, and so is its id."""


def user_place(skip: int = 1) -> Place:
    """The place of the user's code that is running now, `skip` frames above the caller at the earliest."""
    frame: FrameType | None = sys._getframe(skip + 1)
    while frame is not None:  # this runs at every event: the line of a frame is not looked up twice
        key = id(frame.f_code), frame.f_lasti
        found = _known.get(key)
        if found is None:
            found = _known[key] = _look_up(frame), frame.f_code
        if found[0] is not None:
            return found[0]
        frame = frame.f_back
    return UNKNOWN_PLACE


def _look_up(frame: FrameType) -> Place | None:
    code = frame.f_code
    return Place(code.co_filename, frame.f_lineno, code.co_name) if is_user_code(code.co_filename) else None


def is_user_code(filename: str) -> bool:
    """Whether a file, as a code object names it, is the user's: not torch's, not ours, not Python's own."""
    known = _users.get(filename)
    if known is None:
        known = _users[filename] = _belongs_to_user(filename)
    return known


def _belongs_to_user(filename: str) -> bool:
    if filename.startswith(("<frozen ", "<__array_function__")):
        return False
    path = os.path.abspath(filename)
    torch = getattr(sys.modules.get("torch"), "__file__", None)
    if path.startswith(_OURS) or (torch is not None and path.startswith(os.path.dirname(torch) + os.sep)):
        return False
    if os.path.basename(path) == "typing_extensions.py":  # whose `deprecated` wraps the old names
        return False
    return not path.startswith(_STANDARD_LIBRARY) or f"{os.sep}site-packages{os.sep}" in path
