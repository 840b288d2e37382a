"""`amplint` and `python -m amplint`."""

from __future__ import annotations

import sys


def main() -> None:
    """Run the command line and exit; `--version` is answered at once, without the import of anything else."""
    if sys.argv[1:] == ["--version"]:
        from amplint._version import VERSION

        print(f"amplint {VERSION}")
        return
    from amplint.cli import main as run

    sys.exit(run())


if __name__ == "__main__":
    main()
