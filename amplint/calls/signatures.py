"""Does a call fit a signature: which argument lands in which parameter, and what is left over."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, NamedTuple

from amplint.torch_api import APIS, CURRENT, Api, Signature, Version

if TYPE_CHECKING:
    from amplint.source import Ref, SourceFile


class Argument(NamedTuple):
    """An argument and the parameter it lands in; `keyword` is None where it is given by position."""

    parameter: str
    value: ast.expr
    keyword: ast.keyword | None = None


class Bound(NamedTuple):
    """A call matched with a signature.

    `arguments` are the placed ones by parameter. `surplus` are positional arguments beyond the last parameter,
    `unknown` keywords that the signature doesn't have, `duplicate` keywords whose parameter is given by position too.
    `missing` are required parameters that get nothing; it is empty where a `*` or `**` argument may bring them.
    `starred` says that there is a `*` argument: what follows it by position is in `unplaced`. `unpacked` says that
    there is a `**` argument.
    """

    arguments: dict[str, Argument]
    surplus: tuple[ast.expr, ...] = ()
    unknown: tuple[ast.keyword, ...] = ()
    duplicate: tuple[ast.keyword, ...] = ()
    missing: tuple[str, ...] = ()
    unplaced: tuple[ast.expr, ...] = ()
    starred: bool = False
    unpacked: bool = False

    @property
    def fits(self) -> bool:
        """Whether Python would accept the call, as far as the text shows."""
        return not (self.surplus or self.unknown or self.duplicate or self.missing)

    def value(self, parameter: str) -> ast.expr | None:
        """What a parameter is given, None where it keeps its default or a `*` or `**` argument may bring it."""
        argument = self.arguments.get(parameter)
        return None if argument is None else argument.value


def bind(call: ast.Call, signature: Signature) -> Bound:
    """Match the arguments of a call with the parameters of a signature, as Python does."""
    arguments: dict[str, Argument] = {}
    surplus: list[ast.expr] = []
    unplaced: list[ast.expr] = []
    starred = False
    for index, value in enumerate(call.args):
        if isinstance(value, ast.Starred):
            starred = True
        elif starred:
            unplaced.append(value)
        elif index < len(signature.positional):
            parameter = signature.positional[index]
            arguments[parameter] = Argument(parameter, value)
        else:
            surplus.append(value)
    unknown: list[ast.keyword] = []
    duplicate: list[ast.keyword] = []
    for keyword in call.keywords:
        name = keyword.arg
        if name is None:
            continue
        if name in arguments:
            duplicate.append(keyword)
        elif name in signature.positional or name in signature.keyword or signature.open:
            arguments[name] = Argument(name, keyword.value, keyword)
        else:
            unknown.append(keyword)
    unpacked = any(keyword.arg is None for keyword in call.keywords)
    missing = tuple(
        name
        for name in signature.required
        if name not in arguments and not unpacked and not (starred and name in signature.positional)
    )
    return Bound(
        arguments, tuple(surplus), tuple(unknown), tuple(duplicate), missing, tuple(unplaced), starred, unpacked
    )


def signatures_from(api: Api, floor: Version) -> tuple[Signature, ...]:
    """The signatures that a name has in the torch versions from `floor` to the current one, the oldest first."""
    first = api.signature(max(floor, api.since))
    return tuple(s for s in api.signatures if s is first or floor < s.since <= CURRENT)


def apis(candidates: tuple[str, ...]) -> tuple[Api, ...]:
    """The entries of the table for the qualified names of a reference; empty unless every one of them has an entry."""
    found = [APIS.get(name) for name in candidates]
    return tuple(api for api in found if api is not None) if None not in found else ()


def is_unentered_autocast(file: SourceFile, ref: Ref) -> bool:
    """Whether a reference to an autocast class stands without a call where a context manager or decorator is needed.

    That is `with autocast:`, `stack.enter_context(autocast)` and a bare `@autocast`, the first two also as an arm of a
    conditional expression. AMP008 reports these places and makes them calls; until then no other rule can say what the
    call should be.
    """
    if ref.context == "import" or not isinstance(ref.node, ast.expr):
        return False
    found = apis(tuple(name for name in ref.candidates if name not in NO_CONTEXT_EITHER))
    if not found or any(api.kind != "autocast" for api in found):
        return False
    if ref.context == "decorator":
        return not isinstance(ref.statement, ast.ClassDef)
    node: ast.AST = ref.node
    parent = file.parent(node)
    while isinstance(parent, ast.IfExp) and node is not parent.test:
        node, parent = parent, file.parent(parent)
    if isinstance(parent, ast.withitem):
        return parent.context_expr is node
    return (
        isinstance(parent, ast.Call)
        and isinstance(parent.func, ast.Attribute)
        and parent.func.attr in ("enter_context", "enter_async_context")
        and parent.args[:1] == [node]
    )


NO_CONTEXT_EITHER = ("contextlib.nullcontext", "contextlib.suppress")
"""Classes that stand beside autocast in conditional expressions and can't be entered without a call either."""
