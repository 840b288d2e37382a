"""The calls with which projects ask for the version of torch: parsers, conversions, `hasattr`, named helpers."""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING, Any

from amplint.names import Binding
from amplint.versions import version_words as words
from amplint.versions.guard_steps import last_name
from amplint.versions.releases import Release, module_since, since
from amplint.versions.torch_values import value_by_name
from amplint.versions.version_values import (
    OPERATORS,
    UNKNOWN,
    Environment,
    Missing,
    NotComparableError,
    Qualified,
    Text,
    Version,
    compare,
    numbers_of,
    same,
    text_of,
    torch_version,
    truth_value,
)

if TYPE_CHECKING:
    from amplint.versions.version_tests import VersionTests

_BUILTINS = re.compile(r"hasattr|getattr|map|tuple|list|callable|dir|int|str|bool|any|all|float")
_PARSERS = re.compile(r"(?:version_)?parse(?:_version)?|(?:Loose|Strict|Legacy|Torch)?Version(?:Info)?|digit_version")
_TEXT_METHODS = re.compile(
    r"r?split|r?partition|[lr]?strip|replace|join|remove(?:prefix|suffix)|startswith|endswith|r?index|r?find"
    r"|isdigit|isnumeric|lower"
)
_OPERATOR_FUNCTIONS = {"lt": "<", "le": "<=", "eq": "==", "ne": "!=", "ge": ">=", "gt": ">"}
_KEEP_THE_VALUE = frozenset(("cache", "lru_cache", "staticmethod", "classmethod", "property"))
_MANY = 4
_TORCH_DISTRIBUTIONS = ("torch", "pytorch")


def evaluate_call(tests: VersionTests, node: ast.Call, release: Release, env: Environment) -> Any:
    function = node.func
    resolved = tests.names.resolve(function)
    name = resolved[0].rpartition(".")[2] if len(resolved) == 1 else last_name(function)
    if isinstance(function, ast.Name) and _BUILTINS.fullmatch(name):
        return _builtin(tests, node, name, release, env)
    if name in ("version", "get_distribution") and len(node.args) == 1:
        argument = tests.evaluate(node.args[0], release, env)
        if argument in _TORCH_DISTRIBUTIONS:
            text = Text(torch_version(release))
            return text if name == "version" else {"version": text}
    if name == "find_spec" and len(node.args) == 1:
        argument = tests.evaluate(node.args[0], release, env)
        if isinstance(argument, str) and (first := module_since(argument)) is not None:
            return Qualified(argument) if release[:2] >= first else None
        return UNKNOWN
    if name in ("signature", "getfullargspec") and len(node.args) == 1:
        return tests.evaluate(node.args[0], release, env)
    if name in _OPERATOR_FUNCTIONS and len(node.args) == 2 and isinstance(function, ast.Attribute):
        values = tests.values(node.args, release, env)
        if values is None:
            return UNKNOWN
        return compare(_OPERATOR_FUNCTIONS[name], values[0], values[1], tests.intended)
    value = _local_call(tests, node, release, env)
    if value is not UNKNOWN:
        return value
    if _PARSERS.fullmatch(name) and node.args:
        argument = tests.evaluate(node.args[0], release, env)
        if argument is UNKNOWN or isinstance(argument, Version):
            return argument
        return Version(numbers_of(argument), isinstance(argument, Text))
    if isinstance(function, ast.Attribute) and _TEXT_METHODS.fullmatch(name):
        value = _text_method(tests, node, function, release, env)
        if value is not UNKNOWN:
            return value
    return _helper(tests, node, name, release, env)


def _builtin(tests: VersionTests, node: ast.Call, name: str, release: Release, env: Environment) -> Any:
    if name in ("hasattr", "getattr"):
        return _getattr(tests, node, name, release, env)
    if name == "map" and len(node.args) == 2 and isinstance(node.args[0], ast.Name):
        items = tests.evaluate(node.args[1], release, env)
        return UNKNOWN if items is UNKNOWN else [_converted(tests, node.args[0].id, item) for item in items]
    values = tests.values(node.args, release, env)
    if not values or node.keywords:
        return UNKNOWN
    if name in ("tuple", "list"):
        return tuple(values[0]) if name == "tuple" else list(values[0])
    if name == "callable":
        return isinstance(values[0], Qualified)
    if name == "dir":
        return values[0]
    return _converted(tests, name, values[0])


def _converted(tests: VersionTests, function: str, value: Any) -> Any:
    if function == "int":
        return int(value)
    if function == "str":
        return text_of(str(value), [value])
    if function == "bool":
        return truth_value(value)
    if function in ("any", "all"):
        truths = [truth_value(item) for item in value]
        return any(truths) if function == "any" else all(truths)
    if function == "float":
        # "2.10" as a number is 2.1; what is meant is the version.
        return Version(numbers_of(value), True) if tests.intended and isinstance(value, Text) else float(value)
    raise NotComparableError


def _getattr(tests: VersionTests, node: ast.Call, name: str, release: Release, env: Environment) -> Any:
    values = tests.values(node.args[:2], release, env)
    if values is None or len(values) != 2:
        return UNKNOWN
    base, attribute = values
    if not isinstance(base, (Qualified, Missing)):
        return UNKNOWN
    if base == "torch" and attribute == "__version__":
        return torch_version(release) if name == "getattr" else True
    first = since(f"{base}.{attribute}")
    if first is None:
        return UNKNOWN
    exists = release[:2] >= first
    if name == "hasattr":
        return exists
    if exists:
        return Qualified(f"{base}.{attribute}")
    return tests.evaluate(node.args[2], release, env) if len(node.args) > 2 else Missing(f"{base}.{attribute}")


def _text_method(
    tests: VersionTests, node: ast.Call, function: ast.Attribute, release: Release, env: Environment
) -> Any:
    value = tests.evaluate(function.value, release, env)
    arguments = tests.values(node.args, release, env)
    if function.attr == "join" and isinstance(value, str) and arguments:
        return text_of(value.join(map(str, arguments[0])), arguments[0])
    keywords = {item.arg: tests.evaluate(item.value, release, env) for item in node.keywords if item.arg}
    if not isinstance(value, (Version, Text)) or arguments is None or UNKNOWN in keywords.values():
        return UNKNOWN
    if function.attr == "startswith" and tests.intended:
        prefixes = arguments[0] if isinstance(arguments[0], tuple) else (arguments[0],)
        own = numbers_of(value)
        return any(own[: len(prefix)] == prefix for prefix in map(numbers_of, prefixes))
    result = getattr(str(value), function.attr)(*arguments, **keywords)
    if isinstance(result, str):
        return Text(result)
    return [Text(part) for part in result] if isinstance(result, (list, tuple)) else result


def _local_call(tests: VersionTests, node: ast.Call, release: Release, env: Environment) -> Any:
    """The value of a call to a function of this file that asks for the version and returns the answer."""
    definition = _definition(tests, node.func)
    if definition is None or (definition.decorator_list and not _is_cached(definition)):
        return UNKNOWN
    returns = _returns(definition.body)
    arguments = _bind_arguments(definition, node)
    if arguments is None or not 0 < len(returns) <= _MANY:
        return UNKNOWN
    inner: Environment = {}
    for parameter, argument in arguments.items():
        value = tests.evaluate(argument, release, env)
        if value is not UNKNOWN:
            inner[parameter] = value
    reached = [answer for answer in returns if len(returns) == 1 or tests.may_run(answer, release) is not False]
    return same([tests.evaluate(answer.value, release, inner) if answer.value else None for answer in reached])


def _returns(block: list[ast.stmt]) -> list[ast.Return]:
    """The `return` statements of a function's body in the order of the text, those of inner functions left out."""
    found: list[ast.Return] = []
    pending = list(reversed(block))
    while pending:
        statement = pending.pop()
        if isinstance(statement, ast.Return):
            found.append(statement)
        elif isinstance(statement, (ast.If, ast.Try)):
            handlers = statement.handlers if isinstance(statement, ast.Try) else []
            inner = [*statement.body, *(child for handler in handlers for child in handler.body), *statement.orelse]
            pending.extend(reversed(inner))
    return found


def _definition(tests: VersionTests, function: ast.expr) -> ast.FunctionDef | None:
    bindings: list[Binding] = []
    if isinstance(function, ast.Name):
        bindings = list(tests.names.lookup(function))
    elif isinstance(function, ast.Attribute) and isinstance(function.value, ast.Name):
        bindings = tests.members(function)
    if len(bindings) == 1 and isinstance(bindings[0].node, ast.FunctionDef):
        return bindings[0].node
    return None


def _helper(tests: VersionTests, node: ast.Call, name: str, release: Release, env: Environment) -> Any:
    """The value of a call to a helper that is defined elsewhere, by its name and its arguments."""
    if name in ("TorchVersion", "torch_version", "get_torch_version", "get_pytorch_version") and not node.args:
        return torch_version(release)
    symbol, versions, about_torch = "", [], "torch" in name.lower() or name.lower().startswith("pt_")
    numbers: list[int] = []
    for argument in [*node.args, *(keyword.value for keyword in node.keywords)]:
        if isinstance(argument, ast.Attribute) and argument.attr in _OPERATOR_FUNCTIONS:
            symbol = _OPERATOR_FUNCTIONS[argument.attr]
            continue
        value = tests.evaluate(argument, release, env)
        if _is_torch(value):
            about_torch = True
        elif isinstance(value, str) and value in OPERATORS:
            symbol = value
        elif isinstance(value, int) and not isinstance(value, bool):
            numbers.append(value)
        elif isinstance(value, str) and (requirement := words.requirement(value)):
            about_torch, symbol = True, requirement[0]
            versions.append(numbers_of(requirement[1]))
        elif isinstance(value, (str, tuple, Version)):
            versions.append(numbers_of(value))
    if len(numbers) >= 2 and not versions:
        versions.append(tuple(numbers))
    if about_torch and len(versions) == 1 and (symbol or words.is_helper_name(name)):
        return compare(symbol or words.operator_in_name(name), Version(release), Version(versions[0]), True)
    return UNKNOWN if node.args or node.keywords else value_by_name(name, release)


def _is_torch(value: Any) -> bool:
    """Whether an argument says that a helper asks for torch: its version, its name or the module."""
    if isinstance(value, Version):
        return value.of_torch
    return isinstance(value, (Text, Qualified)) or value in _TORCH_DISTRIBUTIONS


def _is_cached(definition: ast.FunctionDef) -> bool:
    decorators = [d.func if isinstance(d, ast.Call) else d for d in definition.decorator_list]
    return all(last_name(decorator) in _KEEP_THE_VALUE for decorator in decorators)


def _bind_arguments(definition: ast.FunctionDef, call: ast.Call) -> dict[str, ast.expr] | None:
    """The argument of each parameter, defaults included; None where that can't be told."""
    parameters = [arg.arg for arg in (*definition.args.posonlyargs, *definition.args.args)]
    if parameters[:1] in (["self"], ["cls"]):
        parameters = parameters[1:]
    defaults = definition.args.defaults
    bound: dict[str, ast.expr] = dict(zip(parameters[len(parameters) - len(defaults) :], defaults, strict=False))
    if len(call.args) > len(parameters) or any(isinstance(a, ast.Starred) for a in call.args):
        return None
    bound.update(zip(parameters, call.args, strict=False))
    for keyword in call.keywords:
        if keyword.arg is None:
            return None
        bound[keyword.arg] = keyword.value
    return bound
