"""What goes to the terminal: encodable whatever the locale, coloured where that is wanted, quiet when a pipe breaks."""

from __future__ import annotations

import os
import sys
import time
from typing import Literal, TextIO

Color = Literal["auto", "always", "never"]

_PROGRESS_AFTER = 1.0  # seconds; a bar that flashes up is a nuisance
_PROGRESS_EVERY = 0.1
_BAR_WIDTH = 30


class Console:
    """Standard output and standard error of one run; `quiet` keeps what is not an error off the latter."""

    def __init__(self, color: Color = "auto", quiet: bool = False) -> None:
        self.color = wants_color(color, sys.stdout)
        self.hyperlinks = self.color and sys.stdout.isatty()
        self.quiet = quiet
        for stream in (sys.stdout, sys.stderr):
            if hasattr(stream, "reconfigure"):
                stream.reconfigure(errors="backslashreplace")

    @property
    def width(self) -> int:
        """The width of the terminal in columns, 120 where standard output is none."""
        try:
            return max(os.get_terminal_size(sys.stdout.fileno()).columns, 40)
        except (OSError, ValueError):
            return 120

    def write(self, text: str) -> None:
        """Write to standard output."""
        try:
            sys.stdout.write(text)
            sys.stdout.flush()
        except BrokenPipeError:
            _discard_standard_output()

    def write_bytes(self, data: bytes) -> None:
        """Write to standard output just these bytes, as a file or a patch needs them."""
        try:
            sys.stdout.flush()
            sys.stdout.buffer.write(data)
            sys.stdout.buffer.flush()
        except BrokenPipeError:
            _discard_standard_output()

    def error(self, message: str) -> None:
        """Tell on standard error what went wrong."""
        _write_error(f"amplint: {message}\n")

    def note(self, message: str) -> None:
        """Tell on standard error what was done, unless the user wants quiet."""
        if not self.quiet:
            _write_error(message + "\n")


class Progress:
    """A bar on standard error for runs that take longer than a second, on a terminal only.

    Called with the number of files done and their total.
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._next = time.monotonic() + _PROGRESS_AFTER
        self._shown = False

    def __call__(self, done: int, total: int) -> None:
        now = time.monotonic()
        if now >= self._next:
            self._next = now + _PROGRESS_EVERY
            self._shown = True
            full = _BAR_WIDTH * done // max(total, 1)
            self._stream.write(f"\r[{'#' * full}{' ' * (_BAR_WIDTH - full)}] {done}/{total} files")
            self._stream.flush()

    def close(self) -> None:
        """Wipe the bar out, if there is one."""
        if self._shown:
            self._stream.write("\r\033[K")
            self._stream.flush()


def progress(quiet: bool) -> Progress | None:
    """A progress bar, or None where nobody would see it."""
    return None if quiet or not sys.stderr.isatty() else Progress(sys.stderr)


def wants_color(color: Color, stream: TextIO) -> bool:
    """Whether to write colours: as asked, else as NO_COLOR and FORCE_COLOR say, else on a terminal only."""
    if color != "auto":
        return color == "always"
    if os.environ.get("NO_COLOR"):
        return False
    if os.environ.get("FORCE_COLOR"):
        return os.environ["FORCE_COLOR"] != "0"
    return stream.isatty() and os.environ.get("TERM") != "dumb"


def colored_diff(diff: str) -> str:
    """A unified diff in the colours that git gives it."""
    codes = {"---": "1", "+++": "1", "@@": "36", "-": "31", "+": "32"}
    lines = []
    for line in diff.split("\n"):
        code = next((code for mark, code in codes.items() if line.startswith(mark)), None)
        lines.append(line if code is None else f"\033[{code}m{line}\033[0m")
    return "\n".join(lines)


def _write_error(text: str) -> None:
    try:
        sys.stderr.write(text)
        sys.stderr.flush()
    except OSError:
        return


def _discard_standard_output() -> None:
    """Send what is still to come nowhere: the reader has gone, and Python would complain about that at its end."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
