"""From plain FP32 training code to automatic mixed precision: find loops, plan, refuse or rewrite.

`migrate_source` is a pure function; the rules AMP901 and AMP902 and the command `amplint migrate` stand on it.
"""

from __future__ import annotations

from amplint.migrate.migration import migrate_source
from amplint.migrate.model import LoopReport, MigrationResult, Options

__all__ = ["LoopReport", "MigrationResult", "Options", "migrate_source"]
