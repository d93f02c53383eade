"""Arguments to calls; the only place that prints or exits."""

from __future__ import annotations

import sys
from collections.abc import Sequence


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code."""
    print("not yet", file=sys.stderr)
    return 2


def run() -> None:
    """Be the console entry point."""
    sys.exit(main())
