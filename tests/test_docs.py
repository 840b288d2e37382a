"""The published pages are those that the rules give today, and what the docs name exists."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"


def made() -> dict[str, str]:
    """What docs/make.py would write."""
    spec = importlib.util.spec_from_file_location("make", DOCS / "make.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    pages: dict[str, str] = module.pages()
    return pages


def test_rule_pages_are_up_to_date() -> None:
    written = {path.name: path.read_text(encoding="utf-8") for path in (DOCS / "rules").glob("*.md")}
    assert written == made(), "run `python docs/make.py`"


LINK = re.compile(r"\]\((?!https?://|#)([^)#]+)")


@pytest.mark.parametrize(
    "path", sorted([*ROOT.glob("*.md"), *DOCS.rglob("*.md")]), ids=lambda path: str(path.relative_to(ROOT))
)
def test_links_lead_somewhere(path: Path) -> None:
    targets = LINK.findall(path.read_text(encoding="utf-8"))
    assert [target for target in targets if not (path.parent / target).exists()] == []
