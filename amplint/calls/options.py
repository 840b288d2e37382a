"""Command-line options that a file declares: what `args.amp` holds where the file says `add_argument("--amp", ...)`."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from amplint.source import SourceFile

_HOLDERS = frozenset(("args", "arg", "opt", "opts", "options", "arguments", "parsed", "flags", "hparams", "cli_args"))
_FLAG_ACTIONS = frozenset(("store_true", "store_false"))


def declared_option(file: SourceFile, node: ast.Attribute) -> ast.Call | None:
    """The one `add_argument` call that declares `args.<name>`, None where there is none or it is set later."""
    holder = node.value
    if not isinstance(holder, ast.Name) or holder.id.lower() not in _HOLDERS:
        return None
    if any(not isinstance(use.ctx, ast.Load) for use in file.names.attributes.get(node.attr, ())):
        return None
    declared = [call for call in file.names.calls if _declares(call, node.attr)]
    return declared[0] if len(declared) == 1 else None


def is_flag(option: ast.Call) -> bool:
    """Whether an option is True or False by its action."""
    action = keyword(option, "action")
    if isinstance(action, ast.Attribute):
        return action.attr == "BooleanOptionalAction"
    return isinstance(action, ast.Constant) and action.value in _FLAG_ACTIONS


def is_text(option: ast.Call) -> bool:
    """Whether an option holds what was typed, unconverted."""
    converter = keyword(option, "type")
    plain = converter is None or (isinstance(converter, ast.Name) and converter.id == "str")
    return plain and all(keyword(option, name) is None for name in ("action", "nargs"))


def keyword(call: ast.Call, name: str) -> ast.expr | None:
    """What a call passes for a keyword."""
    return next((given.value for given in call.keywords if given.arg == name), None)


def _declares(call: ast.Call, name: str) -> bool:
    if not isinstance(call.func, ast.Attribute) or call.func.attr != "add_argument":
        return False
    destination = keyword(call, "dest")
    if destination is not None:
        return isinstance(destination, ast.Constant) and destination.value == name
    flags = [str(flag.value) for flag in call.args if isinstance(flag, ast.Constant)]
    long = next((flag for flag in flags if flag.startswith("--")), "")
    return long.lstrip("-").replace("-", "_") == name
