"""`python -m tests.bench [NAME …]`: run the benchmarks (or those named), print the table, fail when a limit is broken."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

from tests.bench.measure import Row, table


def main(wanted: list[str]) -> int:
    """Run `bench_*.py` beside this file, each of which has a `run() -> list[Row]`."""
    names = sorted(path.stem for path in Path(__file__).parent.glob("bench_*.py"))
    chosen = [name for name in names if not wanted or name.removeprefix("bench_") in wanted]
    if not chosen:
        print(f"no benchmark of that name (have {', '.join(n.removeprefix('bench_') for n in names)})", file=sys.stderr)
        return 2
    rows: list[Row] = []
    for name in chosen:
        print(f"{name} ...", file=sys.stderr)
        rows += importlib.import_module(f"tests.bench.{name}").run()
    print(table(rows))
    return 0 if all(row.holds for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
