"""What the name of a flag or helper that is defined elsewhere says of the torch version.

Projects keep their version tests in one module and import `_TORCH_GREATER_EQUAL_2_4`, `is_torch_version` or
`TORCH_VERSION` everywhere else; all that one file shows of them is the name.
"""

from __future__ import annotations

import ast
import re

_TORCH = r"(?:torch|pytorch|pt)"
_NUMBER = r"(?<![0-9])(?P<major>[12])(?:_?(?P<minor>[0-9]{1,2}))?(?:_[0-9x]+)?(?![0-9])"
_FLAG = re.compile(rf"(?:^|[^a-z]){_TORCH}(?P<middle>[a-z_]*?)_?v?{_NUMBER}(?P<tail>[a-z_]*)$", re.I)
_VERSION_NAME = re.compile(rf"^_*(?:installed_|current_|cur_)?{_TORCH}_?(?:version|ver|vers)(?:_info|_tuple)?_*$", re.I)
_REQUIREMENT = re.compile(r"^\s*torch\s*(<=|>=|==|!=|<|>)\s*([0-9][0-9.]*)\s*$")
_LITERAL = re.compile(r"v?[12](?:\.\d+){1,2}\S*")
_HELPER = re.compile(rf"{_TORCH}|version", re.I)

# The first of these whose words stand in a name wins.
_WORDS: tuple[tuple[str, frozenset[str]], ...] = (
    (">=", frozenset(("ge", "geq", "gte", "least", "plus", "min", "minimum", "newer", "since"))),
    ("<=", frozenset(("le", "leq", "lte", "most", "max", "maximum"))),
    ("<", frozenset(("lt", "less", "below", "before", "older", "under", "lower", "smaller", "pre", "earlier"))),
    (">", frozenset(("gt", "above", "after"))),
    ("==", frozenset(("eq", "equal", "exact", "exactly"))),
)


def flag_meaning(name: str) -> tuple[str, str] | None:
    """The operator and the version in the name of a flag: `_TORCH_GREATER_EQUAL_2_4` says `>=` and `2.4`."""
    name = _in_snake_case(name)
    match = _FLAG.search(name)
    if match is None:
        return None
    before = name[: match.start("major")]
    words = _split(before) + _split(match.group("tail"))
    if {"available", "cuda"} & set(words):
        return None
    return operator_in(words), f"{match.group('major')}.{match.group('minor') or 0}"


def is_version_name(name: str) -> bool:
    """Whether a name stands for the version of torch: `TORCH_VERSION`, `pt_version`, `_torch_ver`."""
    return _VERSION_NAME.match(name) is not None


def is_version_literal(node: ast.AST) -> bool:
    """Whether an expression is written like a version of torch: `(2, 3)`, `[2, 4, 0]`, `"2.4"`."""
    if isinstance(node, (ast.Tuple, ast.List)):
        numbers = [part.value for part in node.elts if isinstance(part, ast.Constant) and type(part.value) is int]
        return len(numbers) == len(node.elts) and len(numbers) in (2, 3) and numbers[0] in (1, 2)
    return isinstance(node, ast.Constant) and isinstance(node.value, str) and bool(_LITERAL.fullmatch(node.value))


def part_of_version(name: str) -> int | None:
    """0 or 1 where a name stands for torch's major or minor version (`TORCH_MAJOR`), else None."""
    words = _split(name)
    if not {"torch", "pytorch", "pt"} & set(words):
        return None
    return 0 if "major" in words else 1 if "minor" in words else None


def requirement(text: str) -> tuple[str, str] | None:
    """The operator and the version of a requirement such as `torch>=2.4`, None for any other text."""
    match = _REQUIREMENT.match(text)
    return None if match is None else (match.group(1), match.group(2))


def is_helper_name(name: str) -> bool:
    """Whether a function's name says that it compares versions."""
    return _HELPER.search(name) is not None


def operator_in_name(name: str) -> str:
    """The operator in the name of a helper, `>=` where there is none: `torch_version_lt` says `<`."""
    return operator_in(_split(name))


def operator_in(words: list[str]) -> str:
    """The operator that the words of a name say; `greater or equal` and no word at all are `>=`."""
    given = set(words)
    if given & {"greater", "larger", "higher", "bigger"}:
        return ">=" if given & {"equal", "eq"} or not given & {"than"} else ">"
    if given & {"less", "smaller", "lower"} and given & {"equal", "eq"}:
        return "<="
    for symbol, known in _WORDS:
        if given & known:
            return symbol
    return ">="


def _split(name: str) -> list[str]:
    """The words of a name in snake or camel case, in lower case."""
    return [word for word in re.split(r"[^a-z]+", _in_snake_case(name).lower()) if word]


def _in_snake_case(name: str) -> str:
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name)
