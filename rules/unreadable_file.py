"""AMP000: reported by the checker itself when a file does not parse; the page stands here with the others."""

from __future__ import annotations

from collections.abc import Iterator

from amplint.model import Finding, Level
from amplint.rule import rule
from amplint.source import SourceFile


@rule("AMP000", "unreadable-file", level=Level.ERROR)
def unreadable_file(file: SourceFile) -> Iterator[Finding]:
    """
    The file can't be decoded or does not parse, so nothing in it was checked. Silence would look like a clean file.

    A file that is written in a newer Python than the one that runs amplint is read with LibCST where that can be done;
    otherwise run amplint under a Python that knows the syntax.

    ```python bad
    import torch

    with torch.autocast("cuda":
        pass
    ```

    ```python good
    import torch

    with torch.autocast("cuda"):
        pass
    ```
    """
    yield from ()
