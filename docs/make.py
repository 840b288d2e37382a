"""Write docs/rules/ from the rules: run `python docs/make.py` after a rule's docstring changed."""

from __future__ import annotations

from pathlib import Path

from amplint.pages import index, page
from amplint.rule import all_rules

RULES = Path(__file__).parent / "rules"


def pages() -> dict[str, str]:
    """The text of every file under docs/rules/ by its name."""
    rules = list(all_rules().values())
    made = {f"{rule.code}-{rule.name}.md": page(rule) for rule in rules}
    return {"README.md": index(rules), **made}


def main() -> None:
    """Bring docs/rules/ up to date; files of rules that are gone are removed."""
    RULES.mkdir(exist_ok=True)
    made = pages()
    for stale in RULES.glob("*.md"):
        if stale.name not in made:
            stale.unlink()
    for name, text in made.items():
        (RULES / name).write_text(text, encoding="utf-8", newline="\n")


if __name__ == "__main__":
    main()
