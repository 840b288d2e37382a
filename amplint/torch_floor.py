"""The oldest torch that a project supports, read from what the project says about its dependencies.

The nearest directory that mentions torch decides, from the file upwards to the root of the repository. In one directory
the order is pyproject.toml, setup.cfg, setup.py, requirements files, conda environment; the first of them that gives a
lower bound wins, so that the range of a library is not hidden by the exact pin of its development environment.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from amplint.project import parse_toml, path_from, repository_root

Version = tuple[int, int]
Floor = tuple[Version, str]

_TORCH = re.compile(
    r"(?:[\w-]+::)?(?:py)?torch(?:-[cg]pu)?(?![\w.-])\s*(?:\[[^\]]*\])?\s*(.*)", re.IGNORECASE | re.DOTALL
)
_LOWER_BOUND = re.compile(r"(?:===?|[~>]=?|=|\^)?v?(?:\d+!)?(\d+)(?:\.(\d+))?")
_UPPER_BOUND = re.compile(r"<(=?)v?(?:\d+!)?(\d+)(?:\.(\d+))?((?:\.\d+)*)")
_LAST_MINOR = {0: 4, 1: 13}
"""The last minor release of every major one that is closed (torch 0.4 and 1.13)."""

_AFTER_REQUIREMENT = re.compile(r"\s#|\s--?[a-z]|;")
_URL_VERSION = re.compile(r"(?:/torch-|@v?)(\d+)\.(\d+)")


_PROJECT_FILE = re.compile(r"pyproject\.toml$|setup\.(?:cfg|py)$|requirements|environment\.ya?ml$").match


class Mention(NamedTuple):
    """A place where a project names torch as a dependency; `floor` is None where it sets no lower bound.

    `optional` is true for extras and for requirements files beside the main one.
    """

    floor: Version | None
    source: str
    optional: bool = False


def lower_bound(constraint: str) -> Version | None:
    """The oldest (major, minor) that a version constraint admits, None when it has no bound.

    With an upper bound only, the newest that it admits: nothing newer is there to use. Understands the operators of PEP
    440, poetry (`^1.13`, `~1.13`, `1.13`) and conda (`=1.13=py3_cuda`), joined by commas or blanks, with alternatives
    after `|`.
    """
    floors: list[Version | None] = []
    for alternative in re.sub(r"([<>=!~^])\s+", r"\1", constraint).split("|"):
        terms = re.split(r"[\s,]+", alternative.strip("\t ()"))
        if terms != [""]:
            bounds = [(int(match[1]), int(match[2] or 0)) for term in terms if (match := _LOWER_BOUND.match(term))]
            floors.append(max(bounds, default=None) or min(filter(None, map(_newest_below, terms)), default=None))
    known = [floor for floor in floors if floor is not None]
    return min(known) if known and len(known) == len(floors) else None


def _newest_below(term: str) -> Version | None:
    """The newest (major, minor) that `<` or `<=` and a version admit, None for other terms and unknown releases."""
    match = _UPPER_BOUND.match(term)
    if match is None:
        return None
    major, minor = int(match[2]), int(match[3] or 0)
    if match[1] or match[4].strip(".0"):
        return (major, minor) if major <= max(_LAST_MINOR) + 1 else None
    if minor:
        return (major, minor - 1) if major <= max(_LAST_MINOR) + 1 else None
    return (major - 1, _LAST_MINOR[major - 1]) if major - 1 in _LAST_MINOR else None


def parse_requirement(text: str) -> tuple[str, Version | None] | None:
    """What to show of a requirement (PEP 508, pip or conda) and its floor; None for a package other than torch."""
    text = _AFTER_REQUIREMENT.split(text, maxsplit=1)[0].strip()
    if "://" in text:
        named = re.match(r"([\w.-]+(?:\[[^\]]*\])?)\s*@", text)
        if not (_TORCH.fullmatch(named[1]) if named else re.search(r"/torch-\d|#egg=torch\b", text)):
            return None
        match = _URL_VERSION.search(text)
        return text, (int(match[1]), int(match[2])) if match else None
    match = _TORCH.fullmatch(text)
    return (text, lower_bound(match[1])) if match else None


class FloorFinder:
    """Finds floors for the directories of one run, reading every project file once.

    `messages` collects one line for every project file that could not be read.
    """

    def __init__(self) -> None:
        self.messages: list[str] = []
        self._found: dict[str, Floor | None] = {}

    def find(self, directory: str) -> Floor | None:
        """The floor for the files in a directory, and the text that set it; None means the current torch."""
        directory = os.path.abspath(directory)
        waiting: list[str] = []
        while directory not in self._found:
            waiting.append(directory)
            names = _names_in(directory)
            mentions = self._mentions(directory, names) if any(map(_PROJECT_FILE, names)) else []
            parent = os.path.dirname(directory)
            if mentions or ".git" in names or parent == directory:
                self._found[directory] = _lowest(mentions)
            else:
                directory = parent
        floor = self._found[directory]
        for below in waiting:
            self._found[below] = floor
        return floor

    def _mentions(self, directory: str, names: frozenset[str]) -> list[Mention]:
        """The mentions in the first kind of file that has a floor, or else all mentions, none of which has one."""
        mentions: list[Mention] = []
        base = repository_root(directory) or directory
        for read, paths in _project_files(directory, names):
            for path in paths:
                try:
                    mentions += read(path, base)
                except (OSError, ValueError, SyntaxError, RecursionError, MemoryError) as error:
                    self.messages.append(f"{path}: not read for the oldest torch: {error}")
            if any(mention.floor for mention in mentions):
                break
        return mentions


def find_floor(directory: str) -> Floor | None:
    """The oldest torch for the files in a directory, and the text that set it; None means the current torch."""
    return FloorFinder().find(directory)


def _lowest(mentions: list[Mention]) -> Floor | None:
    for optional in (False, True):
        floors = [(m.floor, m.source) for m in mentions if m.floor is not None and m.optional is optional]
        if floors:
            return min(floors, key=lambda floor: floor[0])
    return None


def _names_in(directory: str) -> frozenset[str]:
    try:
        return frozenset(os.listdir(directory))
    except OSError:
        return frozenset()


def _project_files(directory: str, names: frozenset[str]) -> Iterator[tuple[_Reader, list[str]]]:
    """The readers in the order in which they are asked, with the paths that they are to read."""
    for reader, wanted in _READERS:
        found = [name for name in wanted if name in names]
        if reader is _read_other_requirements:
            found = sorted(name for name in names if re.fullmatch(r"requirements.+\.txt", name))
            if "requirements" in names:
                below = _names_in(os.path.join(directory, "requirements"))
                found += sorted(os.path.join("requirements", name) for name in below if name.endswith(".txt"))
        if found:
            yield reader, [os.path.join(directory, name) for name in found]


def _read_text(path: str) -> str:
    with open(path, "rb") as stream:
        data = stream.read()
    # `pip freeze > requirements.txt` in PowerShell writes UTF-16.
    encoding = "utf-16" if data.startswith((b"\xff\xfe", b"\xfe\xff")) else "utf-8-sig"
    return data.decode(encoding, "replace")


def _read_if_about_torch(path: str) -> str:
    """The text of a file that contains `torch`, else the empty string: most files need no parser."""
    text = _read_text(path)
    return text if "torch" in text.lower() else ""


def _mentions_of(requirements: Any, where: str, optional: bool = False) -> Iterator[Mention]:
    for requirement in requirements if isinstance(requirements, (list, tuple)) else ():
        if isinstance(requirement, str) and (parsed := parse_requirement(requirement)):
            text, floor = parsed
            yield Mention(floor, f"{where}: {text}", optional)


def _table(parent: Any, *keys: str) -> dict[str, Any]:
    for key in keys:
        parent = parent.get(key) if isinstance(parent, dict) else None
    return parent if isinstance(parent, dict) else {}


def _read_pyproject(path: str, base: str) -> Iterator[Mention]:
    text = _read_if_about_torch(path)
    if not text:
        return
    document = parse_toml(text.encode())
    name = path_from(base, path)
    yield from _mentions_of(_table(document, "project").get("dependencies"), f"{name} [project] dependencies")
    for extra, requirements in _table(document, "project", "optional-dependencies").items():
        yield from _mentions_of(requirements, f"{name} [project.optional-dependencies] {extra}", True)
    for package, value in _table(document, "tool", "poetry", "dependencies").items():
        if _TORCH.fullmatch(package):
            for choice in value if isinstance(value, list) else [value]:
                yield _poetry_mention(choice, f"{name} [tool.poetry.dependencies]: {package}")


def _poetry_mention(value: Any, where: str) -> Mention:
    if isinstance(value, str):
        return Mention(lower_bound(value), f'{where} = "{value}"')
    if not isinstance(value, dict):
        return Mention(None, where)
    optional = value.get("optional") is True
    for key in ("version", "url", "tag"):
        if isinstance(value.get(key), str):
            match = _URL_VERSION.search(value[key])
            floor = (int(match[1]), int(match[2])) if match else lower_bound(value[key])
            return Mention(floor, f'{where} = {{ {key} = "{value[key]}" }}', optional)
    return Mention(None, where, optional)


def _read_setup_cfg(path: str, base: str) -> Iterator[Mention]:
    text = _read_if_about_torch(path)
    if not text:
        return
    import configparser

    parser = configparser.RawConfigParser()
    try:
        parser.read_string(text)
    except configparser.Error as error:
        raise ValueError(error) from None
    name = path_from(base, path)
    requirements = parser.get("options", "install_requires", fallback="").splitlines()
    yield from _mentions_of(requirements, f"{name} [options] install_requires")
    if parser.has_section("options.extras_require"):
        for extra, lines in parser.items("options.extras_require"):
            yield from _mentions_of(lines.splitlines(), f"{name} [options.extras_require] {extra}", True)


def _read_setup_py(path: str, base: str) -> Iterator[Mention]:
    text = _read_if_about_torch(path)
    if not text:
        return
    import ast

    name = path_from(base, path)
    tree = ast.parse(text)
    assigned = {
        target.id: node.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Name)
    }

    def strings_in(node: ast.expr, depth: int = 0) -> Iterator[ast.Constant]:
        """The string literals of which a list is made, through names and `+`."""
        if isinstance(node, ast.Constant):
            yield node
        elif isinstance(node, ast.Name) and node.id in assigned and depth < 10:
            yield from strings_in(assigned[node.id], depth + 1)
        elif isinstance(node, (ast.List, ast.Tuple)):
            for element in node.elts:
                yield from strings_in(element, depth)
        elif isinstance(node, ast.Starred):
            yield from strings_in(node.value, depth)
        elif isinstance(node, ast.BinOp):
            yield from strings_in(node.left, depth)
            yield from strings_in(node.right, depth)
        elif isinstance(node, ast.Dict):
            for value in node.values:
                yield from strings_in(value, depth)

    for call in ast.walk(tree):
        if isinstance(call, ast.Call):
            for keyword in call.keywords:
                if keyword.arg in ("install_requires", "extras_require"):
                    for literal in strings_in(keyword.value):
                        where = f"{name}:{literal.lineno}"
                        yield from _mentions_of([literal.value], where, keyword.arg == "extras_require")


def _read_main_requirements(path: str, base: str) -> Iterator[Mention]:
    return _read_requirements(path, base, False, {path})


def _read_other_requirements(path: str, base: str) -> Iterator[Mention]:
    return _read_requirements(path, base, True, {path})


def _read_requirements(path: str, base: str, optional: bool, seen: set[str]) -> Iterator[Mention]:
    """The mentions in a pip requirements file and in those that it includes; `seen` holds the paths already read."""
    name = path_from(base, path)
    for row, line in _joined_lines(_read_text(path)):
        include = re.match(r"(?:-r|--requirement)(?:\s+|=|(?<=-r))([^\s#]+)", line)
        if include:
            included = os.path.normpath(os.path.join(os.path.dirname(path), include[1]))
            if included not in seen and os.path.isfile(included):
                seen.add(included)
                yield from _read_requirements(included, base, optional, seen)
        else:
            yield from _mentions_of([line], f"{name}:{row}", optional)


def _joined_lines(text: str) -> Iterator[tuple[int, str]]:
    """Rows from 1 and lines, where a line that ends in a backslash goes on in the next one."""
    start, held = 1, ""
    for row, line in enumerate(text.splitlines(), 1):
        if not held:
            start = row
        held += line.strip()
        if held.endswith("\\"):
            held = held[:-1].rstrip() + " "
        else:
            yield start, held
            held = ""
    yield start, held


def _read_environment(path: str, base: str) -> Iterator[Mention]:
    """The mentions in a conda environment: the items below `dependencies:`, those of its `pip:` list among them."""
    text = _read_if_about_torch(path)
    name = path_from(base, path)
    key = ""
    for row, line in enumerate(text.splitlines(), 1):
        item = re.match(r"\s*-\s+(.*)", line)
        if item is None and line[:1].strip() not in ("", "#"):
            key = line.split(":")[0].strip()
        elif item and key == "dependencies":
            yield from _mentions_of([re.sub(r"\s#.*", "", item[1]).strip("\"' \t")], f"{name}:{row}")


_Reader = Callable[[str, str], Iterator[Mention]]
"""Reads a file, given by its path and the directory from which it is named in sources."""

_READERS: tuple[tuple[_Reader, tuple[str, ...]], ...] = (
    (_read_pyproject, ("pyproject.toml",)),
    (_read_setup_cfg, ("setup.cfg",)),
    (_read_setup_py, ("setup.py",)),
    (_read_main_requirements, ("requirements.txt",)),
    (_read_other_requirements, ()),
    (_read_environment, ("environment.yml", "environment.yaml")),
)
