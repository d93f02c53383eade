"""How many jobs, days and node sets a verdict takes; docs/explanation/verdict.md has the reasons."""

from __future__ import annotations

#: Jobs after the change that decide, and as many later ones that confirm.
FIRST_AFTER = 5
#: Fewer jobs than these decide nothing.
LEAST_AFTER = 3
LEAST_BEFORE = 4
#: Jobs before the change that are recommended.
GOOD_BEFORE = 10
#: Node sets of which no two share a node.
NODE_SETS = 2
