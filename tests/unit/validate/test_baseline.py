"""What a baseline has and lacks."""

from __future__ import annotations

import json
import re

import pytest

from lumisite.validate.samples import read_lines
from lumisite.validate.verdict.baseline import baseline_size

DAY_S = 86_400


def samples(jobs: list[tuple[int, str]], image: str = "one") -> bytes:
    """One metric; each job is a day and its nodes."""
    rows = [
        {
            "metric": "m",
            "value": 1.0,
            "better": "higher",
            "run": f"r{number}",
            "nodes": nodes.split(),
            "time": day * DAY_S,
        }
        | {"image": image}
        for number, (day, nodes) in enumerate(jobs)
    ]
    return b"".join(json.dumps(row).encode() + b"\n" for row in rows)


WHOLE = [(day, nodes) for day in range(3) for nodes in ("a b", "c d")] * 2


def size(*lines: bytes, days: int = 3) -> tuple[str, tuple[int, ...]]:
    """The finding's code, and the jobs, days and node sets that it counts."""
    found = baseline_size(read_lines([("f", [b"".join(lines)])]), days)
    assert bool(found.advice) == (found.code == "baseline-poor")
    return found.code, tuple(map(int, re.findall(r"(\d+) of ", found.message)))


@pytest.mark.parametrize(
    ("jobs", "code", "has"),
    [
        (WHOLE, "baseline-size", (12, 3, 2)),
        (WHOLE[:6], "baseline-poor", (6, 3, 2)),
        ([(0, "a b")] * 10, "baseline-poor", (10, 1, 1)),
        ([(day, nodes) for day in range(3) for nodes in ("a b", "b c", "a c", "a d b")], "baseline-poor", (12, 3, 1)),
        # The first shares a node with each of the others, which share none.
        ([(day, nodes) for day in range(3) for nodes in ("b c", "a b", "c d")] * 2, "baseline-size", (18, 3, 2)),
    ],
)  # fmt: skip
def test_it_has_jobs_days_and_node_sets(jobs: list[tuple[int, str]], code: str, has: tuple[int, int, int]) -> None:
    assert size(samples(jobs)) == (code, has)


def test_the_metric_that_fewest_jobs_have_counts() -> None:
    rare = samples(WHOLE[:1]).replace(b'"metric": "m"', b'"metric": "rare"')
    assert size(samples(WHOLE), rare) == ("baseline-poor", (1, 1, 1))


def test_what_is_measured_on_each_node_needs_one_set() -> None:
    ring = samples([(0, "a b")] * 10) + samples([(0, "b c")] * 10) + samples([(0, "a c")] * 10)
    assert size(ring, days=1) == ("baseline-size", (10, 1, 1))
