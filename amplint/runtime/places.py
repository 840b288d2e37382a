"""Where the user's code called torch: the innermost frame that is not torch's, the monitor's or Python's own."""

from __future__ import annotations

import os
import sys
from types import FrameType
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
_places: dict[tuple[str, int], Place] = {}


def user_place(skip: int = 1) -> Place:
    """The place of the user's code that is running now, `skip` frames above the caller at the earliest."""
    frame: FrameType | None = sys._getframe(skip + 1)
    while frame is not None:
        code = frame.f_code
        theirs = _users.get(code.co_filename)  # looked up here because this runs at every event
        if theirs or (theirs is None and is_user_code(code.co_filename)):
            key = (code.co_filename, frame.f_lineno)
            place = _places.get(key)
            if place is None:
                place = _places[key] = Place(*key, code.co_name)
            return place
        frame = frame.f_back
    return UNKNOWN_PLACE


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
    return not path.startswith(_STANDARD_LIBRARY) or f"{os.sep}site-packages{os.sep}" in path
