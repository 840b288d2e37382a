"""Edits on the arguments of a call by node, on top of `amplint.calls.call_edits`."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from amplint.calls.call_edits import Arguments
from amplint.model import Edit, Span

if TYPE_CHECKING:
    from amplint.source import SourceFile

Node = ast.expr | ast.keyword


class ArgumentEdits:
    """The arguments of a call, without the first `skip`: `functools.partial(f, x)` holds those of `f` behind one."""

    def __init__(self, file: SourceFile, call: ast.Call, skip: int = 0) -> None:
        self._file = file
        self._list = Arguments(file, call)
        self._skip = skip

    @property
    def count(self) -> int:
        """How many arguments there are."""
        return len(self._list.items) - self._skip

    def prepend(self, text: str) -> list[Edit]:
        """Put an argument in front of all others."""
        return self._list.insert_after(self._skip - 1, text) if self._skip else self._list.prepend(text)

    def append(self, text: str) -> list[Edit]:
        """Put an argument behind all others."""
        return self._list.append(text)

    def name(self, node: Node, parameter: str) -> list[Edit]:
        """Turn a positional argument into a keyword, or give a keyword another name."""
        if isinstance(node, ast.keyword):
            assert node.arg is not None, "`**` has no name to change"
            start = self._file.span(node).start
            return [Edit(Span(start, start + len(node.arg.encode())), parameter)]
        return self._list.name(self._index(node), parameter)

    def replace(self, node: Node, text: str) -> list[Edit]:
        """Put another argument in the place of one."""
        item = self._list.items[self._index(node)]
        return [Edit(Span(item.start, item.end), text)]

    def remove(self, node: Node) -> list[Edit]:
        """Remove an argument with one comma; empty where a comment would go with it."""
        items, index = self._list.items, self._index(node)
        item = items[index]
        if index + 1 < len(items):
            gone = Span(item.start, items[index + 1].start)
        elif index:
            gone = Span(items[index - 1].end, item.end)
        else:
            gone = Span(self._list.start, self._list.end)
        around = self._file.segment(Span(gone.start, item.start)) + self._file.segment(Span(item.end, gone.end))
        return [] if "#" in around else [Edit(gone, "")]

    def remove_parentheses(self) -> list[Edit]:
        """Turn the call into a reference to what is called."""
        return [Edit(Span(self._list.start - 1, self._list.end + 1), "")]

    def _index(self, node: Node) -> int:
        return next(index for index, item in enumerate(self._list.items) if item.node is node)
