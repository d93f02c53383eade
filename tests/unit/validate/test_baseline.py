"""What a baseline has and lacks."""

from __future__ import annotations

import json

import pytest

from lumisite.validate.samples import read_lines
from lumisite.validate.verdict.baseline import has_and_lacks

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


@pytest.mark.parametrize(
    ("jobs", "has", "lacks"),
    [
        (WHOLE, "12 jobs, 3 days, 2 node sets", ""),
        (WHOLE[:6], "6 jobs, 3 days, 2 node sets", "4 jobs more"),
        ([(0, "a b")] * 10, "10 jobs, 1 day, 1 node set", "2 days more, 1 node set more"),
        (
            [(day, nodes) for day in range(3) for nodes in ("a b", "b c", "a c", "a d b")],
            "12 jobs, 3 days, 1 node set",
            "1 node set more",
        ),
        # The first shares a node with each of the others, which share none.
        ([(day, nodes) for day in range(3) for nodes in ("b c", "a b", "c d")] * 2, "18 jobs, 3 days, 2 node sets", ""),
    ],
)
def test_it_is_told_in_jobs_days_and_node_sets(jobs: list[tuple[int, str]], has: str, lacks: str) -> None:
    assert has_and_lacks(read_lines([("f", [samples(jobs)])])) == (has, lacks)


def test_the_metric_that_fewest_jobs_have_counts() -> None:
    rare = samples(WHOLE[:1]).replace(b'"metric": "m"', b'"metric": "rare"')
    assert has_and_lacks(read_lines([("f", [samples(WHOLE) + rare])]))[0] == "1 job, 1 day, 1 node set"


def test_a_site_may_be_content_with_fewer_days() -> None:
    told = has_and_lacks(read_lines([("f", [samples([(0, "a b"), (0, "c d")] * 5)])]), 1)
    assert told == ("10 jobs, 1 day, 2 node sets", "")


def test_what_is_measured_on_each_node_needs_one_set() -> None:
    ring = samples([(0, "a b")] * 10) + samples([(0, "b c")] * 10) + samples([(0, "a c")] * 10)
    assert has_and_lacks(read_lines([("f", [ring])]), 1) == ("10 jobs, 1 day, 1 node set", "")


def test_nothing_is_no_baseline() -> None:
    assert has_and_lacks(read_lines([("f", [])])) == ("no samples", "10 jobs")
