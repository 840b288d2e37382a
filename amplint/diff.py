"""A change of text as a unified diff that `git apply` and `patch` take."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence


def unified_diff(old: str, new: str, filename: str) -> str:
    """The change from `old` to `new` as `git diff` prints it (three lines of context), empty when there is none.

    `filename` is relative to where the diff will be applied. Lines end with line feeds only, as git sees them, so
    carriage returns stay part of the lines. The result ends with a line feed.
    """
    if old == new:
        return ""
    from difflib import SequenceMatcher

    before, after = _lines(old), _lines(new)
    # SequenceMatcher is quadratic in the worst case: spare it what is equal anyway, but for the context.
    start = max(_common_length(before, after) - 3, 0)
    same_end = _common_length(before[start:][::-1], after[start:][::-1])
    cut = max(same_end - 3, 0)
    a, b = before[start : len(before) - cut], after[start : len(after) - cut]
    output = [f"--- {_quote_path('a', filename)}\n", f"+++ {_quote_path('b', filename)}\n"]
    for group in SequenceMatcher(None, a, b, autojunk=len(a) > 2000).get_grouped_opcodes(3):
        a_start, a_end, b_start, b_end = group[0][1], group[-1][2], group[0][3], group[-1][4]
        output.append(
            f"@@ -{_range(start + a_start, a_end - a_start)} +{_range(start + b_start, b_end - b_start)} @@\n"
        )
        for tag, i, j, k, m in group:
            if tag == "equal":
                output.extend(_marked(" ", a[i:j]))
            else:
                output.extend(_marked("-", a[i:j]))
                output.extend(_marked("+", b[k:m]))
    return "".join(output)


def _lines(text: str) -> list[str]:
    """Split at line feeds only, keeping them; `str.splitlines` would also split at form feeds and other characters."""
    lines = [line + "\n" for line in text.split("\n")]
    lines[-1] = lines[-1][:-1]
    return lines if lines[-1] else lines[:-1]


def _common_length(a: Sequence[str], b: Sequence[str]) -> int:
    length = 0
    for x, y in zip(a, b, strict=False):
        if x != y:
            break
        length += 1
    return length


def _range(start: int, length: int) -> str:
    first = start + 1 if length else start
    return str(first) if length == 1 else f"{first},{length}"


def _marked(mark: str, lines: Iterable[str]) -> Iterator[str]:
    for line in lines:
        yield mark + line if line.endswith("\n") else f"{mark}{line}\n\\ No newline at end of file\n"


def _quote_path(side: str, filename: str) -> str:
    """Write a path as git does: quoted like a C string if it holds odd bytes, ended by a tab if it holds spaces."""
    import os

    path = f"{side}/{filename.replace(os.sep, '/').lstrip('/')}"
    if path.isprintable() and '"' not in path and "\\" not in path:
        return path + "\t" if " " in path else path
    named = dict(zip(b'\a\b\t\n\v\f\r"\\', 'abtnvfr"\\', strict=True))
    return (
        '"'
        + "".join(
            f"\\{named[byte]}" if byte in named else chr(byte) if 32 <= byte < 127 else f"\\{byte:03o}"
            for byte in path.encode("utf-8", "surrogateescape")
        )
        + '"'
    )
