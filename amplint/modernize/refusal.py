"""Why something is not rewritten."""

from __future__ import annotations


class RefusalError(Exception):
    """Raised where a rewrite could change what the program does; `reason` is a clause that tells the user why.

    `culprit` is the place that can't be rewritten where others hang on it, None where the reason concerns all of them.
    """

    def __init__(self, reason: str, culprit: object = None) -> None:
        super().__init__(reason)
        self.reason = reason
        self.culprit = culprit
