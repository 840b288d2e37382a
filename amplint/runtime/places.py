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
_foreign: dict[str, bool] = {}


def user_place(skip: int = 1) -> Place:
    """The place of the user's code that is running now, `skip` frames above the caller at the earliest."""
    frame = user_frame(skip + 1)
    return UNKNOWN_PLACE if frame is None else Place(_name(frame), frame.f_lineno, frame.f_code.co_name)


def user_frame(skip: int = 1) -> FrameType | None:
    """The innermost frame of the user's code, `skip` frames above the caller at the earliest."""
    frame: FrameType | None = sys._getframe(skip + 1)
    while frame is not None and not is_user_code(frame.f_code.co_filename):
        frame = frame.f_back
    return frame


def is_user_code(filename: str) -> bool:
    """Whether a file, as a code object names it, is the user's: not torch's, not ours, not Python's own."""
    known = _foreign.get(filename)
    if known is None:
        known = _foreign[filename] = _belongs_to_user(filename)
    return known


def _belongs_to_user(filename: str) -> bool:
    if filename.startswith(("<frozen ", "<__array_function__")):
        return False
    path = os.path.abspath(filename)
    torch = getattr(sys.modules.get("torch"), "__file__", None)
    if path.startswith(_OURS) or (torch is not None and path.startswith(os.path.dirname(torch) + os.sep)):
        return False
    return not path.startswith(_STANDARD_LIBRARY) or f"{os.sep}site-packages{os.sep}" in path


def _name(frame: FrameType) -> str:
    return frame.f_code.co_filename
