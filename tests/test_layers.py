"""The arrows of the architecture: who may import whom."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
MODULES = sorted([*(ROOT / "amplint").rglob("*.py"), *(ROOT / "rules").rglob("*.py")])

# For each room, the rooms of ours that it may import. What isn't listed here may import anything below `cli`.
MAY_IMPORT: dict[str, set[str]] = {
    "amplint._version": set(),
    "amplint.model": set(),
    "amplint.torch_api": set(),
    "amplint.scopes": set(),
    "amplint.names": {"amplint.scopes"},
    "amplint.flow.protocol": {"amplint.model"},
    "amplint.flow.ir": {"amplint.model"},
    "amplint.edits": {"amplint.model"},
    "amplint.calls.signatures": {"amplint.model", "amplint.torch_api", "amplint.source", "amplint.names"},
}
NEVER = {"libcst.matchers", "libcst.codemod"}
ABOVE_THE_RULES = {"amplint.cli", "amplint.run", "amplint.check", "amplint.cache", "amplint.discover", "amplint.report"}


def name_of(path: Path) -> str:
    """The dotted name of a module."""
    parts = path.relative_to(ROOT).with_suffix("").parts
    dotted = ".".join(parts).removesuffix(".__init__")
    return dotted if parts[0] == "amplint" else f"amplint.{dotted}"


KNOWN = {name_of(path) for path in MODULES}


def imports(path: Path) -> set[str]:
    """The modules that a module imports, those for type checking only left out."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            node.body = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            names = {f"{node.module}.{alias.name}" for alias in node.names}
            found.update({node.module} | (names & KNOWN))
    return found


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_arrows_point_down(path: Path) -> None:
    name, found = name_of(path), imports(path)
    assert not found & NEVER
    ours = {module for module in found if module.startswith("amplint.")}
    if name in MAY_IMPORT:
        assert ours <= MAY_IMPORT[name]
    if name.startswith(("amplint.rules.", "amplint.flow.")):
        above = {module for module in ours if ".".join(module.split(".")[:2]) in ABOVE_THE_RULES}
        assert above == set()
    if not name.startswith("amplint.rules"):
        assert not {module for module in found if module.startswith("amplint.rules.")}
    if not name.startswith("amplint.runtime"):
        assert not {module for module in found if module.split(".")[0] == "torch"}


def test_only_the_frontend_of_newer_syntax_imports_libcst() -> None:
    users = {name_of(path) for path in MODULES if any(m.split(".")[0] == "libcst" for m in imports(path))}
    assert users == {"amplint.newer_syntax"}


def test_no_file_has_grown_past_one_job() -> None:
    sizes = {name_of(path): len(path.read_text(encoding="utf-8").splitlines()) for path in MODULES}
    assert {name: size for name, size in sizes.items() if size > 450} == {}
