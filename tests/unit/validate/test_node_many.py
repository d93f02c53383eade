"""Judging what nodes are takes time that grows as the number of nodes does."""

from __future__ import annotations

import time

import pytest

from tests.support.records import a_job
from tests.unit.validate.test_node_judge import healthy, lines

LIBRARIES = {f"/opt/cray/lib/lib{number}.so": {"is": "efrs"} for number in range(100)}


def seconds(nodes: int) -> float:
    job = a_job(tuple(f"n{number}" for number in range(1, nodes + 1)), 1, "node")
    records = [{**record, "paths": {**record["paths"], **LIBRARIES}} for record in map(healthy, job.nodes)]
    start = time.process_time()
    lines(records, job)
    return time.process_time() - start


def test_four_times_as_many_nodes_take_four_times_as_long() -> None:
    few = seconds(100)
    assert seconds(400) < 4 * 2 * few + 0.3  # a square takes sixteen times as long


@pytest.mark.parametrize(
    ("part", "value"),
    [
        ("resources", ["", "memlock ² ²", f"nofile {'9' * 5000}"]),
        ("facts", {"cpu_limit_khz": "²"}),
        ("facts", {"cpu_allowed": "9" * 5000}),
        ("started", 10**400),
        ("interfaces", {f"hsn{each}": {"state": "up", "speed": "²", "mtu": "9" * 5000} for each in range(4)}),
    ],
)
def test_what_is_no_number_is_none(part: str, value: object) -> None:
    job = a_job(("n1", "n2"), 1, "node")
    records = [healthy(name) for name in job.nodes]
    records[1][part] = value
    assert lines(records, job)
