"""How often `verdict` is wrong, and what it finds: not speed, but as slow as a benchmark. The seeds are fixed."""

from __future__ import annotations

from tests.bench.measure import Row
from tests.simulation import TWELVE, World, rate

GOOD, SLOW = 20_000, 4_000


def run() -> list[Row]:
    """Measure everything of this module."""
    rows = []
    for c, limit in ((0.01, 0.1), (0.02, 0.2), (0.03, 1.0), (0.05, 1.0)):
        alarms = 100 * rate("fail", [World(c)], GOOD, f"quiet {c}")
        rows.append(Row(f"false alarms at {c:.0%} noise", alarms, limit, f"{GOOD:,} good maintenances", unit="%"))
    for c, drop, least in ((0.01, 0.10, 95), (0.02, 0.10, 95), (0.02, 0.08, 80), (0.03, 0.15, 95), (0.05, 0.20, 85)):
        found = 100 * rate("fail", [World(c, drop)], SLOW, f"slow {c} {drop}")
        name = f"drop of {drop:.0%} found at {c:.0%} noise"
        rows.append(Row(name, found, least, f"{SLOW:,} slow maintenances", unit="%", at_least=True))
    any_alarm = 100 * rate("fail", [World(c) for c in TWELVE], SLOW, "twelve")
    rows.append(Row("any false alarm of 12 metrics", any_alarm, 1.0, "6 at 1 %, 4 at 2 %, 2 at 3 % noise", unit="%"))
    for before, least in ((10, 85), (20, 95)):
        found = 100 * rate("fail", [World(0.01, 0.10, strays=0.05, before=before)], SLOW, f"strays {before}")
        name = f"10 % found, {before} jobs before, 5 % of them stray"
        rows.append(Row(name, found, least, "strays are 30 % slow", unit="%", at_least=True))
    return rows
